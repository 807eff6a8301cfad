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
        data = np.broadcast_to(handle.data, tuple(block_type.shape.values))
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


def install_speed() -> None:
    """Replace the slow constructors; what they build stays equal."""
    _memoise_block_types()
    _memoise_shapes()
    _memoise_numpy_types()
    _shorten_broadcasts()
    _shorten_unwrapping()
    # integer overflow wraps on the card; the check triples the cost of index arithmetic, and out-of-bounds accesses are found anyway
    builder = interpreter.interpreter_builder
    builder.options = dataclasses.replace(builder.options, sanitize_overflow=False)
