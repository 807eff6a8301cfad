"""Running sums and products, and those that run backwards."""

from __future__ import annotations

from tritonsmith.prompts.recipes.regions.lowering.calls import Lower, Lowered, NodeCall, NotCovered, find_axes
from tritonsmith.prompts.recipes.regions.lowering.pointwise import cast, formula, select_where
from tritonsmith.prompts.recipes.regions.lowering.views import flip
from tritonsmith.prompts.recipes.regions.values.tensors import FLOATS, AnchorResult, Position, Scan, Tensor, TensorView


def scan(source: Tensor, axis: int, kind: str, dtype: str, reverse: bool = False) -> AnchorResult:
    """The running sum or product along an axis."""
    found = Scan(shape=source.shape, dtype=dtype, source=source, axes=(axis,), kind=kind, reverse=reverse)
    return AnchorResult(shape=source.shape, dtype=dtype, anchor=found)


def _run(call: NodeCall) -> Lowered:
    source = call.tensor(0, "input", "self")
    axis = call.get(1, "dim") % max(1, len(source.shape))
    name = call.node.target.rpartition(".")[2].rstrip("_")
    kind = {"cumsum": "sum", "cumprod": "prod", "logcumsumexp": "logs"}[name]
    value = cast(source, call.dtype) if source.dtype not in FLOATS or call.dtype not in FLOATS else source
    return scan(value, axis, kind, call.dtype)


def _run_extreme(call: NodeCall) -> Lowered:
    """`cummax` and `cummin`: the extreme so far, and the last place that has it."""
    source = call.tensor(0, "input", "self")
    axis = call.get(1, "dim") % max(1, len(source.shape))
    kind = "max" if "max" in call.node.target else "min"
    if source.dtype == "bool":
        raise NotCovered("on bool")
    best = scan(source, axis, kind, source.dtype)
    place = Position(shape=source.shape, dtype="int64", index=lambda at: at[axis])
    reached = formula("{0} == {1}", source, best, like=source.dtype, result="bool")
    return best, scan(select_where(reached, place, -1, "int64", source.shape), axis, "max", "int64")


def turn_back(flipped: Tensor, axes: tuple[int, ...]) -> Tensor | None:
    """A scan of flipped values, flipped: the scan from the other end. None for anything else."""
    if not isinstance(flipped, AnchorResult) or not isinstance(flipped.anchor, Scan) or flipped.anchor.axes != axes:
        return None
    source = flipped.anchor.source
    if not isinstance(source, TensorView) or source.flipped != axes:
        return None
    turned = scan(source.source, axes[0], flipped.anchor.kind, flipped.dtype, reverse=not flipped.anchor.reverse)
    turned.anchor.name = f"reverse_{flipped.anchor.name}"
    return turned


def _flip(call: NodeCall) -> Lowered:
    source = call.tensor(0, "input", "self")
    if call.node.target.rpartition(".")[2] == "flip":
        given = call.kwargs.get("dims", call.args[1:])
        axes = given[0] if isinstance(given, tuple | list) and given and isinstance(given[0], list | tuple) else given
    else:
        axes = 1 if call.node.target.endswith("lr") else 0
    places = find_axes(axes if isinstance(axes, int) else list(axes), len(source.shape))
    return turn_back(source, places) or flip(source, places)


TABLE: dict[str, Lower] = {
    **dict.fromkeys(("cumsum", "cumprod", "logcumsumexp"), _run), **dict.fromkeys(("cummax", "cummin"), _run_extreme),
    **dict.fromkeys(("flip", "fliplr", "flipud"), _flip),
}  # fmt: skip
