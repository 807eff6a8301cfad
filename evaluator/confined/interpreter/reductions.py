"""Reductions and scans of the Triton interpreter: bfloat16, and whole-array combines instead of a Python call per element.

Imports Triton: for evaluator processes with TRITON_INTERPRET=1 only.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tritonsmith.evaluator.confined.interpreter.numerics import Array, TensorHandle, narrow, widen
from tritonsmith.evaluator.confined.stand_ins.untyped import interpreter, tl


def _make_tensor(data: Array, dtype: Any) -> Any:
    scalar = dtype.scalar
    return tl.core.tensor(TensorHandle(np.ascontiguousarray(data).reshape(data.shape), scalar), _make_type(data.shape, scalar))


def _make_type(shape: Sequence[int], scalar: Any) -> Any:
    return tl.block_type(scalar, list(shape)) if shape else scalar


def _combine(function: Any, left: list[Array], right: list[Array], types: list[Any]) -> list[Array]:
    operands = [_make_tensor(data, kind) for data, kind in zip(left + right, types + types, strict=True)]
    result = function.fn(*operands)
    parts = result if isinstance(result, tuple | tl.core.tuple) else (result,)
    arrays = (part.handle.data if isinstance(part, tl.core.tensor) else np.asarray(part) for part in parts)
    return [np.broadcast_to(array, left[0].shape).astype(old.dtype, copy=False) for array, old in zip(arrays, left, strict=True)]


def _reduce_by_halves(self: Any, inputs: tuple[Any, ...]) -> list[Any]:
    """Combine neighbours until one is left: log2(n) calls of the combine function, operands in order."""
    whole = self.axis is None
    flat, axis = self.unravel(inputs, self.axis)
    types = [tensor.dtype for tensor in flat]
    arrays = [np.moveaxis(tensor.handle.data, axis, -1) for tensor in flat]
    while arrays[0].shape[-1] > 1:
        arrays = _combine(self.combine_fn, [a[..., 0::2] for a in arrays], [a[..., 1::2] for a in arrays], types)
    outputs = []
    for array, kind in zip(arrays, types, strict=True):
        data = array[..., 0]
        if self.keep_dims:
            data = data.reshape((1,) * len(inputs[0].shape)) if whole else np.expand_dims(data, axis)
        outputs.append(self.to_tensor(data if data.ndim else data.item(), kind))
    return outputs


def _scan_by_doubling(self: Any, inputs: Sequence[Any]) -> list[Any]:
    """Inclusive scan by doubling the distance: log2(n) calls of the combine function."""
    types = [tensor.dtype for tensor in inputs]
    arrays = [np.moveaxis(tensor.handle.data, self.axis, -1) for tensor in inputs]
    length, distance = arrays[0].shape[-1], 1
    position = np.arange(length)
    while distance < length:
        combined = _combine(self.combine_fn, [np.roll(a, distance, -1) for a in arrays], arrays, types)
        arrays = [np.where(position >= distance, new, old) for new, old in zip(combined, arrays, strict=True)]
        distance *= 2
    return [self.to_tensor(np.ascontiguousarray(np.moveaxis(a, -1, self.axis)), t) for a, t in zip(arrays, types, strict=True)]


def _round_sum(self: Any, tensor: Any, stock: Callable[..., Any]) -> Any:
    """A sum as the hardware's tree makes it.

    bfloat16 sums round after every addition; sums of whole numbers wrap around in their own type.
    """
    if tensor.dtype.is_int():
        data = np.sum(tensor.handle.data, axis=self.axis, keepdims=self.keep_dims, dtype=tensor.handle.data.dtype)
        return self.to_tensor(data if data.ndim else data.item(), tensor.dtype)
    if tensor.dtype != tl.bfloat16:
        return stock(self, tensor)
    values, axis = widen(tensor.handle.data), self.axis
    if axis is None:
        values, axis = values.reshape(-1), 0
    values = np.moveaxis(values, axis, -1)
    while values.shape[-1] > 1:
        values = widen(narrow(values[..., 0::2] + values[..., 1::2]))
    data = narrow(values[..., 0])
    if self.keep_dims:
        data = data.reshape((1,) * len(tensor.shape)) if self.axis is None else np.expand_dims(data, self.axis)
    return self.to_tensor(data if data.ndim else data.item(), tl.bfloat16)


def _make_scan(operation: np.ufunc) -> Callable[..., list[Any]]:
    """A running sum or product in the type of its operands, by doubling the distance.

    It is rounded and wraps around as the hardware's tree does.
    """

    def scan(self: Any, tensor: Any) -> list[Any]:
        data = np.moveaxis(tensor.handle.data, self.axis, -1).copy()
        distance = 1
        while distance < data.shape[-1]:
            data[..., distance:] = operation(data[..., :-distance], data[..., distance:])
            distance *= 2
        return [self.to_tensor(np.ascontiguousarray(np.moveaxis(data, -1, self.axis)), tensor.dtype)]

    return scan


def _wrap_in_float32(stock: Callable[..., Any]) -> Callable[..., Any]:
    """Run min, max and scans of bfloat16 in float32 and round the float results back."""

    def method(self: Any, argument: Any, *rest: Any, **named: Any) -> Any:
        tensor = argument[0] if isinstance(argument, tuple) else argument
        if tensor.dtype != tl.bfloat16:
            return stock(self, argument, *rest, **named)
        result = stock(self, _make_tensor(widen(tensor.handle.data), tl.float32), *rest, **named)
        return type(result)(_round(part) for part in result) if isinstance(result, list | tuple) else _round(result)

    return method


def _round(tensor: Any) -> Any:
    if tensor.dtype != tl.float32:
        return tensor
    data = narrow(tensor.handle.data)
    return tl.core.tensor(TensorHandle(data, tl.bfloat16), _make_type(tensor.shape, tl.bfloat16))


def install_reductions() -> None:
    """Replace the interpreter's reduce and scan."""
    reduce, scan = interpreter.ReduceOps, interpreter.ScanOps
    reduce.generic_reduce, scan.generic_scan = _reduce_by_halves, _scan_by_doubling
    stock_sum = reduce.sum
    reduce.sum = lambda self, tensor: _round_sum(self, tensor, stock_sum)
    scan.cumsum, scan.cumprod = _make_scan(np.add), _make_scan(np.multiply)
    for owner, name in ((reduce, "min_max"), (scan, "cumsum"), (scan, "cumprod")):
        setattr(owner, name, _wrap_in_float32(getattr(owner, name)))
