"""Elements that a mask picks, as `x[x > 0]` does: all elements with the mask, for as long as their number does not matter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tritonsmith.author.compiler.ir.operators import A, B
from tritonsmith.author.compiler.ir.values import FLOATS, Formula, Tensor, widen
from tritonsmith.author.compiler.lowering import functions, pointwise
from tritonsmith.author.compiler.lowering.calls import NodeCall, NotCovered
from tritonsmith.author.compiler.lowering.pointwise import as_type, cast, formula, select_where
from tritonsmith.author.compiler.lowering.reductions import reduce
from tritonsmith.author.compiler.lowering.views import expand, reshape
from tritonsmith.author.compiler.reading.kinds import find_lowering
from tritonsmith.author.plan import NoPlan
from tritonsmith.author.writes import SAME, is_write, name_call, refer
from tritonsmith.evaluator.schema import OpNode, TensorSpec
from tritonsmith.prompts.node_names import name_node

_ELEMENTWISE = {*pointwise.TABLE.values(), *functions.TABLE.values(), pointwise.KNOWN}
_JOINED: tuple[tuple[tuple[Any, ...], dict[str, Any]], ...] = (((), {}), ((0,), {}), ((), {"dim": 0}))
"""What a sum or mean of picked elements may be told: nothing, or the axis of the picked."""


@dataclass(frozen=True)
class Masked:
    """The elements of a value where a mask is true."""

    value: Tensor
    key: Tensor
    """The mask, of the value's first axes or of all."""

    @property
    def mask(self) -> Tensor:
        """The mask for every element."""
        return expand(reshape(self.key, (*self.key.shape, *(1,) * (len(self.value.shape) - len(self.key.shape)))), self.value.shape)

    def put_into(self, source: Tensor, keys: list[Any], node: OpNode) -> Tensor:
        """`source[keys] = ` these elements. Raises NoPlan where the keys are another mask."""
        if len(keys) != 1 or not _is_mask(source, keys[0]) or self.value.shape != source.shape or not _is_same(keys[0], self.key):
            raise NoPlan((f"{name_node(node)} of elements that another mask picks", node))
        given = cast(as_type(self.value, source.dtype), source.dtype)
        return select_where(self.mask, given, source, source.dtype, source.shape)


def list_masked(given: Any) -> list[Masked]:
    """The picked elements among arguments or results."""
    if isinstance(given, Mapping):
        given = list(given.values())
    if isinstance(given, list | tuple):
        return [found for one in given for found in list_masked(one)]
    return [given] if isinstance(given, Masked) else []


def read_masked(call: NodeCall, made: dict[str, Any], name: Callable[[Any, str], None]) -> Masked | Tensor | None:
    """What a call gives that picks by a mask or works on what one picked; None for any other call. Raises NoPlan.

    Args:
        call: the call.
        made: by node what it gives; a write in place changes it.
        name: names a value.
    """
    node, args = call.node, call.args
    if name_call(node) in ("getitem", "masked_select") and len(args) == 2 and isinstance(args[0], Tensor) and _is_mask(args[0], args[1]):
        return Masked(args[0], args[1])
    found = list_masked((args, call.kwargs))
    if not found:
        return None
    key, shape = found[0].key, found[0].value.shape
    others = [one for one in (*args, *call.kwargs.values()) if isinstance(one, Tensor) and one.shape]
    lower = find_lowering(node)
    try:
        if name_call(node) in ("sum", "mean") and call.dtype in FLOATS and (args[1:], call.kwargs) in _JOINED:
            return _join(found[0], name_call(node), call.dtype, whole=(args[1:], call.kwargs) == _JOINED[0])
        if (
            lower is not None
            and lower in _ELEMENTWISE
            and not others
            and not _is_shown(call)
            and all(one.value.shape == shape and _is_same(one.key, key) for one in found)
        ):
            outputs = (TensorSpec(shape=shape, dtype=call.dtype),)
            plain = tuple(one.value if isinstance(one, Masked) else one for one in args)
            value = lower(replace(call, node=node.model_copy(update={"outputs": outputs}), args=plain))
            if isinstance(value, Tensor) and (value.shape, value.dtype) == (shape, call.dtype):
                name(value, call.name)
                changed = Masked(value, key)
                made |= {str(refer(node)): changed} if is_write(node) else {}
                return changed
    except NotCovered:
        pass
    raise NoPlan((f"{name_node(node)} of elements that a mask picks", node))


def _is_shown(call: NodeCall) -> bool:
    """Whether a call writes to elements that another node may show too."""
    held = refer(call.node)
    family = [node for node in call.facts.ops if held in (node.name, refer(node))]
    return is_write(call.node) and any(name_call(node) in SAME for node in family)


def _join(masked: Masked, name: str, dtype: str, whole: bool) -> Tensor:
    """The sum or the mean of the picked elements, or of each place behind the mask's axes."""
    wide, shape, inner = widen(dtype), masked.value.shape, len(masked.key.shape)
    axes = tuple(range(len(shape) if whole else inner))
    total = reduce(select_where(masked.mask, masked.value, 0.0, wide, shape), axes, "sum", wide)
    if name == "sum":
        return formula(A, total, like=wide, result=dtype)
    mask = masked.mask if whole else masked.key
    count = cast(reduce(cast(mask, "int64"), tuple(range(len(mask.shape))), "sum", "int64"), wide)
    return formula(A / B, total, count, like=wide, result=dtype)


def _is_mask(source: Tensor, key: Any) -> bool:
    fits = isinstance(key, Tensor) and key.dtype == "bool" and len(key.shape) > 0
    return fits and source.shape[: len(key.shape)] == key.shape


def _is_same(one: Any, other: Any) -> bool:
    """Whether two masks are one, or the same comparison of the same tensors."""
    if one is other:
        return True
    if not (isinstance(one, Formula) and isinstance(other, Formula) and one.expression == other.expression and one.dtype == other.dtype):
        return False
    return len(one.inputs) == len(other.inputs) and all(map(_is_same, one.inputs, other.inputs))
