"""Convolutions whose channels are neighbours in memory, and the orders of axes: PyTorch has channels ahead of the places."""

from __future__ import annotations

from tritonsmith.author.compiler.ir.operators import A, B
from tritonsmith.author.compiler.ir.values import (
    ZERO_POINT,
    AnchorResult,
    ChannelWindows,
    Formula,
    Held,
    Reduction,
    Tensor,
    base_of,
    widen,
)
from tritonsmith.author.compiler.lowering.calls import NodeCall
from tritonsmith.author.compiler.lowering.pointwise import formula
from tritonsmith.author.compiler.lowering.pools import open_windows
from tritonsmith.author.compiler.lowering.products import add_bias, multiply
from tritonsmith.author.compiler.lowering.reductions import reduce
from tritonsmith.author.compiler.lowering.views import permute, reshape, swap

Order = tuple[int, ...]


def order_last(axes: int) -> Order:
    """The order with channels last of an image with so many axes of places: `order_last(2)` is (0, 2, 3, 1)."""
    return (0, *range(2, 2 + axes), 1)


def order_back(axes: int) -> Order:
    """The order from channels last back: `order_back(2)` is (0, 3, 1, 2)."""
    return (0, 1 + axes, *range(1, 1 + axes))


def order_taps(axes: int) -> Order:
    """The order of weights [channels, 1, *window] as [*window, 1, channels]: `order_taps(2)` is (2, 3, 1, 0)."""
    return (*range(2, 2 + axes), 1, 0)


def turn_image(source: Tensor) -> Tensor:
    """The image [images, channels, *places] as [images, *places, channels], as it lies in memory or is stored for its reader."""
    image = permute(source, order_last(len(source.shape) - 2))
    if base_of(image) is not image:  # else it lies in memory so, as where another such call gave it
        image = formula(A, image, like=image.dtype)
        image.name = source.name or "image"
    return image


def convolve_channels_last(
    call: NodeCall, source: Tensor, weight: Held, bias: Tensor | None, steps: tuple[Order, Order, Order]
) -> Tensor:
    """A convolution of each channel by itself, of an image whose channels are neighbours in memory, as those of its weights are."""
    image = _turn_once(call, source)
    channels, _, *window = weight.shape
    axes = len(window)
    turned = Held(
        shape=(*window, 1, channels), dtype=weight.dtype, name=weight.name, path=weight.path,
        source=f"{weight.source}.permute{order_taps(axes)}.contiguous()",  # no copy: the parameter lies so
    )  # fmt: skip
    windows = open_windows(permute(image, order_back(axes)), tuple(window), *steps, call.shape[2:], ZERO_POINT)
    opened = permute(windows, (*order_last(axes), *range(2 + axes, 2 + 2 * axes)))
    kernel = reshape(permute(turned, (axes + 1, axes, *range(axes))), (channels, *window))
    behind = tuple(range(2 + axes, 2 + 2 * axes))
    found = reduce(formula(A * B, opened, kernel, like=widen(call.dtype)), behind, "sum", call.dtype)
    note_windows(found, ChannelWindows(image, turned, tuple(window), *steps, last=True))
    return permute(add_bias(found, bias, call.dtype), order_back(axes))


def multiply_last(call: NodeCall, source: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """A convolution whose windows have one place, as a product of matrices whose rows are places."""
    axes = len(source.shape) - 2
    matrix = swap(reshape(weight, weight.shape[:2]), 0, 1)
    given = isinstance(base_of(source), Held)  # which the product reads as it lies: a copy of it would be computed in registers
    image = permute(source, order_last(axes)) if given else _turn_once(call, source)
    product = multiply(image, matrix, call.name, call.node.name)
    return permute(add_bias(product, bias, call.dtype), order_back(axes))


def _turn_once(call: NodeCall, source: Tensor) -> Tensor:
    """The image with its channels last; what reads it behind this call has it in that order too, unless it was given in the other one."""
    axes = len(source.shape) - 2
    image = turn_image(source)
    turned = isinstance(image, Formula) and image is not base_of(permute(source, order_last(axes)))
    if turned and not isinstance(base_of(source), Held):
        call.images[id(source)] = source, permute(image, order_back(axes))
    return image


def note_windows(value: Tensor, windows: ChannelWindows) -> Tensor:
    """A sum over windows that says what it goes along."""
    if isinstance(value, AnchorResult) and isinstance(value.anchor, Reduction):
        value.anchor.windows = windows
    return value
