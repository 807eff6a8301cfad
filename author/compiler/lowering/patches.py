"""Parts of a tensor that get other values: slices, what the operator [] writes to, sums and extremes by place, counts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tritonsmith.author.compiler.ir.indices import Coordinates, Guard, Index
from tritonsmith.author.compiler.ir.operators import A, B, C, D, Operand, Tree, chain
from tritonsmith.author.compiler.ir.operators import Operator as Op
from tritonsmith.author.compiler.ir.scatter import Meeting, Scatter
from tritonsmith.author.compiler.ir.values import FLOATS, Filling, Formula, Position, Stacked, Tensor, TensorView, rename, widen
from tritonsmith.author.compiler.lowering.calls import Lower, Lowered, NodeCall, NotCovered
from tritonsmith.author.compiler.lowering.pointwise import as_type, broadcast, cast, constant, formula, select_where, to_constant
from tritonsmith.author.compiler.lowering.views import MOST_PARTS, count_along, cut, expand, pick, reshape, stack, view
from tritonsmith.author.types import ATOMIC

_MEETINGS = {"sum": Meeting.SUM, "add": Meeting.SUM, "amax": Meeting.LARGEST, "amin": Meeting.SMALLEST}
_EDGES = {Meeting.SUM: 0.0, Meeting.LARGEST: float("-inf"), Meeting.SMALLEST: float("inf")}
"""What changes nothing."""


@dataclass(frozen=True)
class _Part:
    """What an index picks along one axis of a tensor."""

    axis: int
    start: int
    length: int
    step: int
    kept: bool
    """Whether the selection has the axis."""

    def fits(self, size: int) -> bool:
        """Whether it is the whole axis."""
        return (self.start, self.length, self.step) == (0, size, 1)


def put(source: Tensor, keys: list[Any], value: Any) -> Tensor:
    """The tensor after `source[keys] = value`. Raises NotCovered for keys that no kernel writes to."""
    masks = [one for one in keys if isinstance(one, Tensor)]
    if masks:
        return _put_where(source, keys, value)
    listed = [place for place, one in enumerate(keys) if isinstance(one, list)]
    if listed:
        return _put_listed(source, keys, listed[0], value)
    parts, shape = _read_keys(source, keys)
    if not math.prod(shape):
        return source
    given = value if isinstance(value, Tensor) else constant(value, source.dtype)
    given = cast(as_type(given, source.dtype), source.dtype)
    while len(given.shape) > len(shape) and given.shape[0] == 1:
        given = reshape(given, given.shape[1:])
    if broadcast(given.shape, shape) != shape:
        raise NotCovered("of a value of another shape")
    kept = tuple(part.length for part in parts if part.kept)
    given = reshape(expand(given, shape), kept)
    if math.prod(part.length for part in parts) == source.size:
        return reshape(given, source.shape)
    partial = [part for part in parts if not part.fits(source.shape[part.axis])]
    shown = TensorView(
        shape=source.shape, dtype=source.dtype, source=given, move=lambda at: _move(at, parts),
        guard=lambda at: tuple(guard for part in partial for guard in _list_guards(at[part.axis], part)), fill=to_constant(0, source.dtype),
    )  # fmt: skip
    places = [Position(shape=source.shape, dtype="int32", index=_take_axis(part.axis)) for part in partial]
    tests = [test for number, part in enumerate(partial) for test in _list_tests(Operand(number), part)]
    chosen = Formula(shape=source.shape, dtype="bool", expression=chain(Op.AND, tests), inputs=tuple(places))
    made = select_where(chosen, shown, source, source.dtype, source.shape)
    if any(part.length > 1 for part in partial):
        return made
    picked = [part for part in parts if not part.kept or part in partial]
    rest = tuple(part.length for part in parts if part not in picked)
    return _fill_places(made, source, picked, reshape(given, rest)) if picked else made


def _put_listed(source: Tensor, keys: list[Any], place: int, value: Any) -> Tensor:
    """`source[:, [0, 2]] = value`: each of the places that are written out gets its part. Raises NotCovered next to single places."""
    listed = keys[place]
    others = [one for one in keys if one is not listed]
    plain = all(type(one) is int for one in listed) and all(_is_ellipsis(one) or isinstance(one, dict) and "slice" in one for one in others)
    if not plain or not 0 < len(listed) <= MOST_PARTS:
        raise NotCovered("at places that are written out")
    _, shape = _read_keys(source, [{"slice": [None, None, None]} if one is listed else one for one in keys])
    dots = next((number for number, one in enumerate(keys) if _is_ellipsis(one)), len(keys))
    axis = place if place < dots else place - len(keys)
    behind = len(shape) - axis % len(shape)
    made = source
    for number, one in enumerate(listed):
        part = value
        if isinstance(value, Tensor) and len(value.shape) >= behind:
            part = pick(value, len(value.shape) - behind, number if value.shape[-behind] > 1 else 0)
        made = put(made, [one if key is listed else key for key in keys], part)
    return made


def _fill_places(made: Tensor, source: Tensor, picked: list[_Part], given: Tensor) -> Tensor:
    """A tensor that got another part at one place of some axes, with a note of all such parts.

    Where these are most of the tensor, as behind a loop over an axis, it is made of them, and not by asking each element for its part.
    """
    axes = tuple(part.axis for part in picked)
    known = source.filling if source.filling and source.filling.axes == axes else Filling(source, axes, {})
    parts = known.parts | {tuple(part.start for part in picked): given}
    size = source.shape[axes[0]]
    if len(axes) == 1 and len(parts) > max(MOST_PARTS, size // 2):
        made = stack([parts[(place,)] if (place,) in parts else pick(known.base, *axes, place) for place in range(size)], *axes)
    made.filling = Filling(known.base, axes, parts)
    return made


def _take_axis(axis: int) -> Callable[[Coordinates], Index]:
    return lambda at: at[axis]


def _move(at: Coordinates, parts: list[_Part]) -> Coordinates:
    """Where the value has what a place of the tensor gets."""
    moved = [at[part.axis] - part.start for part in parts if part.kept]
    steps = [part.step for part in parts if part.kept]
    return tuple(index if step == 1 else index // step for index, step in zip(moved, steps, strict=True))


def _list_guards(index: Index, part: _Part) -> list[Guard]:
    """Conditions under which a place of an axis is picked."""
    end = part.start + (part.length - 1) * part.step + 1
    guards = [Guard(index, part.start, end)]
    return [*guards, Guard((index - part.start % part.step + part.step) % part.step, 0, 1)] if part.step > 1 else guards


def _list_tests(place: Tree, part: _Part) -> list[Tree]:
    """The same as the kernel tests it for a place."""
    end = part.start + (part.length - 1) * part.step
    if part.length == 1:
        return [Op.GROUP(Op.EQ(place, part.start))]
    tests: list[Tree] = [Op.GROUP(place >= part.start), Op.GROUP(place <= end)]
    return [*tests, Op.GROUP(Op.EQ((place - part.start) % part.step, 0))] if part.step > 1 else tests


def _read_keys(source: Tensor, keys: list[Any]) -> tuple[list[_Part], tuple[int, ...]]:
    """By axis what an index picks, and the shape of the selection."""
    rest = sum(1 for one in keys if one is not None and not _is_ellipsis(one))
    spread = len(source.shape) - rest
    whole: Any = {"slice": [None, None, None]}
    full = [part for one in keys for part in ([whole] * spread if _is_ellipsis(one) else [one])]
    full += [whole] * (0 if any(map(_is_ellipsis, keys)) else spread)
    parts: list[_Part] = []
    shape: list[int] = []
    for one in full:
        axis = len(parts)
        if one is None:
            shape.append(1)
        elif isinstance(one, int) and not isinstance(one, bool):
            parts.append(_Part(axis, one % source.shape[axis], 1, 1, kept=False))
        elif isinstance(one, dict) and "slice" in one and all(end is None or isinstance(end, int) for end in one["slice"]):
            places = range(source.shape[axis])[slice(*one["slice"])]
            if places.step < 1:
                raise NotCovered("from the end")
            parts.append(_Part(axis, places.start, len(places), places.step if len(places) > 1 else 1, kept=True))
            shape.append(len(places))
        else:
            raise NotCovered(f"with {one!r}")
    return parts, tuple(shape)


def _is_ellipsis(key: Any) -> bool:
    return isinstance(key, dict) and "ellipsis" in key


def _put_where(source: Tensor, keys: list[Any], value: Any) -> Tensor:
    """`source[mask] = number`, for a mask of the leading axes."""
    mask = keys[0]
    whole = all(isinstance(one, dict) and one.get("slice") == [None, None, None] or _is_ellipsis(one) for one in keys[1:])
    single = not isinstance(value, Tensor) or value.size == 1
    if not isinstance(mask, Tensor) or mask.dtype != "bool" or not whole or not single or mask.shape != source.shape[: len(mask.shape)]:
        raise NotCovered("at places that tensors hold")
    given = reshape(value, ()) if isinstance(value, Tensor) else constant(value, source.dtype)
    shown = reshape(mask, (*mask.shape, *(1,) * (len(source.shape) - len(mask.shape))))
    return select_where(shown, given, source, source.dtype, source.shape)


def _put_slice(call: NodeCall) -> Lowered:
    """`select_scatter` and `slice_scatter`."""
    source, value = call.tensor(0, "input"), call.tensor(1, "src")
    if call.node.target.endswith("select_scatter"):
        axis, key = call.get(2, "dim"), call.get(3, "index")
    else:
        axis = call.get(2, "dim", default=0)
        key = {"slice": [call.get(3, "start", default=None), call.get(4, "end", default=None), call.get(5, "step", default=1)]}
    return put(source, [{"slice": [None, None, None]}] * (axis % len(source.shape)) + [key], value)


def _copy(call: NodeCall) -> Lowered:
    """`copy_`: another tensor's values in this one's type."""
    source, value = call.tensor(0, "self"), call.tensor(1, "src", "other")
    return expand(cast(as_type(value, source.dtype), source.dtype), source.shape)


def _fill_diagonal(call: NodeCall) -> Lowered:
    """`fill_diagonal_`: one number where all places of an element are equal."""
    source, value = call.tensor(0, "self"), call.get(1, "fill_value")
    if call.get(2, "wrap", default=False):
        raise NotCovered("with wrap")
    places = [Position(shape=source.shape, dtype="int32", index=_take_axis(axis)) for axis in range(len(source.shape))]
    tests = [Op.GROUP(Op.EQ(A, Operand(axis))) for axis in range(1, len(places))]
    chosen = Formula(shape=source.shape, dtype="bool", expression=chain(Op.AND, tests), inputs=tuple(places))
    return select_where(chosen, value, source, call.dtype, call.shape)


def _meet(base: Tensor, source: Tensor, places: Tensor, axis: int, meeting: Meeting, whole: bool) -> Scatter:
    """Elements of `source` at places of an axis: the same for all other axes where `whole`."""
    if base.dtype not in ATOMIC or source.size == 1:  # a kernel has no block for one element
        raise NotCovered(f"of {source.size} elements of {base.dtype}")

    def where(at: Coordinates) -> tuple[Coordinates, ...]:
        return ((at[axis],) if whole else at,)

    def move(at: Coordinates, found: Sequence[Index]) -> Coordinates:
        return (*at[:axis], found[0], *at[axis + 1 :])

    return Scatter(
        shape=base.shape, dtype=base.dtype, base=base, source=cast(as_type(source, base.dtype), base.dtype), places=(places,), where=where,
        move=move, limits=(base.shape[axis],), meeting=meeting,
    )  # fmt: skip


def _reduce(base: Tensor, source: Tensor, places: Tensor, axis: int, kind: str, kept: bool, whole: bool) -> Tensor:
    """Elements by place, added up, averaged or their extremes, with what was there before where that is `kept`."""

    def meet(into: Tensor, given: Tensor, meeting: Meeting) -> Scatter:
        return _meet(into, given, places, axis, meeting, whole)

    meeting = _MEETINGS.get("sum" if kind == "mean" else kind)
    if meeting is None or (kind == "mean" and base.dtype not in FLOATS):
        raise NotCovered(f"with reduce={kind}")
    if meeting is not Meeting.SUM and base.dtype in FLOATS:
        raise NotCovered("with NaN")  # which no atomic extreme of numbers keeps
    if kind in _MEETINGS and (kept or _is(base, _EDGES[meeting])):
        return meet(base, source, meeting)
    if base.dtype not in FLOATS:
        raise NotCovered("without what was there before")
    ones = constant(1, "int32", source.shape)
    count = rename(meet(constant(1 if kept else 0, "int32", base.shape), ones, Meeting.SUM), "count")
    found = meet(base if kept else constant(_EDGES[meeting], base.dtype, base.shape), source, meeting)
    rename(found, meeting.name.lower())
    value = found if kind != "mean" else formula(A / Op.FMAX(B, 1.0), found, count, like=base.dtype)
    return value if kept else select_where(formula(A > 0, count, like="int32", result="bool"), value, base, base.dtype, base.shape)


def _is(value: Tensor, number: float) -> bool:
    """Whether all elements are a number that is written out."""
    return isinstance(value, Formula) and value.expression == constant(number, value.dtype).expression


def _put_number(base: Tensor, number: Any, places: Tensor, shape: tuple[int, ...], axis: int, whole: bool) -> Tensor:
    """One number at some places of a tensor that has another one everywhere: the larger or the smaller of both."""
    if not isinstance(number, int | float) or not isinstance(base, Formula) or base.number is None or base.dtype not in ATOMIC:
        raise NotCovered("of tensors")
    given = constant(number, base.dtype, shape)
    assert given.number is not None
    larger = given.number >= base.number
    return _meet(base, given, places, axis, Meeting.LARGEST if larger else Meeting.SMALLEST, whole)


def _put_chosen(base: Tensor, given: Any, places: Stacked, kind: str | None) -> Tensor:
    """Values at places that a kernel finds itself, row by row: each element asks whether it is one of them.

    kind: `sum` where they are added to what is there.
    """
    index = count_along(base.shape, places.axis)
    whole = all(own == size for axis, (own, size) in enumerate(zip(base.shape, places.shape, strict=True)) if axis != places.axis)
    if not whole or (isinstance(given, Tensor) and any(own < size for own, size in zip(given.shape, places.shape, strict=True))):
        raise NotCovered("of some rows")
    made = base
    for count, place in enumerate(places.parts):
        here = formula(Op.EQ(A, B), index, place, like="int64", shape=base.shape, result="bool")
        value = _take_row(given, places, count) if isinstance(given, Tensor) else given
        if kind == "sum":
            value = formula(A + B, made, value, like=widen(base.dtype), result=base.dtype)
        made = select_where(here, value, made, base.dtype, base.shape)
    return made


def _take_row(given: Tensor, places: Stacked, count: int) -> Tensor:
    """What goes to one of the places of each row."""
    for axis, size in enumerate(places.shape):
        if axis != places.axis:
            given = cut(given, axis, 0, size)
    return cut(given, places.axis, count, 1)


def _scatter(call: NodeCall) -> Lowered:
    """`scatter_add`, `scatter_reduce`, and `scatter` of one number."""
    name = call.node.target.rpartition(".")[2].rstrip("_")
    base, axis, places = call.tensor(0, "input", "self"), call.get(1, "dim"), call.tensor(2, "index")
    given, axis = call.get(3, "src", "value"), axis % max(1, len(base.shape))
    kind = "sum" if name == "scatter_add" else call.get(4, "reduce", default=None)
    if name == "scatter" and kind is not None:
        raise NotCovered(f"with reduce={kind}")
    if isinstance(places, Stacked) and places.axis == axis and kind in (None, "sum") and call.get(5, "include_self", default=True):
        return _put_chosen(base, given, places, kind)
    if not isinstance(given, Tensor):
        return _put_number(base, given, places, places.shape, axis, whole=False)
    if kind is None:
        raise NotCovered("of values of which one place may get several")
    source = given if given.shape == places.shape else view(given, places.shape, lambda at: at)
    return _reduce(base, source, places, axis, kind, bool(call.get(5, "include_self", default=True)), whole=False)


def _index(call: NodeCall) -> Lowered:
    """`index_add`, `index_reduce` and `index_fill`."""
    name = call.node.target.rpartition(".")[2].rstrip("_")
    base, axis, places = call.tensor(0, "input", "self"), call.get(1, "dim"), call.tensor(2, "index")
    axis %= max(1, len(base.shape))
    places = reshape(places, (places.size,))
    if name == "index_fill":
        shape = (*base.shape[:axis], places.size, *base.shape[axis + 1 :])
        return _put_number(base, call.get(3, "value"), places, shape, axis, whole=True)
    source = call.tensor(3, "source")
    if name == "index_reduce":
        return _reduce(base, source, places, axis, call.get(4, "reduce"), bool(call.get(5, "include_self", default=True)), whole=True)
    factor = call.get(4, "alpha", default=1)
    source = source if factor == 1 else formula(A * B, source, factor, like=base.dtype)
    return _reduce(base, source, places, axis, "sum", True, whole=True)


def _count(call: NodeCall) -> Lowered:
    """`bincount`, whose shape `minlength` decides: values from there on are left out."""
    places, weights = call.tensor(0, "input"), call.get(1, "weights", default=None)
    if call.shape != (call.get(2, "minlength", default=0),):
        raise NotCovered("whose values decide its shape")
    return _add_up(places, constant(1, call.dtype, places.shape) if weights is None else cast(weights, call.dtype), call)


def _add_up(places: Tensor, source: Tensor, call: NodeCall) -> Tensor:
    found = rename(_meet(constant(0, source.dtype, call.shape), source, places, 0, Meeting.SUM, whole=True), call.name)
    return cast(found, call.dtype)


def _sort_in(call: NodeCall) -> Lowered:
    """`histc` between two numbers: each value's part of the range, the last of which has its end."""
    value = call.tensor(0, "input", "self")
    (bins,), low, high = call.shape, call.get(2, "min", default=0), call.get(3, "max", default=0)
    if low == high or value.dtype != "float32" or not value.shape:
        raise NotCovered("between the least and the largest value")
    if value.size == 1:
        raise NotCovered("of one element")  # which a kernel has no block for
    value = reshape(value, (value.size,))
    text = Op.FMIN(Op.FLOOR((A - B) * D / C), D - 1.0)
    part = formula(text, value, float(low), float(high - low), float(bins), like="float32")
    inside = formula((A >= B) & (A <= C), value, float(low), float(high), like="float32", result="bool")
    places = rename(cast(select_where(inside, part, -1.0, "float32", value.shape), "int32"), "bin")
    return _add_up(places, constant(1, "int32", value.shape), call)


TABLE: dict[str, Lower] = {
    "select_scatter": _put_slice, "slice_scatter": _put_slice, "copy_": _copy, "fill_diagonal_": _fill_diagonal,
    **dict.fromkeys(("scatter", "scatter_add", "scatter_reduce"), _scatter),
    **dict.fromkeys(("index_add", "index_reduce", "index_fill"), _index), "bincount": _count, "histc": _sort_in,
}  # fmt: skip
