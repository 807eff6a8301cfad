"""Whether a written task computes what the original computes, on the real inputs. Imports torch."""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.reference.stand_in import is_out_of_memory
from tritonsmith.modules.bringing.structure import check_leaves, register_records

_ROUNDING = {torch.float64: 1e-9, torch.float32: 2e-4, torch.float16: 2e-2, torch.bfloat16: 1e-1}
"""What two ways of the same calls may differ by, as a share of the largest value."""


def lacks_memory(error: BaseException) -> bool:
    """Whether an allocation failed, on the host or on a card."""
    return is_out_of_memory(error) or isinstance(error, torch.OutOfMemoryError)


def call_module(
    module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[Any, list[torch.Tensor]]:
    """What the module returns, and the tensors in it. Inputs and buffers stay as they are. Raises UsageError where it fails."""
    given, named = copy_call(args, kwargs)
    kept = {name: value.clone() for name, value in module.named_buffers()}
    changed = ""
    try:
        with torch.no_grad():
            result = module(*given, **named)
        changed = "" if module.training else _find_changed(module, kept)
    except (Exception, SystemExit) as error:  # a foreign module: anything may come out of it
        text = " ".join(str(error).split())[:240]
        if lacks_memory(error):
            raise UsageError(
                f"{type(module).__name__} runs out of memory on these inputs ({text}); choose smaller inputs, or a part of the module"
            ) from error
        raise UsageError(
            f"{type(module).__name__} fails on the inputs ({type(error).__name__}: {text}); give inputs that its forward takes"
        ) from error
    finally:
        for name, value in module.named_buffers():
            if name in kept and value.shape == kept[name].shape:
                value.copy_(kept[name])
    if changed:
        raise UsageError(
            f"{type(module).__name__} changes its own {changed} in evaluation mode, so its results depend on earlier "
            "calls; pass that state in and out"
        )
    register_records(result)
    leaves = pytree.tree_leaves(result)
    check_leaves([leaf for leaf in leaves if isinstance(leaf, torch.Tensor)], "result")
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    if not tensors:
        raise UsageError(
            f"{type(module).__name__} returns {type(result).__name__}, which holds no tensor; give a module whose forward returns "
            "tensors, also in lists, tuples, dicts or dataclasses"
        )
    return result, tensors


@contextlib.contextmanager
def require_same_weights(module: nn.Module) -> Iterator[None]:
    """Have a call leave the module's parameters as they are; afterwards they are as before. Raises UsageError where it changes one."""
    kept = {
        name: (value, value.data, value.detach().to("cpu", copy=True))
        for name, value in module.named_parameters()
    }
    changed = ""
    try:
        yield
        changed = next((name for name, weight in kept.items() if not _is_as_before(*weight)), "")
    finally:
        for value, data, copied in kept.values():
            if not _is_as_before(value, data, copied):
                with torch.no_grad():
                    data.copy_(copied)
                value.data = data
    if changed:
        raise UsageError(
            f"{type(module).__name__} changes its own parameter {changed} when it is called, so its results depend on earlier calls; "
            "change it outside forward"
        )


def _is_as_before(value: torch.Tensor, data: torch.Tensor, copied: torch.Tensor) -> bool:
    """Whether a parameter lies where it lay, with the bits that it had."""
    found = value.detach().cpu()
    place = value.untyped_storage().data_ptr() == data.untyped_storage().data_ptr()
    return place and found.shape == copied.shape and torch.equal(*(one.reshape(-1).view(torch.uint8) for one in (found, copied)))


def copy_call(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, Any]:
    """The arguments with a tensor of its own at every place."""
    copied: tuple[Any, Any] = pytree.tree_map(_copy, (tuple(args), dict(kwargs)))
    return copied


def require_no_shared_writes(module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise UsageError where inputs share memory and a call writes to them: then one input would change another."""
    tensors = [
        leaf for leaf in pytree.tree_leaves((tuple(args), dict(kwargs))) if isinstance(leaf, torch.Tensor)
    ]
    if len({tensor.untyped_storage().data_ptr() for tensor in tensors}) == len(tensors):
        return
    given, named = copy_call(args, kwargs)
    with torch.no_grad():
        module(*given, **named)
    copies = [leaf for leaf in pytree.tree_leaves((given, named)) if isinstance(leaf, torch.Tensor)]
    if any(describe_difference([one], [two]) for one, two in zip(copies, tensors, strict=True)):
        raise UsageError(
            f"inputs of {type(module).__name__} share memory and its forward writes to them; give each input its own tensor"
        )


def require_same_inputs(module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise UsageError where a hook of the module changes what its forward gets: a drop-in has that hook, so it would count twice."""
    if not module._forward_pre_hooks:
        return
    given, seen, forward = copy_call(args, kwargs), list[Any](), module.forward
    own = vars(module).get("forward")

    def record(*got: Any, **named: Any) -> Any:
        seen.append((got, named))
        return forward(*got, **named)

    module.forward = record
    try:
        call_module(module, *given)
    finally:
        if own is None:
            del module.forward
        else:
            module.forward = own
    (wanted, spec), (found, other) = pytree.tree_flatten(given), pytree.tree_flatten(seen[-1])
    tensors = [[leaf for leaf in leaves if isinstance(leaf, torch.Tensor)] for leaves in (found, wanted)]
    if spec != other or describe_difference(*tensors):
        raise UsageError(
            f"a forward pre-hook of {type(module).__name__} changes its inputs, and a drop-in would have it twice; remove the hook, or "
            "give a module around this one"
        )


def _find_changed(module: nn.Module, kept: Mapping[str, torch.Tensor]) -> str:
    """The first buffer that a call has changed; empty for none."""
    for name, value in module.named_buffers():
        if name not in kept or value.shape != kept[name].shape or not torch.equal(value, kept[name]):
            return name
    return ""


def _copy(leaf: Any) -> Any:
    return leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf


def require_repeatable(
    module: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], first: Sequence[torch.Tensor]
) -> None:
    """Raise UsageError where a second call gives other results, so that nothing could be compared with them."""
    _, second = call_module(module, args, kwargs)
    for number, (one, two) in enumerate(zip(first, second, strict=False)):
        if one.shape != two.shape or describe_difference([one], [two]):
            raise UsageError(
                f"{type(module).__name__} gives other values in result {number + 1} when it is called again: it draws random "
                "numbers or keeps state; use evaluation mode, set dropout to 0, or draw outside forward"
            )


def load_text(text: str) -> types.ModuleType:
    """A task's text, executed."""
    space = types.ModuleType("_tritonsmith_brought")
    sys.modules[space.__name__] = space  # some classes look for their own module
    exec(compile(text, "task.py", "exec"), space.__dict__)  # noqa: S102 - our own text
    return space


def build_task_model(
    text: str, state: Mapping[str, torch.Tensor], device: torch.device, *, train: bool
) -> nn.Module:
    """The Model of a task's text with these weights."""
    model: nn.Module = load_text(text).Model()
    model.load_state_dict({name: value.detach() for name, value in state.items()})
    return model.to(device).train(train)


def run_task_model(model: nn.Module, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The flat results of a task's Model."""
    with torch.no_grad():
        result = model(*map(_copy, inputs))
    return [result] if isinstance(result, torch.Tensor) else list(result)


def describe_difference(found: Sequence[torch.Tensor], wanted: Sequence[torch.Tensor]) -> str:
    """In what two lists of results differ beyond rounding; empty where in nothing."""
    if len(found) != len(wanted):
        return f"{len(found)} results in place of {len(wanted)}"
    for number, (one, two) in enumerate(zip(found, wanted, strict=True)):
        if one.shape != two.shape or one.dtype != two.dtype:
            return f"result {number + 1} is {one.dtype}{list(one.shape)} in place of {two.dtype}{list(two.shape)}"
        if not two.numel():
            continue
        if not two.is_floating_point() and not two.is_complex():
            if not torch.equal(one, two):
                return f"result {number + 1} has other values"
            continue
        a, b = (torch.view_as_real(x.resolve_conj()) if x.is_complex() else x for x in (one, two))
        a, b = a.double(), b.double()
        if not torch.equal(a.isfinite(), b.isfinite()):
            return f"result {number + 1} is not finite at other places"
        whole = b.isfinite()
        if not torch.equal(a[~whole].nan_to_num(), b[~whole].nan_to_num()):
            return f"result {number + 1} has other infinities or NaN"
        scale = float(b[whole].abs().max()) if bool(whole.any()) else 0.0
        gap = float((a - b)[whole].abs().max()) if bool(whole.any()) else 0.0
        if gap > _ROUNDING.get(two.dtype, 2e-4) * max(scale, 1e-6):
            return f"result {number + 1} differs by {gap:.2g} where the largest value is {scale:.2g}"
    return ""
