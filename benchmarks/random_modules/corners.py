"""Other results that PyTorch itself may give: moved by last places, other signs of zero and NaN. Imports torch."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

import torch
from torch._decomp import decomposition_table
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_map

from tritonsmith.benchmarks.operators.kernels import Planned
from tritonsmith.benchmarks.operators.special import stride
from tritonsmith.benchmarks.random_modules.module import RandomModule
from tritonsmith.evaluator.oracle.checks.moves import Mover, Steps, read_name

_STEP = 2.0**-21
"""Four units of float32's last place, as a share of a value."""
_FINE_STEP = 2.0**-50
"""The same of float64's."""
_HALF_STEP = 0.6
"""Of the machine epsilon of 16 bits."""
_EITHER_ZERO = frozenset(
    """
    relu max min amax amin aminmax maximum minimum fmax fmin clamp clamp_min clamp_max hardtanh cummax cummin sort topk kthvalue median
    nanmedian hardswish hardsigmoid cumsum logcumsumexp mm bmm addmm baddbmm addmv mv dot convolution sum mean nansum index_add scatter_add
    max_pool2d_with_indices max_pool3d_with_indices adaptive_max_pool2d adaptive_max_pool1d avg_pool2d avg_pool1d _adaptive_avg_pool2d relu6
    std_mean var_mean
    linear einsum matmul upsample_bilinear2d threshold _scaled_dot_product_flash_attention_for_cpu cumprod prod addcmul addcdiv lerp
    native_layer_norm native_group_norm native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training batch_norm
    native_batch_norm rms_norm _fused_rms_norm """.split()
)
"""Operators of which docs/values.md says that a zero may have either sign."""
_OTHER_CODE = frozenset("remainder fmod floor_divide div".split())
"""Operators whose code for vectors differs at corners from that for single elements, which is what cards have. Every other run has the
latter for all elementwise operators."""
_NORMS = frozenset("native_layer_norm native_group_norm native_batch_norm _native_batch_norm_legit".split())
"""In half of the runs these are written out as kernels do them: what equals its mean exactly becomes zero, which no move gives."""
_CANCEL = frozenset("_log_softmax gelu logaddexp logaddexp2 addcmul addcdiv lerp".split())
"""Elementwise operators whose result may be far smaller than what they add up: it errs by last places of their operands."""
_HALVES = (torch.float16, torch.bfloat16)
_ORDERING = ("topk", "sort", "argsort")
"""Operators that promise no order among equal elements."""


class Order(StrEnum):
    """How equal elements stand in the results of `topk` and of a sort that is not stable."""

    GIVEN = "given"
    """As PyTorch's own code puts them."""
    FIRST = "first"
    """As they stood, which is how kernels find them."""


class FixedOrder(TorchDispatchMode):
    """Around a forward: equal elements stand in one order, whatever modes are around it.

    Args:
        order: which.
    """

    def __init__(self, order: Order) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._order = order

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if read_name(func) in _ORDERING:
            return order_equals(func, args, kwargs or {}, self._order)
        return func(*args, **dict(kwargs or {}))


def order_equals(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], order: Order) -> Any:
    """What an operator that puts elements in order gives where equal ones stand in a certain order.

    Args:
        func: `topk`, `sort` or `argsort`.
        args: its arguments.
        kwargs: its named arguments.
        order: of equal elements.
    """
    with _disable_current_modes():
        result = func(*args, **kwargs)
        if order is Order.GIVEN:
            return result
        names = [argument.name for argument in func._schema.arguments]
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        name, values, axis = read_name(func), args[0], given.get("dim", -1)
        falling = given.get("largest", True) if name == "topk" else given.get("descending", False)
        ordered, places = torch.sort(values, dim=axis, descending=falling, stable=True)
        if name == "topk" and values.ndim:
            ordered, places = ordered.narrow(axis, 0, given["k"]), places.narrow(axis, 0, given["k"])
        return places if name == "argsort" else (ordered, places)


def is_ordering(text: str) -> bool:
    """Whether a module puts elements in an order.

    Args:
        text: the lines of its forward.
    """
    return any(name in text for name in _ORDERING)


class OpenCorners(TorchDispatchMode):
    """Around a forward: zeros and NaN have signs of chance where PyTorch does not promise one.

    Args:
        seed: of the signs.
        step: how far values of a type are moved, as a share of each.
        order: of equal elements.
    """

    def __init__(self, seed: int, step: Steps, order: Order = Order.GIVEN) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._generator = torch.Generator().manual_seed(seed)
        self._step = step
        self._order = order
        self._strided = seed % 2 == 1

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        name = read_name(func)
        elementwise = torch.Tag.pointwise in func.tags and self._strided
        if (name in _OTHER_CODE or elementwise) and not func._schema.is_mutable:
            args = tree_map(lambda value: stride(value) if isinstance(value, torch.Tensor) else value, args)
        if name in _ORDERING:
            result = order_equals(func, args, kwargs or {}, self._order)
        elif name in _NORMS and self._strided and func in decomposition_table:
            with _disable_current_modes():
                result = decomposition_table[func](*args, **dict(kwargs or {}))
        else:
            result = func(*args, **dict(kwargs or {}))
        if func.is_view or (func._schema.is_mutable and name not in _EITHER_ZERO):
            return result
        if name in _CANCEL:
            terms = [value for value in args if isinstance(value, torch.Tensor)]
            self._shift(result, [*terms, torch.ones_like(result)] if name == "_log_softmax" else terms)
        return tree_map(lambda value: self._turn(value, name in _EITHER_ZERO), result)

    def _shift(self, result: torch.Tensor, operands: Sequence[torch.Tensor]) -> None:
        """Move a sum by last places of its operands."""
        scale = sum((value.abs().to(result.dtype) for value in operands), torch.zeros_like(result))
        moved = (torch.rand(result.shape, generator=self._generator) * 2 - 1).to(result.dtype) * scale * self._step(result.dtype)
        with torch.no_grad():
            result.add_(torch.where(moved.isfinite(), moved, 0.0))

    def _turn(self, value: Any, zeros: bool) -> Any:
        """A result with other signs; itself where it has none that is open."""
        if not isinstance(value, torch.Tensor) or not value.is_floating_point() or not value.numel():
            return value
        open_ = value.isnan() | (value == 0) if zeros else value.isnan()
        if not bool(open_.any()):
            return value
        signs = torch.rand(value.shape, generator=self._generator) < 0.5
        with torch.no_grad():
            value.copy_(torch.where(open_ & signs, value.neg(), value))
        return value


def list_other_results(
    planned: Planned, module: RandomModule, values: Sequence[torch.Tensor], count: int, order: Order = Order.GIVEN
) -> Iterator[list[torch.Tensor]]:
    """Results of other runs of the reference, in float64 and in its own types in turn.

    Args:
        planned: its kernel and its reference.
        module: what both compute.
        values: the arguments.
        count: runs.
        order: of equal elements.
    """
    types = {
        value.dtype
        for value in module.compute([value.clone() for value in values]).values()
        if value.is_floating_point()
    }
    for number in range(count):
        wide, seed = number % 4 < 2, number // 2
        with contextlib.suppress(RuntimeError, IndexError, ValueError):  # such as an index out of range
            yield _run_moved(planned, values, types, wide=wide, seed=seed, mirrored=number % 2 == 1, order=order)


def _run_moved(
    planned: Planned,
    values: Sequence[torch.Tensor],
    types: set[torch.dtype],
    *,
    wide: bool,
    seed: int,
    mirrored: bool,
    order: Order,
) -> list[torch.Tensor]:
    assert planned.reference is not None
    coarse = _FINE_STEP if types == {torch.float64} else _STEP
    if seed % 4 == 2 and types & set(_HALVES):  # a kernel rounds to 16 bits at other places than PyTorch
        coarse = max(torch.finfo(dtype).eps for dtype in types) / 2
    share = (1.0, 1.0, 0.25)[seed % 3]

    def step(dtype: torch.dtype) -> float:
        if wide:
            return coarse * share
        narrow = _HALF_STEP * torch.finfo(dtype).eps if dtype in _HALVES else _STEP * share
        return _FINE_STEP if dtype == torch.float64 else narrow

    def operand(dtype: torch.dtype, terms: int) -> float:
        return 0.0 if dtype in _HALVES else step(dtype)

    halves = (0.0, 1.0, 0.5)[seed % 3]
    mover = Mover(
        seed, step, operand, planned.reference, halves=halves, mirrored=mirrored, alike=seed % 5 == 4
    )
    with mover, OpenCorners(seed * 2 + mirrored, step, order):  # which sees an operator ahead of the mover
        run = planned.compute_exact if wide else planned.run_reference
        return run(values, arguments=True)
