"""Facts and operator trace of a task's reference. Imports torch; runs the user's own task file.

Shapes and counts come from fake tensors, which compute nothing. Where a model needs values, the forward runs for real, within bounds.
"""

from __future__ import annotations

import ast
import contextlib
import math
import time
from collections import Counter
from collections.abc import Iterable
from typing import Any, TypeAlias

import torch
from torch import nn

from tritonsmith.evaluator.errors import TaskError
from tritonsmith.evaluator.reads.worlds import report_reads
from tritonsmith.evaluator.records.operator_cost import OperatorCost, TraceWay
from tritonsmith.evaluator.reference.calls import ExecutedForward, execute_forward
from tritonsmith.evaluator.reference.choose_size import choose_size
from tritonsmith.evaluator.reference.forward import leaf_modules, trace_forward
from tritonsmith.evaluator.reference.gradients import DifferentiatedReference
from tritonsmith.evaluator.reference.module import Reference, flatten, list_tensors, load_reference
from tritonsmith.evaluator.reference.nodes import list_specs
from tritonsmith.evaluator.reference.reads import ReadWatch
from tritonsmith.evaluator.reference.shapes import describe_shapes
from tritonsmith.evaluator.reference.stand_in import StandIn, available_bytes, is_out_of_memory, limit_memory, make_stand_in
from tritonsmith.evaluator.reference.tables import find_tables
from tritonsmith.evaluator.reference.trace import record_costs, tensor_bytes, trace_operators
from tritonsmith.evaluator.reference.updates import find_updates, list_by_mode
from tritonsmith.evaluator.reference.watch import ForwardWatch, find_class, require_fixed_shapes, require_no_chance, run_watched
from tritonsmith.evaluator.schema import FIT, OpNode, Task, TaskFacts
from tritonsmith.evaluator.tasks.files import at_chosen_size, at_meant_size

_SEED = 0
_MOST_FLOPS = 2e9
"""Operations of a forward that is run for real, which then takes about a second; an oracle runs larger ones on its card."""
_MOST_BYTES = 1e9
"""What such a forward moves at most."""
_MEMORY_SHARE = 0.5
"""Of the memory that is free, for a forward that needs values."""
_REAL_SECONDS = 60.0
"""For such a forward, half of what the caller waits."""
_MOST_NODES = 4000
"""Nodes that facts hold; they are kept with every step of a run."""
_MESSAGE_CHARACTERS = 200

Description: TypeAlias = tuple[TaskFacts, list[OperatorCost]]
"""What a reference is, and what each of its operators costs."""
_UNUSED: dict[str, Any] = {"args": (), "kwargs": {}, "outputs": (), "constructor": None}
"""Of a node that is only counted."""
_LITERAL_CHARACTERS = 200
"""Longer arguments of a constructor are not written out."""


def write_literal(value: Any) -> str:
    """A value as Python writes it; empty for one that Python cannot read back, such as a tensor, or that is too long to write."""
    text = repr(value)
    with contextlib.suppress(ValueError, SyntaxError):
        if len(text) <= _LITERAL_CHARACTERS and ast.literal_eval(text) == value:
            return text
    return ""


def probe(task: Task) -> Description:
    """Facts and operator trace of a task's reference, at a size of its choice where it is asked to choose. Raises TaskError."""
    chosen = choose_size(task) if task.size == FIT else None
    task = at_chosen_size(task, chosen)
    facts, costs = _describe_size(task, _REAL_SECONDS, checked=chosen is None)
    others = describe_shapes(task, lambda other, seconds: _describe_size(other, seconds)[0])
    full = _describe_meant(task) if task.meant is not None else None
    return facts.model_copy(update={"chosen": chosen, "other_shapes": others, "full": full, "reads": report_reads()}), costs


def _describe_meant(task: Task) -> TaskFacts | None:
    """What prompts tell of the size that kernels are for, from tensors without values; None where forward needs values."""
    reference = load_reference(at_meant_size(task))
    try:
        stand_in = make_stand_in(reference, _SEED)
        with stand_in.mode:
            facts, _ = _describe(reference, stand_in.model, stand_in.inputs)
    except Exception:  # noqa: BLE001 - it may need more memory, or values; at the size that is judged the reference runs
        return None
    return facts.model_copy(update={"ops": tuple(node.model_copy(update=_UNUSED) for node in facts.ops if node.launches)})


def _describe_size(task: Task, seconds: float, *, checked: bool = False) -> Description:
    """Facts and operator trace at one size. Raises TaskError.

    Args:
        task: at that size.
        seconds: for a forward that needs values.
        checked: whether a small forward is also run with values, as fake tensors do not show all that is wrong with one.
    """
    reference = load_reference(task)
    stand_in = make_stand_in(reference, _SEED)
    try:
        with stand_in.mode:
            facts, costs = _describe(reference, stand_in.model, stand_in.inputs)
    except Exception as error:  # noqa: BLE001 - fake tensors refuse what needs values; the real run below shows a fault of the task
        facts, costs = _describe_for_real(reference, stand_in, error, seconds)
    else:
        if checked and facts.flops <= _MOST_FLOPS and sum(cost.bytes for cost in costs) <= _MOST_BYTES:
            # fake tensors accept some calls that fail, and show no other results of a second call
            run_watched(reference, reference.build(_SEED), reference.draw_inputs(_SEED))
    if task.backward:
        costs = _trace_gradients(reference, seconds)
    return facts.model_copy(update={"tables": find_tables(reference, stand_in.model)}), costs


def _trace_gradients(reference: Reference, seconds: float) -> list[OperatorCost]:
    """What each operator of forward and backward costs; none where that cannot be had without a card. Raises TaskError."""
    judged = DifferentiatedReference(reference)
    try:
        stand_in = make_stand_in(judged, _SEED)
        with stand_in.mode:
            return trace_operators(stand_in.model, stand_in.inputs).costs
    except TaskError as error:
        if not isinstance(error.__cause__, RuntimeError | NotImplementedError | TypeError):
            raise
    except Exception:  # noqa: BLE001, S110 - it needs values: then it runs for real
        pass
    judged = DifferentiatedReference(reference)
    room = available_bytes() * _MEMORY_SHARE
    try:
        with limit_memory(room):
            model, inputs = judged.build(_SEED), judged.draw_inputs(_SEED)
            with record_costs(model, time.monotonic() + seconds) as costs:
                model(*inputs)
            return costs.costs
    except TaskError as error:
        if isinstance(error.__cause__, TimeoutError) or is_out_of_memory(error.__cause__):
            return []
        raise
    except (TimeoutError, MemoryError):
        return []


def _describe(reference: Reference, model: nn.Module, inputs: list[Any], deadline: float = math.inf) -> Description:
    still = _describe_still(reference, model, inputs)
    runs: list[ExecutedForward] = []
    watch, reads = ForwardWatch(), list[ReadWatch]()

    def forward() -> Any:
        reads.append(ReadWatch([*list_tensors(inputs), *_storages(model)]))
        with watch, reads[-1]:
            runs.append(execute_forward(model, inputs, reference.task.path, deadline))
        return runs[0].output

    output, updates = find_updates(model, lambda: reference.check_output(forward))
    require_no_chance(reference, model, watch)
    reference.require_elements(flatten(output))
    if math.isfinite(deadline):  # on real tensors; others have no values to go by
        require_fixed_shapes(reference, model, watch, flatten(output))
    (run,) = runs
    ops, error = trace_forward(model, inputs, run, reference.task.path, deadline)
    way = TraceWay.FX if ops else TraceWay.RUN
    ops = ops or run.ops
    left_out = max(0, len(ops) - _MOST_NODES)
    hides = any(isinstance(module, nn.RNNBase | nn.RNNCellBase) for module in model.modules())  # they are counted by formula
    facts = still.model_copy(update={
        "outputs": list_specs(flatten(output)),
        "returns": describe_return(output, ops),
        "updates": tuple(updates) if model.training else (),
        "precision": find_class(inputs, model.state_dict().values(), flatten(output), watch),
        "ops": (*ops[: _MOST_NODES - 1], ops[-1]) if left_out else ops,
        "ops_left_out": left_out,
        "traced_by": way,
        "trace_error": run.refusal or error,
        "size_lines": run.size_lines if way is TraceWay.RUN else (),
        "value_lines": run.value_lines if way is TraceWay.RUN else (),
        "flops": sum(cost.flops for cost in run.costs),
        "min_bytes": reads[-1].count(unseen=hides) + _total_bytes(flatten(output)),
        "reference_launches": sum(cost.launches for cost in run.costs),
        "serial_steps": run.serial_steps,
        "shortest_chain": run.shortest_chain,
    })  # fmt: skip
    return facts, run.costs


def _describe_still(reference: Reference, model: nn.Module, inputs: list[Any]) -> TaskFacts:
    """What is known before forward runs."""
    kept = {name: value for name, value in model.state_dict(keep_vars=True).items() if isinstance(value, torch.Tensor)}
    state = {name: value.detach() for name, value in kept.items()}
    first = {id(value): name for name, value in reversed(kept.items())}
    return TaskFacts(
        inputs=tuple(list_specs(value)[0] if isinstance(value, torch.Tensor) else None for value in inputs),
        values=tuple(write_literal(value) if not list_tensors(value) else "" for value in inputs),
        parameters={name: list_specs(value)[0] for name, value in state.items()},
        init_inputs=tuple(map(write_literal, reference.init_inputs())),
        by_mode=list_by_mode(model, reference.task.source),
        buffers=tuple(name for name, value in kept.items() if not isinstance(value, nn.Parameter)),
        tied={name: first[id(value)] for name, value in kept.items() if first[id(value)] != name},
        frozen=tuple(name for name, value in kept.items() if isinstance(value, nn.Parameter) and not value.requires_grad),
        modules=dict(Counter(type(module).__name__ for _, module in leaf_modules(model))),
        precision=find_class(inputs, state.values(), (), ForwardWatch()),
        min_bytes=_total_bytes([*(value for value in inputs if isinstance(value, torch.Tensor)), *_storages(model)]),
    )


def _describe_for_real(reference: Reference, stand_in: StandIn, refusal: Exception, seconds: float) -> Description:
    """Facts of a forward that needs values: it runs on real tensors, within a share of the host's memory and within a time.

    Where that is too much, facts without operators; only an oracle then runs the reference. Raises TaskError.
    """
    still = _describe_still(reference, stand_in.model, stand_in.inputs)
    room = available_bytes() * _MEMORY_SHARE
    trouble = f"takes more than {_MEMORY_SHARE:.0%} of the free memory"
    if still.min_bytes <= room:
        try:
            with limit_memory(room):
                model, inputs = reference.build(_SEED), reference.draw_inputs(_SEED)
                return _describe(reference, model, inputs, time.monotonic() + seconds)
        except TaskError as error:
            if isinstance(error.__cause__, TimeoutError):
                trouble = f"takes more than {seconds:.0f} s"
            elif not is_out_of_memory(error.__cause__):
                raise
    cause = refusal.__cause__ or refusal
    text = " ".join(str(cause).split())[:_MESSAGE_CHARACTERS]
    needs = f"forward does not run on tensors without values ({type(cause).__name__}: {text})"
    return still.model_copy(update={"trace_error": f"{needs}, and with values it {trouble} on this host"}), []


def _storages(model: nn.Module) -> Iterable[torch.Tensor]:
    """Parameters and persistent buffers, shared ones once."""
    return {id(value): value for value in model.state_dict(keep_vars=True).values() if isinstance(value, torch.Tensor)}.values()


def _total_bytes(tensors: Iterable[torch.Tensor]) -> float:
    return sum(map(tensor_bytes, tensors))


def describe_return(output: Any, ops: tuple[OpNode, ...]) -> str:
    """What forward returns, in words, with the part of a recurrent layer where the trace shows it."""
    specs = [f"{spec.dtype}[{', '.join(map(str, spec.shape))}]" for spec in list_specs(output)]
    several = f"a {type(output).__name__} of {len(specs)} tensor{'s' * (len(specs) != 1)}: {'; '.join(specs)}"
    text = f"a tensor {specs[0]}" if isinstance(output, torch.Tensor) else several
    part = _recurrent_part(ops) if isinstance(output, torch.Tensor) else ""
    return f"{text}{', ' if part else ''}{part}"


def _recurrent_part(ops: tuple[OpNode, ...]) -> str:
    by_name = {op.name: op for op in ops}
    at: Any = ops[-1].args[0] if ops and ops[-1].args else None
    path: list[int] = []
    while isinstance(at, dict) and "ref" in at:
        op = by_name.get(at["ref"])
        if op is None:  # left out of a very long forward
            return ""
        if op.module_type in ("GRU", "LSTM", "RNN"):
            known = {(0,): "the top layer's states of every step", (1, 0): "the last hidden states", (1, 1): "the last cell states"}
            words = known.get(tuple(path)) if op.module_type == "LSTM" or path != [1] else "the last hidden states"
            return f"{words} of {op.target}" if words else ""
        if op.target != "_operator.getitem" or not isinstance(op.args[1], int):
            return ""
        path.insert(0, op.args[1])
        at = op.args[0]
    return ""
