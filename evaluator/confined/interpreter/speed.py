"""Removes costs of the Triton interpreter that repeat for every operation: types built anew, dtype tables built anew, overflow asserts.

Imports Triton: for evaluator processes with TRITON_INTERPRET=1 only.
"""

import dataclasses
import math
from typing import Any

import numpy as np

from tritonsmith.evaluator.confined.stand_ins.untyped import interpreter, tl

_block_types: dict[Any, dict[str, Any]] = {}
_shapes: dict[tuple[int, ...], tuple[Any, Any]] = {}
_numpy_types: dict[Any, Any] = {}
_constants: dict[tuple[type, Any, str], Any] = {}
_common_types: dict[tuple[Any, ...], Any] = {}
_MOST_KNOWN = 10000
"""Constants, and pairs of operands, that are remembered; loops make ever new numbers."""


def _identify(dtype: Any) -> tuple[Any, ...]:
    """A key of a scalar or pointer type; pointer types themselves are not hashable."""
    return type(dtype), dtype.name, getattr(dtype, "address_space", None), getattr(dtype, "const", None)


def _unwrap_extent(extent: Any) -> Any:
    return extent.value if isinstance(extent, tl.constexpr) else extent


def _memoise_block_types() -> None:
    stock = tl.core.block_type.__init__

    def __init__(self: Any, element_ty: Any, shape: Any) -> None:
        extents = tuple(_unwrap_extent(extent) for extent in shape)
        key = (_identify(element_ty), extents)
        known = _block_types.get(key)
        if known is None:
            stock(self, element_ty, shape)
            if all(type(extent) is int for extent in extents):
                _block_types[key] = dict(self.__dict__)
        else:
            self.__dict__.update(known)

    tl.core.block_type.__init__ = __init__


def _memoise_shapes() -> None:
    def __init__(self: Any, handle: Any, type: Any) -> None:
        self.handle, self.type, self.dtype = handle, type, type.scalar
        extents = tuple(type.shape.values) if type.is_block() else ()
        known = _shapes.get(extents)
        if known is None:
            known = _shapes[extents] = (tl.core.tuple([tl.constexpr(extent) for extent in extents]), tl.constexpr(math.prod(extents)))
        self.shape, self.numel = known

    tl.core.tensor.__init__ = __init__


def _memoise_numpy_types() -> None:
    stock = interpreter._get_np_dtype

    def numpy_type(dtype: Any) -> Any:
        scalar = dtype.element_ty if isinstance(dtype, tl.block_type) else dtype
        key = _identify(scalar)
        found = _numpy_types.get(key)
        if found is None:
            found = _numpy_types[key] = stock(scalar)
        return found

    interpreter._get_np_dtype = numpy_type


def _shorten_broadcasts() -> None:
    """Equal shapes need nothing, and a scalar against a block is one view."""
    semantic = type(interpreter.interpreter_semantic)
    stock = semantic.broadcast_impl_value

    def spread(self: Any, scalar: Any, block_type: Any) -> Any:
        handle = scalar.handle
        data, extents = handle.data, tuple(block_type.shape.values)
        if data.size == 1:  # a tenth of the time that broadcast_to takes
            data = np.ndarray(extents, data.dtype, data, 0, (0,) * len(extents))
            data.flags.writeable = False
        else:
            data = np.broadcast_to(data, extents)
        return self.tensor(interpreter.TensorHandle(data, handle.dtype.scalar), block_type.with_element_ty(scalar.type.scalar))

    def broadcast_impl_value(self: Any, left: Any, right: Any) -> Any:
        left_type, right_type = left.type, right.type
        left_block, right_block = left_type.is_block(), right_type.is_block()
        if left_block and right_block:
            same = left_type.shape.values == right_type.shape.values
            return (left, right) if same else stock(self, left, right)
        if left_block:
            return left, spread(self, right, left_type)
        if right_block:
            return spread(self, left, right_type), right
        return left, right

    semantic.broadcast_impl_value = broadcast_impl_value


def _shorten_unwrapping() -> None:
    stock = tl.core._unwrap_if_constexpr
    plain = {int, float, bool, str, type(None), tl.core.tensor, tl.core.dtype, tl.core.pointer_type}

    def unwrap(value: Any) -> Any:
        kind = type(value)
        if kind is tl.constexpr:
            return value.value
        return value if kind in plain else stock(value)

    tl.core._unwrap_if_constexpr = unwrap


def _shorten_comparisons() -> None:
    stock = tl.core.dtype.__eq__
    tl.core.dtype.__eq__ = lambda self, other: self is other or stock(self, other)


def _shorten_handles() -> None:
    """The stock handle is a dataclass whose check of sizes takes four calls."""
    pointer = tl.core.pointer_type

    def __init__(self: Any, data: Any, dtype: Any, attr: Any = None) -> None:
        self.data, self.dtype, self.attr = data, dtype, {} if attr is None else attr
        if not isinstance(dtype, pointer) and data.itemsize * 8 > max(8, dtype.primitive_bitwidth):
            raise ValueError(f"numpy data of {data.itemsize * 8} bits exceeds the {dtype.primitive_bitwidth} bits of {dtype}")

    interpreter.TensorHandle.__init__ = __init__


def _memoise_constants() -> None:
    """A number in a kernel is the same tensor in every program; its data cannot be written."""
    semantic = type(interpreter.interpreter_semantic)
    stock = semantic.scalar_constant

    def scalar_constant(self: Any, value: Any, dtype: Any) -> Any:
        if type(value) not in (int, float, bool) or not isinstance(dtype, tl.core.dtype):
            return stock(self, value, dtype)
        key = type(value), value, dtype.name
        found = _constants.get(key)
        if found is None:
            found = stock(self, value, dtype)
            found.handle.data.flags.writeable = False
            if len(_constants) > _MOST_KNOWN:
                _constants.clear()
            _constants[key] = found
        return found

    semantic.scalar_constant = scalar_constant


def _memoise_type_checks() -> None:
    """Which type two operands are computed in depends on their types, and on the value of a number; what passed once passes again."""
    semantic = type(interpreter.interpreter_semantic)
    stock, tensor = semantic.binary_op_type_checking_impl, tl.core.tensor

    def find_common_type(self: Any, lhs: Any, rhs: Any, arithmetic_check: bool, div_or_mod: bool) -> Any:
        numbers = type(lhs) is not tensor, type(rhs) is not tensor
        left, right = self.to_tensor(lhs).dtype, self.to_tensor(rhs).dtype
        if not arithmetic_check or left.is_ptr() or right.is_ptr():
            return None
        return self.computation_type_impl(left, numbers[0], right, numbers[1], div_or_mod)

    def convert(self: Any, operand: Any, common: Any) -> Any:
        if type(operand) is not tensor:
            return self.to_tensor(operand) if common is None else self.scalar_constant(operand, common)
        return operand if common is None or operand.dtype is common else self.cast(operand, common)

    def check(
        self: Any, lhs: Any, rhs: Any, allow_lhs_ptr: bool = False, allow_rhs_ptr: bool = False, arithmetic_check: bool = True,
        div_or_mod: bool = False,
    ) -> Any:  # fmt: skip
        left, right = _describe_operand(lhs), _describe_operand(rhs)
        key = left, right, allow_lhs_ptr, allow_rhs_ptr, arithmetic_check, div_or_mod
        if left is None or right is None or key not in _common_types:
            result = stock(self, lhs, rhs, allow_lhs_ptr, allow_rhs_ptr, arithmetic_check, div_or_mod)
            if left is not None and right is not None:
                if len(_common_types) > _MOST_KNOWN:
                    _common_types.clear()
                _common_types[key] = find_common_type(self, lhs, rhs, arithmetic_check, div_or_mod)
            return result
        common = _common_types[key]
        return self.broadcast_impl_value(convert(self, lhs, common), convert(self, rhs, common))

    semantic.binary_op_type_checking_impl = check


def _describe_operand(operand: Any) -> Any:
    """A key of a tensor's type or of a number; None for a pointer, whose type has further parts, and for anything else."""
    kind = type(operand)
    if kind is tl.core.tensor:
        return operand.dtype.name if type(operand.dtype) is tl.core.dtype else None
    return (kind, operand) if kind in (int, float, bool) else None


def _shorten_builtins() -> None:
    """A builtin of the language without the check that every one makes of how it is called."""

    def patch(owner: Any, name: str, member: Any, builder: Any, scope: Any) -> None:
        function, semantic = getattr(member, "__wrapped__", member), interpreter.interpreter_semantic

        def call(*args: Any, **kwargs: Any) -> Any:
            kwargs["_semantic"] = semantic
            return function(*args, **kwargs)

        scope.set_attr(owner, name, call)

    interpreter._patch_attr = patch


def install_speed() -> None:
    """Replace what is slow; what it builds stays equal."""
    _shorten_comparisons()
    _shorten_handles()
    _memoise_constants()
    _memoise_type_checks()
    _shorten_builtins()
    _memoise_block_types()
    _memoise_shapes()
    _memoise_numpy_types()
    _shorten_broadcasts()
    _shorten_unwrapping()
    # integer overflow wraps on the card; the check triples the cost of index arithmetic, and out-of-bounds accesses are found anyway
    builder = interpreter.interpreter_builder
    builder.options = dataclasses.replace(builder.options, sanitize_overflow=False)
