"""Products that are bound by memory: a matrix times a vector, and convolutions of each channel by itself. Others stay PyTorch calls."""

from __future__ import annotations

from tritonsmith.prompts.recipes.regions.lowering.calls import Lower, Lowered, NodeCall, NotCovered
from tritonsmith.prompts.recipes.regions.lowering.pointwise import formula
from tritonsmith.prompts.recipes.regions.lowering.pools import open_windows, spread
from tritonsmith.prompts.recipes.regions.lowering.reductions import reduce
from tritonsmith.prompts.recipes.regions.lowering.views import reshape
from tritonsmith.prompts.recipes.regions.values.tensors import FLOATS, Tensor, TensorView, widen

_FEW = 1
"""Columns of a product that is done as a sum along rows."""


def _multiply(call: NodeCall) -> Lowered:
    """A product with one column: a sum along each row."""
    left, right = call.tensor(0, "input", "self"), call.tensor(1, "other", "mat2", "vec")
    if right.dtype not in FLOATS or not left.shape or not right.shape:
        raise NotCovered(f"on {right.dtype}")
    wide = widen(call.dtype)
    if len(right.shape) == 1:
        return reduce(formula("{0} * {1}", left, right, like=wide), (len(left.shape) - 1,), "sum", call.dtype)
    if right.shape[-1] > _FEW or len(right.shape) > 2 or len(left.shape) < 2:
        raise NotCovered("")
    column = reshape(right, (right.shape[0],))
    return reshape(reduce(formula("{0} * {1}", left, column, like=wide), (len(left.shape) - 1,), "sum", call.dtype), call.shape)


def _convolve(call: NodeCall) -> Lowered:
    """A convolution in which every channel has its own window and no other channel enters."""
    source, weight, bias = call.tensor(0, "input"), call.weight(1, "weight"), call.weight(2, "bias")
    if weight is None or call.option(-1, "padding_mode", "zeros") != "zeros" or call.option(4, "padding", 0) in ("same", "valid"):
        raise NotCovered("")
    groups = call.option(6, "groups", 1)
    axes = len(weight.shape) - 2
    batch, channels, *sizes = source.shape if len(source.shape) == axes + 2 else (0, 0)
    if groups != channels or weight.shape[1] != 1 or weight.shape[0] % max(1, channels) or groups == 1:
        raise NotCovered("")
    window = weight.shape[2:]
    stride, padding, dilation = (spread(call.option(place, name, plain), axes) for place, name, plain in
                                 ((3, "stride", 1), (4, "padding", 0), (5, "dilation", 1)))  # fmt: skip
    outputs, filters = call.shape[2:], weight.shape[0] // channels
    views: Tensor = open_windows(source, window, stride, padding, dilation, outputs, "0.0")
    if filters > 1:
        inner = views
        views = TensorView(
            shape=(batch, weight.shape[0], *inner.shape[2:]), dtype=inner.dtype, source=inner,
            move=lambda at: (at[0], at[1] // filters, *at[2:]),
        )  # fmt: skip
    kernel = reshape(weight, (weight.shape[0], *(1,) * axes, *window))
    wide = widen(call.dtype)
    behind = tuple(range(2 + axes, 2 + 2 * axes))
    total = reduce(formula("{0} * {1}", views, kernel, like=wide), behind, "sum", call.dtype)
    return total if bias is None else formula("{0} + {1}", total, reshape(bias, (bias.size, *(1,) * axes)), like=call.dtype)


TABLE: dict[str, Lower] = {
    **dict.fromkeys(("matmul", "mm", "mv", "bmm", "dot"), _multiply),
    **dict.fromkeys([name for axes in (1, 2, 3) for name in (f"conv{axes}d", f"nn.Conv{axes}d")], _convolve),
}
