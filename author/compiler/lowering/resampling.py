"""Elements that are read at places which follow from where they go: rims of a tensor's own elements, neighbours, images of another size."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tritonsmith.author.compiler.ir.indices import Coordinates, Index, Shape
from tritonsmith.author.compiler.ir.operators import A, B, C, D, E
from tritonsmith.author.compiler.ir.operators import Operator as Op
from tritonsmith.author.compiler.ir.values import FLOATS, Formula, Lookup, Position, Tensor, align, rename, widen
from tritonsmith.author.compiler.lowering.calls import Lower, Lowered, NodeCall, NotCovered
from tritonsmith.author.compiler.lowering.pointwise import formula, select_where
from tritonsmith.author.compiler.lowering.views import pad, pick, reshape, view

_MODES = {"Zero": "constant", "Constant": "constant", "Reflection": "reflect", "Replication": "replicate", "Circular": "circular"}
_FLAT = 4
"""Axes of a batch of flat images."""
_SMOOTH = {"linear": 1, "bilinear": 2, "trilinear": 3, "bicubic": 2}
"""Interpolation by axes."""
_CUBIC = Op.GROUP((A * 1.25 - 2.25) * A * A + 1.0), ((A * -0.75 + 3.75) * A - 6.0) * A + 3.0
"""Shares of neighbours at a distance of up to 1 and up to 2, with torch's bend of -0.75 and its order of steps."""


def look_at(source: Tensor, shape: Shape, places: dict[int, Tensor]) -> Lookup:
    """The source at places of some axes, each computed for all places of that axis alone; other axes as they are."""
    axes = sorted(places)

    def move(at: Coordinates, found: Sequence[Index]) -> Coordinates:
        return tuple(found[axes.index(axis)] if axis in places else index for axis, index in enumerate(at))

    return Lookup(
        shape=tuple(shape), dtype=source.dtype, table=source, places=tuple(places[axis] for axis in axes),
        where=lambda at: tuple((at[axis],) for axis in axes), move=move, limits=tuple(source.shape[axis] for axis in axes),
    )  # fmt: skip


def _count(size: int) -> Tensor:
    """The places of one axis."""
    return Position(shape=(size,), dtype="int32", index=lambda at: at[0])


def pad_by_itself(source: Tensor, before: Sequence[int], after: Sequence[int], mode: str) -> Tensor:
    """A rim of the tensor's own elements: `reflect`, `replicate` or `circular`. Raises NotCovered for other modes and rims that cut."""
    sizes = source.shape
    shape = tuple(size + low + high for size, low, high in zip(sizes, before, after, strict=True))
    if min(*before, *after) < 0:
        raise NotCovered("with a rim that cuts")
    if mode == "circular":
        return view(
            source, shape, lambda at: tuple((index + (-low) % size) % size for index, low, size in zip(at, before, sizes, strict=True))
        )
    found: dict[int, Tensor] = {}
    for axis, (size, low) in enumerate(zip(sizes, before, strict=True)):
        if shape[axis] == size:
            continue
        place = formula(A - B, _count(shape[axis]), low, like="int32")
        if mode == "reflect":
            place = formula(B - Op.ABS(B - Op.ABS(A)), place, size - 1, like="int32")
        elif mode == "replicate":
            place = formula(Op.FMIN(Op.FMAX(A, 0), B), place, size - 1, like="int32")
        else:
            raise NotCovered(f"with the mode {mode}")
        found[axis] = rename(place, mode)
    return look_at(source, shape, found)


def _pad(call: NodeCall) -> Lowered:
    """`F.pad` and the modules of every kind of rim."""
    source, kind = call.tensor(0, "input"), call.node.module_type
    rims = list(call.option(1, "padding", None)) if kind else list(call.get(1, "pad"))
    mode = _MODES[kind.partition("Pad")[0]] if kind else call.option(2, "mode", "constant")
    rank = len(source.shape)
    before, after = [0] * rank, [0] * rank
    for number in range(len(rims) // 2):
        before[rank - 1 - number], after[rank - 1 - number] = rims[2 * number : 2 * number + 2]
    if mode == "constant":
        return pad(source, tuple(before), tuple(after), 0.0 if (fill := call.option(3, "value", 0.0)) is None else fill)
    return pad_by_itself(source, before, after, mode)


def _interpolate(call: NodeCall) -> Lowered:
    """Nearest neighbours, linear interpolation along one to three axes, and cubic along two."""
    source, mode = call.tensor(0, "input"), call.option(3, "mode", "nearest")
    if call.option(6, "antialias", False):
        raise NotCovered("with antialias")
    axes = [axis for axis in range(2, len(source.shape)) if source.shape[axis] != call.shape[axis]]
    scales = _find_scales(call, len(source.shape) - 2)
    if any(axis not in axes and scales[axis - 2] not in (None, 1.0) for axis in range(2, len(source.shape))):
        raise NotCovered("with a factor that keeps a size")  # PyTorch moves pixels for some modes, and on some devices
    if mode in ("nearest", "nearest-exact"):
        return _pick_nearest(source, call.shape, axes, scales, 0.0 if mode == "nearest" else 0.5)
    if _SMOOTH.get(str(mode)) != len(source.shape) - 2 or source.dtype not in FLOATS:
        raise NotCovered(f"with the mode {mode}")
    if mode == "bicubic" and source.dtype == "float64":
        raise NotCovered("with the mode bicubic in float64")  # places that are rounded once more cost digits
    aligned = bool(call.option(4, "align_corners", False))
    value = source
    for axis in reversed(axes):
        value = _interpolate_axis(value, axis, call.shape[axis], aligned, scales[axis - 2], mode == "bicubic")
    return formula(A, value, like=widen(call.dtype), result=call.dtype) if axes else source


def _find_scales(call: NodeCall, axes: int) -> list[float | None]:
    """By axis: the factor that the call gives and keeps; None where sizes decide."""
    given = call.option(2, "scale_factor", None)
    if given is None or call.option(5, "recompute_scale_factor", None):
        return [None] * axes
    return [float(one) for one in given] if isinstance(given, list | tuple) else [float(given)] * axes


def _pick_nearest(source: Tensor, shape: Shape, axes: list[int], scales: list[float | None], middle: float) -> Tensor:
    """Whole factors move indices only; for others the place is computed as torch has it, in fp32 and rounded down."""
    factors = {axis: shape[axis] // source.shape[axis] for axis in axes}
    if all(shape[axis] == source.shape[axis] * factor and scales[axis - 2] in (None, factor) for axis, factor in factors.items()):
        return view(source, shape, lambda at: tuple(index // factors.get(axis, 1) for axis, index in enumerate(at)))
    places: dict[int, Tensor] = {}
    for axis in axes:
        ratio = _divide(source.shape[axis], shape[axis], scales[axis - 2])
        text = (A + C) * B if middle else A * B
        place = formula(text, _count(shape[axis]), ratio, middle, like="float32")
        places[axis] = rename(_round_down(place, 0, source.shape[axis] - 1), "nearest")
    return look_at(source, shape, places)


def _round_down(place: Tensor, ahead: int, last: int) -> Tensor:
    """A place that is no whole number, rounded down and moved ahead, as far as the last one."""
    moved = A.to("int32") + ahead if ahead else A.to("int32")
    return Formula(shape=place.shape, dtype="int32", expression=Op.FMIN(moved, last), inputs=(place,))


def _divide(size: int, new: int, scale: float | None) -> float:
    """Places of the source for each place of the result."""
    return 1.0 / scale if scale else size / new


def _interpolate_axis(source: Tensor, axis: int, new: int, aligned: bool, scale: float | None, cubic: bool) -> Tensor:
    """Between the two neighbours of each place along one axis, or four."""
    size = source.shape[axis]
    shape = (*source.shape[:axis], new, *source.shape[axis + 1 :])
    if aligned:
        ratio = (size - 1) / (new - 1) if new > 1 else 0.0
        tree = A * B
    else:
        ratio = _divide(size, new, scale)
        tree = (A + 0.5) * B - 0.5 if cubic else Op.FMAX((A + 0.5) * B - 0.5, 0.0)
    if not math.isfinite(ratio):
        raise NotCovered("with such a factor")
    wide = widen(source.dtype)  # PyTorch has places in the type in which it computes
    place = formula(tree, _count(new), ratio, like=wide)
    share = reshape(formula(A - Op.FLOOR(A), place, like=wide), (new, *(1,) * (len(shape) - axis - 1)))
    if cubic:
        return _bend(source, shape, axis, place, share)
    neighbours = [look_at(source, shape, {axis: _round_down(place, ahead, size - 1)}) for ahead in (0, 1)]
    return formula(A * (1.0 - C) + B * C, *neighbours, share, like=wide)


def _bend(source: Tensor, shape: Shape, axis: int, place: Tensor, share: Tensor) -> Tensor:
    """Between four neighbours; beyond the rim lies the rim itself."""
    near, far = _CUBIC
    parts: list[Tensor] = []
    for ahead, distance in ((-1, Op.GROUP(A + 1.0)), (0, A), (1, Op.GROUP(1.0 - A)), (2, Op.GROUP(2.0 - A))):
        inside = Op.FMIN(Op.FMAX(Op.FLOOR(A).to("int32") + ahead, 0), source.shape[axis] - 1)
        neighbour = look_at(source, shape, {axis: Formula(shape=place.shape, dtype="int32", expression=inside, inputs=(place,))})
        away = formula(distance, share, like=share.dtype)
        weight = rename(formula(near if ahead in (0, 1) else far, away, like=share.dtype), "weight")
        parts.append(formula(A * B, neighbour, weight, like=share.dtype))
    return formula(A + B + C + D, *parts, like=widen(source.dtype))


def _sample(call: NodeCall) -> Lowered:
    """`grid_sample` of flat images: the nearest pixel or the four around a place; beyond the rim lie zeros, or the rim itself."""
    source, grid = call.tensor(0, "input"), call.tensor(1, "grid")
    mode, rim = call.option(2, "mode", "bilinear"), call.option(3, "padding_mode", "zeros")
    if len(source.shape) != _FLAT or mode not in ("bilinear", "nearest") or rim not in ("zeros", "border"):
        raise NotCovered(f"with {len(source.shape)} axes, the mode {mode} and the padding {rim}")
    tree = (A + 1.0) * B * 0.5 if call.option(4, "align_corners", False) else ((A + 1.0) * C - 1.0) * 0.5
    exact, places = widen(call.dtype), []
    for part, size in ((1, source.shape[2]), (0, source.shape[3])):  # the grid has columns first
        place = formula(tree, pick(grid, 3, part), size - 1, size, like=exact)
        if rim == "border":
            place = formula(Op.FMIN(Op.FMAX(A, 0.0), B), place, size - 1, like=exact)
        places.append(place)
    if mode == "nearest":
        return _read_pixel(source, [formula(Op.RINT(A), place, like=exact) for place in places], None, call)
    corners = []
    for below in (0, 1):
        for right in (0, 1):
            steps = zip((below, right), places, strict=True)
            pixel = [formula(Op.FLOOR(A) + float(ahead), place, like=exact) for ahead, place in steps]
            line, column = (formula(1.0 - Op.ABS(A - B), *pair, like=exact) for pair in zip(places, pixel, strict=True))
            share = formula(A * B, line, column, like=exact)
            corners.append(_read_pixel(source, pixel, share, call))
    return formula(A + B + C + D, *corners, like=widen(call.dtype), result=call.dtype)


def _read_pixel(source: Tensor, pixel: Sequence[Tensor], share: Tensor | None, call: NodeCall) -> Tensor:
    """The pixel at a line and a column, times a share; zero beyond the rim."""
    limits, wide = source.shape[2:], widen(call.dtype)
    inside = formula(
        (A >= 0.0) & (A <= C) & (B >= 0.0) & (B <= D), *pixel, *(float(size - 1) for size in limits), like=wide,
        result="bool",
    )  # fmt: skip
    places = tuple(
        Formula(shape=one.shape, dtype="int32", expression=Op.FMIN(Op.FMAX(A, 0.0), float(size - 1)).to("int32"), inputs=(one,))
        for one, size in zip(pixel, limits, strict=True)
    )
    found = Lookup(
        shape=call.shape, dtype=source.dtype, table=source, places=places, limits=limits,
        where=lambda at: tuple(align((at[0], *at[2:]), one.shape) for one in places), move=lambda at, found: (*at[:2], *found),
    )  # fmt: skip
    beside = (inside.shape[0], 1, *inside.shape[1:])
    value = found if share is None else formula(A * B, found, reshape(share, beside), like=wide)
    kept = select_where(reshape(inside, beside), value, 0.0, wide, call.shape)
    return kept if share is not None else formula(A, kept, like=wide, result=call.dtype)


def _place_grid(call: NodeCall) -> Lowered:
    """`affine_grid` of flat images: for each pixel, the place that a matrix of its image gives."""
    theta = call.tensor(0, "theta")
    if len(call.shape) != _FLAT:
        raise NotCovered("of images with depth")
    aligned = bool(call.option(2, "align_corners", False))
    batch, height, width, _ = call.shape
    lines, columns = (_spread(size, aligned) for size in (height, width))
    factors = [reshape(pick(theta, 2, part), (batch, 1, 1, 2)) for part in range(3)]
    across, down = reshape(columns, (1, 1, width, 1)), reshape(lines, (1, height, 1, 1))
    parts = factors[0], across, factors[1], down, factors[2]
    return formula(A * B + C * D + E, *parts, like=widen(call.dtype), result=call.dtype)


def _spread(size: int, aligned: bool) -> Tensor:
    """The pixels of one axis as places from -1 to 1: their middles, or with `aligned` from the first to the last."""
    if aligned:
        return formula(A * B - C, _count(size), 2.0 / (size - 1) if size > 1 else 0.0, 1.0 if size > 1 else 0.0, like="float32")
    return formula((A * 2.0 + 1.0) * B - 1.0, _count(size), 1.0 / size, like="float32")


TABLE: dict[str, Lower] = {
    "pad": _pad, "grid_sample": _sample, "affine_grid": _place_grid,
    **{f"nn.{kind}Pad{axes}d": _pad for kind in _MODES for axes in (1, 2, 3)},
    **dict.fromkeys(("interpolate", "nn.Upsample", "nn.UpsamplingNearest2d"), _interpolate),
}  # fmt: skip
