"""Pools: reductions over windows of one to three axes."""

from __future__ import annotations

import math
from typing import Any

from tritonsmith.author.compiler.ir.indices import ZERO, Coordinates, Guard, Index, Shape
from tritonsmith.author.compiler.ir.operators import A, B, C, Constant, D, E, Operand, Tree, chain
from tritonsmith.author.compiler.ir.operators import Operator as Op
from tritonsmith.author.compiler.ir.values import FLOATS, LEAST, ZERO_POINT, Formula, Position, Tensor, TensorView, widen
from tritonsmith.author.compiler.lowering.calls import Lower, Lowered, NodeCall, NotCovered
from tritonsmith.author.compiler.lowering.pointwise import formula
from tritonsmith.author.compiler.lowering.reductions import find_best, reduce
from tritonsmith.author.compiler.lowering.views import permute, reshape, unfold_axis

Sizes = tuple[int, ...]


def spread(given: Any, axes: int) -> Sizes:
    """One number, or one for each axis."""
    return (given,) * axes if isinstance(given, int) else tuple(given) * (axes if len(given) == 1 else 1)


def open_windows(
    source: Tensor, window: Sizes, stride: Sizes, padding: Sizes, dilation: Sizes, outputs: Shape, fill: Constant
) -> TensorView:
    """The tensor with an axis for each axis of the window behind its own; `fill` beyond the edge."""
    lead = len(source.shape) - len(window)
    sizes = source.shape[lead:]

    def find(at: Coordinates) -> list[Index]:
        return [
            at[lead + axis] * stride[axis] + at[lead + len(window) + axis] * dilation[axis] - padding[axis] for axis in range(len(window))
        ]

    apart = window == stride and not any(padding) and all(step == 1 for step in dilation)
    inside = all(count * size <= whole for count, size, whole in zip(outputs, window, sizes, strict=True))
    return TensorView(
        shape=(*source.shape[:lead], *outputs, *window), dtype=source.dtype, source=source, fill=fill,
        windows=window if apart and inside else (),
        move=lambda at: (*at[:lead], *find(at)),
        guard=lambda at: tuple(Guard(index, 0, size) for index, size in zip(find(at), sizes, strict=True)),
    )  # fmt: skip


def _pool(call: NodeCall) -> Lowered:
    source = call.tensor(0, "input")
    name = (call.node.module_type or call.node.target.rpartition(".")[2]).lower().replace("_", "")
    axes = int(name[name.index("pool") + 4])
    largest = name.startswith("max")
    window = spread(call.option(1, "kernel_size", None), axes)
    stride = spread(call.option(2, "stride", None) or window, axes)
    padding = spread(call.option(3, "padding", 0), axes)
    dilation = spread(call.option(4, "dilation", 1), axes) if largest else (1,) * axes
    outputs = call.shape[len(call.shape) - axes :]
    lead = len(call.shape) - axes
    behind = tuple(range(len(call.shape), len(call.shape) + axes))
    if largest:
        views = open_windows(source, window, stride, padding, dilation, outputs, LEAST)
        if len(call.node.outputs) == 1:
            return reduce(views, behind, "max")
        best, place = find_best(views, behind, "max", keep=False, last=True)
        starts = [_find_start(call.shape, lead + axis, stride[axis], padding[axis]) for axis in range(axes)]
        return best, _place(place, starts, window, dilation, source.shape, padding)
    if source.dtype not in FLOATS:
        raise NotCovered(f"on {source.dtype}")
    views = open_windows(source, window, stride, padding, dilation, outputs, ZERO_POINT)
    total = reduce(views, behind, "sum", widen(source.dtype))
    divisor = call.option(6, "divisor_override", None)
    counts_rim = call.option(5, "count_include_pad", True)
    ceiling = call.option(4, "ceil_mode", False)
    if divisor or (not any(padding) and not ceiling) or (counts_rim and not ceiling):
        return formula(A / B, total, divisor or math.prod(window), like=widen(source.dtype), result=source.dtype)
    rims = padding if counts_rim else (0,) * axes
    sizes = source.shape[lead:]
    counts = [_count(axis, lead, window, stride, padding, rims, sizes, call.shape) for axis in range(axes)]
    shared = Op.GROUP(chain(Op.MUL, [Operand(axis + 1) for axis in range(axes)]))
    return formula(A / shared, total, *counts, like=widen(source.dtype), result=source.dtype)


def _find_start(shape: Shape, axis: int, stride: int, padding: int) -> Tensor:
    """Where a window begins along an axis."""
    return Position(shape=shape, dtype="int32", index=lambda at: at[axis] * stride - padding)


def _place(found: Tensor, starts: list[Tensor], window: Sizes, dilation: Sizes, shape: Shape, rims: Sizes) -> Tensor:
    """The number of an element in its image, by its number in a window."""
    tree: Tree | None = None
    left = math.prod(window)
    for axis, (size, apart) in enumerate(zip(window, dilation, strict=True)):
        left //= size
        start: Tree = Operand(axis + 1)
        at = start + A // left % size * apart
        if rims[axis]:  # in a window of nothing but -inf PyTorch gives the first place inside
            at = Op.FMAX(at, 0) if apart == 1 else Op.WHERE(at < 0, (at % apart + apart) % apart, at)
        tree = at if tree is None else Op.GROUP(tree) * shape[len(shape) - len(window) + axis] + at
    assert tree is not None, "a window has an axis"
    return formula(tree, found, *starts, like="int64")


def _count(axis: int, lead: int, window: Sizes, stride: Sizes, padding: Sizes, rims: Sizes, sizes: Shape, shape: Shape) -> Tensor:
    """How many places of a window count along one axis: those inside the tensor and its rim."""
    start = _find_start(shape, lead + axis, stride[axis], padding[axis])
    counted = Op.FMIN(A + window[axis], sizes[axis] + rims[axis]) - Op.FMAX(A, -rims[axis])
    return Formula(shape=shape, dtype="float32", expression=counted.to("float32"), inputs=(start,))


def _sum_powers(call: NodeCall) -> Lowered:
    """`lp_pool`: the root of the sum of powers, which torch does not take of absolute values."""
    source, order = call.tensor(0, "input"), float(call.option(1, "norm_type", None))
    window = call.option(2, "kernel_size", None)
    axes = len(window) if isinstance(window, list | tuple) else len(source.shape) - 2
    window = spread(window, axes)
    stride = spread(call.option(3, "stride", None) or window, axes)
    views = open_windows(source, window, stride, (0,) * axes, (1,) * axes, call.shape[-axes:], ZERO_POINT)
    wide, behind = widen(source.dtype), tuple(range(len(call.shape), len(call.shape) + axes))
    if order not in (1.0, 2.0):
        raise NotCovered(f"of order {order}")
    total = reduce(formula(A * A if order == 2 else A, views, like=wide), behind, "sum", wide)
    return formula(Op.SQRT(A) if order == 2 else A, total, like=wide, result=source.dtype)


def _inhibit(call: NodeCall) -> Lowered:
    """`local_response_norm`: over neighbouring channels."""
    source, size = call.tensor(0, "input"), int(call.option(1, "size", None))
    alpha, beta, k = call.option(2, "alpha", 1e-4), call.option(3, "beta", 0.75), call.option(4, "k", 1.0)
    wide, rank = widen(source.dtype), len(source.shape)
    channels = source.shape[1]

    def neighbour(at: Coordinates) -> Index:
        return at[1] + at[rank] - size // 2

    views = TensorView(
        shape=(*source.shape, size), dtype=source.dtype, source=source, move=lambda at: (at[0], neighbour(at), *at[2:rank]),
        guard=lambda at: (Guard(neighbour(at), 0, channels),),
    )  # fmt: skip
    total = reduce(formula(A * A, views, like=wide), (rank,), "sum", wide)
    text = A / Op.POW(B * C + D, E)
    return formula(text, source, total, alpha / size, k, beta, like=wide, result=source.dtype)


def _unfold(call: NodeCall) -> Lowered:
    """`F.unfold`: windows of two axes as columns. A method of that name opens windows along one axis."""
    if call.node.op == "call_method":
        return unfold_axis(call)
    source = call.tensor(0, "input")
    if len(source.shape) != 4:
        raise NotCovered("without a batch")
    window, dilation, padding, stride = (
        spread(call.option(place, name, plain), 2)
        for place, (name, plain) in enumerate((("kernel_size", None), ("dilation", 1), ("padding", 0), ("stride", 1)), 1)
    )
    pairs = zip(source.shape[2:], padding, dilation, window, stride, strict=True)
    outputs = tuple((size + 2 * rim - apart * (length - 1) - 1) // step + 1 for size, rim, apart, length, step in pairs)
    views = open_windows(source, window, stride, padding, dilation, outputs, ZERO_POINT)
    return reshape(permute(views, (0, 1, 4, 5, 2, 3)), call.shape)


def _divide(call: NodeCall) -> Lowered:
    """Pools that divide an axis into equal parts."""
    source = call.tensor(0, "input")
    name = (call.node.module_type or call.node.target.rpartition(".")[2]).lower().replace("_", "")
    axes = int(name[name.index("pool") + 4])
    if len(call.node.outputs) > 1:
        raise NotCovered("with indices")
    outputs, sizes = call.shape[-axes:], source.shape[-axes:]
    if any(size % parts for size, parts in zip(sizes, outputs, strict=True)):
        return _divide_unevenly(source, outputs, "max" in name)
    window = tuple(size // parts for size, parts in zip(sizes, outputs, strict=True))
    views = open_windows(source, window, window, (0,) * axes, (1,) * axes, outputs, ZERO_POINT)
    behind = tuple(range(len(call.shape), len(call.shape) + axes))
    if "max" in name:
        return reduce(views, behind, "max")
    total = reduce(views, behind, "sum", widen(source.dtype))
    return formula(A / B, total, math.prod(window), like=widen(source.dtype), result=source.dtype)


def _divide_unevenly(source: Tensor, outputs: Shape, largest: bool) -> Tensor:
    """Parts of different sizes: windows as long as the longest, whose last places may not count."""
    axes, lead = len(outputs), len(source.shape) - len(outputs)
    pairs = list(zip(source.shape[lead:], outputs, strict=True))
    window = tuple(max(-(-(part + 1) * size // parts) - part * size // parts for part in range(parts)) for size, parts in pairs)

    def find(at: Coordinates, axis: int) -> tuple[Index, Index]:
        """The place along an axis, and the places from there to the end of its part."""
        (size, parts), part = pairs[axis], at[lead + axis]
        place = part * size // parts + at[lead + axes + axis]
        return place, (part * size + (size + parts - 1)) // parts - place

    views = TensorView(
        shape=(*source.shape[:lead], *outputs, *window), dtype=source.dtype, source=source, fill=LEAST if largest else ZERO_POINT,
        move=lambda at: (*at[:lead], *(find(at, axis)[0] for axis in range(axes))),
        guard=lambda at: tuple(Guard(find(at, axis)[1], 1, length + 1) for axis, length in enumerate(window)),
    )  # fmt: skip
    behind = tuple(range(lead + axes, lead + 2 * axes))
    if largest:
        return reduce(views, behind, "max")
    shape, wide = (*source.shape[:lead], *outputs), widen(source.dtype)

    def measure(axis: int) -> Tensor:
        return Position(shape=shape, dtype="int32", index=lambda at: find((*at, *(ZERO,) * axes), axis)[1])

    sizes = [measure(axis) for axis in range(axes)]
    shared = Op.GROUP(chain(Op.MUL, [Operand(axis + 1) for axis in range(axes)]))
    return formula(A / shared, reduce(views, behind, "sum", wide), *sizes, like=wide, result=source.dtype)


_KINDS = [(f"{kind}_pool{axes}d", f"nn.{kind.title()}Pool{axes}d") for kind in ("max", "avg") for axes in (1, 2, 3)]
TABLE: dict[str, Lower] = {
    **{name: _pool for pair in _KINDS for name in pair}, **{f"max_pool{axes}d_with_indices": _pool for axes in (1, 2, 3)},
    **dict.fromkeys((f"lp_pool{axes}d" for axes in (1, 2, 3)), _sum_powers),
    **dict.fromkeys((f"nn.LPPool{axes}d" for axes in (1, 2, 3)), _sum_powers),
    **dict.fromkeys(("local_response_norm", "nn.LocalResponseNorm"), _inhibit),
    **dict.fromkeys(("unfold", "nn.Unfold"), _unfold),
    **{name: _divide for plain, module in _KINDS for name in (f"adaptive_{plain}", module.replace("nn.", "nn.Adaptive"))},
}
