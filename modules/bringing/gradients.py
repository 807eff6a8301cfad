"""Whether a module has gradients, and whether a written task has the same ones, on the real inputs. Imports torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from tritonsmith.evaluator.errors import UsageError
from tritonsmith.modules.bringing.check import build_task_model, describe_difference
from tritonsmith.modules.bringing.structure import split_call
from tritonsmith.modules.bringing.writer import WrittenTask

_SEED = 0
"""Of what the results are weighted with."""
Gradients = dict[Any, torch.Tensor]
"""By name of a parameter, or by number of a leaf of the call."""


def find_gradients(module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Gradients:
    """The gradients of a module's inputs and parameters; the module stays as it is. Raises UsageError where it has none."""
    leaves, spec = split_call(args, kwargs)
    given, kept = [_free(leaf) for leaf in leaves], {name: value.clone() for name, value in module.named_buffers()}

    def call() -> Any:
        again, named = pytree.tree_unflatten(given, spec)
        return module(*again, **named)

    wanted = {number: leaf for number, leaf in enumerate(given) if _needs_gradient(leaf)} | _list_parameters(module)
    name = type(module).__name__
    try:
        outputs, found = _differentiate(call, wanted)
    except (Exception, SystemExit) as error:  # a foreign module: anything may come out of it
        text = " ".join(str(error).split())[:240]
        raise UsageError(f"{name} has no gradients on the inputs ({type(error).__name__}: {text}); leave backward=True out") from error
    finally:
        with torch.no_grad():
            for path, value in module.named_buffers():
                if path in kept and value.shape == kept[path].shape:
                    value.copy_(kept[path])
    if not any(output.is_floating_point() or output.is_complex() for output in outputs):
        raise UsageError(f"{name} returns whole numbers alone, which have no gradient; leave backward=True out")
    if not found:
        raise UsageError(
            f"{name} returns nothing that has a gradient: it runs under no_grad, detaches what it returns, or all of it is frozen; "
            "leave backward=True out"
        )
    return found


def compare_gradients(written: WrittenTask, module: nn.Module, wanted: Gradients) -> str:
    """In what the written Model's gradients differ from the original's; empty where in nothing beyond rounding."""
    device = next((value.device for value in (*written.inputs, *written.state.values())), torch.device("cpu"))
    model = build_task_model(written.text, written.state, device, train=module.training)
    given = [_free(value) for value in written.inputs]
    places = {number: written.signature.inputs[number] for number, value in enumerate(given) if _needs_gradient(value)}
    held = {number: given[number] for number in places} | _list_parameters(model)
    try:
        _, found = _differentiate(lambda: model(*given), held)
    except RuntimeError as error:
        return f"no gradients ({' '.join(str(error).split())[:200]})"
    paths = written.signature.state
    known = {places[name] if isinstance(name, int) else paths.get(name) or name: value for name, value in found.items()}
    for name in sorted({*known, *wanted}, key=str):
        said = f"input {name}" if isinstance(name, int) else str(name)
        if (name in known) != (name in wanted):
            return f"{'a' if name in known else 'no'} gradient of {said}"
        if describe_difference([known[name]], [wanted[name]]):
            return f"another gradient of {said}"
    return ""


def declare_backward(written: WrittenTask) -> WrittenTask:
    """The task that asks for gradients too."""
    return replace(written, text=written.text.replace("WEIGHTS = ", "BACKWARD = True\nWEIGHTS = ", 1))


def _free(leaf: Any) -> Any:
    """A tensor of its own that takes a gradient, where it can have one."""
    if not isinstance(leaf, torch.Tensor):
        return leaf
    copied = leaf.detach().clone()
    return copied.requires_grad_() if copied.is_floating_point() or copied.is_complex() else copied


def _needs_gradient(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.requires_grad


def _list_parameters(module: nn.Module) -> dict[Any, torch.Tensor]:
    return {name: value for name, value in module.named_parameters() if value.requires_grad}


def _differentiate(call: Callable[[], Any], wanted: Mapping[Any, torch.Tensor]) -> tuple[list[torch.Tensor], Gradients]:
    """The tensors that a call gives, and the gradients of those that it depends on."""
    with torch.enable_grad():
        outputs = [leaf for leaf in pytree.tree_leaves(call()) if isinstance(leaf, torch.Tensor)]
        free = [output for output in outputs if output.requires_grad]
        generator = torch.Generator().manual_seed(_SEED)
        weights = [torch.randn(output.shape, generator=generator).to(output) for output in free]
        found = torch.autograd.grad(free, list(wanted.values()), weights, allow_unused=True) if free and wanted else [None] * len(wanted)
    return outputs, {name: value for name, value in zip(wanted, found, strict=True) if value is not None}
