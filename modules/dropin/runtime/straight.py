"""Calls like one that was let through: all that is looked at, in one function that is written for the module."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import nn
from torch._C import _get_tracing_state, _len_torch_dispatch_stack
from torch._C._functorch import peek_interpreter_stack
from torch.autograd import forward_ad

from tritonsmith.modules.dropin.runtime.form import list_tensors
from tritonsmith.modules.dropin.runtime.guard import Guard, is_seen

LEFT = object()
"""What such a function gives for a call that has to be looked at by the guard."""
_Constants = dict[str, Any]


def write_straight_call(
    guard: Guard, model: nn.Module, differentiate: Callable[..., Any], tensors: Sequence[torch.Tensor], accepted: set[Any]
) -> Callable[..., Any] | None:
    """A function of the tensors of a call that gives the module's result, or LEFT.

    It holds what the guard found: weights, their addresses, modules, hooks. There are no loops and no records in it.
    Whatever is otherwise than at that call is LEFT to the guard, which alone gives reasons.

    Args:
        guard: that has let a call through.
        model: the ModelNew that computes with the weights of that call.
        differentiate: gives the kernel's outputs for the tensors and then the weights of a call, with gradients.
        tensors: of that call.
        accepted: keys (see `key_of`) of calls that the guard let through with these weights; the engine adds to it.

    Returns:
        None where each call has to be looked at anew: buffers are updated, or weights are computed.
    """
    kernel = guard.kernel
    if kernel.proof.updates or not tensors or any(held.get(name) is None for _, held, name in guard.places):
        return None
    constants = _list_common(guard) | {"model": model, "differentiate": differentiate, "accepted": accepted}
    names = [f"x{number}" for number in range(len(tensors))]
    weights = [f"w{number}" for number in range(len(guard.weights))]
    tests = [*_test_tensors(names, guard), *_TESTS_OF_MODES, *_test_parts(guard, constants), *_test_weights(guard, constants)]
    given = [*names, *weights]
    lines = [
        f"if {' or '.join(tests)}:", "    return LEFT",
        *(_write_card_lines(tensors[0].get_device(), constants, keeps=kernel.keeps) if tensors[0].is_cuda else ()),
        f"if is_grad_enabled() and ({' or '.join(f'{name}.requires_grad' for name in given)}):",
        "    return LEFT" if guard.operator.skeleton is None else f"    return finish(differentiate({', '.join(given)}))",
        f"result = forward(model, {', '.join(_write_arguments(guard, constants))})",
        "return result if type(result) is Tensor else finish(result)" if kernel.form.result is None else "return finish(result)",
    ]  # fmt: skip
    body = "".join(f"        {line}\n" for line in lines)
    make = _compile(f"def make({', '.join(constants)}):\n    def call({', '.join(names)}):\n{body}    return call\n")
    made: Callable[..., Any] = make(**constants)
    return made


def key_of(tensors: Iterable[torch.Tensor]) -> tuple[Any, ...]:
    """What the guard goes by: shape, type, device and strides of each tensor."""
    facts: list[Any] = []
    for tensor in tensors:
        facts += (tensor.shape, tensor.dtype, tensor.device, tensor.stride())
    return tuple(facts)


@functools.lru_cache(maxsize=256)
def _compile(text: str) -> Callable[..., Any]:
    """The maker in a text. Modules that are made alike have one text."""
    names: dict[str, Any] = {}
    exec(compile(text, "<a call of a drop-in>", "exec"), names)  # noqa: S102 - written above, from numbers and fixed words alone
    make: Callable[..., Any] = names["make"]
    return make


def _list_common(guard: Guard) -> _Constants:
    """What each text uses, by name."""
    form = guard.kernel.form

    def finish(result: Any) -> Any:
        """The module's result made of what ModelNew or the autograd function gives."""
        return result if type(result) is torch.Tensor and form.result is None else form.build_result(list_tensors(result))

    return {
        "LEFT": LEFT, "Tensor": torch.Tensor, "Parameter": nn.Parameter, "finish": finish, "guard": guard,
        "forward": guard.kernel.forward, "is_grad_enabled": torch.is_grad_enabled, "dispatch_modes": _len_torch_dispatch_stack,
        "tracing": _get_tracing_state, "transforms": peek_interpreter_stack, "forward_ad": forward_ad,
        "autocast": torch._C._is_any_autocast_enabled,
    }  # fmt: skip


_TESTS_OF_MODES = ("autocast()", "dispatch_modes()", "tracing() is not None", "transforms() is not None", "forward_ad._current_level >= 0")
"""Tests of what surrounds a call. The guard asks for autocast by device, so any autocast is left to it."""


def _test_tensors(names: Sequence[str], guard: Guard) -> list[str]:
    """Tests of the arguments; each text is true where a call is LEFT."""
    tests = [f"type({name}) is not Tensor and type({name}) is not Parameter" for name in names]
    tests += [f"{name}.is_conj()" for name in names if guard.is_complex]
    facts = ", ".join(f"{name}.shape, {name}.dtype, {name}.device, {name}.stride()" for name in names)
    return [*tests, f"({facts}) not in accepted"]


def _test_parts(guard: Guard, constants: _Constants) -> list[str]:
    """Tests of the modules inside, and of the mode where that matters."""
    tests, proof = [], guard.kernel.proof
    if proof.by_mode:
        constants["training"], constants["own"] = proof.training, guard.owner.__dict__
        tests.append("own['training'] is not training")
    for number, (held, name, part, attributes, after, before, hooked) in enumerate(guard.parts):
        constants |= {f"m{number}": held, f"n{number}": name, f"p{number}": part, f"d{number}": attributes}
        tests += [f"m{number}.get(n{number}) is not p{number}", f"'forward' in d{number}"]
        if not hooked:
            constants |= {f"h{number}": after, f"g{number}": before}
            tests += [f"h{number}", f"g{number}"]
        if proof.by_mode:
            tests.append(f"d{number}['training'] is not training")
    return tests


def _test_weights(guard: Guard, constants: _Constants) -> list[str]:
    """Tests that the weights are the same objects, and that nobody gave them other memory or another layout.

    Parameters whose writes through `.data` are counted need no look at their memory.
    """
    tests = []
    for number, ((_, held, name), weight) in enumerate(zip(guard.places, guard.weights, strict=True)):
        constants |= {f"b{number}": held, f"k{number}": name, f"w{number}": weight}
        tests.append(f"b{number}.get(k{number}) is not w{number}")
        if guard.kernel.keeps:
            # An alias counts the same writes, and a plain tensor answers in a third of the time. What is packed holds this memory too.
            constants |= {f"u{number}": torch.Tensor.detach(weight).as_subclass(torch.Tensor), f"v{number}": weight._version}
            tests.append(f"u{number}._version != v{number}")
        if not is_seen(weight):
            constants |= {f"a{number}": weight.data_ptr(), f"l{number}": weight.numel()}
            tests += [f"w{number}.data_ptr() != a{number}", f"w{number}.numel() != l{number}"]
            tests += [f"not w{number}.is_contiguous()"] if weight.dim() > 1 else []
    return tests


def _write_card_lines(card: int, constants: _Constants, *, keeps: bool) -> list[str]:
    """Lines for a CUDA card: another current card, and graphs that are being captured, are left to the engine."""
    constants |= {"card": card, "current_card": torch._C._cuda_getDevice, "capturing": torch._C._cuda_isCurrentStreamCapturing}
    return [f"if current_card() != card{' or capturing()' if keeps else ''}:", "    return LEFT"]


def _write_arguments(guard: Guard, constants: _Constants) -> list[str]:
    """Arguments of ModelNew's forward in their order."""
    form = guard.kernel.form
    places = {number: place for place, number in enumerate(form.tensors)}
    constants |= {f"c{number}": form.constants[number] for number in form.arguments if number in form.constants}
    return [f"c{number}" if number in form.constants else f"x{places[number]}" for number in form.arguments]
