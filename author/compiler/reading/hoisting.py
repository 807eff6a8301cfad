"""Equal linear layers on slices of one tensor, done once on the whole tensor ahead of them.

A loop over time steps, as in `for t in range(steps): h = cell(self.proj(x[t]), h)`, asks for a small product in every step. No product
depends on an earlier step, so one large product does them all (Appleyard et al., 2016, "Optimizing Performance of Recurrent Neural
Networks on GPUs", section 3.2). Each slice of its result stands for what the loop's own call gave.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tritonsmith.author.writes import is_write, may_show, name_call, refer
from tritonsmith.evaluator.schema import OpNode, TaskFacts, TensorSpec

_LEAST = 4
"""Slices from which one product pays: fewer are a launch each, and little more."""
_SUFFIX = "_of_all"
_WHOLE_AXIS = {"slice": [None, None, None]}


@dataclass(frozen=True)
class _Slice:
    """An element of one axis of a tensor.

    Args:
        base: the node that gives the tensor.
        axis: that is left out, not the last one.
        place: along it, from 0.
    """

    base: str
    axis: int
    place: int


def hoist_products(facts: TaskFacts) -> TaskFacts:
    """The facts with one linear layer in place of equal ones on slices of a tensor; the facts themselves where there are none."""
    nodes = {node.name: node for node in facts.ops}
    groups: dict[tuple[str, str, int], dict[str, int]] = {}
    for node in facts.ops:
        if _is_linear(node) and (part := _read_slice(nodes, refer(node))) is not None:
            groups.setdefault((_describe_call(node), part.base, part.axis), {})[node.name] = part.place
    changed = _list_written(facts.ops) if groups else set()
    hoisted: dict[str, tuple[OpNode, int, int]] = {}
    for (_, base, axis), places in groups.items():
        spec, first = nodes[base].outputs[0], nodes[next(iter(places))]
        if len(set(places.values())) < max(_LEAST, -(-spec.shape[axis] // 2)):
            continue
        if changed & {_find_root(nodes, name) for name in (base, *first.references)} or _changes_own(first, nodes, changed):
            continue
        whole = _apply_to_all(first, base, spec, [nodes[name] for name in places])
        hoisted |= {name: (whole, axis, place) for name, place in places.items()}
    return facts.model_copy(update={"ops": tuple(_replace(facts.ops, hoisted))}) if hoisted else facts


def _is_linear(node: OpNode) -> bool:
    return bool(node.outputs) and name_call(node) in ("nn.Linear", "linear")


def _describe_call(node: OpNode) -> str:
    """What equal calls have in common: all but the tensor that they are given."""
    return repr((node.op, node.target, node.args[1:], {name: one for name, one in node.kwargs.items() if name != "input"}))


def _read_slice(nodes: Mapping[str, OpNode], name: str | None) -> _Slice | None:
    """Which slice of which tensor a node gives, as `x[t]`, `x[:, t]`, `x.select(1, t)` and `x.unbind(1)[t]` do."""
    node = nodes.get(name or "")
    source = nodes.get(refer(node) or "") if node is not None else None
    if node is None or source is None:
        return None
    call, rest = name_call(node), node.args[1:]
    if call == "select" and len(rest) == 2:
        return _locate(source, rest[0], rest[1])
    if call != "getitem" or len(rest) != 1:
        return None
    if name_call(source) == "unbind":
        inner = nodes.get(refer(source) or "")
        axis = source.args[1] if len(source.args) > 1 else source.kwargs.get("dim", 0)
        return _locate(inner, axis, rest[0]) if inner is not None else None
    index = rest[0] if isinstance(rest[0], list | tuple) else [rest[0]]
    numbers = [place for place, one in enumerate(index) if one != _WHOLE_AXIS]
    return _locate(source, numbers[0], index[numbers[0]]) if len(numbers) == 1 else None


def _locate(base: OpNode, axis: Any, place: Any) -> _Slice | None:
    """The slice, with numbers from 0; None for the last axis, along which the layer sums."""
    whole = all(isinstance(one, int) and not isinstance(one, bool) for one in (axis, place))
    if not whole or len(base.outputs) != 1 or not base.outputs[0].shape:
        return None
    shape = base.outputs[0].shape
    axis %= len(shape)
    return _Slice(base.name, axis, place % shape[axis]) if axis < len(shape) - 1 else None


def _list_written(ops: Iterable[OpNode]) -> set[str]:
    """Nodes that made the tensors that forward writes to."""
    ops = tuple(ops)
    nodes = {node.name: node for node in ops}
    return {_find_root(nodes, held) for node in ops if is_write(node) and (held := refer(node)) is not None}


def _changes_own(layer: OpNode, nodes: Mapping[str, OpNode], changed: Iterable[str]) -> bool:
    """Whether forward writes to a parameter of a layer that is a module; no argument of its call shows it."""
    written = [nodes[name].target for name in changed if name in nodes and nodes[name].op == "get_attr"]
    return layer.op == "call_module" and any(target.startswith(f"{layer.target}.") for target in written)


def _find_root(nodes: Mapping[str, OpNode], name: str) -> str:
    """The node that made the tensor of which a node shows elements."""
    while name in nodes and (may_show(nodes[name]) or is_write(nodes[name])) and (source := refer(nodes[name])) is not None:
        name = source
    return name


def _apply_to_all(first: OpNode, base: str, spec: TensorSpec, nodes: Sequence[OpNode]) -> OpNode:
    """The layer on the whole tensor."""
    reference = {"ref": base}
    inputs = {"args": (reference, *first.args[1:])} if first.args else {"kwargs": {**first.kwargs, "input": reference}}
    result = TensorSpec(shape=(*spec.shape[:-1], first.outputs[0].shape[-1]), dtype=first.outputs[0].dtype)
    return first.model_copy(update={
        **inputs, "name": first.name + _SUFFIX, "outputs": (result,), "launches": first.launches,
        "flops": sum(node.flops for node in nodes), "bytes": sum(node.bytes for node in nodes),
    })  # fmt: skip


def _replace(ops: Iterable[OpNode], hoisted: Mapping[str, tuple[OpNode, int, int]]) -> Iterator[OpNode]:
    """The nodes in their order, the layer on the whole ahead of the first slice of its result."""
    seen = set[str]()
    for node in ops:
        if node.name not in hoisted:
            yield node
            continue
        whole, axis, place = hoisted[node.name]
        if whole.name not in seen:
            seen.add(whole.name)
            yield whole
        yield OpNode(
            name=node.name, line=node.line, op="call_function", target="_operator.getitem", module=node.module,
            args=({"ref": whole.name}, [*([_WHOLE_AXIS] * axis), place]), outputs=node.outputs,
        )  # fmt: skip
