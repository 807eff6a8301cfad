"""Arithmetic of the Triton interpreter brought to what the hardware does: bfloat16, TF32 products, rounding, NaN rules.

The stock interpreter keeps bfloat16 as uint16 and adds the integers, truncates float32 to bfloat16, and computes TF32 and bf16x3 products
in full float32. Imports Triton: for evaluator processes with TRITON_INTERPRET=1 only.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tritonsmith.evaluator.confined.stand_ins.untyped import interpreter, tl

TensorHandle = interpreter.TensorHandle
Builder = interpreter.InterpreterBuilder
Array = NDArray[Any]

_TF32_MASK = np.uint32(0xFFFFE000)
"""Tensor cores read the upper 19 bits of a float32; Triton passes them on unrounded."""

_INPUT_PRECISIONS = ("ieee", "tf32", "tf32x3", "bf16x3", "bf16x6")
"""Products of fp32 operands that an NVIDIA card has; the stock interpreter knows the first three."""


def widen(bits: Array) -> Array:
    """bfloat16 bits as float32; exact."""
    return (np.asarray(bits).astype(np.uint32) << np.uint32(16)).view(np.float32)


def narrow(values: Array) -> Array:
    """float32 as bfloat16 bits, rounded to nearest even, NaN kept."""
    values = np.ascontiguousarray(values, dtype=np.float32).reshape(np.shape(values))
    bits = values.view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    return np.where(np.isnan(values), np.uint16(0x7FC0), rounded.astype(np.uint16))


def is_bfloat16(handle: Any) -> bool:
    """Whether a handle holds bfloat16 values (not pointers to them)."""
    return not isinstance(handle.dtype, tl.pointer_type) and bool(handle.dtype.scalar.name == "bf16")


def values_of(handle: Any) -> Array:
    """A handle's numbers: bfloat16 widened, anything else as it is."""
    return widen(handle.data) if is_bfloat16(handle) else handle.data


def handle_like(values: Array, dtype: Any) -> Any:
    """A handle of scalar type `dtype` from numbers; rounds to bfloat16 where asked."""
    if dtype.scalar == tl.bfloat16:
        return TensorHandle(narrow(values), tl.bfloat16)
    return TensorHandle(np.asarray(values).astype(interpreter._get_np_dtype(dtype.scalar), copy=False), dtype.scalar)


def truncate_to_tf32(values: Array) -> Array:
    """float32 as a tensor core reads it: the low 13 mantissa bits dropped."""
    return (np.ascontiguousarray(values, dtype=np.float32).view(np.uint32) & _TF32_MASK).view(np.float32)


def multiply_bf16x3(left: Array, right: Array) -> Array:
    """Each operand as the sum of two bfloat16 values, all products but the smallest: about 16 bits of an operand count."""
    (high, low), (other_high, other_low) = _halve(left), _halve(right)
    product: Array = np.matmul(high, other_high) + (np.matmul(high, other_low) + np.matmul(low, other_high))
    return product


def _halve(values: Array) -> tuple[Array, Array]:
    high = widen(narrow(values))
    return high, widen(narrow(values - high))


def name_dot(left: Any, precision: Any) -> str:
    """Name of the product a tl.dot asks for: by operand type, and for float32 by input precision."""
    scalar = left.dtype.scalar
    if scalar == tl.float32:
        name = str(precision).rsplit(".", 1)[-1].lower()
        return name if name in _INPUT_PRECISIONS else "tf32"
    return str(scalar)


def _wrap_dot(stock: Callable[..., Any]) -> Callable[..., Any]:
    def create_dot(self: Any, left: Any, right: Any, accumulator: Any, precision: Any, imprecise: Any) -> Any:
        kind = name_dot(left, precision)
        if kind == "tf32":
            product = np.matmul(truncate_to_tf32(left.data), truncate_to_tf32(right.data))
        elif kind == "bf16x3":
            product = multiply_bf16x3(left.data, right.data)
        elif kind in ("bf16", "fp16") and accumulator.dtype.scalar == tl.float32:
            # 16-bit products are exact in float32, and one float32 BLAS call beats numpy's half-precision loop
            product = np.matmul(values_of(left).astype(np.float32), values_of(right).astype(np.float32))
        elif is_bfloat16(left) or is_bfloat16(accumulator):
            product = np.matmul(values_of(left).astype(np.float32), values_of(right).astype(np.float32))
            return handle_like(product + values_of(accumulator), accumulator.dtype)
        else:
            return stock(self, left, right, accumulator, precision, imprecise)
        return TensorHandle(product + accumulator.data, accumulator.dtype.scalar)

    return create_dot


def _wrap_binary(stock: Callable[..., Any]) -> Callable[..., Any]:
    def binary_op(self: Any, left: Any, right: Any, op: Callable[..., Array]) -> Any:
        if not (is_bfloat16(left) or is_bfloat16(right)):
            return stock(self, left, right, op)
        result = op(values_of(left), values_of(right))
        return TensorHandle(result, left.dtype.scalar) if result.dtype == np.bool_ else TensorHandle(narrow(result), tl.bfloat16)

    return binary_op


def _wrap_unary(stock: Callable[..., Any]) -> Callable[..., Any]:
    def unary_op(self: Any, argument: Any, op: Callable[..., Array]) -> Any:
        return TensorHandle(narrow(op(widen(argument.data))), tl.bfloat16) if is_bfloat16(argument) else stock(self, argument, op)

    return unary_op


def _wrap_ternary(stock: Callable[..., Any]) -> Callable[..., Any]:
    def ternary_op(self: Any, first: Any, second: Any, third: Any, op: Callable[..., Array]) -> Any:
        if op is np.clip and is_bfloat16(first):
            return TensorHandle(narrow(op(values_of(first), values_of(second), values_of(third))), tl.bfloat16)
        return stock(self, first, second, third, op)

    return ternary_op


def _wrap_cast(stock: Callable[..., Any]) -> Callable[..., Any]:
    def cast_impl(self: Any, source: Any, target: Any) -> Any:
        scalar = target.scalar
        if scalar == tl.bfloat16 and not is_bfloat16(source):
            return TensorHandle(narrow(source.data.astype(np.float32)), tl.bfloat16)
        if is_bfloat16(source) and scalar != tl.bfloat16:
            return TensorHandle(widen(source.data).astype(interpreter._get_np_dtype(target)), scalar)
        return stock(self, source, target)

    return cast_impl


_EIGHT_BITS = {tl.float8e4nv: torch.float8_e4m3fn, tl.float8e5: torch.float8_e5m2}
"""Triton's 8-bit numbers with those of torch."""


def _round_to_eight_bits(values: Array, kind: torch.dtype) -> Array:
    """Rounded to nearest even, subnormals kept, what is too large made the largest: as the card's conversion does; as bits."""
    largest = torch.finfo(kind).max
    wide = torch.from_numpy(np.array(values, np.float32)).clamp(-largest, largest)
    return np.asarray(wide.to(kind).view(torch.uint8).numpy())


def _wrap_fp_to_fp(stock: Callable[..., Any]) -> Callable[..., Any]:
    def create_fp_to_fp(self: Any, source: Any, target: Any, rounding: Any) -> Any:
        kind, own = target.scalar, source.dtype.scalar
        if kind in _EIGHT_BITS and own in (tl.float32, tl.float16, tl.bfloat16) and "RTZ" not in str(rounding).upper():
            bits = _round_to_eight_bits(values_of(source), _EIGHT_BITS[kind])
            return TensorHandle(bits.view(interpreter._get_np_dtype(target)), kind)
        if own in _EIGHT_BITS and kind in (tl.float32, tl.float16, tl.bfloat16):
            eight = torch.from_numpy(np.array(source.data).view(np.uint8)).view(_EIGHT_BITS[own])
            return handle_like(eight.float().numpy(), kind)
        wide = min(source.dtype.scalar.primitive_bitwidth, target.scalar.primitive_bitwidth) >= 16
        if wide and tl.bfloat16 in (source.dtype.scalar, target.scalar):
            return self.cast_impl(source, target)
        return stock(self, source, target, rounding)

    return create_fp_to_fp


def _wrap_fma(stock: Callable[..., Any]) -> Callable[..., Any]:
    def create_fma(self: Any, first: Any, second: Any, third: Any) -> Any:
        if not is_bfloat16(third):
            return stock(self, first, second, third)
        return TensorHandle(narrow(widen(first.data) * widen(second.data) + widen(third.data)), tl.bfloat16)

    return create_fma


def wrap_torch_function(function: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Array], Array]:
    """A torch function on numpy arrays, for what numpy lacks."""
    return lambda values: np.asarray(function(torch.from_numpy(np.array(values))).numpy())


def install_numerics() -> None:
    """Replace the builder's arithmetic."""
    replacements = {
        "binary_op": _wrap_binary, "unary_op": _wrap_unary, "ternary_op": _wrap_ternary, "cast_impl": _wrap_cast,
        "create_fp_to_fp": _wrap_fp_to_fp, "create_dot": _wrap_dot, "create_fma": _wrap_fma,
    }  # fmt: skip
    for name, wrap in replacements.items():
        setattr(Builder, name, wrap(getattr(Builder, name)))
    builder = interpreter.interpreter_builder
    builder.options = dataclasses.replace(builder.options, allowed_dot_input_precisions=_INPUT_PRECISIONS)
    Builder.create_rsqrt = lambda self, argument: self.unary_op(argument, lambda values: 1 / np.sqrt(values))
    Builder.create_erf = lambda self, argument: self.unary_op(argument, wrap_torch_function(torch.erf))
    # the hardware's min and max return the operand that is a number; numpy's minimum and maximum return the NaN
    Builder.create_maxnumf = lambda self, left, right: self.binary_op(left, right, np.fmax)
    Builder.create_minnumf = lambda self, left, right: self.binary_op(left, right, np.fmin)
    if not hasattr(Builder, "get_bf16"):
        Builder.get_bf16 = lambda _self, value: TensorHandle(narrow(np.array([value], np.float32)), tl.bfloat16)
