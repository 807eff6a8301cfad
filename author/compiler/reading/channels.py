"""Convolutions by PyTorch on images whose channels are neighbours in memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tritonsmith.author.compiler.ir.operators import A, B, Operand
from tritonsmith.author.compiler.ir.torch_calls import FUNCTIONAL, TorchCall, Way, call_function
from tritonsmith.author.compiler.ir.values import Formula, LibraryCall, Tensor, TensorView, base_of, widen
from tritonsmith.author.compiler.lowering.orders import order_back, order_last, turn_image
from tritonsmith.author.compiler.lowering.pointwise import formula
from tritonsmith.author.compiler.lowering.views import permute, reshape

_AXES, _FLAT = 4, 3
"""Axes of an image with places along two axes, and along one."""
_WITH_BIAS, _WITH_WEIGHT_AND_BIAS = 2, 3
"""Operands of a sum with a bias, and of a convolution with one."""
_PLAIN = {
    "stride": (1, (1,), [1], (1, 1), [1, 1]), "padding": (0, (0,), [0], (0, 0), [0, 0]), "dilation": (1, (1,), [1], (1, 1), [1, 1]),
    "groups": (1,),
}  # fmt: skip
"""Arguments of a convolution under which a window of one place is a row of a matrix."""


def can_keep_channels_last(made: Any) -> bool:
    """Whether a value is a library's convolution of images with two axes, or of any images if its windows have one place."""
    if not isinstance(made, LibraryCall) or not made.record.function.startswith("conv"):
        return False
    axes = len(made.shape)
    known = axes == _AXES or axes == _FLAT and _is_product(_take_bias(made)[0], made)
    return known and made.record.arguments[:1] == (Operand(0),) and len(made.inputs[0].shape) == axes


def keep_channels_last(made: Any) -> Any:
    """The same convolution with both images in that order; any other value as it is.

    The image is stored in that order by the kernel that computes it. What is made of the result reads it in that order, and adds the
    bias, for which PyTorch would launch a kernel of its own. A window of one place is a product of matrices.
    """
    if not can_keep_channels_last(made):
        return made
    image, axes = turn_image(made.inputs[0]), len(made.shape) - 2
    shape = tuple(made.shape[axis] for axis in order_last(axes))
    record, bias = _take_bias(made)
    product = _is_product(record, made)
    record = _as_product(record, made) if product else TorchCall(Way.METHOD, "permute", (_on_last(record), *order_last(axes)))
    inputs = (image, *(one for one in made.inputs[1:] if one is not bias))
    call = replace(made, shape=shape, record=record, inputs=inputs, says=f"{made.says} with channels last")
    result = permute(call, order_back(axes))
    if bias is not None:
        channels = reshape(bias, (bias.size, *(1,) * axes))
        result = formula(A + B, result, channels, like=widen(made.dtype), result=made.dtype)
    return _name(result, made.name)


def find_call(value: Tensor) -> Tensor:
    """The convolution of such a value; any other value as it is."""
    if isinstance(value, Formula) and value.expression == A + B and len(value.inputs) == _WITH_BIAS:
        call = base_of(_strip_cast(value.inputs[0]))
        if isinstance(call, LibraryCall) and call.name == value.name:
            return call
    return value


def _strip_cast(value: Tensor) -> Tensor:
    """What a value is a cast of."""
    return value.inputs[0] if isinstance(value, Formula) and value.expression == A and len(value.inputs) == 1 else value


def _take_bias(made: LibraryCall) -> tuple[TorchCall, Tensor | None]:
    """The call without its bias, and that; the bias is the last operand where there is one."""
    last = Operand(len(made.inputs) - 1)
    if len(made.inputs) != _WITH_WEIGHT_AND_BIAS:
        return made.record, None
    arguments, keywords = made.record.arguments, made.record.keywords
    if keywords.get("bias") == last:
        return replace(made.record, keywords={**keywords, "bias": None}), made.inputs[-1]
    if len(arguments) >= _WITH_WEIGHT_AND_BIAS and arguments[2] == last:
        return replace(made.record, arguments=(*arguments[:2], None, *arguments[3:])), made.inputs[-1]
    return made.record, None


def _is_product(record: TorchCall, made: LibraryCall) -> bool:
    """Whether the windows have one place, lie beside each other, and see all channels."""
    weight = made.inputs[1] if len(made.inputs) > 1 else None
    plain = all(value is None or value in _PLAIN.get(key, ()) for key, value in record.keywords.items() if key not in ("weight", "bias"))
    if weight is None or not plain or len(record.arguments) not in (1, 3) or any(one is not None for one in record.arguments[2:]):
        return False
    return weight.shape[1:] == (made.inputs[0].shape[1], *(1,) * (len(made.shape) - 2)) and record.keywords.get("bias") is None


def _as_product(record: TorchCall, made: LibraryCall) -> TorchCall:
    weight = made.inputs[1]
    matrix = TorchCall(Way.METHOD, "reshape", (Operand(1), weight.shape[:2]))
    return call_function(f"{FUNCTIONAL}linear", Operand(0), matrix)


def find_image(value: Tensor) -> Tensor | None:
    """The image that a value has with its channels last; None for any other value."""
    if not isinstance(value, Formula) or value.expression != A or not isinstance(value.inputs[0], TensorView):
        return None
    return value.inputs[0].source


def _on_last(record: TorchCall) -> TorchCall:
    image = TorchCall(Way.METHOD, "permute", (Operand(0), *order_back(_AXES - 2)))
    return replace(record, arguments=(image, *record.arguments[1:]))


def _name(value: Tensor, name: str) -> Tensor:
    value.name = name
    return value
