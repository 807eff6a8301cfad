"""Reads the traced forward of a task: is it a GRU stack, and what is made of its results?"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Any

from tritonsmith.evaluator.schema import OpNode, Task, TaskFacts, TensorSpec
from tritonsmith.prompts.recipes.constructor import bind, made_for, names_of, read_constructor, write_signature
from tritonsmith.prompts.recipes.members import assign, attribute, complete_members, parameter_lines, parent_lines
from tritonsmith.prompts.recipes.plan import GETITEM, KernelPlan, NoPlan, forward_arguments, name_node

CASTS = ("to", "float", "contiguous", "cuda", "detach")
"""Methods that change neither values nor shape."""


class GruPlan(KernelPlan):
    """A GRU stack and what is made of its two results, `sequence` and `last`."""

    gru: str
    x: str
    h0: str
    h0_dtype: str = "float32"
    tail: tuple[str, ...]
    needs_sequence: bool
    needs_last: bool
    linear: bool
    input_size: int
    hidden_size: int
    num_layers: int
    steps: int
    batch: int
    returns: str

    def shortest_chain(self, facts: TaskFacts) -> int:
        """Time steps plus layers minus one, as a stack takes that runs as a wavefront."""
        return self.steps + self.num_layers - 1


def read_gru(task: Task, facts: TaskFacts) -> GruPlan:
    """The plan of a one-directional GRU stack. Raises NoPlan.

    Results may be returned as they are, as the last step, or through nn.Linear.
    """
    nodes = [node for node in facts.ops if node.module_type == "GRU" and node.op == "call_module"]
    if not nodes:
        raise NoPlan
    if len(nodes) > 1:
        raise NoPlan(("a second nn.GRU", nodes[1]))
    if facts.size_lines:  # the kernels take any number of steps and rows, and this trace holds for one
        asks = nodes[0].model_copy(update={"line": facts.size_lines[0]})
        raise NoPlan(("a forward that goes by the sizes of tensors next to nn.GRU", asks))
    return _GruReader(task, facts, nodes[0]).plan()


class _GruReader:
    """Walks the trace once and writes forward's tail."""

    def __init__(self, task: Task, facts: TaskFacts, node: OpNode) -> None:
        self.task, self.facts, self.node = task, facts, node
        self.values: dict[str, str] = {}
        self.linears: list[str] = []
        self.members: list[str] = []
        self.dtypes: dict[str, str] = {}
        """Types of inputs and parameters, by their expression in forward."""
        self.picks_step = False
        """Whether forward picks the last step out of the sequence, which depends on its layout."""
        self.indexes = False
        """Whether forward indexes with a number of its own, which may come from an argument."""

    def plan(self) -> GruPlan:
        node, attributes = self.node, self.node.attributes
        if attributes.get("bidirectional"):
            raise NoPlan(("a bidirectional nn.GRU", node))
        if not node.args:
            raise NoPlan(("nn.GRU with its input by name", node))
        spec = _input_spec(self.facts, node)
        for item in self.facts.ops:
            self._visit(item)
        (result,) = [item for item in self.facts.ops if item.op == "output"]
        value = self._text(result.args[0], result)
        lines = (f"return {value}",)
        first = bool(attributes.get("batch_first", False))
        steps, batch = (spec.shape[1], spec.shape[0]) if first else (spec.shape[0], spec.shape[1])
        make, signature, fixed = _holder_call(self.task.source, self.facts, node, layout=self.picks_step, kept=self.indexes)
        h0 = self._h0()
        return GruPlan(
            signature=signature,
            fixed=fixed,
            members=tuple(dict.fromkeys((*parent_lines(node.target), assign(node.target, make), *self._members()))),
            arguments=forward_arguments(self.facts),
            gru=attribute(node.target),
            x=self._text(node.args[0], node),
            h0=h0,
            h0_dtype=self.dtypes.get(h0, "float32"),
            tail=lines,
            needs_sequence="sequence" in value,
            needs_last="last" in value,
            linear=bool(self.linears),
            input_size=int(attributes["input_size"]),
            hidden_size=int(attributes["hidden_size"]),
            num_layers=int(attributes.get("num_layers", 1)),
            steps=steps,
            batch=batch,
            returns=self.facts.returns or value,
        )

    def _members(self) -> tuple[str, ...]:
        """Lines for all parameters but those of the GRU, also for those that forward does not touch."""
        owners = (self.node.target, *self.linears)
        names = [name for name in self.facts.parameters if not name.startswith(tuple(f"{owner}." for owner in owners))]
        return complete_members(self.members, names, self.facts)

    def _h0(self) -> str:
        given = self.node.args[1] if len(self.node.args) > 1 else self.node.kwargs.get("hx")
        return "None" if given is None else self._text(given, self.node)

    def _visit(self, node: OpNode) -> None:
        if node.op == "placeholder":
            spec = self.facts.inputs[len(self.dtypes)] if len(self.dtypes) < len(self.facts.inputs) else None
            self.dtypes[node.target] = spec.dtype if spec else "float32"
            self.values[node.name] = node.target
        elif node.op == "get_attr":
            if node.target not in self.facts.parameters:
                raise NoPlan((f"self.{node.target}, which is neither a parameter nor a persistent buffer", node))
            self.members.extend(parameter_lines(node.target, self.facts))
            self.values[node.name] = attribute(node.target)
            self.dtypes[self.values[node.name]] = self.facts.parameters[node.target].dtype
        elif node is self.node:
            self.values[node.name] = "(sequence, last)"
        elif node.op == "call_module" and node.module_type == "Linear":
            self._linear(node)
        elif node.target in GETITEM:
            self._getitem(node)
        elif node.op == "call_method" and node.target in CASTS and node.args:
            self.values[node.name] = self._text(node.args[0], node)
        elif node.op == "call_function" and node.target.rpartition(".")[2] == "zeros":
            self.values[node.name] = "None"
        elif node.op != "output" and not (node.op == "call_method" and node.target == "size"):
            raise NoPlan((f"{name_node(node)} next to nn.GRU", node))

    def _linear(self, node: OpNode) -> None:
        if not node.args:
            raise NoPlan(("nn.Linear with its input by name", node))
        value = self._text(node.args[0], node)
        inputs, outputs = int(node.attributes["in_features"]), int(node.attributes["out_features"])
        bias = bool(node.attributes.get("bias", f"{node.target}.bias" in self.facts.parameters))
        self.linears.append(node.target)
        self.members.extend(parent_lines(node.target))
        self.members.append(assign(node.target, f"Dense({inputs}, {outputs}, {bias})"))
        self.values[node.name] = f"{attribute(node.target)}.apply_to({value})"

    def _getitem(self, node: OpNode) -> None:
        value, index = self._text(node.args[0], node), node.args[1]
        if value == "(sequence, last)" and index in (0, 1):
            self.values[node.name] = ("sequence", "last")[index]
        elif value == "sequence" and _is_last_step(index, bool(self.node.attributes.get("batch_first"))):
            self.values[node.name] = "last[-1]"
            self.picks_step = True
        elif value == "last" and index in (-1, int(self.node.attributes.get("num_layers", 1)) - 1):
            self.values[node.name] = f"last[{index}]"
            self.indexes = self.indexes or index >= 0
        elif value != "(sequence, last)" and isinstance(index, int) and "." not in value:
            self.values[node.name] = f"{value}[{index}]"
            self.indexes = True
        else:
            raise NoPlan(("this part of what nn.GRU returns", node))

    def _text(self, value: Any, node: OpNode) -> str:
        if isinstance(value, dict) and value.get("ref") in self.values:
            return self.values[value["ref"]]
        if isinstance(value, (list, tuple)) and value:
            return "(" + ", ".join(self._text(item, node) for item in value) + ",)"
        returned = node.op == "output"
        raise NoPlan(("a forward that returns something else than tensors" if returned else f"this input of {name_node(node)}", node))


def _holder_call(source: str, facts: TaskFacts, node: OpNode, *, layout: bool, kept: bool) -> tuple[str, str, dict[str, str]]:
    """The call that makes the holder of the weights, the parameters of `__init__`, and the arguments that it is made for.

    Call and parameters as the task writes them where that is self-contained, else with sizes as constants.

    Args:
        source: the task's text.
        facts: what running it showed.
        node: the GRU.
        layout: whether forward's code depends on `batch_first`.
        kept: whether it depends on arguments that `__init__` keeps as attributes.
    """
    init = read_constructor(source)
    call = _find_call(init, node.target) if init else None
    if init is None or call is None:
        fields = ("input_size", "hidden_size", "num_layers", "bias", "batch_first")
        sizes = ", ".join(f"{key}={node.attributes[key]!r}" for key in fields if key in node.attributes)
        signature, fixed = made_for(source, facts.init_inputs)
        return f"GRUWeights({sizes})", signature, fixed
    inner = ", ".join([ast.unparse(a) for a in call.args] + [f"{k.arg}={ast.unparse(k.value)}" for k in call.keywords])
    elsewhere = _names_beside(init, () if kept else _list_kept(init), call)
    if layout:
        places = (*call.args[4:5], *(keyword_.value for keyword_ in call.keywords if keyword_.arg == "batch_first"))
        elsewhere |= {name for place in places for name in _names(place)}
    bound = bind(init, facts.init_inputs) if facts.init_inputs is not None else {}
    fixed = {name: value for name, value in bound.items() if name in elsewhere}
    return f"GRUWeights({inner})", write_signature(init), fixed


def _find_call(init: ast.FunctionDef, target: str) -> ast.Call | None:
    """The call that makes `self.target` of nothing but the parameters of `__init__`; None where it needs more."""
    known = {*names_of(init)} - {part.id for part in ast.walk(init) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
    for item in ast.walk(init):
        if isinstance(item, ast.Assign) and ast.unparse(item.targets[0]) == f"self.{target}" and isinstance(item.value, ast.Call):
            call = item.value
            used = {name for argument in (*call.args, *(k.value for k in call.keywords)) for name in _names(argument)}
            if used <= known and all(keyword_.arg for keyword_ in call.keywords):
                return call
    return None


def _list_kept(init: ast.FunctionDef) -> list[ast.expr]:
    """Names that `__init__` keeps as attributes and does nothing else with."""
    assigned = [part for part in ast.walk(init) if isinstance(part, ast.Assign) and isinstance(part.targets[0], ast.Attribute)]
    return [part.value for part in assigned if isinstance(part.value, ast.Name)]


def _names_beside(init: ast.FunctionDef, kept: Iterable[ast.expr], call: ast.Call) -> set[str]:
    """Names that `__init__` uses outside of these expressions."""
    skipped = {id(part) for root in (call, *kept) for part in ast.walk(root)}
    return {part.id for line in init.body for part in ast.walk(line) if isinstance(part, ast.Name) and id(part) not in skipped}


def _names(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def _input_spec(facts: TaskFacts, node: OpNode) -> TensorSpec:
    spec = facts.inputs[0] if facts.inputs else None
    if spec is None or len(spec.shape) != 3:
        raise NoPlan(("nn.GRU without a batch", node))
    if spec.dtype != "float32":
        raise NoPlan((f"nn.GRU on {spec.dtype}", node))
    return spec


def _is_last_step(index: Any, batch_first: bool) -> bool:
    if not isinstance(index, (list, tuple)):
        return index == -1 and not batch_first
    position = 1 if batch_first else 0
    others = [item for n, item in enumerate(index) if n != position]
    return len(index) > position and index[position] == -1 and all(_is_full_slice(item) for item in others)


def _is_full_slice(item: Any) -> bool:
    if isinstance(item, dict):
        parts = item.get("slice", [item.get("start"), item.get("stop"), item.get("step")])
        return parts is None or all(part is None for part in parts)
    return isinstance(item, slice) and item == slice(None) or str(item) in ("slice(None, None, None)", "...", "Ellipsis", ":")
