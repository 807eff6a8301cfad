"""nn.MultiheadAttention: products with its weights, which stay PyTorch calls, and attention between them."""

from __future__ import annotations

import math
from dataclasses import replace

from tritonsmith.author.compiler.ir.operators import A, B
from tritonsmith.author.compiler.ir.operators import Operator as Op
from tritonsmith.author.compiler.ir.torch_calls import call_function
from tritonsmith.author.compiler.ir.values import Formula, Joined, LibraryCall, Tensor
from tritonsmith.author.compiler.lowering.attention import attend_directly, settle
from tritonsmith.author.compiler.lowering.calls import Lower, Lowered, NodeCall, NotCovered
from tritonsmith.author.compiler.lowering.pointwise import constant, formula
from tritonsmith.author.compiler.lowering.products import apply_linear
from tritonsmith.author.compiler.lowering.reductions import reduce, softmax
from tritonsmith.author.compiler.lowering.views import cut, expand, permute, reshape, swap

_BATCHED = 3
"""Axes of a batch of sequences."""


class Heads:
    """The projections of a call, as heads [batch, head, place, feature]."""

    def __init__(self, call: NodeCall) -> None:
        self.given = [call.tensor(place, name) for place, name in enumerate(("query", "key", "value"))]
        self.wide = call.get(-1, "embed_dim")
        self.number = call.get(-1, "num_heads")
        self.batched = len(self.given[0].shape) == _BATCHED
        self.batch_first = bool(call.get(-1, "batch_first", default=False)) and self.batched
        if self.wide % self.number:
            raise NotCovered("with heads of different sizes")
        self.query, self.key, self.value = (self._split(one) for one in self._project(call))
        self.longer = 0
        """Keys beyond those of the operands."""
        self._append(call)

    def _project(self, call: NodeCall) -> list[Tensor]:
        """The three products; those of one operand are one product, where their weights are one parameter."""
        weight, bias = call.weight(-1, "in_proj_weight"), call.weight(-1, "in_proj_bias")
        shares = [None if bias is None else cut(bias, 0, place * self.wide, self.wide) for place in range(len(self.given))]
        if weight is None:
            weights = [call.weight(-1, f"{name}_proj_weight") for name in "qkv"]
            pairs = zip(self.given, weights, shares, strict=True)
            return [apply_linear(value, own, share) for value, own, share in pairs if own is not None]
        found: list[Tensor] = []
        while len(found) < len(self.given):
            first = len(found)
            several = 1
            while first + several < len(self.given) and self.given[first + several] is self.given[first]:
                several += 1
            rows = (first * self.wide, several * self.wide)
            product = apply_linear(self.given[first], cut(weight, 0, *rows), None if bias is None else cut(bias, 0, *rows))
            axis = len(product.shape) - 1
            found += [cut(product, axis, place * self.wide, self.wide) for place in range(several)]
        return found

    def _append(self, call: NodeCall) -> None:
        """More keys and values, the same for all: parameters, and zeros."""
        batch, heads, _, size = self.key.shape
        own = [call.weight(-1, name) for name in ("bias_k", "bias_v")]
        rows = [[expand(reshape(one, (1, heads, 1, size)), (batch, heads, 1, size)) for one in own if one is not None]]
        if call.get(-1, "add_zero_attn", default=False):
            rows.append([constant(0, self.key.dtype, (batch, heads, 1, size))] * 2)
        for more in filter(None, rows):
            self.key, self.value = (_join(one, row) for one, row in zip((self.key, self.value), more, strict=True))
            self.longer += 1

    def _split(self, product: Tensor) -> Tensor:
        shape = (*product.shape[:-1], self.number, self.wide // self.number)
        parted = reshape(product, shape)
        if not self.batched:
            return reshape(permute(parted, (1, 0, 2)), (1, self.number, shape[0], shape[-1]))
        return permute(parted, (0, 2, 1, 3) if self.batch_first else (1, 2, 0, 3))

    @property
    def order(self) -> tuple[int, ...]:
        """The axes of the result in memory, of those of a head's."""
        return (0, 2, 1, 3) if self.batch_first else (2, 0, 1, 3)


def _join(first: Tensor, second: Tensor) -> Tensor:
    """Keys or values, one set behind the other."""
    shape = (*first.shape[:2], first.shape[2] + second.shape[2], first.shape[3])
    return Joined(shape=shape, dtype=first.dtype, parts=(first, second), axis=2)


def _attend(call: NodeCall) -> Lowered:
    if call.training and call.get(-1, "dropout", default=0.0):
        raise NotCovered("while training")
    weights = call.weight(-1, "out_proj.weight")
    assert weights is not None, "the module has it"
    heads = Heads(call)
    mask = _read_mask(call, heads)
    if mask is not None and heads.longer:
        raise NotCovered("with a mask and more keys")
    given = call.get(5, "attn_mask", default=None)
    plain = isinstance(given, Tensor) and given.dtype == "bool" and call.get(3, "key_padding_mask", default=None) is None
    seen = formula(Op.EQ(A, 0), given, like="bool", result="bool") if plain and len(given.shape) < _BATCHED else mask
    scale = 1 / math.sqrt(heads.query.shape[-1])
    needed = len(call.node.outputs) > 1
    attention = attend_directly(
        heads.query, heads.key, heads.value, call.dtype, scale=scale, mask=seen, empty_is_zero=not needed
    )
    settle(attention, heads.order)
    joined = reshape(attention, call.shape)
    result = apply_linear(joined, weights, call.weight(-1, "out_proj.bias"))
    return (result, _weigh(call, heads, scale, mask)) if needed else (result,)


def _weigh(call: NodeCall, heads: Heads, scale: float, mask: Tensor | None) -> Tensor:
    """The weights themselves; they are made only if forward uses them."""
    shape = (*heads.query.shape[:-1], heads.key.shape[-2])
    score: Tensor = LibraryCall(
        shape=shape, dtype=call.dtype, name="scores", record=call_function("torch.matmul", A, B),
        inputs=(heads.query, swap(heads.key, -1, -2)), says="torch.matmul",
    )  # fmt: skip
    score = formula(A * B, score, scale, like=call.dtype)
    score = score if mask is None else formula(A + B, score, mask, like=call.dtype, shape=shape)
    weights = softmax(score, -1, call.dtype)
    if call.get(6, "average_attn_weights", default=True):
        weights = formula(A / B, reduce(weights, (1,), "sum", call.dtype), heads.number, like=call.dtype)
    return reshape(weights, call.node.outputs[1].shape)


def _read_mask(call: NodeCall, heads: Heads) -> Tensor | None:
    """Both masks as one number for each score; None where there is none."""
    padding, mask = call.get(3, "key_padding_mask", default=None), call.get(5, "attn_mask", default=None)
    found: Tensor | None = None
    if isinstance(mask, Tensor):
        found = _add_up(mask)
        found = reshape(found, (heads.query.shape[0], heads.number, *mask.shape[1:])) if len(mask.shape) > 2 else found
    if isinstance(padding, Tensor):
        more = reshape(_add_up(padding), (heads.query.shape[0], 1, 1, heads.key.shape[-2]))
        found = more if found is None else formula(A + B, found, more, like="float32")
    return found


def _add_up(mask: Tensor) -> Tensor:
    """A mask of truths, which say what is hidden, as numbers to add."""
    if mask.dtype != "bool":
        return mask
    return Formula(shape=mask.shape, dtype="float32", expression=Op.WHERE(A, -math.inf, 0.0), inputs=(mask,))


_ARGUMENTS = ("query", "key", "value", "embed_dim", "num_heads", "in_proj_weight", "in_proj_bias", "bias_k", "bias_v", "add_zero_attn",
              "dropout", "out_proj.weight", "out_proj.bias", "training", "key_padding_mask", "need_weights", "attn_mask",
              "use_separate_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight", "static_k", "static_v",
              "average_attn_weights", "is_causal")  # fmt: skip
"""Of `F.multi_head_attention_forward`, by the names that the module's attributes and parameters have."""
_RENAMED = {
    "embed_dim_to_check": "embed_dim", "dropout_p": "dropout", "out_proj_weight": "out_proj.weight", "out_proj_bias": "out_proj.bias",
}  # fmt: skip


def _attend_as_function(call: NodeCall) -> Lowered:
    """`F.multi_head_attention_forward`, which takes what the module holds as arguments."""
    given = dict(zip(_ARGUMENTS, call.args, strict=False)) | {_RENAMED.get(name, name): one for name, one in call.kwargs.items()}
    if given.get("static_k") is not None or given.get("static_v") is not None:
        raise NotCovered("with keys that are known")
    operands = tuple(given.pop(name) for name in ("query", "key", "value"))
    given["dropout"] = given.get("dropout", 0.0) if given.pop("training", True) else 0.0
    return _attend(replace(call, args=operands, kwargs=given, training=True))


TABLE: dict[str, Lower] = {"nn.MultiheadAttention": _attend, "multi_head_attention_forward": _attend_as_function}
