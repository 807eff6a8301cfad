"""Running sums and products, those that run backwards, and rows in order: sorts, largest elements, medians, quantiles."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tritonsmith.author.compiler.ir.indices import ZERO
from tritonsmith.author.compiler.ir.operators import A, B, C, Tree
from tritonsmith.author.compiler.ir.operators import Operator as Op
from tritonsmith.author.compiler.ir.values import (
    FLOATS,
    AnchorResult,
    Formula,
    Position,
    Scan,
    Stacked,
    Tensor,
    TensorView,
    rename,
    widen,
)
from tritonsmith.author.compiler.lowering.calls import Lower, Lowered, NodeCall, NotCovered, find_axes
from tritonsmith.author.compiler.lowering.pointwise import cast, constant, formula, select_where, settle
from tritonsmith.author.compiler.lowering.reductions import find_best, reduce
from tritonsmith.author.compiler.lowering.views import count_along, cut, flip, reshape

_LONGEST = 1024
"""Elements of a row that one program sorts."""
_LONGEST_CHOICE = 256
"""The same where only the first ones are asked for: PyTorch does not sort the others."""
_FEW_CHOSEN, _MOST_CHOSEN = 16, 32
"""Elements that are found one after the other, each by a reduction of the row: of rows that a program could sort, and of longer ones."""
_MOST_ASKED = 2**15
"""Elements that are asked for them, one by one or again and again (assumed): PyTorch finds many of a long row by their digits."""
_LONGEST_HELD = 4096
"""Elements of a row in which they are found: a program holds it in registers with a number of 64 bits for each."""
_LONGEST_APART = 256
"""The same where the elements of a row are no neighbours: several rows are held together."""


def scan(source: Tensor, axis: int, kind: str, dtype: str, reverse: bool = False) -> Tensor:
    """The running sum, product or extreme along an axis, or its elements in order."""
    if source.size == 1 or source.shape[axis] == 1:  # a tensor of its own with the same elements
        return formula(A, cast(source, dtype), like=dtype)
    found = Scan(shape=source.shape, dtype=dtype, source=source, axes=(axis,), kind=kind, reverse=reverse)
    return AnchorResult(shape=source.shape, dtype=dtype, anchor=found)


def _run(call: NodeCall) -> Lowered:
    source = call.tensor(0, "input", "self")
    axis = call.get(1, "dim") % max(1, len(source.shape))
    name = call.node.target.rpartition(".")[2].rstrip("_")
    kind = {"cumsum": "sum", "cumprod": "prod", "logcumsumexp": "logs"}[name]
    return scan(cast(source, call.dtype), axis, kind, call.dtype)


def _run_extreme(call: NodeCall) -> Lowered:
    """`cummax` and `cummin`: the extreme so far, and the last place that has it."""
    source = call.tensor(0, "input", "self")
    axis = call.get(1, "dim") % max(1, len(source.shape))
    kind = "max" if "max" in call.node.target else "min"
    if source.dtype == "bool":
        raise NotCovered("on bool")
    source = settle(source)
    best = scan(source, axis, kind, source.dtype)
    place = Position(shape=source.shape, dtype="int64", index=lambda at: at[axis] if at else ZERO)
    text = Op.EQ(A, B) | Op.NE(A, A) if source.dtype in FLOATS else Op.EQ(A, B)
    reached = formula(text, source, best, like=source.dtype, result="bool")
    return best, scan(select_where(reached, place, -1, "int64", source.shape), axis, "max", "int64")


def turn_back(flipped: Tensor, axes: tuple[int, ...]) -> Tensor | None:
    """A scan of flipped values, flipped: the scan from the other end. None for anything else."""
    if not isinstance(flipped, AnchorResult) or not isinstance(flipped.anchor, Scan) or flipped.anchor.axes != axes:
        return None
    if flipped.anchor.whole:
        return None
    source = flipped.anchor.source
    if not isinstance(source, TensorView) or source.flipped != axes:
        return None
    turned = scan(source.source, axes[0], flipped.anchor.kind, flipped.dtype, reverse=not flipped.anchor.reverse)
    if isinstance(turned, AnchorResult):
        turned.anchor.name = f"reverse_{flipped.anchor.name}"
    return turned


def _flip(call: NodeCall) -> Lowered:
    source = call.tensor(0, "input", "self")
    if call.node.target.rpartition(".")[2] == "flip":
        given = call.kwargs.get("dims", call.args[1:])
        axes = given[0] if isinstance(given, tuple | list) and given and isinstance(given[0], list | tuple) else given
    else:
        axes = 1 if call.node.target.endswith("lr") else 0
    if not isinstance(axes, int) and not axes:  # along no axis, and not along all of them
        return source
    places = find_axes(axes if isinstance(axes, int) else list(axes), len(source.shape))
    return turn_back(source, places) or flip(source, places)


@dataclass(frozen=True)
class _Ordered:
    """Rows in order, as whole numbers that are in the same order as their elements."""

    source: Tensor
    axis: int
    falling: bool
    keys: Tensor
    """In rising order: bits of elements, with their places in the lower half where these are asked for."""
    placed: bool

    def restore(self, key: Tensor) -> Tensor:
        """The element of a key."""
        if self.placed:
            key = formula((A >> 32).to("int32"), key, like="int64", result="int32")
        if self.falling:
            key = formula(~A, key, like=key.dtype)
        dtype = self.source.dtype
        if dtype not in FLOATS:
            return cast(key, dtype)
        return formula(Op.FROM_KEY(A), key, like="int32", result=dtype)

    def locate(self, key: Tensor) -> Tensor:
        """The place that the element of a key had."""
        return formula(A & 4294967295, key, like="int64")

    def pick(self, rank: int) -> Tensor:
        """The key of one rank in each row."""
        place = count_along(self.keys.shape, self.axis)
        chosen = formula(Op.EQ(A, B), place, rank, like="int64", result="bool")
        return reduce(select_where(chosen, self.keys, 0, self.keys.dtype, self.keys.shape), (self.axis,), "sum", self.keys.dtype)


def _order(source: Tensor, axis: int, falling: bool, placed: bool = False) -> _Ordered:
    """The rows along an axis in order; equal elements stay in the order in which they stood. Raises NotCovered for rows too long."""
    if source.shape[axis] > _LONGEST:
        raise NotCovered(f"of {source.shape[axis]} elements")
    found = _make_keys(source, axis, falling, placed)
    keys = scan(found.keys, axis, "sort", found.keys.dtype)
    if isinstance(keys, AnchorResult):
        keys.anchor.name = "ordered"
    return replace(found, keys=keys)


def _choose(source: Tensor, axis: int, falling: bool, number: int) -> tuple[Tensor, Tensor]:
    """The first elements along an axis in order, and their places: the least key of a row again and again, each time without the last.

    Raises NotCovered where that is too much for a program.
    """
    length, last = source.shape[axis], axis == len(source.shape) - 1
    if length <= _LONGEST_CHOICE and number > _FEW_CHOSEN:
        ordered = _order(source, axis, falling, placed=True)
        value, place = rename(ordered.restore(ordered.keys), "sorted"), rename(ordered.locate(ordered.keys), "place")
        return cut(value, axis, 0, number), cut(place, axis, 0, number)
    if number > _MOST_CHOSEN or number * length > _MOST_ASKED or length > (_LONGEST_HELD if last else _LONGEST_APART):
        raise NotCovered(f"of {number} among {length}")
    found = _make_keys(source, axis, falling, placed=True)
    left, values, places = found.keys, list[Tensor](), list[Tensor]()
    for count in range(number):
        first = reduce(left, (axis,), "min", "int64", keep=True)
        if isinstance(first, TensorView) and isinstance(first.source, AnchorResult):
            first.source.anchor.name = "first"
        values.append(rename(found.restore(first), "top"))
        places.append(rename(found.locate(first), "place"))
        if count < number - 1:
            left = rename(formula(Op.WHERE(Op.EQ(A, B), _NO_KEY, A), left, first, like="int64"), "left")
    return Stacked.of(values, axis), Stacked.of(places, axis)


_NO_KEY = 2**63 - 1
"""A key behind all others: that of the largest number that is none, at a place that no row has."""


def _make_keys(source: Tensor, axis: int, falling: bool, placed: bool) -> _Ordered:
    """Whole numbers in the order of the elements, each where its element is. Raises NotCovered for types without them."""
    wide = widen(source.dtype)
    if wide == "float64" or (wide == "int64" and placed):
        raise NotCovered(f"of {source.dtype}")
    key = source = settle(source) if placed else source
    tree: Tree = A
    if wide == "float32":
        tree = Op.TO_KEY(A + 0.0) if placed else Op.TO_KEY(A)  # places tell zeros of two signs apart, as their order would
    elif wide != "int64":
        key = cast(source, "int32")
    tree = ~tree if falling else tree
    if placed:  # in one step from the element, which is smaller to store than its key
        tree, inputs = Op.GROUP(Op.GROUP(tree).to("int64") << 32) | B, (key, count_along(source.shape, axis))
        keys = Formula(shape=source.shape, dtype="int64", name="key", expression=tree, inputs=inputs)
        return _Ordered(source, axis, falling, keys, placed)
    if tree is not A:
        key = formula(tree, key, like=wide if wide == "float32" else key.dtype, result="int32" if wide == "float32" else key.dtype)
    return _Ordered(source, axis, falling, rename(key, "key"), placed)


def _asks_places(call: NodeCall) -> bool:
    """Whether forward uses the second result, or both as they are."""

    def refers(argument: Any) -> bool:
        if isinstance(argument, dict):
            return argument.get("ref") == call.node.name or any(map(refers, argument.values()))
        return isinstance(argument, list | tuple) and any(map(refers, argument))

    users = [one for one in call.facts.ops if refers([*one.args, *one.kwargs.values()])]
    return any(one.target.rpartition(".")[2] not in ("getitem", "getattr") or one.args[1] not in (0, "values") for one in users)


def _sort(call: NodeCall) -> Lowered:
    """`sort`, `argsort`, `msort` and `topk`."""
    name, source = call.node.target.rpartition(".")[2], call.tensor(0, "input", "self")
    rank, first = len(source.shape), 1 if name != "topk" else 2
    given = 0 if name == "msort" else call.get(first, "dim", default=-1)
    falling = bool(call.get(first + 1, "largest", default=True) if name == "topk" else call.get(first + 1, "descending", default=False))
    if isinstance(given, bool) or not rank or source.dtype == "bool":
        raise NotCovered(f"on {source.dtype}")
    axis = given % rank
    if name == "topk" and call.get(1, "k") == 1 and source.dtype in FLOATS:
        return find_best(source, (axis,), "max" if falling else "min", True)
    if name == "topk":
        return _choose(source, axis, falling, call.shape[axis])
    placed = name == "argsort" or (name != "msort" and _asks_places(call))
    if placed and not call.kwargs.get("stable"):
        raise NotCovered("with places, of which equal elements get any")
    found = _order(source, axis, falling, placed)
    value = rename(found.restore(found.keys), "sorted")
    place = rename(found.locate(found.keys) if placed else constant(0, "int64", source.shape), "place")
    if name in ("argsort", "msort"):
        return place if name == "argsort" else value
    return value, place


def _rank(call: NodeCall) -> Lowered:
    """`median` and `kthvalue`."""
    name, source = call.node.target.rpartition(".")[2], call.tensor(0, "input", "self")
    whole = len(call.node.outputs) < 2
    source = reshape(source, (source.size,)) if whole else source
    place = 1 if name == "median" else 2
    axis = 0 if whole else call.get(place, "dim", default=-1) % max(1, len(source.shape))
    rank = (source.shape[axis] - 1) // 2 if name == "median" else call.get(1, "k") - 1
    if not whole and _asks_places(call):
        raise NotCovered("with places, of which equal elements get any")
    found = _order(source, axis, False)
    value = rename(found.restore(found.pick(rank)), name)
    if name == "median":
        value = _spread_nan(found, value)
    if whole:
        return value
    unasked = constant(0, "int64", call.shape)
    return reshape(value, call.shape), unasked


def _interpolate(call: NodeCall) -> Lowered:
    """`quantile` of one share, between the two elements next to it."""
    source, share = call.tensor(0, "input", "self"), call.get(1, "q")
    given = call.get(2, "dim", default=None)
    if not isinstance(share, float | int) or source.dtype != "float32" or call.get(4, "interpolation", default="linear") != "linear":
        raise NotCovered("of several shares")
    source = reshape(source, (source.size,)) if given is None else source
    axis = (given or 0) % len(source.shape)
    place = float(share) * (source.shape[axis] - 1)
    below = int(place)
    found = _order(source, axis, False)
    low = found.restore(found.pick(below))
    if place == below:
        low = formula(A + (A - A), low, like="float32")  # from infinity to itself is no way
        return reshape(_spread_nan(found, low), call.shape)
    share, high = place - below, found.restore(found.pick(below + 1))
    tree, weight = (A + (B - A) * C, share) if share < 0.5 else (B - (B - A) * C, 1.0 - share)
    return reshape(_spread_nan(found, formula(tree, low, high, weight, like="float32")), call.shape)


def _spread_nan(found: _Ordered, value: Tensor) -> Tensor:
    """The value, but NaN where an element of the row is NaN, which lies behind all others."""
    if found.source.dtype not in FLOATS:
        return value
    last = found.restore(found.pick(found.source.shape[found.axis] - 1))
    return formula(Op.WHERE(Op.NE(A, A), A, B), last, value, like=value.dtype)


TABLE: dict[str, Lower] = {
    **dict.fromkeys(("cumsum", "cumprod", "logcumsumexp"), _run), **dict.fromkeys(("cummax", "cummin"), _run_extreme),
    **dict.fromkeys(("sort", "argsort", "msort", "topk"), _sort), **dict.fromkeys(("median", "kthvalue"), _rank), "quantile": _interpolate,
    **dict.fromkeys(("flip", "fliplr", "flipud"), _flip),
}  # fmt: skip
