"""Orders of the axes of images: channels ahead of the places, as PyTorch has them, or behind, as neighbours in memory."""

from __future__ import annotations

from tritonsmith.author.compiler.ir.operators import A
from tritonsmith.author.compiler.ir.values import Tensor, base_of
from tritonsmith.author.compiler.lowering.pointwise import formula
from tritonsmith.author.compiler.lowering.views import permute

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
