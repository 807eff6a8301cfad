"""PyTorch's samples of its operators, and special values for them. Imports torch and its tests' tables."""

from __future__ import annotations

import itertools
import re
import sys
import types
import unittest
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from tritonsmith.benchmarks.operators.calls import CannotWrite, OperatorCall, write_call
from tritonsmith.benchmarks.operators.special import draw_specials, list_specials, pair_values, stride

TYPES = (
    torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8,
    torch.bool,
)  # fmt: skip
"""Types of the author that PyTorch's tables have samples of."""
_MOST_ELEMENTS = 2048
"""Of a sample: the interpreter takes milliseconds for it."""
_DRAWN = 80
"""Samples of one kind that are looked at."""
_NUMBERS: dict[torch.dtype, tuple[float, ...]] = {
    torch.float32: (0.3, 1e-5, 2, -3, float("inf"), float("nan"), -0.0), torch.float64: (0.3, -3, float("-inf"), -0.0),
    torch.bfloat16: (0.3, 2, float("inf"), -0.0), torch.int64: (2**63 - 1, -(2**63), 1000, -7, 0, 0.5),
    torch.int32: (2**31 - 1, -(2**31), 3), torch.uint8: (255, 3),
}  # fmt: skip
"""Numbers that stand in a call itself, next to a tensor that has every special value."""

_KEPT = {"bucketize": (1,), "searchsorted": (0,), "nn.functional.grid_sample": (1,)}
"""Tensors of an operator that keep their values: numbers in order, and places in an image, where PyTorch's CPU code and cards differ."""
_TAKES_PLACES = re.compile(
    "take|gather|scatter|index|select|embedding|put|loss|cross_entropy|segment|getitem|repeat|unpool|one_hot|bincount"
)
"""Operators whose whole numbers may be places or classes, and keep their values."""
_TURNED = ("where", "einsum", "nn.functional.embedding", "polygamma", "special.polygamma")
"""Operators whose first two arguments are the other way round in the table, where the first one is a floating tensor."""
_FINITE = re.compile("conv_transpose|scaled_dot_product")
"""Operators whose infinities docs/values.md lists as other than PyTorch's."""
_SQUARES = re.compile("cosine_similarity")
"""Operators whose squares leave the type on a card, and not on the CPU (docs/values.md)."""
_DIVIDES = ("div", "floor_divide", "fmod", "remainder", "__rmod__", "__rdiv__", "true_divide")
"""Operators that end the process, or raise, where a whole number is divided by -1 or 0."""


@dataclass(frozen=True)
class Trial:
    """A call and values for it."""

    call: OperatorCall
    tensors: tuple[torch.Tensor, ...]
    kind: str
    """What the values are, in words."""


def load_operators() -> list[Any]:
    """PyTorch's table of operators (`OpInfo`)."""
    if "expecttest" not in sys.modules:  # of which the table's file needs a class to derive PyTorch's own tests from
        stand_in = types.ModuleType("expecttest")
        stand_in.TestCase = unittest.TestCase  # type: ignore[attr-defined]
        sys.modules["expecttest"] = stand_in
    from torch.testing._internal.common_methods_invocations import op_db  # noqa: PLC0415 - behind the stand-in

    return list(op_db)


def name_operator(info: Any) -> str:
    """An entry of the table by its name, with that of its variant."""
    return f"{info.name}, {info.variant_test_name}" if info.variant_test_name else str(info.name)


def is_elementwise(info: Any) -> bool:
    """Whether the table has it as a function of one or two elements."""
    return type(info).__name__ in ("UnaryUfuncInfo", "BinaryUfuncInfo")


def list_trials(info: Any, dtype: torch.dtype, most: int) -> Iterator[Trial]:
    """Calls of an operator with values, equal calls with different values behind each other.

    Args:
        info: its entry in the table.
        dtype: of its first tensor.
        most: samples of each kind; the special values of each come besides.
    """
    calls = _list_calls(info, dtype, most)
    pointwise = is_elementwise(info)
    for seed, call in enumerate(calls):
        yield Trial(call, call.tensors, "sample")
        strided = tuple(map(stride, call.tensors))
        if any(not tensor.is_contiguous() for tensor in strided):
            yield Trial(call, strided, "not contiguous")
        for kind, drawn in draw_specials(call.tensors, pointwise, seed, _list_left_out(info)):
            if _FINITE.search(info.name) and kind not in ("ties and zeros", "zeros below zero"):
                continue
            if _SQUARES.search(info.name) and kind == "ends of the range":
                continue
            kept = _list_kept(info, call)
            values = [call.tensors[place] if place in kept else value for place, value in enumerate(drawn)]
            yield Trial(call, tuple(values), kind)
    if pointwise:
        yield from _list_elementwise(info, dtype)


def _list_calls(info: Any, dtype: torch.dtype, most: int) -> list[OperatorCall]:
    """Samples and, for elementwise operators, reference inputs; so many of each, evenly chosen among different calls."""
    chosen: dict[tuple[object, ...], OperatorCall] = {}
    makers: list[Any] = [info.sample_inputs, *([info.reference_inputs] if is_elementwise(info) else [])]
    for make in makers:
        calls: dict[tuple[object, ...], OperatorCall] = {}
        torch.manual_seed(0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for sample in _draw_samples(make, dtype):
                try:
                    call = write_call(info.name, *_order_arguments(info, sample), sample.kwargs)
                except CannotWrite:
                    continue
                if sum(tensor.numel() for tensor in call.tensors) <= _MOST_ELEMENTS:
                    calls.setdefault(call.key, call)
        fresh = [call for key, call in calls.items() if key not in chosen]
        count = min(most, len(fresh))
        chosen |= {call.key: call for call in (fresh[(2 * place + 1) * len(fresh) // (2 * count)] for place in range(count))}
    return list(chosen.values())


def _order_arguments(info: Any, sample: Any) -> tuple[Any, tuple[Any, ...]]:
    """The first argument, and the others, in the order of the operator; the table has some with the second one first."""
    if info.name in _TURNED and sample.args:
        return sample.args[0], (sample.input, *sample.args[1:])
    return sample.input, tuple(sample.args)


def _draw_samples(make: Any, dtype: torch.dtype) -> Iterator[Any]:
    """Samples of one maker, as far as it gives them for the type."""
    try:
        yield from itertools.islice(make("cpu", dtype, requires_grad=False), _DRAWN)
    except Exception:  # noqa: BLE001 - some makers of PyTorch fail for some types
        return


def _list_kept(info: Any, call: OperatorCall) -> tuple[int, ...]:
    """Tensors of a call that keep their values."""
    if _TAKES_PLACES.search(info.name):
        return tuple(place for place, tensor in enumerate(call.tensors) if not tensor.is_floating_point())
    return _KEPT.get(info.name, ())


def _list_left_out(info: Any) -> tuple[int, ...]:
    """Whole numbers that are no values for an operator."""
    return (0, -1) if info.name in _DIVIDES else ()


def _list_elementwise(info: Any, dtype: torch.dtype) -> Iterator[Trial]:
    """Every special value, every pair of two, and special numbers in the call itself."""
    left_out = _list_left_out(info) if not dtype.is_floating_point else ()
    known = [value for value in list_specials(dtype) if value not in left_out]
    alone, named = torch.tensor(known, dtype=dtype), _find_named(info, dtype)
    if type(info).__name__ == "UnaryUfuncInfo":
        yield from _make_trials(info.name, (alone,), (), named, "every special value")
        return
    yield from _make_trials(info.name, pair_values(known, dtype), (), named, "every pair of special values")
    for number in _NUMBERS.get(dtype, ()):
        if number == 0.3 and info.name in ("pow", "__rpow__"):
            number = 0.375  # a card raises to the number as fp32 holds it, PyTorch's CPU code as float64 does
        yield from _make_trials(info.name, (alone,), (number,), named, "special numbers")


def _find_named(info: Any, dtype: torch.dtype) -> dict[str, Any]:
    """Arguments by name that every sample of a variant has, such as a rounding mode."""
    for sample in _draw_samples(info.sample_inputs, dtype):
        return dict(sample.kwargs) if info.variant_test_name else {}
    return {}


def _make_trials(
    name: str, tensors: tuple[torch.Tensor, ...], args: tuple[Any, ...], named: dict[str, Any], kind: str
) -> Iterator[Trial]:
    plain = [torch.ones_like(tensor) for tensor in tensors]  # the call is planned with values at which nothing fails
    try:
        call = write_call(name, plain[0], (*plain[1:], *args), named)
    except CannotWrite:
        return
    yield Trial(call, tensors, kind)
