"""A finished run's folder as a kernel that can stand for the original. Imports torch."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from torch import nn
from torch.utils import _pytree as pytree

from tritonsmith.evaluator.cards.cards import CARDS
from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.reads.worlds import visit_worlds
from tritonsmith.evaluator.reference.module import load_reference
from tritonsmith.evaluator.schema import SizeScore, Task, TensorSpec
from tritonsmith.evaluator.tasks.declarations import Shape
from tritonsmith.evaluator.tasks.files import at_shape, declared_shapes, load_task
from tritonsmith.graph.runs.manifest import read_manifest
from tritonsmith.graph.storage.header import describe_proof, describe_scores
from tritonsmith.graph.storage.outcome import RunOutcome
from tritonsmith.graph.storage.sizes import is_left_to_original
from tritonsmith.graph.storage.summary import SUMMARY, Summary
from tritonsmith.modules.bringing.structure import SIGNATURE, Signature
from tritonsmith.modules.dropin.runtime.form import Form, list_leaves
from tritonsmith.modules.dropin.runtime.kernel import Kernel, describe_config
from tritonsmith.modules.dropin.runtime.proof import Case, Extent, Proof, TensorCase

BEST = "best.py"
WEIGHTS = "weights.pt"


@visit_worlds()
def read_kernel(original: nn.Module, folder: Path, task: Path) -> Kernel:
    """The winner of a run as a kernel for a module.

    Args:
        original: the module that the run was about, or one that is made alike.
        folder: of the run.
        task: the task's file, or its folder as `bring` writes one.

    Raises:
        UsageError: one sentence: the run has no kernel, or its files cannot be read.
    """
    summary = read_summary(folder)
    if summary.outcome is RunOutcome.KEPT:
        raise UsageError(f"{folder}: no kernel is the result, so there is no drop-in; {summary.answer}")
    if summary.winner is None:
        raise UsageError(f"{folder}: the run has no kernel, so there is no drop-in; {summary.answer}")
    if not (folder / BEST).is_file():
        raise UsageError(f"{folder} has no {BEST}; name the folder of a finished run")
    facts = summary.task_facts
    path = task / "task.py" if task.is_dir() else task
    signature = Signature.read(path.parent) if (path.parent / SIGNATURE).is_file() else None
    loaded = load_task(path, **_read_settings(folder))
    cases = list_cases(loaded, facts, judged_elsewhere=_was_right_elsewhere(summary), scores=summary.winner.verdict.sizes)
    if signature is None:
        values = load_reference(loaded).draw_inputs(0)
        form = form_of_values(original, values)
        state = {name: name for name in original.state_dict(keep_vars=True)}
        constants: dict[str, torch.Tensor] = {}
    else:
        form, cases = (
            form_of_signature(original, signature),
            [_place_tensors(case, signature) for case in cases],
        )
        state = {name: place for name, place in signature.state.items() if place is not None}
        kept = (
            torch.load(path.parent / WEIGHTS, map_location="cpu", weights_only=True)
            if (path.parent / WEIGHTS).is_file()
            else {}
        )
        constants = {
            name: kept[name] for name, place in signature.state.items() if place is None and name in kept
        }
    return Kernel(
        name=type(original).__name__, text=(folder / BEST).read_text(encoding="utf-8"), arguments=_read_arguments(loaded, facts), form=form,
        proof=_write_proof(summary, cases), state=state, constants=constants, config=describe_config(original),
    )  # fmt: skip


def read_summary(folder: Path) -> Summary:
    """What a run says of itself. Raises UsageError."""
    try:
        return Summary.model_validate_json((folder / SUMMARY).read_text(encoding="utf-8"))
    except (OSError, ValidationError) as error:
        raise UsageError(
            f"{folder} is no folder of a finished run: {SUMMARY} cannot be read ({type(error).__name__})"
        ) from None


def _read_settings(folder: Path) -> dict[str, Any]:
    """Size and mode of the task in a run. Raises UsageError."""
    settings = read_manifest(folder).config(folder)
    return {"size": settings.size or "full", "overrides": settings.overrides, "mode": settings.mode, "backward": settings.backward}


def _was_right_elsewhere(summary: Summary) -> bool:
    """Whether the winner was judged at other sizes that the task allows, and was right there."""
    audits = summary.winner.verdict.environment.get("audit", {}) if summary.winner else {}
    return str(audits.get("other sizes", "")).startswith("right")


def _write_proof(summary: Summary, cases: Sequence[Case]) -> Proof:
    assert summary.winner is not None
    facts, verdict = summary.task_facts, summary.winner.verdict
    card = next((card for card in CARDS.values() if card.name == summary.target), None)
    words = describe_proof(
        verdict, facts, precision=summary.precision, mode=summary.mode, target=summary.target, backward=summary.backward
    )
    words += describe_scores(summary.sizes)
    return Proof(
        cases=tuple(cases), capability=str(card.capability) if card else "", training=summary.mode == "train",
        by_mode=tuple(facts.get("by_mode") or ()), updates=tuple(facts.get("updates") or ()), precision=summary.precision,
        backward=summary.backward, words=tuple(words),
    )  # fmt: skip


def _read_arguments(task: Task, facts: Mapping[str, Any]) -> tuple[Any, ...]:
    """Arguments of ModelNew's constructor: as the summary writes them, or from the task."""
    written = facts.get("init_inputs")
    if written is not None and all(written):
        return tuple(ast.literal_eval(value) for value in written)
    return tuple(load_reference(task).init_inputs())


# ---- sizes


def list_cases(
    task: Task, facts: Mapping[str, Any], *, judged_elsewhere: bool, scores: Sequence[SizeScore] = ()
) -> list[Case]:
    """The inputs that a kernel is proven for: those of the task, and those of the sizes that it declares where these were tried.

    A single size at which `scores` says that the kernel is slower than the module is left to the original.
    """
    slow = {score.entry for score in scores if is_left_to_original(score, declared_shapes(task)[score.entry])}
    own = Case(
        tuple(
            _case_of_spec(TensorSpec.model_validate(spec))
            for spec in facts.get("inputs") or ()
            if spec is not None
        )
    )
    cases = [own]
    for number, shape in enumerate(declared_shapes(task)) if judged_elsewhere else ():
        if number in slow:
            continue
        case = fit_case(task, shape, own)
        if case is not None and case not in cases:
            cases.append(case)
    wider = [case for case in cases[1:] if _covers(case, own)]
    return cases[1:] if wider else cases


def _covers(case: Case, own: Case) -> bool:
    """Whether the task's own inputs are within another case."""
    shapes = [[part for part in known.shape if isinstance(part, int)] if known else [] for known in own.tensors]
    types = [getattr(torch, known.dtype) if known else torch.float32 for known in own.tensors]
    made = [torch.empty(shape, dtype=kind, device="meta") for shape, kind in zip(shapes, types, strict=True)]
    strided = any(known is not None and known.strides is not None for known in own.tensors)
    return not strided and Proof((case,)).covers(made)


def _case_of_spec(spec: TensorSpec) -> TensorCase:
    return TensorCase(spec.dtype, tuple(spec.shape), tuple(spec.strides) if spec.strides else None)


def fit_case(task: Task, shape: Shape, own: Case) -> Case | None:
    """The inputs at a declared size or range of sizes; None where their shapes do not follow the sizes one by one."""
    spans = {
        name: value
        for name, value in shape.items()
        if isinstance(value, tuple) and len(value) == 2 and value[0] < value[1]
    }
    fixed = {name: value[0] if isinstance(value, tuple) else value for name, value in shape.items()}
    low = _draw_shapes(task, fixed)
    if len(low) != len(own.tensors):
        return None
    extents: list[list[Extent]] = [list(dims) for dims in low]
    for name, (first, last) in spans.items():
        high = _draw_shapes(task, {**fixed, name: last})
        for tensor, (before, after) in enumerate(zip(low, high, strict=True)):
            if len(before) != len(after):
                return None
            for axis, (short, long) in enumerate(zip(before, after, strict=True)):
                factor, rest = divmod(long - short, last - first)
                if rest or (factor and not isinstance(extents[tensor][axis], int)):
                    return None
                if factor:
                    extents[tensor][axis] = (name, factor, short - factor * first)
    tensors = tuple(
        known and TensorCase(known.dtype, tuple(dims), None if known.strides is None else known.strides)
        for known, dims in zip(own.tensors, extents, strict=True)
    )
    if any(known is not None and known.strides is not None for known in tensors):
        return None  # strides of other sizes are not known
    return Case(tensors, {name: (first, last) for name, (first, last) in spans.items()})


def _draw_shapes(task: Task, sizes: Mapping[str, Any]) -> list[tuple[int, ...]]:
    """Shapes of the inputs at a size, without memory for them where the task allows that."""
    reference = load_reference(at_shape(task, dict(sizes)))
    try:
        with torch.device("meta"):
            values = reference.module.get_inputs()
    except Exception:  # noqa: BLE001 - some draws need values: they are made on the CPU
        values = reference.draw_inputs(0)
    return [tuple(value.shape) for value in values if isinstance(value, torch.Tensor)]


# ---- calls


def form_of_values(original: nn.Module, values: Sequence[Any]) -> Form:
    """The form of a call with these arguments by position; what comes back is seen from one call."""
    parameters, defaults = _read_parameters(original)
    given = tuple(
        parameters[place] if place < len(parameters) else f"*{place - len(parameters)}"
        for place in range(len(values))
    )
    constants = {number: value for number, value in enumerate(values) if not isinstance(value, torch.Tensor)}
    device = next(
        (value.device for value in (*original.parameters(), *original.buffers())), torch.device("cpu")
    )
    kept = {name: value.clone() for name, value in original.named_buffers()}
    with torch.no_grad():
        result = original(
            *(value.to(device) if isinstance(value, torch.Tensor) else value for value in values)
        )
        for name, value in original.named_buffers():
            value.copy_(kept[name])
    leaves, spec = pytree.tree_flatten(result)
    numbered = pytree.tree_unflatten(list(range(len(leaves))), spec)
    tensors = [number for number in list_leaves(numbered) if isinstance(leaves[number], torch.Tensor)]
    places = {number: place for place, number in enumerate(tensors)}
    return Form(
        parameters=parameters, given=given, positional=len(values), specs=(None,) * len(values), arguments=tuple(range(len(values))),
        constants=constants, defaults=defaults, result=None if isinstance(result, torch.Tensor) else spec,
        outputs=tuple(places.get(number) for number in range(len(leaves))),
        plain_outputs={number: leaf for number, leaf in enumerate(leaves) if not isinstance(leaf, torch.Tensor)},
    )  # fmt: skip


def form_of_signature(original: nn.Module, signature: Signature) -> Form:
    """The form of the call that a module was brought in with."""
    parameters, defaults = _read_parameters(original)
    args, kwargs = signature.in_spec.children()
    positions = tuple(
        parameters[place] if place < len(parameters) else f"*{place - len(parameters)}"
        for place in range(len(args.children()))
    )
    specs = tuple(None if spec.is_leaf() else spec for spec in (*args.children(), *kwargs.children()))
    unread = _list_unread(signature)
    return Form(
        parameters=parameters, given=(*positions, *kwargs.context), positional=len(positions), specs=specs,
        arguments=tuple(signature.inputs),
        constants={number: value for number, value in signature.constants.items() if number not in unread}, defaults=defaults,
        result=None if signature.out_spec.is_leaf() else signature.out_spec, outputs=tuple(signature.outputs),
        plain_outputs=dict(signature.plain_outputs),
    )  # fmt: skip


def _list_unread(signature: Signature) -> set[int]:
    """Leaves of the call that are tensors which forward does not read."""
    return {number for number, value in signature.constants.items() if type(value).__name__ == "_Unread"}


def _place_tensors(case: Case, signature: Signature) -> Case:
    """A case of the task's inputs as one of the tensors of the module's call."""
    unread = _list_unread(signature)
    by_leaf: dict[int, TensorCase | None] = dict(
        zip(signature.inputs, case.tensors, strict=True)
    ) | dict.fromkeys(unread)
    return Case(tuple(by_leaf[leaf] for leaf in sorted(by_leaf)), case.ranges)


def _read_parameters(original: nn.Module) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Names of forward's parameters that may be given by position, and plain defaults of all."""
    parameters = inspect.signature(original.forward).parameters.values()
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    plain = (bool, int, float, str, type(None))
    return (
        tuple(parameter.name for parameter in parameters if parameter.kind in positional),
        {
            parameter.name: parameter.default
            for parameter in parameters
            if isinstance(parameter.default, plain)
        },
    )
