"""A part of a forward as a forward of its own: the nodes between what a region reads and what it stores."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tritonsmith.author.compiler.ir.values import Tensor, base_of
from tritonsmith.author.compiler.lowering.orders import order_back, order_last
from tritonsmith.author.compiler.reading.channels import find_call
from tritonsmith.author.compiler.reading.complexes import ComplexPair
from tritonsmith.author.compiler.reading.reader import Forward
from tritonsmith.author.plan import NoPlan
from tritonsmith.evaluator.schema import OpNode, TaskFacts, TensorSpec

_MOST_NODES = 64
"""Nodes of a part. A longer one is no region."""
_RESULT = "output"
_PICKING = ("embedding", "gather", "index_select", "take", "take_along_dim", "embedding_bag", "getitem", "index_add", "scatter_add")
"""Calls whose whole numbers are places of another operand."""


def list_owners(facts: TaskFacts, forward: Forward) -> dict[int, str]:
    """By value: the node of the trace that made it."""
    owners: dict[int, str] = {}
    for node in facts.ops:
        todo = list(_list_tensors(forward.made.get(node.name)))
        while todo:
            value = todo.pop()
            if id(value) not in owners:
                owners[id(value)] = node.name
                todo += value.operands
    return owners


def cut_out(
    facts: TaskFacts, forward: Forward, owners: Mapping[int, str], read: Collection[int], results: Collection[str]
) -> tuple[TaskFacts, dict[str, str]]:
    """The facts of a part, and by node of the forward its name there; equal parts of a forward have equal facts.

    Args:
        facts: of the whole forward.
        forward: its values.
        owners: by value, the node that made it.
        read: values that lie in memory ahead of the part.
        results: the nodes that give what it stores.

    Raises:
        NoPlan: where the part reads what no argument or parameter can stand for.
    """
    return _Part(facts, forward, owners, frozenset(read), frozenset(results)).write()


@dataclass
class _Part:
    facts: TaskFacts
    forward: Forward
    owners: Mapping[int, str]
    read: frozenset[int]
    results: frozenset[str]
    wanted: set[str] = field(default_factory=set)
    given: set[str] = field(default_factory=set)
    names: dict[str, str] = field(default_factory=dict)
    paths: dict[str, str] = field(default_factory=dict)
    modules: dict[str, str] = field(default_factory=dict)

    def write(self) -> tuple[TaskFacts, dict[str, str]]:
        nodes = {node.name: node for node in self.facts.ops}
        todo = sorted(self.results)
        while todo:
            name = todo.pop()
            if name in self.wanted or name in self.given:
                continue
            node = nodes[name]
            (self.given if self._is_given(node) else self.wanted).add(name)
            if name in self.wanted:
                todo += [one for one in node.references if self._is_tensor(one)]
            if len(self.wanted) > _MOST_NODES:
                raise NoPlan(("a part of so many nodes", None))
        return self._write_facts(), self.names

    def _is_given(self, node: OpNode) -> bool:
        if node.op == "placeholder":
            return True
        if node.op == "get_attr" or node.name in self.results:
            return False
        value = self.forward.made.get(node.name)
        if not isinstance(value, Tensor):
            return False
        base = base_of(find_call(value))
        return id(value) in self.read or id(base) in self.read and self.owners.get(id(base)) == node.name

    def _is_tensor(self, name: str) -> bool:
        return any(True for _ in _list_tensors(self.forward.made.get(name)))

    def _write_facts(self) -> TaskFacts:
        given = [node for node in self.facts.ops if node.name in self.given]
        wanted = [node for node in self.facts.ops if node.name in self.wanted]
        if any(len(node.outputs) != 1 for node in given):
            raise NoPlan(("a part that is given several tensors at once", None))
        for number, node in enumerate(given):
            self.names[node.name] = f"given_{number}"
        for number, node in enumerate(wanted):
            self.names[node.name] = f"{node.target.rpartition('.')[2] if node.op != 'call_module' else 'module'}_{number}"
        ops = [
            OpNode(name=self.names[node.name], op="placeholder", target=self.names[node.name], outputs=(_whole(node.outputs[0]),))
            for node in given
        ]
        ops += map(self._rename, wanted)
        kept = [node.name for node in wanted if node.name in self.results]
        refs = [{"ref": self.names[name]} for name in kept]
        ops.append(OpNode(name=_RESULT, op="output", target=_RESULT, args=(refs[0] if len(refs) == 1 else refs,)))
        return TaskFacts(
            inputs=tuple(_whole(node.outputs[0]) for node in given), ops=tuple(ops), traced_by=self.facts.traced_by,
            parameters={self.paths[path]: spec for path, spec in self._list_parameters().items()},
        )  # fmt: skip

    def _list_parameters(self) -> dict[str, TensorSpec]:
        return {path: self.facts.parameters[path] for path in self.paths if path in self.facts.parameters}

    def _rename(self, node: OpNode) -> OpNode:
        target = node.target
        if node.op == "get_attr" and "value" not in node.attributes:
            if target not in self.facts.parameters:
                raise NoPlan((f"a part that reads self.{target}", None))
            target = self.paths.setdefault(target, f"weight_{len(self.paths)}")
        elif node.op == "call_module":
            target = self._rename_module(target)
        return OpNode(
            name=self.names[node.name], op=node.op, target=target, module_type=node.module_type, attributes=node.attributes,
            constructor=node.constructor, args=tuple(map(self._put, node.args)),
            kwargs={key: self._put(value) for key, value in node.kwargs.items()},
            outputs=tuple(map(_whole, node.outputs)), flops=node.flops,
        )  # fmt: skip

    def _rename_module(self, target: str) -> str:
        renamed = self.modules.setdefault(target, f"part_{len(self.modules)}")
        self.paths |= {path: f"{renamed}{path[len(target):]}" for path in self.facts.parameters if path.startswith(f"{target}.")}
        return renamed

    def _put(self, argument: Any) -> Any:
        """An argument with names of the part, and numbers in place of nodes that give numbers."""
        if isinstance(argument, dict):
            if "ref" in argument:
                name = str(argument["ref"])
                return {"ref": self.names[name]} if name in self.names else self.forward.made[name]
            return {key: self._put(value) for key, value in argument.items()}
        if isinstance(argument, list | tuple):
            return [self._put(one) for one in argument]
        return argument


def count_places(facts: TaskFacts) -> dict[str, int]:
    """By argument of whole numbers: how many values it may have, as far as lookups say so."""
    specs = {node.name: node.outputs[0] for node in facts.ops if node.outputs}
    specs |= dict(facts.parameters)
    found: dict[str, int] = {}
    for node in facts.ops:
        name = node.module_type.lower() if node.op == "call_module" else node.target.rpartition(".")[2]
        if name not in _PICKING:
            continue
        tables = [specs[one] for one in node.references if one in specs]
        tables += [spec for path, spec in facts.parameters.items() if node.op == "call_module" and path.startswith(f"{node.target}.")]
        least = min((size for spec in tables if spec.dtype.startswith(("float", "bfloat")) for size in spec.shape), default=2)
        for one in node.references:
            if one in specs and not specs[one].dtype.startswith(("float", "bfloat")):
                found[one] = min(found.get(one, least), least)
    return found


def turn_images(facts: TaskFacts, rank: int) -> TaskFacts:
    """The same part between images whose channels are their last axis; `rank`: axes of an image."""
    last, back = order_last(rank - 2), order_back(rank - 2)
    ops: list[OpNode] = []
    ahead = True
    for node in facts.ops:
        if ahead and node.op != "placeholder":
            ops += [_show(one, back) for one in facts.ops if one.op == "placeholder" and _is_image(one, rank)]
            ahead = False
        if node.op == "placeholder":
            ops.append(node.model_copy(update={
                "name": f"{node.name}_last", "target": f"{node.name}_last", "outputs": (_turn(node.outputs[0], last),),
            }) if _is_image(node, rank) else node)  # fmt: skip
        elif node.op == "output":
            known = {one.name: one for one in facts.ops}
            kept = [known[name] for name in node.references]
            ops += [
                OpNode(
                    name=f"{one.name}_last", op="call_method", target="permute", args=({"ref": one.name}, *last),
                    outputs=(_turn(one.outputs[0], last),),
                ) for one in kept if _is_image(one, rank)
            ]  # fmt: skip
            refs = [{"ref": f"{one.name}_last" if _is_image(one, rank) else one.name} for one in kept]
            ops.append(node.model_copy(update={"args": (refs[0] if len(refs) == 1 else refs,)}))
        else:
            ops.append(node)
    inputs = tuple(node.outputs[0] for node in ops if node.op == "placeholder")
    return facts.model_copy(update={"ops": tuple(ops), "inputs": inputs})


def _is_image(node: OpNode, rank: int) -> bool:
    return len(node.outputs) == 1 and len(node.outputs[0].shape) == rank


def _turn(spec: TensorSpec, order: Sequence[int]) -> TensorSpec:
    return TensorSpec(shape=tuple(spec.shape[axis] for axis in order), dtype=spec.dtype)


def _show(given: OpNode, back: Sequence[int]) -> OpNode:
    """The node that shows an image as the part is given it."""
    ref = {"ref": f"{given.name}_last"}
    return OpNode(name=given.name, op="call_method", target="permute", args=(ref, *back), outputs=given.outputs)


def _whole(spec: TensorSpec) -> TensorSpec:
    """The tensor as it lies in memory behind a kernel: without gaps."""
    return TensorSpec(shape=spec.shape, dtype=spec.dtype)


def _list_tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, ComplexPair):
        return [value.stored]
    if isinstance(value, dict):
        return [one for part in value.values() for one in _list_tensors(part)]
    return [one for part in value for one in _list_tensors(part)] if isinstance(value, list | tuple) else []
