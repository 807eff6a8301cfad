"""Attention: as one call, and as two products with a softmax or other elementwise work between them."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from tritonsmith.author.compiler.ir.attention import KEY, LEAD, QUERY, Attention, ScoreTile
from tritonsmith.author.compiler.ir.indices import Guard, Shape, count, ravel, unravel, variable
from tritonsmith.author.compiler.ir.operators import A, Applied, B, Operand, is_cast
from tritonsmith.author.compiler.ir.operators import Operator as Op
from tritonsmith.author.compiler.ir.torch_calls import Reshape
from tritonsmith.author.compiler.ir.values import (
    FLOATS,
    LEAST,
    AnchorResult,
    Formula,
    LibraryCall,
    Reduction,
    Tensor,
    TensorView,
    list_reads,
    rename,
    widen,
)
from tritonsmith.author.compiler.lowering import equations, products
from tritonsmith.author.compiler.lowering.calls import Lower, Lowered, NodeCall, NotCovered
from tritonsmith.author.compiler.lowering.equations import read_equation
from tritonsmith.author.compiler.lowering.pointwise import broadcast, formula
from tritonsmith.author.compiler.lowering.reductions import softmax
from tritonsmith.author.compiler.lowering.views import expand, permute, swap, view
from tritonsmith.author.types import MATRICES

_LEAST = 2
"""Keys, features of a query and columns of a value from which on they are a block; one of them is no product of matrices."""
_WIDEST = 1024
"""Features of a query, and columns of a value, up to which attention has a kernel."""
_STREAMED, _LARGE = 256, 1e10
"""The same for large attentions in fp32, and how many operations make one large: wider queries are read again for each block of keys, and
scores in memory cost less than that."""
_NARROW = 256
"""The same where no softmax stands between the products: then they may as well be two layers of a network."""
_MOST_FORMULAS = 16
"""Elementwise values between the products that are made of the first one. Long calculations of a bias or a mask are stored ahead."""
_RELU = Op.MAXIMUM(A, 0.0)


def split_product(value: LibraryCall) -> tuple[Tensor, Tensor] | None:
    """The operands [..., M, D] and [..., D, N] of a PyTorch call that multiplies matrices; None for any other call."""
    if len(value.inputs) != 2 or any(one.dtype not in MATRICES for one in value.inputs):
        return None
    left, right = value.inputs
    if (equation := value.record.equation) is not None:
        sides = read_equation(equation, left, right)
        return sides[:2] if sides and sides[2] == tuple(range(len(value.shape))) else None
    if not value.record.is_product or len(left.shape) < 2 or len(right.shape) < 2:
        return None
    return align_leads(left, right)


def align_leads(left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    """Both with the leading axes of their product. Raises NotCovered."""
    leads = broadcast(left.shape[:-2], right.shape[:-2])
    return expand(left, (*leads, *left.shape[-2:])), expand(right, (*leads, *right.shape[-2:]))


def _attend(call: NodeCall) -> Lowered:
    """A product whose left operand is made of another one; else an ordinary product."""
    name = call.node.target.rpartition(".")[2]
    left, right = call.get(0, "input", "self"), call.get(1, "other", "mat2", "vec")
    if isinstance(left, Tensor) and isinstance(right, Tensor) and len(left.shape) > 1 and len(right.shape) > 1:
        found = find_attention(*align_leads(left, right), call)
        if found is not None:
            return lay_out(found, call)
    return products.TABLE[name](call)


def _sum_products(call: NodeCall) -> Lowered:
    """`einsum` of two tensors."""
    equation, *rest = call.args
    operands = rest[0] if len(rest) == 1 and isinstance(rest[0], list | tuple) else rest
    if isinstance(equation, str) and len(operands) == 2 and all(isinstance(one, Tensor) for one in operands):
        sides = read_equation(equation, operands[0], operands[1])
        found = find_attention(*sides[:2], call) if sides else None
        if sides and found is not None:
            settle(found, sides[2])
            return found
    return equations.TABLE["einsum"](call)


def find_attention(left: Tensor, right: Tensor, call: NodeCall) -> Attention | None:
    """Attention with weights `left` [..., M, N] and values `right` [..., N, V]; None where the weights are made in another way.

    It has no place in memory before `settle`.
    """
    weights = _strip(left)
    score = _find_softmax(weights)
    softmax, score = score is not None, score or weights
    heads, queries, keys = count(left.shape[:-2]), left.shape[-2], left.shape[-1]
    if call.dtype not in MATRICES or right.dtype not in MATRICES or count(score.shape) != count(left.shape) or score.shape[-1:] != (keys,):
        return None
    product = _find_product(score, heads, queries, keys)
    sides = split_product(product) if product is not None else None
    if product is None or sides is None or product is score and not softmax:
        return None
    query, key = sides[0], swap(sides[1], -1, -2)
    widest = max(query.shape[-1], right.shape[-1])
    dense = 2 * queries * keys < (queries + keys) * widest
    if softmax and _is_stored(query, keys, widest):
        return None
    if query.dtype != key.dtype or widest > (_WIDEST if softmax else _NARROW) or not softmax and (dense or heads < 2):
        return None
    if min(keys, query.shape[-1], right.shape[-1]) < _LEAST:
        return None
    hidden, clear = part_hidden(score, softmax)
    return Attention(
        shape=(), dtype=call.dtype, name="attention", query=query, key=key, value=right, product=product, score=score, softmax=softmax,
        leads=left.shape[:-2], order=(), hidden=hidden, clear=clear if hidden is not None else None,
    )  # fmt: skip


def _is_stored(query: Tensor, keys: int, widest: int) -> bool:
    """Whether scores had better lie in memory, between two products and a softmax."""
    return query.dtype == "float32" and widest > _STREAMED and 2.0 * query.size * keys > _LARGE


def lay_out(value: Attention, call: NodeCall) -> Tensor:
    """The result [*leads, M, V], with heads beside their columns in memory where what follows wants that."""
    rank = len(value.leads) + 2
    order = tuple(range(rank))
    if len(value.leads) > 1 and _is_turned(call):
        order = (*order[: rank - 3], rank - 2, rank - 3, rank - 1)
    return settle(value, order)


def settle(value: Attention, order: tuple[int, ...]) -> Tensor:
    """The result [*leads, M, V], in memory in this order of axes."""
    plain = (*value.leads, value.queries, value.columns)
    value.order = order
    value.shape = tuple(plain[axis] for axis in order)
    return permute(value, tuple(order.index(axis) for axis in range(len(order))))


def _is_turned(call: NodeCall) -> bool:
    """Whether the next step exchanges heads and queries."""
    users = [node for node in call.facts.ops if {"ref": call.node.name} in node.args]
    return bool(users) and all(node.target.rpartition(".")[2] in ("transpose", "permute", "swapaxes") for node in users)


def _strip(value: Tensor) -> Tensor:
    """The value before it was brought into another type."""
    while isinstance(value, Formula) and len(value.inputs) == 1 and is_cast(value.expression):
        (inner,) = value.inputs
        if inner.dtype not in FLOATS or inner.shape != value.shape:
            break
        value = inner
    return value


def _find_softmax(value: Tensor) -> Tensor | None:
    """What a softmax along the last axis is taken of; None for any other value."""
    while isinstance(value, TensorView) and isinstance(value.shown, Reshape) and value.shape[-1] == value.source.shape[-1]:
        value = _strip(value.source)  # heads and batches under another shape
    if not isinstance(value, Formula) or value.expression != A / B or len(value.inputs) != 2:
        return None
    total = value.inputs[1]
    total = total.source if isinstance(total, TensorView) else total
    if not isinstance(total, AnchorResult) or not isinstance(total.anchor, Reduction) or total.which != 1:
        return None
    anchor = total.anchor
    plain = anchor.kind == "exponentials" and anchor.helper is value.inputs[0] and anchor.axes == (len(anchor.source.shape) - 1,)
    return anchor.source if plain and widen(anchor.source.dtype) == "float32" else None


def _find_product(score: Tensor, heads: int, queries: int, keys: int) -> LibraryCall | None:
    """The only product that a score is made of, read where the score is."""
    lead, query, key = variable(LEAD, heads), variable(QUERY, queries), variable(KEY, keys)
    place = (lead * queries + query) * keys + key
    if count(score.shape) != heads * queries * keys:
        return None
    found: LibraryCall | None = None
    formulas: dict[int, Tensor] = {}
    numbers: list[AnchorResult] = []
    seen = set()
    todo = [(score, unravel(place, score.shape))]
    while todo:
        value, at = todo.pop()
        if (id(value), at) in seen:
            continue
        seen.add((id(value), at))
        if isinstance(value, LibraryCall) and value.size == heads * queries * keys and split_product(value) is not None:
            if found not in (None, value) or ravel(at, value.shape) != place or value.shape[-1] != keys:
                return None
            found = value
        formulas |= {id(value): value} if isinstance(value, Formula) and value.inputs else {}
        numbers += [value] if isinstance(value, AnchorResult) else []
        todo += [(read.value, read.at) for read in list_reads(value, at)]
    if found is None or any(_is_made_of(one, found) for one in numbers):
        return None
    few = len(formulas) <= _MOST_FORMULAS or sum(_is_made_of(one, found) for one in formulas.values()) <= _MOST_FORMULAS
    return found if few else None


def _is_made_of(value: Tensor, other: Tensor) -> bool:
    """Whether a value needs another one, however far up."""
    seen: set[int] = set()
    todo = [value]
    while todo:
        one = todo.pop()
        if one is other:
            return True
        todo += [] if id(one) in seen else one.operands
        seen.add(id(one))
    return False


def part_hidden(score: Tensor, softmax: bool) -> tuple[Tensor | None, Tensor]:
    """Where a score has no weight, for every head (None where that is nowhere), and the score without that condition."""
    if not isinstance(score, Formula):
        return None, score
    if not softmax:  # only a ReLU makes zero of minus infinity
        hidden, clear = part_hidden(score.inputs[0], True) if score.expression == _RELU else (None, score)
        return hidden, clear if clear is score else dataclasses.replace(score, inputs=(clear,))
    match score.expression:
        case Applied(Op.WHERE, (Operand(chosen), hides, Operand(place))) if hides == LEAST:
            turned = False
        case Applied(Op.WHERE, (Operand(chosen), Operand(place), hides)) if hides == LEAST:
            turned = True
        case _:
            return None, score
    mask = score.inputs[chosen]
    hidden, clear = part_hidden(score.inputs[place], True)
    if count(mask.shape[:-2]) > 1 or len(mask.shape) < 2:
        return hidden, dataclasses.replace(score, inputs=tuple(clear if one is score.inputs[place] else one for one in score.inputs))
    mask = expand(mask, (*mask.shape[:-2], *score.shape[-2:]))
    mask = formula(~A, mask, like="bool") if turned else mask
    return (mask if hidden is None else formula(A | B, hidden, mask, like="bool")), clear


def attend_directly(
    query: Tensor, key: Tensor, value: Tensor, dtype: str, *, scale: float, mask: Tensor | None = None, causal: bool = False, **rest: Any
) -> Attention:
    """softmax(query @ key^T * scale + mask) @ value; a mask of truths says what a query sees. Raises NotCovered."""
    leads = broadcast(query.shape[:-2], key.shape[:-2], value.shape[:-2])
    query, key, value = (expand(one, (*leads, *one.shape[-2:])) for one in (query, key, value))
    if not {query.dtype, key.dtype, value.dtype} <= set(MATRICES) or max(query.shape[-1], value.shape[-1]) > _WIDEST:
        raise NotCovered(f"on {query.dtype}")
    if min(query.shape[-1], value.shape[-1], key.shape[-2]) < _LEAST:
        raise NotCovered("with one key, or one feature")
    shape = (*leads, query.shape[-2], key.shape[-2])
    product = ScoreTile(shape=shape, dtype="float32", name="scores")
    score: Tensor = formula(A * B, product, scale, like="float32") if scale != 1.0 else product
    if mask is not None:
        mask = mask if len(mask.shape) > 1 else expand(mask, (*shape[-2:-1], *mask.shape))
        if mask.dtype == "bool":
            score = Formula(shape=shape, dtype="float32", expression=Op.WHERE(B, A, -math.inf), inputs=(score, mask))
        else:
            score = formula(A + B, score, mask, like="float32", shape=shape)
    hidden, clear = (None, score) if causal else part_hidden(score, True)
    if causal:
        score = view(score, shape, lambda at: at, None, lambda at: (Guard(at[-2] - at[-1], 0, max(shape)),), LEAST)
    return Attention(
        shape=(), dtype=dtype, name="attention", query=query, key=key, value=value, product=product, score=rename(score, "scores"),
        softmax=True, leads=leads, order=(), causal=causal, hidden=hidden, clear=clear if causal or hidden is not None else None,
        **rest,
    )  # fmt: skip


def share_heads(value: Tensor, heads: int) -> Tensor:
    """Keys or values [..., H, N, D] for more heads: neighbouring heads read the same ones."""
    times = heads // value.shape[-3]
    shape: Shape = (*value.shape[:-3], heads, *value.shape[-2:])
    return value if times == 1 else view(value, shape, lambda at: (*at[:-3], at[-3] // times, *at[-2:]))


def _attend_by_name(call: NodeCall) -> Lowered:
    """`scaled_dot_product_attention`."""
    query, key, value = call.tensor(0, "query"), call.tensor(1, "key"), call.tensor(2, "value")
    mask, dropout = call.get(3, "attn_mask", default=None), call.get(4, "dropout_p", default=0.0)
    causal, scale = call.get(5, "is_causal", default=False), call.get(6, "scale", default=None)
    grouped = call.get(7, "enable_gqa", default=False)
    if dropout or mask is not None and not isinstance(mask, Tensor) or len(query.shape) < 2:
        raise NotCovered("with dropout")
    if grouped and len(query.shape) > 2:
        key, value = share_heads(key, query.shape[-3]), share_heads(value, query.shape[-3])
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else float(scale)
    if mask is None and _is_stored(query, key.shape[-2], max(query.shape[-1], value.shape[-1])):
        return _attend_in_memory(call, query, key, value, scale, bool(causal))
    made = attend_directly(query, key, value, call.dtype, scale=scale, mask=mask, causal=bool(causal), empty_is_zero=True)
    return lay_out(made, call)


def _attend_in_memory(call: NodeCall, query: Tensor, key: Tensor, value: Tensor, scale: float, causal: bool) -> Tensor:
    """softmax(query @ key^T * scale) @ value as two products and a softmax. Raises NotCovered."""
    if f"{call.node.name}_scores" in call.called:
        raise NotCovered("whose scores are a PyTorch call")
    scores = products.multiply(query, swap(key, -1, -2), "scores", f"{call.node.name}_scores")
    score: Tensor = rename(formula(A * B, scores, scale, like="float32"), "scores")
    if causal:
        score = view(score, score.shape, lambda at: at, None, lambda at: (Guard(at[-2] - at[-1], 0, max(score.shape)),), LEAST)
    return products.multiply(softmax(score, -1, "float32"), value, call.name, call.node.name)


TABLE: dict[str, Lower] = {
    **dict.fromkeys(("matmul", "bmm"), _attend),
    "einsum": _sum_products,
    "scaled_dot_product_attention": _attend_by_name,
}
