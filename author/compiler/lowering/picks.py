"""The operator []: slices, new axes, single places, and places that other tensors hold; embeddings and lookups along an axis."""

from __future__ import annotations

from typing import Any

from tritonsmith.author.compiler.ir.operators import A, B
from tritonsmith.author.compiler.ir.operators import Operator as Op
from tritonsmith.author.compiler.ir.values import Lookup, Stacked, Tensor, align, widen
from tritonsmith.author.compiler.lowering.calls import Lower, Lowered, NodeCall, NotCovered
from tritonsmith.author.compiler.lowering.constants import count_up
from tritonsmith.author.compiler.lowering.pointwise import broadcast, cast, formula, select_where
from tritonsmith.author.compiler.lowering.reductions import reduce
from tritonsmith.author.compiler.lowering.views import count_along, cut, permute, pick, reshape

_HELD = 4096
"""Elements of a row in which a kernel looks for those at places that it has found."""


def _find_part(source: Tensor, keys: list[Any]) -> tuple[Tensor, Tensor | None]:
    """What forward wrote to the places that an index picks, if it did; and else the tensor as it was ahead of writes to other places."""
    dots = [place for place, one in enumerate(keys) if isinstance(one, dict) and "ellipsis" in one]
    if dots:
        keys = [*keys[: dots[0]], *[{"slice": [None, None, None]}] * (len(source.shape) - len(keys) + 1), *keys[dots[0] + 1 :]]
    if len(keys) > len(source.shape):
        return source, None
    picked: dict[int, int] = {}
    kept = list(source.shape)  # of the selection; 0 for an axis that it lacks
    for axis, (one, size) in enumerate(zip(keys, source.shape, strict=False)):
        if type(one) is int:
            picked[axis], kept[axis] = one % size, 0
        elif (places := _list_places(one, size)) is None:
            return source, None
        elif len(places) == 1 < size:
            picked[axis], kept[axis] = places.start, 1
        elif places != range(size):
            return source, None
    while source.filling and source.filling.axes == tuple(picked):
        if (part := source.filling.parts.get(tuple(picked.values()))) is not None:
            return source, reshape(part, tuple(length for length in kept if length))
        source = source.filling.base
    return source, None


def _list_places(key: Any, size: int) -> range | None:
    """Places of an axis that a slice between numbers picks; None for any other key."""
    ends = key.get("slice") if isinstance(key, dict) else None
    return range(size)[slice(*ends)] if ends and all(end is None or type(end) is int for end in ends) else None


def _index(call: NodeCall) -> Lowered:
    source, given = call.tensor(0, "input"), call.get(1, "index")
    keys = list(given) if isinstance(given, list | tuple) else [given]
    if len(keys) > 1 and all(isinstance(one, int) for one in keys) and _is_list(call, keys):
        keys = [keys]
    source, part = _find_part(source, keys)
    if part is not None:
        return part
    axis, places = 0, dict[int, Tensor]()
    rest = sum(1 for one in keys if one is not None and not _is_ellipsis(one))
    for one in keys:
        if _is_ellipsis(one):
            axis += len(source.shape) - axis - (rest - _used(keys, one))
        elif one is None:
            source = reshape(source, (*source.shape[:axis], 1, *source.shape[axis:]))
            axis += 1
        elif isinstance(one, Tensor | list | tuple):
            places[axis] = one if isinstance(one, Tensor) else _hold_places(call, one)
            axis += 1
        elif isinstance(one, bool) or not isinstance(one, int | dict):
            raise NotCovered(f"with {one!r}")
        elif isinstance(one, int):
            source = pick(source, axis, one)
        else:
            start, length, step = _bounds(one["slice"], source.shape[axis])
            source = cut(source, axis, start, length, step)
            axis += 1
    return _look_up(source, places, call) if places else source


def _is_list(call: NodeCall, given: list[int]) -> bool:
    """Whether numbers of an index are places of one axis, `x[[0, 2]]`, and not one of each axis: the result's shape tells."""
    shape = call.tensor(0, "input").shape
    return call.shape == (len(given), *shape[1:])


def _hold_places(call: NodeCall, given: Any) -> Tensor:
    """Places that forward writes out."""
    if not all(isinstance(one, int) and not isinstance(one, bool) for one in given):
        raise NotCovered(f"with {given!r}")
    return call.hold([*given], "int64", (len(given),))


def _is_ellipsis(key: Any) -> bool:
    return isinstance(key, dict) and "ellipsis" in key


def _used(keys: list[Any], ellipsis: Any) -> int:
    """Axes that stand in front of the dots."""
    return sum(1 for one in keys[: keys.index(ellipsis)] if one is not None)


def _bounds(parts: list[Any], size: int) -> tuple[int, int, int]:
    if not all(part is None or isinstance(part, int) for part in parts):
        raise NotCovered("with bounds that are no numbers")
    places = range(size)[slice(*parts)]
    if not len(places) or places.step < 0:
        raise NotCovered("with nothing in it")
    return places.start, len(places), places.step


def _look_up(source: Tensor, given: dict[int, Tensor], call: NodeCall) -> Lowered:
    """Places that tensors hold, by axis: side by side they stand where the first of them stood, else in front."""
    axes = sorted(given)
    tensors = [given[axis] for axis in axes]
    if not all(one.dtype.startswith(("int", "uint")) for one in tensors):
        raise NotCovered("with a mask")
    if axes != list(range(axes[0], axes[0] + len(axes))):
        source = permute(source, (*axes, *(axis for axis in range(len(source.shape)) if axis not in axes)))
        axes = list(range(len(axes)))
    lead = axes[0]
    shape = broadcast(*(one.shape for one in tensors))
    limits = source.shape[lead : lead + len(tensors)]
    places = tuple(wrap_negative(one, size) for one, size in zip(tensors, limits, strict=True))
    behind = lead + len(tensors)
    return Lookup(
        shape=call.shape, dtype=source.dtype, table=source, places=places, limits=limits,
        where=lambda at: tuple(align(at[lead : lead + len(shape)], one.shape) for one in places),
        move=lambda at, found: (*at[:lead], *found, *at[lead + len(shape) :][: len(source.shape) - behind]),
    )  # fmt: skip


def wrap_negative(places: Tensor, size: int) -> Tensor:
    """Places that count from the end, as Python has them."""
    return formula(Op.WHERE(A < 0, A + B, A), places, size, like=places.dtype)


def _embed(call: NodeCall) -> Lowered:
    if call.node.op == "call_module":
        places, table = call.tensor(0, "input"), call.weight(1, "weight")
    else:
        places, table = call.tensor(0, "input"), call.tensor(1, "weight")
    if table is None or call.option(3, "max_norm", None) is not None:
        raise NotCovered("with max_norm")
    rank = len(places.shape)
    return Lookup(
        shape=call.shape, dtype=table.dtype, table=table, places=(places,), limits=(table.shape[0],),
        where=lambda at: (at[:rank],), move=lambda at, found: (found[0], at[-1]),
    )  # fmt: skip


def _embed_bags(call: NodeCall) -> Lowered:
    """`embedding_bag` of bags of one length: rows of a table, added up, averaged, or their largest elements."""
    places, table = call.tensor(0, "input"), call.weight(1, "weight")
    mode = call.option(6, "mode", "mean")
    padding = call.option(10, "padding_idx", None)
    refused = [call.option(place, name, None) for place, name in ((2, "offsets"), (3, "max_norm"))]
    if table is None or len(places.shape) != 2 or any(one is not None for one in refused):
        raise NotCovered("with offsets or max_norm")
    factors = call.get(2 if call.node.op == "call_module" else 8, "per_sample_weights", default=None)
    bags, length, wide = *places.shape, widen(table.dtype)
    rows: Tensor = Lookup(
        shape=(bags, length, table.shape[1]), dtype=table.dtype, table=table, places=(places,), limits=(table.shape[0],),
        where=lambda at: (at[:2],), move=lambda at, found: (found[0], at[-1]),
    )  # fmt: skip
    beside = (bags, length, 1)
    if factors is not None:
        rows = formula(A * B, rows, reshape(factors, beside), like=wide)
    if padding is None:
        if mode == "max":
            return reduce(rows, (1,), "max", call.dtype)
        total = reduce(rows, (1,), "sum", wide)
        return formula(A / B, total, length if mode == "mean" else 1, like=wide, result=call.dtype)
    if mode == "max":
        raise NotCovered("of the largest with a padding")
    kept = formula(Op.NE(A, B), places, padding % table.shape[0], like=places.dtype, result="bool")
    total = reduce(select_where(reshape(kept, beside), rows, 0.0, wide, rows.shape), (1,), "sum", wide)
    if mode == "sum":
        return cast(total, call.dtype)
    number = reshape(reduce(cast(kept, "float32"), (1,), "sum", "float32"), (bags, 1))
    return formula(A / Op.FMAX(B, 1.0), total, number, like=wide, result=call.dtype)


def _gather(call: NodeCall) -> Lowered:
    """`gather`, `take_along_dim` and `index_select`."""
    name = call.node.target.rpartition(".")[2]
    source = call.tensor(0, "input", "self")
    if name == "take_along_dim":
        places, axis = call.tensor(1, "indices"), call.get(2, "dim", default=None)
        if isinstance(axis, int):  # unlike the others it counts from the end too
            places = wrap_negative(places, source.shape[axis])
    else:
        axis, places = call.get(1, "dim"), call.tensor(2, "index")
    if not isinstance(axis, int):
        raise NotCovered("over all axes")
    axis %= len(source.shape)
    if name == "take_along_dim" and any(a != b for at, (a, b) in enumerate(zip(source.shape, places.shape, strict=True)) if at != axis):
        raise NotCovered("of shapes that broadcast")
    return look_along(source, places, axis, call.shape, whole=name == "index_select")


def _sum_chosen(source: Tensor, places: Stacked) -> Tensor:
    """The elements at places that a kernel finds itself, row by row: each is the sum of a row of which nothing else counts."""
    axis, wide = places.axis, widen(source.dtype)
    index = count_along(source.shape, axis)
    parts = []
    for place in places.parts:
        here = formula(Op.EQ(A, B), index, place, like="int64", shape=source.shape, result="bool")
        parts.append(reduce(select_where(here, source, 0, wide, source.shape), (axis,), "sum", source.dtype, keep=True))
    return Stacked.of(parts, axis)


def look_along(source: Tensor, places: Tensor, axis: int, shape: tuple[int, ...], whole: bool = False) -> Tensor:
    """The elements at given places of an axis: the same for all others where `whole`."""
    alike = isinstance(places, Stacked) and places.axis == axis and all(
        own == size for at, (own, size) in enumerate(zip(source.shape, places.shape, strict=False)) if at != axis
    )  # fmt: skip
    if isinstance(places, Stacked) and alike and not whole and source.shape[axis] <= _HELD and source.dtype != "bool":
        return _sum_chosen(source, places)
    return Lookup(
        shape=shape, dtype=source.dtype, table=source, places=(places,), limits=(source.shape[axis],),
        where=lambda at: ((at[axis],) if whole else align(at, places.shape),),
        move=lambda at, found: (*at[:axis], found[0], *at[axis + 1 :]),
    )  # fmt: skip


def _one_hot(call: NodeCall) -> Lowered:
    places, classes = call.tensor(0, "input"), call.get(1, "num_classes", default=-1)
    if classes != call.shape[-1]:
        raise NotCovered("whose values decide its shape")
    wide = reshape(places, (*places.shape, 1))
    return cast(formula(Op.EQ(A, B), wide, count_up(classes), like="int64", shape=call.shape, result="bool"), "int64")


def _narrow(call: NodeCall) -> Lowered:
    source, axis = call.tensor(0, "input", "self"), call.get(1, "dim")
    axis %= len(source.shape)
    if isinstance(call.get(2, "start"), Tensor):
        raise NotCovered("from a place that a tensor holds")
    start, length = call.get(2, "start") % source.shape[axis], call.shape[axis]
    source, part = _find_part(source, [{"slice": [None, None, None]}] * axis + [{"slice": [start, start + length, None]}])
    return cut(source, axis, start, length) if part is None else part


def _select(call: NodeCall) -> Lowered:
    source = call.tensor(0, "input", "self")
    axis, place = call.get(1, "dim") % len(source.shape), call.get(2, "index")
    source, part = _find_part(source, [{"slice": [None, None, None]}] * axis + [place])
    return pick(source, axis, place) if part is None else part


TABLE: dict[str, Lower] = {
    "getitem": _index, "select": _select, "narrow": _narrow, "gather": _gather, "take_along_dim": _gather, "index_select": _gather,
    "embedding": _embed, "nn.Embedding": _embed, "embedding_bag": _embed_bags, "nn.EmbeddingBag": _embed_bags, "one_hot": _one_hot,
}  # fmt: skip
