"""Runs of the reference in which what arithmetic rounds is moved by a few units of the last place. Imports torch.

Two honest kernels may round differently at each operator that computes, and may add up in another order. So the result of each such
operator is moved, and so are the operands of sums: a sum whose terms cancel may err by far more than its own last place. What only
passes values on or chooses among them (a copy, a maximum, a comparison, a gather) rounds nothing, and is left as it is. So inputs that
forward compares as they were given stay as they are: there every kernel must agree.

Equal values have no order that `topk` and an unstable `sort` promise. So these break ties by chance.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from tritonsmith.evaluator.oracle.checks.arithmetic import Arithmetic
from tritonsmith.evaluator.oracle.checks.inputs import scale_by_chance
from tritonsmith.evaluator.reference.watch import DECIDING
from tritonsmith.evaluator.schema import PrecisionClass

FACTORIES = frozenset(
    """
    arange bernoulli empty empty_like empty_strided eye full full_like lift_fresh linspace new_empty new_empty_strided new_full
    new_ones new_zeros normal ones ones_like rand rand_like randint randint_like randn randn_like randperm scalar_tensor uniform
    zero zeros zeros_like
    """.split()
)
"""These make values out of none."""
PASSING = frozenset(
    """
    _local_scalar_dense _unique2 _unsafe_index _unsafe_index_put abs adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d
    alias amax amin aminmax argsort as_strided_copy bitwise_and bitwise_not bitwise_or bitwise_xor cat ceil channel_shuffle clamp
    clamp_max clamp_min clone complex constant_pad_nd copy copysign cummax cummin detach diagonal_copy diagonal_scatter embedding
    expand_copy fill flip floor fmax fmin fractional_max_pool2d fractional_max_pool3d gather hardshrink hardtanh heaviside im2col
    imag index index_copy index_fill index_put index_select kthvalue lift_fresh_copy masked_fill masked_scatter masked_select max
    max_pool2d_with_indices max_pool3d_with_indices max_unpool2d max_unpool3d maximum median min minimum mode msort nan_to_num
    nanmedian neg nonzero permute_copy pixel_shuffle pixel_unshuffle positive put real reflection_pad1d reflection_pad2d
    reflection_pad3d relu relu6 repeat repeat_interleave replication_pad1d replication_pad2d replication_pad3d roll rot90 round
    scatter select_copy select_scatter set_data sgn sign slice_copy slice_scatter sort split_copy stack take threshold topk
    transpose_copy tril triu trunc unbind_copy unfold_copy unique unique_consecutive unique_dim upsample_nearest1d
    upsample_nearest2d upsample_nearest3d view_copy where
    """.split()
)
"""These give values that they were given, or round to a number by a rule: nothing is left to how a kernel computes."""
_FINE = 2.0**-21
"""Four units of float32's last place, as a share of a value."""
_FINEST = 2.0**-50
"""The same of float64's."""
_ONE_UNIT = 0.6
"""Of a 16-bit type's machine epsilon: a value is moved to its neighbour, whatever its mantissa is."""
_TERMS = 64
"""Sums of more terms err by more than a few units of the last place."""
_HALF_SUMS = 4.0
"""What the operands of short sums of 16-bit products are moved by, in those of float32."""
_TIE = 2.0**-40
"""By this share of a value the order of equal ones is drawn; far below what tells two values of float32 apart."""
_STATISTICS = "running_"
"""How the arguments of a norm begin that it writes to."""
_NARROW = (torch.float16, torch.bfloat16)
_LARGEST_SEED = 2**62

Steps = Callable[[torch.dtype], float]
"""How far values of a type are moved, as a share of each."""
SumSteps = Callable[[torch.dtype, int], float]
"""The same of operands, for sums of so many terms."""


class Moved(Protocol):
    """What is needed of a loaded task."""

    arithmetic: Arithmetic
    model: nn.Module
    model64: nn.Module

    def oracle(self, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        """The reference in float64."""
        ...

    def reference_outputs(self, tensors: list[torch.Tensor], precision: PrecisionClass) -> list[torch.Tensor]:
        """The reference in a class."""
        ...


class Mover(TorchDispatchMode):
    """Context manager around a forward whose arithmetic is to be moved.

    Args:
        seed: what the moves are drawn under; equal seeds move alike.
        result: how far results are moved.
        operand: how far operands of sums are moved.
        model: the module that runs. Its weights are moved once, however often a loop reads them.
        alike: whether all elements of a result are moved alike, so that a chain of operators moves each as far as it can.
        halves: the chance that the 16-bit result of an operator is moved, drawn once for all its elements.
        mirrored: whether each move goes the other way than the seed says. A tie falls one way in a run and the other way in its mirror.
    """

    def __init__(
        self, seed: int, result: Steps, operand: SumSteps, model: nn.Module, *, alike: bool = False, halves: float = 1.0,
        mirrored: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self._weights = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
        self._moved: dict[tuple[Any, ...], torch.Tensor] = {}
        """Weights as they were moved, by place, shape and strides."""
        self._alike = alike
        self._sign = -1.0 if mirrored else 1.0
        self._halves, self._chance = halves, random.Random(seed)
        self._seed = seed
        self._result, self._operand = result, operand
        self._terms = 1
        """Of each sum in the operator that goes on."""
        self._generators: dict[torch.device, torch.Generator] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        kwargs, name = dict(kwargs or {}), read_name(func)
        if func.is_view or name in FACTORIES:
            return func(*args, **kwargs)
        if name in ("topk", "sort") and not kwargs.get("stable"):
            return self._order_by_chance(func, args, kwargs)
        if name in PASSING or name in DECIDING or kwargs.get("rounding_mode") is not None:
            return func(*args, **kwargs)
        if name == "_to_copy":
            return self._round_by_chance(func(*args, **kwargs), args[0])
        if torch.Tag.pointwise not in func.tags and not func._schema.is_mutable:
            self._terms = _count_terms(name, args)
            args, kwargs = self._move_operands(func, args, kwargs)
        return tree_map(self._move_result, func(*args, **kwargs))

    def _move_operands(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments with operands of a sum moved; a norm writes to its running statistics, though its schema does not say so."""
        names = [argument.name for argument in func._schema.arguments]

        def move(name: str, value: Any) -> Any:
            return value if name.startswith(_STATISTICS) else tree_map(self._move_operand, value)

        return tuple(map(move, names, args)), {name: move(name, value) for name, value in kwargs.items()}

    def _move_result(self, value: Any) -> Any:
        if _rounds(value) and value.dtype in _NARROW and self._chance.random() >= self._halves:
            return value
        if _rounds(value) and (step := self._result(value.dtype)):
            scale_by_chance(value, self._sign * step, self._find_generator(value.device), alike=self._alike)
        return value

    def _move_operand(self, value: Any) -> Any:
        if not _rounds(value) or not (step := self._operand(value.dtype, self._terms)):
            return value
        place = value.data_ptr(), value.shape, value.stride()
        if place in self._moved:
            return self._moved[place]
        moved = value.clone(memory_format=torch.preserve_format)
        scale_by_chance(moved, self._sign * step, self._find_generator(value.device))
        if value.untyped_storage().data_ptr() in self._weights:
            self._moved[place] = moved
        return moved

    def _round_by_chance(self, result: torch.Tensor, given: torch.Tensor) -> torch.Tensor:
        """A cast to a narrower type rounds; one to a wider type, or of whole numbers, does not."""
        narrower = result.dtype in _NARROW and given.is_floating_point() and given.dtype not in _NARROW
        moved: torch.Tensor = self._move_result(result) if narrower else result
        return moved

    def _order_by_chance(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Values and places as the operator gives them where equal values stand in an order of chance."""
        values = args[0]
        generator = self._find_generator(values.device)
        ordered = values.double()
        if values.is_floating_point():
            ordered = scale_by_chance(ordered.clone(), self._sign * _TIE, generator)
        else:
            ordered = ordered + torch.rand(values.shape, generator=generator, device=values.device, dtype=torch.float64) * self._sign / 4
        _, places = func(ordered, *args[1:], **kwargs)
        names = [argument.name for argument in func._schema.arguments]
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        return torch.take_along_dim(values, places, given.get("dim", -1)) if values.ndim else values, places

    def _find_generator(self, device: torch.device) -> torch.Generator:
        if device not in self._generators:
            self._generators[device] = torch.Generator(device=device).manual_seed(self._seed)
        return self._generators[device]


def read_name(func: Any) -> str:
    """The operator's name without namespace; one in place has the name of the one that is not."""
    name: str = func._schema.name.rpartition("::")[2]
    return name.removesuffix("_") if func._schema.is_mutable else name


def _rounds(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.numel() > 0 and (value.is_floating_point() or value.is_complex())


def draw_seed() -> int:
    """A seed of moves."""
    return int(torch.randint(_LARGEST_SEED, ()))


def move_oracle_arithmetic(
    loaded: Moved, tensors: list[torch.Tensor], precision: PrecisionClass, *, seed: int, share: float = 1.0, alike: bool = False,
    mirrored: bool = False, coarse: bool = False, long_sums: bool = True,
) -> list[torch.Tensor]:  # fmt: skip
    """The oracle with its arithmetic moved by `share` of a few units of the last place.

    In a task of 16 bits these are units of float32, in which kernels compute there, or with `coarse` of the 16-bit type. With `long_sums`
    operands of sums of many terms are moved by more.
    """
    arithmetic = loaded.arithmetic
    fine = arithmetic.half and precision is PrecisionClass.HALF and not coarse
    step = share * (_FINE if fine else arithmetic.find_step(precision))
    grow = _grow_with_terms if not arithmetic.half else _keep if coarse else _grow_with_half_terms
    grow = grow if long_sums else _keep
    operand: SumSteps = lambda dtype, terms: step * grow(terms)  # noqa: E731
    with Mover(seed, lambda dtype: step, operand, loaded.model64, alike=alike, mirrored=mirrored):
        return loaded.oracle(tensors)


def move_reference_arithmetic(
    loaded: Moved, tensors: list[torch.Tensor], precision: PrecisionClass, *, seed: int, share: float = 1.0, alike: bool = False,
    halves: float = 1.0, mirrored: bool = False,
) -> list[torch.Tensor]:  # fmt: skip
    """The reference in its own types: results of 16 bits moved by a unit of their last place, others by `share` of four of theirs.

    `halves` is the chance of each operator that its 16-bit result is moved; else it stays as PyTorch rounds it.
    Operands of 16 bits are exact, since kernels add them up in float32.
    """
    fine = share * (_FINE if precision is PrecisionClass.HALF else loaded.arithmetic.find_step(precision))
    wide = {torch.float64: share * _FINEST, torch.complex128: share * _FINEST}
    narrow = {kind: _ONE_UNIT * torch.finfo(kind).eps for kind in _NARROW}

    def move_operand(kind: torch.dtype, terms: int) -> float:
        return 0.0 if kind in _NARROW else wide.get(kind, fine) * _grow_with_terms(terms)

    steps = wide | narrow
    with Mover(seed, lambda kind: steps.get(kind, fine), move_operand, loaded.model, alike=alike, halves=halves, mirrored=mirrored):
        return loaded.reference_outputs(tensors, precision)


def _keep(terms: int) -> float:
    return 1.0


def _grow_with_terms(terms: int) -> float:
    """A chain of sums in float32 errs with the root of its length; up to 64 terms the operands' own moves are enough."""
    return max(1.0, math.sqrt(terms / _TERMS))


def _grow_with_half_terms(terms: int) -> float:
    """Tensor cores cut sums of 16-bit products towards zero, so that errors add up with the number of terms."""
    return max(_HALF_SUMS, terms / _TERMS)


def _count_terms(name: str, args: tuple[Any, ...]) -> int:
    """Terms of each sum of an operator: of a convolution the weights of a filter, else the last axis of its first operand of two axes."""
    operands = [value for value in args if isinstance(value, torch.Tensor) and value.ndim > 1]
    if "convolution" in name and len(operands) > 1:
        return operands[1].numel() // max(operands[1].shape[0], 1)
    return operands[0].shape[-1] if operands else max((value.numel() for value in args if isinstance(value, torch.Tensor)), default=1)

