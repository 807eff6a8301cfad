"""Products of matrices. Those of one column are sums along rows; those of whole numbers and of float64 stay PyTorch calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tritonsmith.author.compiler.ir.indices import Coordinates, Shape, count, unravel
from tritonsmith.author.compiler.ir.operators import A, B, C, D, Operand
from tritonsmith.author.compiler.ir.operators import Operator as Op
from tritonsmith.author.compiler.ir.torch_calls import call_function
from tritonsmith.author.compiler.ir.values import (
    FLOATS,
    AnchorResult,
    Formula,
    LibraryCall,
    MatrixProduct,
    Tensor,
    TensorView,
    rename,
    widen,
)
from tritonsmith.author.compiler.lowering.calls import Lower, Lowered, NodeCall, NotCovered
from tritonsmith.author.compiler.lowering.pointwise import broadcast, constant, formula
from tritonsmith.author.compiler.lowering.reductions import reduce
from tritonsmith.author.compiler.lowering.views import cut, expand, permute, reshape, swap
from tritonsmith.author.types import MATRICES

Locate = Callable[[Coordinates], Coordinates]


def add_bias(value: Tensor, bias: Tensor | None, dtype: str) -> Tensor:
    """The value plus a bias, where there is one. What is added to a product belongs to its call."""
    if bias is None:
        return value
    return belong(value, formula(A + B, value, bias, like=widen(dtype), result=dtype))


def belong(product: Tensor, value: Tensor) -> Tensor:
    """The value, noted as what the call of a product gives."""
    base = product.source if isinstance(product, TensorView) else product
    if isinstance(base, AnchorResult) and isinstance(base.anchor, MatrixProduct):
        base.anchor.call = value
    return value


def refuse_types(left: Tensor, right: Tensor) -> None:
    """Raise NotCovered for operands that tensor cores do not multiply."""
    if left.dtype != right.dtype or left.dtype not in MATRICES:
        raise NotCovered(f"of {right.dtype} on {left.dtype}")


def multiply(left: Tensor, right: Tensor, name: str, node: str) -> Tensor:
    """left [..., rows, depth] times right [..., depth, columns], with leading axes that broadcast. Raises NotCovered."""
    refuse_types(left, right)
    rows, depth, columns = left.shape[-2], left.shape[-1], right.shape[-1]
    batch = broadcast(left.shape[:-2], right.shape[:-2])
    lead: Shape = (rows,)
    if count(right.shape[:-2]) == 1:  # one matrix for all rows
        lead, batch = (*batch, rows), ()
        left, right = reshape(left, (1, count(lead), 1, depth)), reshape(right, (1, 1, depth, columns))
    else:
        left = reshape(expand(left, (*batch, rows, depth)), (count(batch), rows, 1, depth))
        right = reshape(expand(right, (*batch, depth, columns)), (count(batch), 1, depth, columns))

    def locate(at: Coordinates) -> Coordinates:
        return (*unravel(at[0], batch), *unravel(at[1], lead), at[2])

    return take_product(left, right, (*batch, *lead, columns), locate, name, node)


def take_product(left: Tensor, right: Tensor, shape: Shape, locate: Locate, name: str, node: str, **rest: Any) -> Tensor:
    """The result of a product, shown in a shape."""
    if not count(left.shape) and count(shape):  # a sum of nothing
        return constant(0, left.dtype, shape)
    rest.setdefault("flops", 2.0 * count(left.shape) * right.shape[-1])
    product = MatrixProduct(
        shape=shape, dtype=left.dtype, name=name, source=left, right=right, axes=(2, 3), kind="product", locate=locate, node=node, **rest
    )
    return AnchorResult(shape=shape, dtype=left.dtype, name=name, anchor=product)


def _sum_rows(left: Tensor, right: Tensor, call: NodeCall) -> Lowered | None:
    """A product with one column as a sum along each row; None for other products."""
    if right.dtype not in FLOATS or not left.shape or not right.shape:
        raise NotCovered(f"on {right.dtype}")
    column = right if len(right.shape) == 1 else reshape(right, right.shape[:1]) if right.shape[1:] == (1,) else None
    if column is None or (len(left.shape) < 2 and len(right.shape) > 1):
        return None
    total = reduce(formula(A * B, left, column, like=widen(call.dtype)), (len(left.shape) - 1,), "sum", call.dtype)
    return reshape(total, call.shape)


def _multiply(call: NodeCall) -> Lowered:
    """`matmul` and its kin."""
    left, right = call.tensor(0, "input", "self"), call.tensor(1, "other", "mat2", "vec", "tensor")
    found = _sum_rows(left, right, call)
    if found is not None:
        return found
    if left.shape[-1] == 1 and min(len(left.shape), len(right.shape)) > 1:  # such as positions times frequencies: no sum is left
        return formula(A * B, left, right, like=widen(call.dtype), shape=call.shape, result=call.dtype)
    if len(left.shape) == 1:
        product = multiply(reshape(left, (1, *left.shape)), right, call.name, call.node.name)
        return reshape(product, call.shape)
    return multiply(left, right, call.name, call.node.name)


def _apply_linear(call: NodeCall) -> Lowered:
    source, weight, bias = call.tensor(0, "input"), call.weight(1, "weight"), call.weight(2, "bias")
    if weight is None or len(weight.shape) != 2:
        raise NotCovered("without a matrix")
    if weight.shape[0] == 1 and source.dtype in FLOATS:
        row = formula(A * B, source, reshape(weight, weight.shape[1:]), like=widen(call.dtype))
        return add_bias(reshape(reduce(row, (len(source.shape) - 1,), "sum"), call.shape), bias, call.dtype)
    if weight.shape[1] == 1 and source.dtype in FLOATS:
        row = formula(A * B, source, reshape(weight, weight.shape[:1]), like=widen(call.dtype), shape=call.shape)
        return add_bias(row, bias, call.dtype)
    wide = source if len(source.shape) > 1 else reshape(source, (1, *source.shape))
    product = multiply(wide, swap(weight, 0, 1), call.name, call.node.name)
    return add_bias(reshape(product, call.shape), bias, call.dtype)


def _add_product(call: NodeCall) -> Lowered:
    """`addmm` and its kin: beta * added + alpha * product."""
    added, left, right = call.tensor(0, "input", "self"), call.tensor(1, "mat1", "batch1", "mat"), call.tensor(2, "mat2", "batch2", "vec")
    if call.dtype not in FLOATS:  # whose factors PyTorch makes whole numbers
        raise NotCovered(f"on {call.dtype}")
    beta, alpha = call.kwargs.get("beta", 1), call.kwargs.get("alpha", 1)
    if not all(isinstance(one, int | float) for one in (beta, alpha)):
        raise NotCovered("with factors that are no numbers")
    product: Tensor | None = None
    if len(left.shape) == 1:  # addr
        product = formula(A * B, reshape(left, (left.size, 1)), right, like=widen(call.dtype), shape=call.shape)
    elif "addbmm" in call.node.target and "badd" not in call.node.target:  # a sum over the batch is a longer depth
        batch, rows, depth = left.shape
        left = reshape(permute(left, (1, 0, 2)), (rows, batch * depth))
        right = reshape(right, (batch * depth, right.shape[-1]))
    elif len(right.shape) == 1:
        product = reduce(formula(A * B, left, right, like=widen(call.dtype)), (1,), "sum", widen(call.dtype))
    product = product if product is not None else multiply(left, right, call.name, call.node.name)
    tree = A if alpha == 1 else float(alpha) * A
    if beta:
        tree = tree + (B if beta == 1 else Op.GROUP(float(beta)) * B)
    return belong(product, formula(tree, *([product, added] if beta else [product]), like=widen(call.dtype), result=call.dtype))


def contract(left: Tensor, right: Tensor, letters: tuple[str, str, str], name: str, node: str) -> Tensor:
    """The product of two tensors whose axes have these letters; the last letters are those of the result. Raises NotCovered.

    It is one of matrices: every letter stands once in an operand, and in the result unless both have it.
    """
    first, second, out = letters
    if out[-1:] in first and out[-1:] not in second:  # columns are neighbours in memory
        first, second, left, right = second, first, right, left
    sizes = dict(zip(first + second, left.shape + right.shape, strict=True))
    batch = [letter for letter in out if letter in first and letter in second]
    inner = [letter for letter in first if letter in second and letter not in out]
    rows, columns = [one for one in out if one not in second], [one for one in out if one not in first]
    if set(first) - {*batch, *inner, *rows} or set(second) - {*batch, *inner, *columns} or not (inner and rows and columns):
        raise NotCovered(",".join(letters))
    groups = [tuple(sizes[one] for one in group) for group in (batch, rows, columns, inner)]

    def bring(value: Tensor, letters: str, order: list[str], *shape: int) -> Tensor:
        return reshape(permute(value, tuple(letters.index(one) for one in order)), shape)

    def locate(at: Coordinates) -> Coordinates:
        found = [index for place, shape in zip(at, groups, strict=False) for index in unravel(place, shape)]
        return tuple(found[[*batch, *rows, *columns].index(one)] for one in out)

    number, lines, places, depth = (count(one) for one in groups)
    refuse_types(left, right)
    return take_product(
        bring(left, first, [*batch, *rows, *inner], number, lines, 1, depth),
        bring(right, second, [*batch, *inner, *columns], number, 1, depth, places), tuple(sizes[one] for one in out), locate, name, node,
    )  # fmt: skip


def apply_linear(source: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """source @ weight^T + bias, as a PyTorch call."""
    inputs = (source, weight) if bias is None else (source, weight, bias)
    record = call_function("torch.nn.functional.linear", *map(Operand, range(len(inputs))))
    return LibraryCall(
        shape=(*source.shape[:-1], weight.shape[0]), dtype=source.dtype, name="linear", record=record, inputs=inputs, says="F.linear",
    )  # fmt: skip


def _find_gates(source: Tensor, state: Tensor, call: NodeCall) -> tuple[Tensor, Tensor]:
    """What input and state give to all gates, each with its bias."""
    found = []
    for value, end in ((source, "ih"), (state, "hh")):
        weight = call.weight(-1, f"weight_{end}")
        if weight is None or len(value.shape) != 2:
            raise NotCovered("without a batch")
        bias, node = call.weight(-1, f"bias_{end}"), f"{call.node.name}_{end}"
        if isinstance(value, Formula) and not value.inputs:  # a state of zeros
            shape = (value.shape[0], weight.shape[0])
            found.append(constant(0, value.dtype, shape) if bias is None else expand(bias, shape))
        elif node in call.called:
            found.append(apply_linear(value, weight, bias))
        else:
            found.append(add_bias(multiply(value, swap(weight, 0, 1), f"gates_{end}", node), bias, value.dtype))
    return found[0], found[1]


def _step(call: NodeCall) -> Lowered:
    """A step of nn.GRUCell, nn.LSTMCell or nn.RNNCell: two products, and the gates elementwise."""
    source, given, wide = call.tensor(0, "input"), call.get(1, "hx", default=None), widen(call.dtype)
    kind, size = call.node.module_type, call.shape[-1]
    state, cell = given if isinstance(given, list | tuple) else (given, None)
    if given is None:
        state = constant(0, source.dtype, (source.shape[0], size))
        cell = state if kind == "LSTMCell" else None
    if not isinstance(state, Tensor) or (kind == "LSTMCell") != isinstance(cell, Tensor):
        raise NotCovered("without a state")
    fresh, kept = _find_gates(source, state, call)

    def part(value: Tensor, number: int) -> Tensor:
        return cut(value, len(value.shape) - 1, number * size, size)

    if kind == "RNNCell":
        text = Op.TANH(A + B) if call.option(-1, "nonlinearity", "tanh") == "tanh" else Op.MAXIMUM(A + B, 0.0)
        return formula(text, fresh, kept, like=wide, result=call.dtype)
    if kind == "GRUCell":
        gates = [part(value, number) for number in range(3) for value in (fresh, kept)]
        reset, update = (formula(Op.SIGMOID(A + B), *gates[at : at + 2], like=wide) for at in (0, 2))
        new = formula(Op.TANH(A + B * C), gates[4], reset, gates[5], like=wide)
        return formula(A + B * (C - A), new, update, state, like=wide, result=call.dtype)
    ways = (Op.SIGMOID(A + B), Op.SIGMOID(A + B), Op.TANH(A + B), Op.SIGMOID(A + B))
    enter, forget, new, leave = (formula(way, part(fresh, at), part(kept, at), like=wide) for at, way in enumerate(ways))
    after = rename(formula(B * A + C * D, cell, forget, enter, new, like=wide, result=call.dtype), "cell")
    return rename(formula(A * Op.TANH(B), leave, after, like=wide, result=call.dtype), "hidden"), after


TABLE: dict[str, Lower] = {
    **dict.fromkeys(("matmul", "mm", "mv", "bmm", "dot"), _multiply),
    **dict.fromkeys(("linear", "nn.Linear"), _apply_linear),
    **dict.fromkeys(("addmm", "baddbmm", "addbmm", "addmv", "addr"), _add_product),
    **dict.fromkeys(("nn.GRUCell", "nn.LSTMCell", "nn.RNNCell"), _step),
}
