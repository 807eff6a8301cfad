"""Running sums and products, and those that run backwards."""

from __future__ import annotations

from tritonsmith.prompts.recipes.regions.lowering.calls import Lower, Lowered, NodeCall, find_axes
from tritonsmith.prompts.recipes.regions.lowering.pointwise import cast
from tritonsmith.prompts.recipes.regions.lowering.views import flip
from tritonsmith.prompts.recipes.regions.values.tensors import FLOATS, AnchorResult, Scan, Tensor, TensorView


def scan(source: Tensor, axis: int, kind: str, dtype: str, reverse: bool = False) -> AnchorResult:
    """The running sum or product along an axis."""
    found = Scan(shape=source.shape, dtype=dtype, source=source, axes=(axis,), kind=kind, reverse=reverse)
    return AnchorResult(shape=source.shape, dtype=dtype, anchor=found)


def _run(call: NodeCall) -> Lowered:
    source = call.tensor(0, "input", "self")
    axis = call.get(1, "dim") % max(1, len(source.shape))
    kind = "sum" if "cumsum" in call.node.target else "prod"
    value = cast(source, call.dtype) if source.dtype not in FLOATS or call.dtype not in FLOATS else source
    return scan(value, axis, kind, call.dtype)


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


TABLE: dict[str, Lower] = {"cumsum": _run, "cumprod": _run, "flip": _flip, "fliplr": _flip, "flipud": _flip}
