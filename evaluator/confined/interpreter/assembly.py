"""One PTX instruction of inline assembly on whole arrays: arithmetic of 32-bit and 64-bit registers."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
_INSTRUCTION = re.compile(r"([a-z]\w*)((?:\.\w+)*)\s+\$0\s*,\s*(.+)$")
"""Name, suffixes and operands of an instruction that writes $0."""
_REGISTER = re.compile(r"\$(\d)$")
"""Number of an operand's register."""
_TYPES: dict[str, Any] = {
    "f32": np.float32, "f64": np.float64, "s32": np.int32, "u32": np.uint32, "b32": np.uint32, "s64": np.int64, "u64": np.uint64,
    "b64": np.uint64,
}  # fmt: skip
"""Register types with their numpy types."""
_HEX_FLOATS = {"0f": (np.uint32, np.float32), "0d": (np.uint64, np.float64)}
"""Prefixes of numbers that are written as bits, with the types of bits and number."""


def _multiply_add(a: Array, b: Array, c: Array) -> Array:
    return a.astype(np.longdouble) * b + c


def _shift(a: Array, by: Array, function: Callable[[Array, Array], Array]) -> Array:
    """Amounts beyond the width shift everything out."""
    bits = a.dtype.itemsize * 8
    amount = by.astype(np.uint32)
    shifted = function(a, np.minimum(amount, bits - 1).astype(a.dtype))
    left_over = np.where(a < 0, -1, 0) if function is np.right_shift and a.dtype.kind == "i" else 0
    return np.where(amount >= bits, left_over, shifted)


_BOTH: dict[str, Callable[..., Array]] = {
    "add": np.add, "sub": np.subtract, "max": np.fmax, "min": np.fmin, "abs": np.abs, "neg": np.negative, "mov": lambda a: a,
}  # fmt: skip
"""Instructions on numbers of either kind."""
_FLOAT: dict[str, Callable[..., Array]] = _BOTH | {
    "mul": np.multiply, "fma": _multiply_add, "div": np.divide, "ex2": np.exp2, "lg2": np.log2, "rcp": lambda a: 1 / a, "sqrt": np.sqrt,
    "rsqrt": lambda a: 1 / np.sqrt(a), "tanh": np.tanh, "sin": np.sin, "cos": np.cos,
}  # fmt: skip
"""Instructions on floating-point numbers."""
_WHOLE: dict[str, Callable[..., Array]] = _BOTH | {
    "mul": np.multiply, "mad": lambda a, b, c: a * b + c, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "not": np.bitwise_not, "shl": lambda a, by: _shift(a, by, np.left_shift), "shr": lambda a, by: _shift(a, by, np.right_shift),
}  # fmt: skip
"""Instructions on whole numbers."""
_OPERANDS = dict.fromkeys(("fma", "mad"), 3) | dict.fromkeys("add sub max min mul div and or xor shl shr".split(), 2)
"""How many operands an instruction has; those not listed have one."""
_ROUNDING = {"rn", "approx", "ftz", "full", "lo"}
"""Suffixes that change nothing here, or no more than the instruction's own error. `.sat`, `.hi` and other roundings are not computed."""
_WITH_NAN: dict[str, Callable[..., Array]] = {"max": np.maximum, "min": np.minimum}
"""What instructions do with the suffix `.NaN`: an operand that is no number is the result."""


def run_instruction(instructions: Sequence[str], values: Sequence[Array], result: Any) -> Array | None:
    """What a text of one known instruction writes to its only output; None for any other text.

    Args:
        instructions: as taken apart by the caller.
        values: of the registers $1, $2, ...
        result: numpy dtype of $0.
    """
    found = _INSTRUCTION.match(instructions[0]) if len(instructions) == 1 else None
    if found is None:
        return None
    name, suffixes = found.group(1), found.group(2).split(".")[1:]
    dtype = _TYPES.get(suffixes[-1]) if suffixes else None
    functions = _FLOAT if np.dtype(dtype).kind == "f" else _WHOLE
    if "NaN" in suffixes and functions is _FLOAT:
        functions, suffixes = _WITH_NAN, [suffix for suffix in suffixes if suffix != "NaN"]
    if dtype is None or not set(suffixes[:-1]) <= _ROUNDING or np.dtype(dtype).itemsize != np.dtype(result).itemsize:
        return None
    function = functions.get(name)
    operands = [_read_operand(text.strip(), values, dtype) for text in found.group(3).split(",")]
    if function is None or len(operands) != _OPERANDS.get(name, 1):
        return None
    known = [operand for operand in operands if operand is not None]
    if len(known) < len(operands):
        return None
    written: Array = np.ascontiguousarray(np.broadcast_to(function(*known), np.shape(values[0])).astype(dtype)).view(result)
    return written


def _read_operand(text: str, values: Sequence[Array], dtype: Any) -> Array | None:
    """A register's bits or a number written out, as the instruction reads them; None for what is neither."""
    if (register := _REGISTER.match(text)) is not None:
        place = int(register.group(1)) - 1
        fits = 0 <= place < len(values) and values[place].dtype.itemsize == np.dtype(dtype).itemsize
        return np.ascontiguousarray(values[place]).view(dtype).reshape(np.shape(values[place])) if fits else None
    try:
        if text[:2].lower() in _HEX_FLOATS:
            bits, kind = _HEX_FLOATS[text[:2].lower()]
            return np.array([int(text[2:], 16)], bits).view(kind).astype(dtype)
        return np.array([float(text) if np.dtype(dtype).kind == "f" else int(text, 0)]).astype(dtype)
    except ValueError:
        return None
