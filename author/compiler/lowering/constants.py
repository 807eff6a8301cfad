"""Tensors that follow from their shape: constants, numbers in order, triangles."""

from __future__ import annotations

from typing import Any

from tritonsmith.author.compiler.ir.indices import Guard
from tritonsmith.author.compiler.ir.operators import A, B, C, D
from tritonsmith.author.compiler.ir.operators import Operator as Op
from tritonsmith.author.compiler.ir.values import FLOATS, Position, Tensor, TensorView
from tritonsmith.author.compiler.lowering.calls import Lower, Lowered, NodeCall, NotCovered
from tritonsmith.author.compiler.lowering.pointwise import as_type, cast, constant, formula, to_constant


def count_up(size: int) -> Tensor:
    """0, 1, 2 and so on."""
    return Position(shape=(size,), dtype="int64", index=lambda at: at[0])


def _fill(call: NodeCall) -> Lowered:
    """`zeros`, `ones`, `full` and their kin; what `empty` leaves open is zero."""
    name = call.node.target.rpartition(".")[2]
    if "full" in name:
        place = 2 if name == "new_full" else 1
        number: Any = call.get(place, "fill_value")
    elif name in ("fill_", "fill"):
        number = call.get(1, "value")
    else:
        number = 1 if "one" in name else 0
    if isinstance(number, dict) and "float" in number:
        number = float(number["float"])
    if not isinstance(number, int | float):
        raise NotCovered("with a tensor")
    return constant(number, call.dtype, call.shape)


def _write(call: NodeCall) -> Lowered:
    """`torch.tensor` and its kin, of numbers that forward writes out."""
    method = call.node.op == "call_method"
    given = call.get(1 if method else 0, "data", "obj")
    if isinstance(given, Tensor):
        return cast(as_type(given, call.dtype), call.dtype)
    if isinstance(given, int | float) and not call.shape:
        return constant(given, call.dtype)
    if not _is_numbers(given):
        raise NotCovered("of tensors")
    return call.hold(given, call.dtype, call.shape)


def _is_numbers(given: Any) -> bool:
    """Whether something is a nested list of numbers."""
    return all(map(_is_numbers, given)) if isinstance(given, list | tuple) else isinstance(given, int | float)


def _arange(call: NodeCall) -> Lowered:
    numbers = [one for one in call.args if isinstance(one, int | float)]
    start = numbers[0] if len(numbers) > 1 else call.kwargs.get("start", 0)
    step = numbers[2] if len(numbers) > 2 else call.kwargs.get("step", 1)
    up: Tensor = count_up(call.shape[0])
    if call.dtype not in ("int64", "int32"):
        up = cast(up, call.dtype)
    if (start, step) == (0, 1):
        return cast(up, call.dtype)
    return formula(A * B + C, up, step, start, like=call.dtype)


def _divide_evenly(call: NodeCall) -> Lowered:
    """`linspace`, from either end as torch computes it."""
    start, end, steps = call.get(0, "start"), call.get(1, "end"), call.shape[0]
    if not all(isinstance(one, int | float) for one in (start, end)) or call.dtype not in FLOATS:
        raise NotCovered("between tensors")
    step = (end - start) / max(1, steps - 1)
    tree = Op.WHERE(A < steps // 2, B + C * A, D - C * (steps - 1 - A))
    return formula(tree, cast(count_up(steps), "float32"), start, step, end if steps > 1 else start, like=call.dtype)


def _triangle(call: NodeCall) -> Lowered:
    """`tril` and `triu`: zero above or below a diagonal."""
    source, offset = call.tensor(0, "input", "self"), call.get(1, "diagonal", default=0)
    upper = call.node.target.rpartition(".")[2].startswith("triu")
    largest = max(call.shape)
    low, high = (offset, largest + 1) if upper else (-largest - 1, offset + 1)
    return TensorView(
        shape=call.shape, dtype=source.dtype, source=source, move=lambda at: at, fill=to_constant(0, source.dtype),
        guard=lambda at: (Guard(at[-1] - at[-2], low, high),),
    )  # fmt: skip


def _identity(call: NodeCall) -> Lowered:
    one = constant(1, call.dtype, call.shape)
    return TensorView(
        shape=call.shape, dtype=call.dtype, source=one, move=lambda at: at, fill=to_constant(0, call.dtype),
        guard=lambda at: (Guard(at[1] - at[0], 0, 1),),
    )  # fmt: skip


TABLE: dict[str, Lower] = {
    **dict.fromkeys(("zeros", "ones", "full", "zeros_like", "ones_like", "full_like", "new_zeros", "new_ones", "new_full"), _fill),
    **dict.fromkeys(("zero", "fill", "empty", "empty_like", "new_empty"), _fill),
    **dict.fromkeys(("tensor", "scalar_tensor", "as_tensor", "asarray", "new_tensor"), _write),
    "arange": _arange, "linspace": _divide_evenly, "tril": _triangle, "triu": _triangle, "eye": _identity,
}  # fmt: skip
