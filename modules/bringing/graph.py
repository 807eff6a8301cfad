"""The graph of an exported program as a body of `forward`. Imports torch."""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx, nn

from tritonsmith.author.members import attribute
from tritonsmith.modules.bringing.calls import CallWriter, Written
from tritonsmith.modules.bringing.functions import SPECIAL
from tritonsmith.modules.bringing.layers import find_layer, write_constructor, write_layer_call

_TAKEN = frozenset({*keyword.kwlist, *dir(builtins), "torch", "nn", "F", "math", "self", "Model"})
_WORD, _CHANGES = re.compile(r"[A-Za-z_]\w*"), re.compile(r"[a-z]_\(")
_SHORT = 48
"""Characters of an expression on sizes that is written where it is used."""


@dataclass
class Body:
    """What a graph is as text."""

    lines: list[str] = field(default_factory=list)
    layers: dict[str, str] = field(default_factory=dict)
    """Constructor calls of the layers that the lines call, by path."""
    results: list[str] = field(default_factory=list)
    """Expressions of the results that are tensors."""


class BodyWriter:
    """Writes the lines of a forward.

    Args:
        state: paths of parameters, buffers and constants, by their placeholders.
        inputs: names of the arguments, by their placeholders.
        modules: those of the original by path; empty where every layer is to be written as a function.
        device: the expression of the device that everything lies on.
    """

    def __init__(
        self,
        state: Mapping[fx.Node, str],
        inputs: Mapping[fx.Node, str],
        modules: Mapping[str, nn.Module],
        device: str,
    ) -> None:
        self.state, self.modules = state, modules
        self.names: dict[fx.Node, Written] = {node: Written(name) for node, name in inputs.items()}
        self.names |= {node: Written(attribute(path)) for node, path in state.items()}
        self.taken = {*inputs.values(), *_TAKEN}
        self.calls = CallWriter(self.names, device, SPECIAL)
        self.body = Body()

    def write(self, graph: fx.Graph, outputs: list[Any]) -> Body:
        """The body of a graph with these results. Raises NotImplementedError for what cannot be written."""
        self._write_nodes(graph)
        self.body.results = [self.calls.say(one) for one in outputs]
        self.body.lines = _drop_unread(self.body.lines, self.body.results)
        return self.body

    def _write_nodes(self, graph: fx.Graph) -> None:
        dead = _find_dead(graph)
        for node in graph.nodes:
            if node.op == "call_function" and node not in dead:
                self._write_node(node)
            elif node.op not in ("call_function", "placeholder", "output", "get_attr"):
                raise NotImplementedError(f"a node of the kind {node.op}")

    def _write_node(self, node: fx.Node) -> None:
        if node in self.names:  # a result of a region
            return
        if isinstance(node.target, torch._ops.HigherOrderOperator):
            return self._write_region(node)
        path = find_layer(node, self.modules, self.state)
        said = None
        if path and (made := self.body.layers.get(path) or write_constructor(self.modules[path])):
            said = write_layer_call(node, attribute(path), self.calls)
            if said is not None:
                self.body.layers[path] = made
        if said is not None and isinstance(self.modules[path], nn.LSTM):
            return self._write_lstm(node, said)
        fresh = _find_fresh(node)
        said = said or self.calls.write(node, fresh)
        if said is None:
            return
        if self._is_named_already(node, said):
            self.names[node] = said
            return
        name = self._name(node)
        self.body.lines.append(f"{name} = {said.text}" if node.users or _writes(node) is None else said.text)
        self.names[node] = Written(name)
        if said.first:
            self.names |= dict.fromkeys(node.users, Written(name))
        if fresh is not None:  # what is read of the changed value later is the new one
            self.names[node.args[0]] = Written(name)  # type: ignore[index]

    def _write_lstm(self, node: fx.Node, said: Written) -> None:
        """A layer whose module gives its two states as a pair, where its operator gives three results."""
        parts = [self._name(node, ending) for ending in ("", "_state", "_cell")]
        self.body.lines.append(f"{parts[0]}, ({parts[1]}, {parts[2]}) = {said.text}")
        for user in node.users:
            self.names[user] = Written(parts[int(str(user.args[1]))])

    def _is_named_already(self, node: fx.Node, said: Written) -> bool:
        """Whether an expression is written where it is used: sizes, parts of several results, and other names of a value."""
        value = node.meta.get("val")
        if isinstance(value, torch.SymInt | torch.SymFloat | int | float) and len(said.text) <= _SHORT:
            return True
        return said.text.isidentifier() or (
            node.target.__name__ == "getitem" if hasattr(node.target, "__name__") else False
        )

    def _write_region(self, node: fx.Node) -> None:
        """A region without gradients, or without autocast, is its calls."""
        name = node.target._name  # type: ignore[union-attr]
        places = {"wrap_with_set_grad_enabled": 1, "wrap_with_autocast": 4}
        if name not in places or (name == "wrap_with_autocast" and node.args[2]):
            raise NotImplementedError(f"a region of the kind {name}")
        inner = node.args[places[name]]
        assert isinstance(inner, fx.Node)
        owner = node.graph.owning_module
        assert owner is not None
        region = owner.get_submodule(str(inner.target))
        assert isinstance(region, fx.GraphModule)
        graph = region.graph
        given = [one for one in graph.nodes if one.op == "placeholder"]
        for placeholder, value in zip(given, node.args[places[name] + 1 :], strict=True):
            self.names[placeholder] = (
                self.names[value] if isinstance(value, fx.Node) else Written(self.calls.say(value))
            )
        self._write_nodes(graph)
        (output,) = (one for one in graph.nodes if one.op == "output")
        results = output.args[0]
        if isinstance(results, tuple | list):
            text = ", ".join(self.calls.say(one) for one in results)
            self.names[node] = Written(f"({text}{',' * (len(results) == 1)})")
            for user in node.users:
                if getattr(user.target, "__name__", "") == "getitem":
                    self.names[user] = self.names[results[int(str(user.args[1]))]]
            return
        self.names[node] = self.names[results]

    def _name(self, node: fx.Node, ending: str = "") -> str:
        base = (node.name.rstrip("_") or "value") + ending
        name = base if base not in self.taken else f"{base}_out"
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name


def _drop_unread(lines: list[str], results: list[str]) -> list[str]:
    """The lines without those whose value no later one reads; a call that changes something has a name that ends so, `copy_`."""
    kept: list[str] = []
    read = set(_WORD.findall(" ".join(results)))
    for line in reversed(lines):
        name, sign, said = line.partition(" = ")
        if sign and name.isidentifier() and name not in read and not _CHANGES.search(said):
            continue
        read |= set(_WORD.findall(said if sign else line))
        kept.append(line)
    return kept[::-1]


def _writes(node: fx.Node) -> bool | None:
    """Whether a call changes an argument; None for none that does."""
    schema = getattr(node.target, "_schema", None)
    return True if schema is not None and schema.is_mutable else None


def _find_fresh(node: fx.Node) -> torch._ops.OpOverload | None:
    """The call that makes a new value in place of one that changes its first argument, where nothing else sees that change."""
    target = node.target
    if (
        not isinstance(target, torch._ops.OpOverload)
        or not target._schema.name.endswith("_")
        or not node.args
    ):
        return None
    changed, packet = (
        node.args[0],
        getattr(torch.ops.aten, target._schema.name.removeprefix("aten::")[:-1], None),
    )
    found = getattr(packet, target._overloadname, None) if packet is not None else None
    if (
        found is None
        or not isinstance(changed, fx.Node)
        or changed.op != "call_function"
        or _is_view(changed)
    ):
        return None
    kinds = {
        one.meta["val"].dtype
        for one in node.args
        if isinstance(one, fx.Node) and isinstance(one.meta.get("val"), torch.Tensor)
    }
    earlier = [user for user in changed.users if user < node]
    return None if len(kinds) > 1 or any(_is_view(user) for user in earlier) else found


def _is_view(node: fx.Node) -> bool:
    """Whether a call gives memory that is somebody else's too."""
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return True
    named = schema.name.removeprefix("aten::")
    return named in ("contiguous", "reshape", "to", "flatten") or any(
        one.alias_info and not one.alias_info.is_write for one in schema.returns
    )


def _find_dead(graph: fx.Graph) -> set[fx.Node]:
    """Nodes whose values nobody reads, and that change nothing."""
    dead: set[fx.Node] = set()
    for node in reversed(graph.nodes):
        if node.op == "call_function" and not (set(node.users) - dead) and _writes(node) is None:
            dead.add(node)
    return dead


def list_submodules(graph: fx.Graph) -> Iterator[fx.Graph]:
    """A graph and those of its regions."""
    yield graph
    for node in graph.nodes:
        if node.op == "get_attr":
            inner = getattr(graph.owning_module, str(node.target), None)
            if isinstance(inner, fx.GraphModule):
                yield from list_submodules(inner.graph)
