"""Reductions over any axes, the norms of vectors, softmax and its kin."""

from __future__ import annotations

import math
from typing import Any

from tritonsmith.author.compiler.ir.indices import Shape, count
from tritonsmith.author.compiler.ir.operators import A, B, C, D
from tritonsmith.author.compiler.ir.operators import Operator as Op
from tritonsmith.author.compiler.ir.values import FLOATS, AnchorResult, Reduction, Stacked, Tensor, rename, widen
from tritonsmith.author.compiler.lowering.calls import Lower, Lowered, NodeCall, NotCovered, find_axes
from tritonsmith.author.compiler.lowering.pointwise import cast, common_type, constant, formula, round_number, settle
from tritonsmith.author.compiler.lowering.views import expand, reshape
from tritonsmith.author.types import SHORT

_JOINS = {"sum": A + B, "prod": A * B, "any": A | B, "all": A & B}
"""By kind of reduction: what joins two values; extremes go by their type."""
_OF_NOTHING = {"sum": 0, "prod": 1, "any": False, "all": True}
"""What a reduction gives where there is no element."""
_MULTIPLIED = 25
"""Vectors of a set beyond which PyTorch finds distances by a product of matrices, unless it is told otherwise."""
_MOST_NUMBERS = 4096
"""Sorted numbers that are all compared with each value."""


def reduce(source: Tensor, axes: tuple[int, ...], kind: str, dtype: str = "", keep: bool = False, which: int = 0) -> Tensor:
    """One number for all elements along some axes."""
    if not source.size:
        if kind not in _OF_NOTHING:
            raise NotCovered("of no element")
        left = keep_axes(source.shape, axes) if keep else tuple(size for axis, size in enumerate(source.shape) if axis not in axes)
        return constant(_OF_NOTHING[kind], dtype or source.dtype, left)
    if along(source.shape, axes) == 1:
        value = constant(0, "int64", source.shape) if which else cast(source, dtype or source.dtype)
        if kind == "sum" and value.dtype in FLOATS:
            value = formula(A + 0.0, value, like=value.dtype)  # a sum begins with zero, so it never is -0.0
        return value if keep else reshape(value, tuple(size for axis, size in enumerate(source.shape) if axis not in axes))
    if isinstance(source, Stacked) and axes == (source.axis,) and not which and (kind in _JOINS or kind in ("max", "min")):
        value = cast(_join_parts(source, kind), dtype or source.dtype)
        return value if keep else reshape(value, tuple(size for axis, size in enumerate(source.shape) if axis not in axes))
    found = Reduction(shape=source.shape, dtype=source.dtype, source=source, axes=axes, kind=kind)
    return take(found, which, dtype or source.dtype, keep)


def _join_parts(source: Stacked, kind: str) -> Tensor:
    """One number of a few values beside each other, which a kernel has already."""
    real, wide = source.dtype in FLOATS, widen(source.dtype)
    ends = {"max": Op.MAXIMUM if real else Op.FMAX, "min": Op.MINIMUM if real else Op.FMIN}
    tree = ends[kind](A, B) if kind in ends else _JOINS[kind]
    first, *others = source.parts
    found: Tensor = formula(A + 0.0, first, like=wide) if kind == "sum" and real else first  # a sum never is -0.0
    for part in others:
        found = formula(tree, found, part, like=wide)
    return found


def take(anchor: Reduction, which: int, dtype: str, keep: bool) -> Tensor:
    """A result of a reduction, with its axes as axes of one element where `keep`."""
    shape = anchor.source.shape
    left = tuple(size for axis, size in enumerate(shape) if axis not in anchor.axes)
    if dtype in SHORT:  # Triton reduces them in int32, in which what is made of the result would not begin again at the other end
        value = cast(AnchorResult(shape=left, dtype="int32", anchor=anchor, which=which), dtype)
    else:
        value = AnchorResult(shape=left, dtype=dtype, anchor=anchor, which=which)
    return reshape(value, keep_axes(shape, anchor.axes)) if keep else value


def keep_axes(shape: Shape, axes: tuple[int, ...]) -> Shape:
    """The shape with one element along some axes."""
    return tuple(1 if axis in axes else size for axis, size in enumerate(shape))


def along(shape: Shape, axes: tuple[int, ...]) -> int:
    """Elements along some axes."""
    return count(tuple(shape[axis] for axis in axes))


def _where(call: NodeCall) -> tuple[Tensor, tuple[int, ...], bool]:
    """The tensor, the axes and whether they are kept."""
    source = call.tensor(0, "input", "self")
    return source, find_axes(call.get(1, "dim", "axis", default=None), len(source.shape)), bool(call.get(2, "keepdim", default=False))


def _accumulate(call: NodeCall) -> Lowered:
    """`sum`, `mean` and `prod`."""
    source, axes, keep = _where(call)
    name = call.node.target.rpartition(".")[2]
    if name == "mean" and not source.size:
        return constant(math.nan, call.dtype, call.shape)
    value = cast(source, call.dtype)
    found = reduce(value, axes, "prod" if name == "prod" else "sum", call.dtype, keep)
    return formula(A / B, found, along(source.shape, axes), like=call.dtype) if name == "mean" else found


def _extreme(call: NodeCall) -> Lowered:
    """`max`, `min`, `amax`, `amin`: of a tensor, along an axis with the places, or of two tensors."""
    name = call.node.target.rpartition(".")[2]
    kind = "max" if "max" in name else "min"
    second = call.get(1, "other", default=None)
    if isinstance(second, Tensor):
        larger, smaller = (Op.MAXIMUM, Op.MINIMUM) if call.dtype in FLOATS else (Op.FMAX, Op.FMIN)
        return formula((larger if kind == "max" else smaller)(A, B), call.args[0], second, like=call.dtype, shape=call.shape)
    source, axes, keep = _where(call)
    if len(call.node.outputs) < 2:
        return reduce(source, axes, kind, "", keep)
    return find_best(source, axes, kind, keep)


def find_best(source: Tensor, axes: tuple[int, ...], kind: str, keep: bool, last: bool = False) -> tuple[Tensor, Tensor]:
    """The largest (`max`) or least (`min`) element along some axes, and its first place among them; of NaN the last one where `last`."""
    if along(source.shape, axes) == 1:
        return reduce(source, axes, kind, "", keep), reduce(source, axes, f"arg{kind}", "int64", keep, which=1)
    _refuse_long(source, axes)
    source = settle(source)
    word = "last" if last and source.dtype in FLOATS else "arg"
    best = Reduction(shape=source.shape, dtype=source.dtype, source=source, axes=axes, kind=f"{word}{kind}")
    return take(best, 0, source.dtype, keep), take(best, 1, "int64", keep)


def _place(call: NodeCall) -> Lowered:
    """`argmax` and `argmin`."""
    source, axes, keep = _where(call)
    _refuse_long(source, axes)
    return reduce(settle(source), axes, call.node.target.rpartition(".")[2], "int64", keep, which=1)


def _refuse_long(source: Tensor, axes: tuple[int, ...]) -> None:
    """Kernels find places in 32 bits. Raises NotCovered where they have more."""
    if along(source.shape, axes) >= 2**31:
        raise NotCovered("over more than 2**31 places")


def _test(call: NodeCall) -> Lowered:
    """`any` and `all`."""
    source, axes, keep = _where(call)
    return reduce(cast(source, "bool"), axes, call.node.target.rpartition(".")[2], "bool", keep)


def _count(call: NodeCall) -> Lowered:
    """`count_nonzero`."""
    source = call.tensor(0, "input", "self")
    axes = find_axes(call.get(1, "dim", default=None), len(source.shape))
    return reduce(cast(cast(source, "bool"), "int64"), axes, "sum", "int64")


def _skip_nan(call: NodeCall) -> Lowered:
    """`nansum` and `nanmean`: what is no number does not count."""
    source, axes, keep = _where(call)
    if source.dtype not in FLOATS:
        return reduce(cast(source, call.dtype), axes, "sum", call.dtype, keep)
    total = reduce(formula(Op.WHERE(Op.EQ(A, A), A, 0.0), source, like=widen(source.dtype)), axes, "sum", call.dtype, keep)
    if call.node.target.endswith("nansum"):
        return total
    counted = reduce(formula(Op.WHERE(Op.EQ(A, A), 1.0, 0.0), source, like=widen(source.dtype)), axes, "sum", call.dtype, keep)
    return formula(A / B, total, counted, like=call.dtype)


def _both_extremes(call: NodeCall) -> Lowered:
    """`aminmax`."""
    source = call.tensor(0, "input", "self")
    axes, keep = find_axes(call.kwargs.get("dim"), len(source.shape)), bool(call.kwargs.get("keepdim", False))
    return reduce(source, axes, "min", "", keep), reduce(source, axes, "max", "", keep)


def find_moments(source: Tensor, axes: tuple[int, ...]) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and sum of squared distances from it, with axes of one element, and the distances."""
    wide = widen(source.dtype)
    if along(source.shape, axes) == 1:
        zero = formula(A - A, source, like=wide)  # or NaN
        return cast(source, wide), formula(A * A, zero, like=wide), zero
    if isinstance(source, Stacked) and axes == (source.axis,):
        mean = formula(A / B, reduce(source, axes, "sum", wide, keep=True), len(source.parts), like=wide)
        distance = rename(formula(A - B, source, mean, like=wide), "centered")
        return mean, reduce(formula(A * A, distance, like=wide), axes, "sum", wide, keep=True), distance
    found = Reduction(shape=source.shape, dtype=wide, source=source, axes=axes, kind="moments")
    mean, squares = take(found, 0, wide, True), take(found, 1, wide, True)
    distance = rename(formula(A - B, source, mean, like=wide), "centered")
    found.helper = distance
    return mean, squares, distance


def _spread(call: NodeCall) -> Lowered:
    """`var`, `std`, `var_mean` and `std_mean`."""
    source = call.tensor(0, "input", "self")
    axes = find_axes(call.kwargs.get("dim", next((one for one in call.args[1:] if not isinstance(one, bool)), None)), len(source.shape))
    unbiased = call.kwargs.get("unbiased", next((one for one in call.args[1:] if isinstance(one, bool)), True))
    correction = call.kwargs.get("correction", 1 if unbiased else 0)
    correction = 1 if correction is None else correction
    keep = bool(call.kwargs.get("keepdim", False))
    if not source.size:
        raise NotCovered("of no element")
    mean, squares, _ = find_moments(source, axes)
    name = call.node.target.rpartition(".")[2]
    tree = Op.SQRT(A / B) if name.startswith("std") else A / B
    found = cast(formula(tree, squares, max(0, along(source.shape, axes) - correction), like=squares.dtype), call.dtype)
    if name.endswith("mean"):  # which PyTorch updates by differences: of an infinity it is NaN
        mean = formula(Op.WHERE(Op.EQ(B, B), A, B), mean, squares, like=mean.dtype)
    values = (found, cast(mean, call.dtype)) if name.endswith("mean") else (found,)
    shaped = tuple(one if keep else reshape(one, spec.shape) for one, spec in zip(values, call.node.outputs, strict=True))
    return shaped if len(shaped) > 1 else shaped[0]


def find_exponentials(source: Tensor, axes: tuple[int, ...], kind: str = "exponentials") -> tuple[Tensor, Tensor, Tensor]:
    """Maximum and sum of exponentials below it, with axes of one element, and the exponentials.

    kind: with `logsumexp` the maximum is NaN where an element is.
    """
    wide = widen(source.dtype)
    if along(source.shape, axes) == 1:
        alone = formula(Op.FAST_EXP(A - A), source, like=wide)
        return cast(source, wide), alone, alone
    if isinstance(source, Stacked) and axes == (source.axis,):
        most = reduce(source, axes, "max", wide, keep=True)
        powers = rename(formula(Op.FAST_EXP(A - B), source, most, like=wide), "exponential")
        return most, reduce(powers, axes, "sum", wide, keep=True), powers
    found = Reduction(shape=source.shape, dtype=wide, source=source, axes=axes, kind=kind)
    most, total = take(found, 0, wide, True), take(found, 1, wide, True)
    found.helper = rename(formula(Op.FAST_EXP(A - B), source, most, like=wide), "exponential")
    return most, total, found.helper


def softmax(source: Tensor, axis: int, dtype: str) -> Tensor:
    """Softmax along an axis."""
    _, total, exponentials = find_exponentials(source, find_axes(axis, len(source.shape)))
    return formula(A / B, exponentials, total, like=widen(dtype), result=dtype)


def log_softmax(source: Tensor, axis: int, dtype: str) -> Tensor:
    """The logarithm of the softmax along an axis."""
    most, total, _ = find_exponentials(source, find_axes(axis, len(source.shape)))
    return formula(A - B - Op.LOG(C), source, most, total, like=widen(dtype), result=dtype)


def _softmax(call: NodeCall) -> Lowered:
    source, name = call.tensor(0, "input", "self"), (call.node.module_type or call.node.target.rpartition(".")[2]).lower()
    if name == "softmax2d":
        return softmax(source, -3, call.dtype)
    axis = call.option(1, "dim", None)
    if not isinstance(axis, int):
        raise NotCovered("without dim")
    if "softmin" in name:
        source = formula(-A, source, like=source.dtype)
    source = cast(source, call.dtype)
    return log_softmax(source, axis, call.dtype) if "log" in name else softmax(source, axis, call.dtype)


def log_sum_exp(source: Tensor, axes: tuple[int, ...], keep: bool, dtype: str) -> Tensor:
    """The logarithm of the sum of exponentials."""
    if along(source.shape, axes) == 1:
        return reduce(source, axes, "sum", dtype, keep)
    most, total, _ = find_exponentials(source, axes, "logsumexp")
    infinite = Op.WHERE(Op.EQ(Op.ABS(A), math.inf), A, A + Op.LOG(B))  # whose distance from itself is no number
    found = formula(infinite, most, total, like=most.dtype, result=dtype)
    return found if keep else reshape(found, tuple(size for axis, size in enumerate(source.shape) if axis not in axes))


def _log_sum(call: NodeCall) -> Lowered:
    source, axes, keep = _where(call)
    source = cast(source, call.dtype)
    return log_sum_exp(source, axes, keep, call.dtype)


def vector_norm(source: Tensor, order: Any, axes: tuple[int, ...], keep: bool, dtype: str) -> Tensor:
    """The norm of an order of the elements along some axes."""
    if isinstance(order, dict) and "float" in order:
        order = float(order["float"])
    wide = widen(dtype)  # 16 bits would not hold the squares
    if order in (None, "fro", 2, 2.0):
        squares = reduce(formula(A * A, source, like=wide), axes, "sum", wide, keep)
        return formula(Op.SQRT(A), squares, like=wide, result=dtype)
    size = formula(Op.ABS(A), source, like=source.dtype)
    if order in (1, 1.0):
        return reduce(size, axes, "sum", dtype, keep)
    if order in (float("inf"), float("-inf")):
        return reduce(size, axes, "max" if order > 0 else "min", dtype, keep)
    if not isinstance(order, int | float) or order <= 0:
        raise NotCovered(f"of order {order}")
    total = reduce(formula(Op.POW(A, B), size, order, like=wide), axes, "sum", wide, keep)
    return formula(Op.POW(A, B), total, 1 / order, like=wide, result=dtype)


def _norm(call: NodeCall) -> Lowered:
    source = call.tensor(0, "input", "self", "x", "A")
    order = call.get(1, "p", "ord", default=None)
    axes = find_axes(call.get(2, "dim", default=None), len(source.shape))
    matrix = call.node.target.endswith("linalg.norm") and order is not None and len(axes) == 2
    if matrix or order == "nuc":
        raise NotCovered(f"of order {order}")
    return vector_norm(source, order, axes, bool(call.get(3, "keepdim", default=False)), call.dtype)


def _normalize(call: NodeCall) -> Lowered:
    source, order, eps = call.tensor(0, "input"), call.get(1, "p", default=2.0), call.get(3, "eps", default=1e-12)
    axes = find_axes(call.get(2, "dim", default=1), len(source.shape))
    size = vector_norm(source, order, axes, True, call.dtype)
    return formula(A / Op.MAXIMUM(B, C), source, size, round_number(eps, call.dtype), like=call.dtype)


def _similar(call: NodeCall) -> Lowered:
    """Cosine similarity along an axis."""
    left, right = call.tensor(0, "x1"), call.tensor(1, "x2")
    axis, eps = call.option(2, "dim", 1), call.option(3, "eps", 1e-8)
    return cosine(left, right, axis, eps, call.dtype)


def cosine(left: Tensor, right: Tensor, axis: int, eps: float, dtype: str) -> Tensor:
    """The cosine of the angle between two tensors along an axis."""
    product = formula(A * B, left, right, like=dtype)
    axes = (axis % len(product.shape),)
    dot = reduce(product, axes, "sum")
    sizes = [reduce(formula(A * A, expand(one, product.shape), like=dtype), axes, "sum") for one in (left, right)]
    return formula(A / (Op.FMAX(Op.SQRT(B), D) * Op.FMAX(Op.SQRT(C), D)), dot, *sizes, round_number(eps, dtype), like=dtype)


def _distance(call: NodeCall) -> Lowered:
    """The distance of two tensors along the last axis."""
    left, right = call.tensor(0, "x1"), call.tensor(1, "x2")
    order, eps = call.option(2, "p" if call.node.op != "call_module" else "norm", 2.0), call.option(3, "eps", 1e-6)
    if left.dtype not in FLOATS or right.dtype not in FLOATS:
        raise NotCovered(f"on {left.dtype}")
    apart = formula(A - B + C, left, right, eps, like=call.dtype)
    return vector_norm(apart, order, (len(apart.shape) - 1,), bool(call.option(4, "keepdim", False)), call.dtype)


def _distance_of_all(call: NodeCall) -> Lowered:
    """`dist`: the norm of a difference."""
    apart = formula(A - B, call.tensor(0, "input"), call.tensor(1, "other"), like=call.dtype)
    return vector_norm(apart, call.get(2, "p", default=2), tuple(range(len(apart.shape))), False, call.dtype)


def _distances(call: NodeCall) -> Lowered:
    """`cdist`: from each vector of one set to each of the other one."""
    left, right = call.tensor(0, "x1"), call.tensor(1, "x2")
    order = call.get(2, "p", default=2.0)
    one, other = (reshape(value, (*value.shape[:-2], *sizes)) for value, sizes in (
        (left, (left.shape[-2], 1, left.shape[-1])), (right, (1, *right.shape[-2:]))
    ))  # fmt: skip
    apart = formula(A - B, one, other, like=call.dtype)
    if order != 2:
        return vector_norm(apart, order, (len(apart.shape) - 1,), False, call.dtype)
    total = reduce(formula(A * A, apart, like=widen(call.dtype)), (len(apart.shape) - 1,), "sum", widen(call.dtype))
    mode = call.get(3, "compute_mode", default=None) or "use_mm_for_euclid_dist_if_necessary"
    if isinstance(total, AnchorResult) and isinstance(total.anchor, Reduction):
        many = max(left.shape[-2], right.shape[-2]) > _MULTIPLIED
        total.anchor.multiplied = mode == "use_mm_for_euclid_dist" or mode.endswith("necessary") and many
    return formula(Op.SQRT(A), total, like=widen(call.dtype), result=call.dtype)


def _find_place(call: NodeCall) -> Lowered:
    """`bucketize` and `searchsorted`: how many sorted numbers lie before each value. NaN lies behind all, as in torch."""
    sought = call.node.target.rpartition(".")[2] == "searchsorted"
    numbers = call.tensor(0, "sorted_sequence") if sought else call.tensor(1, "boundaries")
    values = call.get(1, "input", "self") if sought else call.get(0, "input", "self")
    if not isinstance(values, Tensor) or call.kwargs.get("sorter") is not None:
        raise NotCovered("of a number, or by a sorter")
    if numbers.shape[-1] > _MOST_NUMBERS:
        raise NotCovered(f"among {numbers.shape[-1]} numbers")  # a search by halves would be faster
    behind = bool(call.kwargs.get("right", False)) or call.kwargs.get("side") == "right"
    spread = reshape(numbers, (*numbers.shape[:-1], 1, numbers.shape[-1])) if len(numbers.shape) > 1 else numbers
    tree = Op.WHERE(A > B, 0, 1) if behind else Op.WHERE(A >= B, 0, 1)
    before = formula(tree, spread, reshape(values, (*values.shape, 1)), like=common_type(numbers, values), result="int32")
    return reduce(before, (len(before.shape) - 1,), "sum", call.dtype)


TABLE: dict[str, Lower] = {
    **dict.fromkeys(("bucketize", "searchsorted"), _find_place),
    **dict.fromkeys(("sum", "mean", "prod"), _accumulate),
    **dict.fromkeys(("max", "min", "amax", "amin"), _extreme),
    **dict.fromkeys(("argmax", "argmin"), _place),
    **dict.fromkeys(("any", "all"), _test),
    **dict.fromkeys(("var", "std", "var_mean", "std_mean"), _spread),
    **dict.fromkeys(("softmax", "log_softmax", "softmin", "nn.Softmax", "nn.LogSoftmax", "nn.Softmin", "nn.Softmax2d"), _softmax),
    "logsumexp": _log_sum,
    **dict.fromkeys(("norm", "vector_norm"), _norm),
    "normalize": _normalize, "cosine_similarity": _similar, "nn.CosineSimilarity": _similar,
    "pairwise_distance": _distance, "nn.PairwiseDistance": _distance, "dist": _distance_of_all, "cdist": _distances,
    "count_nonzero": _count, "nansum": _skip_nan, "nanmean": _skip_nan, "aminmax": _both_extremes,
}  # fmt: skip
