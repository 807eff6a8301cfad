"""Parts of a tensor that get other values: `select_scatter`, `slice_scatter`, and what the operator [] writes to."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tritonsmith.prompts.recipes.regions.lowering.calls import Lower, Lowered, NodeCall, NotCovered
from tritonsmith.prompts.recipes.regions.lowering.pointwise import as_type, broadcast, cast, constant, select_where
from tritonsmith.prompts.recipes.regions.lowering.views import expand, reshape
from tritonsmith.prompts.recipes.regions.values.indices import Coordinates, Guard, Index
from tritonsmith.prompts.recipes.regions.values.tensors import Formula, Position, Tensor, TensorView


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
    parts, shape = _read_keys(source, keys)
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
        guard=lambda at: tuple(guard for part in partial for guard in _list_guards(at[part.axis], part)), fill=_fill(source.dtype),
    )  # fmt: skip
    places = [Position(shape=source.shape, dtype="int32", index=_take_axis(part.axis)) for part in partial]
    tests = [_write_test(f"{{{number}}}", part) for number, part in enumerate(partial)]
    chosen = Formula(shape=source.shape, dtype="bool", template=" & ".join(tests), inputs=tuple(places))
    return select_where(chosen, shown, source, source.dtype, source.shape)


def _fill(dtype: str) -> str:
    return "False" if dtype == "bool" else "0.0" if "float" in dtype else "0"


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


def _write_test(place: str, part: _Part) -> str:
    """The same as the kernel writes it for a place."""
    end = part.start + (part.length - 1) * part.step
    if part.length == 1:
        return f"({place} == {part.start})"
    test = f"({place} >= {part.start}) & ({place} <= {end})"
    return f"{test} & (({place} - {part.start}) % {part.step} == 0)" if part.step > 1 else test


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
            if not len(places) or places.step < 1:
                raise NotCovered("with nothing in it")
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


def _scatter(call: NodeCall) -> Lowered:
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
    text = " & ".join(f"({{0}} == {{{axis}}})" for axis in range(1, len(places)))
    chosen = Formula(shape=source.shape, dtype="bool", template=text, inputs=tuple(places))
    return select_where(chosen, value, source, call.dtype, call.shape)


TABLE: dict[str, Lower] = {"select_scatter": _scatter, "slice_scatter": _scatter, "copy_": _copy, "fill_diagonal_": _fill_diagonal}
