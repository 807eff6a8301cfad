"""Convolutions by PyTorch on images whose channels are neighbours in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tritonsmith.author.compiler.ir.operators import A, Operand
from tritonsmith.author.compiler.ir.torch_calls import TorchCall, Way
from tritonsmith.author.compiler.ir.values import Formula, LibraryCall, Tensor, TensorView, base_of
from tritonsmith.author.compiler.lowering.pointwise import formula
from tritonsmith.author.compiler.lowering.views import permute

_LAST, _BACK = (0, 2, 3, 1), (0, 3, 1, 2)
"""Orders of an image's axes: channels to the end, and back."""
_AXES = 4


def can_keep_channels_last(made: Any) -> bool:
    """Whether a value is a library's convolution of images with two axes."""
    if not isinstance(made, LibraryCall) or len(made.shape) != _AXES or not made.record.function.startswith("conv"):
        return False
    return made.record.arguments[:1] == (Operand(0),) and len(made.inputs[0].shape) == _AXES


def keep_channels_last(made: Any) -> Any:
    """The same convolution with both images in that order; any other value as it is.

    The image is stored in that order by the kernel that computes it. What is made of the result reads it in that order.
    """
    if not can_keep_channels_last(made):
        return made
    image = permute(made.inputs[0], _LAST)
    if base_of(image) is not image:  # else it lies in memory so, as where another such call gave it
        image = formula(A, image, like=image.dtype)
        image.name = made.inputs[0].name or "image"
    record = TorchCall(Way.METHOD, "permute", (_on_last(made.record), *_LAST))
    shape = tuple(made.shape[axis] for axis in _LAST)
    call = replace(made, shape=shape, record=record, inputs=(image, *made.inputs[1:]), says=f"{made.says} with channels last")
    return _name(permute(call, _BACK), made.name)


def find_image(value: Tensor) -> Tensor | None:
    """The image that a value has with its channels last; None for any other value."""
    if not isinstance(value, Formula) or value.expression != A or not isinstance(value.inputs[0], TensorView):
        return None
    return value.inputs[0].source


def _on_last(record: TorchCall) -> TorchCall:
    image = TorchCall(Way.METHOD, "permute", (Operand(0), *_BACK))
    return replace(record, arguments=(image, *record.arguments[1:]))


def _name(value: Tensor, name: str) -> Tensor:
    value.name = name
    return value
