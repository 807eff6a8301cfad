"""Reads the traced forward of a task: is it a GRU stack, and what is made of its results?"""

from __future__ import annotations

import ast
from typing import Any

from tritonsmith.evaluator.schema import OpNode, Task, TaskFacts, TensorSpec
from tritonsmith.evaluator.source.parse import parse
from tritonsmith.prompts.recipes.members import assign, attribute, complete_members, parameter_lines, parent_lines
from tritonsmith.prompts.recipes.plan import GETITEM, KernelPlan, NoPlan, forward_arguments

CASTS = ("to", "float", "contiguous", "cuda", "detach")
"""Methods that change neither values nor shape."""


class GruPlan(KernelPlan):
    """A GRU stack and what is made of its two results, `sequence` and `last`."""

    gru: str
    x: str
    h0: str
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


def read_gru(task: Task, facts: TaskFacts) -> GruPlan | None:
    """The plan of a one-directional GRU stack; None for other tasks.

    Results may be returned as they are, as the last step, or through nn.Linear.
    """
    nodes = [node for node in facts.ops if node.module_type == "GRU" and node.op == "call_module"]
    if len(nodes) != 1:
        return None
    try:
        return _GruReader(task, facts, nodes[0]).plan()
    except NoPlan:
        return None


class _GruReader:
    """Walks the trace once and writes forward's tail."""

    def __init__(self, task: Task, facts: TaskFacts, node: OpNode) -> None:
        self.task, self.facts, self.node = task, facts, node
        self.values: dict[str, str] = {}
        self.linears: list[str] = []
        self.members: list[str] = []

    def plan(self) -> GruPlan:
        node, attributes = self.node, self.node.attributes
        if attributes.get("bidirectional") or attributes.get("proj_size"):
            raise NoPlan
        spec = _input_spec(self.facts, 3)
        for item in self.facts.ops:
            self._visit(item)
        (result,) = [item for item in self.facts.ops if item.op == "output"]
        value = self._text(result.args[0])
        lines = (f"return {value}",)
        first = bool(attributes.get("batch_first", False))
        steps, batch = (spec.shape[1], spec.shape[0]) if first else (spec.shape[0], spec.shape[1])
        make, signature = _holder_call(self.task.source, node)
        return GruPlan(
            signature=signature,
            members=tuple(dict.fromkeys((*parent_lines(node.target), assign(node.target, make), *self._members()))),
            arguments=forward_arguments(self.facts),
            gru=attribute(node.target),
            x=self._text(node.args[0]),
            h0=self._h0(),
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
        return "None" if given is None else self._text(given)

    def _visit(self, node: OpNode) -> None:
        if node.op == "placeholder":
            self.values[node.name] = node.target
        elif node.op == "get_attr":
            if node.target not in self.facts.parameters:
                raise NoPlan
            self.members.extend(parameter_lines(node.target, self.facts))
            self.values[node.name] = attribute(node.target)
        elif node is self.node:
            self.values[node.name] = "(sequence, last)"
        elif node.op == "call_module" and node.module_type == "Linear":
            self._linear(node)
        elif node.target in GETITEM:
            self._getitem(node)
        elif node.op == "call_method" and node.target in CASTS and node.args:
            self.values[node.name] = self._text(node.args[0])
        elif node.op == "call_function" and node.target.rpartition(".")[2] == "zeros":
            self.values[node.name] = "None"
        elif node.op != "output" and not (node.op == "call_method" and node.target == "size"):
            raise NoPlan

    def _linear(self, node: OpNode) -> None:
        value = self._text(node.args[0])
        inputs, outputs = int(node.attributes["in_features"]), int(node.attributes["out_features"])
        bias = bool(node.attributes.get("bias", f"{node.target}.bias" in self.facts.parameters))
        self.linears.append(node.target)
        self.members.extend(parent_lines(node.target))
        self.members.append(assign(node.target, f"Dense({inputs}, {outputs}, {bias})"))
        self.values[node.name] = f"{attribute(node.target)}.apply_to({value})"

    def _getitem(self, node: OpNode) -> None:
        value, index = self._text(node.args[0]), node.args[1]
        if value == "(sequence, last)" and index in (0, 1):
            self.values[node.name] = ("sequence", "last")[index]
        elif value == "sequence" and _is_last_step(index, bool(self.node.attributes.get("batch_first"))):
            self.values[node.name] = "last[-1]"
        elif value == "last" and index in (-1, int(self.node.attributes.get("num_layers", 1)) - 1):
            self.values[node.name] = "last[-1]"
        elif value != "(sequence, last)" and isinstance(index, int) and "." not in value:
            self.values[node.name] = f"{value}[{index}]"
        else:
            raise NoPlan

    def _text(self, value: Any) -> str:
        if isinstance(value, dict) and value.get("ref") in self.values:
            return self.values[value["ref"]]
        if isinstance(value, (list, tuple)) and value:
            return "(" + ", ".join(self._text(item) for item in value) + ",)"
        raise NoPlan


def _holder_call(source: str, node: OpNode) -> tuple[str, str]:
    """The call that makes the holder of the weights, and the parameters of `__init__`.

    Both as the task writes them where that is self-contained, else with sizes as constants.
    """
    fields = ("input_size", "hidden_size", "num_layers", "bias", "batch_first")
    fixed = ", ".join(f"{key}={node.attributes[key]!r}" for key in fields if key in node.attributes)
    try:
        found = _find_call(parse(source), node.target)
    except SyntaxError:
        found = None
    return (f"GRUWeights({found[0]})", found[1]) if found else (f"GRUWeights({fixed})", "*init_inputs")


def _find_call(tree: ast.Module, target: str) -> tuple[str, str] | None:
    """Arguments of the call that makes `self.target`, and the parameters of `__init__`; None where it needs more than these."""
    classes = [item for item in tree.body if isinstance(item, ast.ClassDef) and item.name == "Model"]
    inits = [item for cls in classes for item in cls.body if isinstance(item, ast.FunctionDef) and item.name == "__init__"]
    if not inits:
        return None
    (arguments,) = [inits[0].args]
    known = {argument.arg for argument in (*arguments.args[1:], *arguments.kwonlyargs)}
    defaults = [default for default in (*arguments.defaults, *arguments.kw_defaults) if default is not None]
    if arguments.vararg or arguments.kwarg or any(not isinstance(default, ast.Constant) for default in defaults):
        return None
    for item in ast.walk(inits[0]):
        if isinstance(item, ast.Assign) and ast.unparse(item.targets[0]) == f"self.{target}" and isinstance(item.value, ast.Call):
            call = item.value
            used = {part.id for argument in (*call.args, *(k.value for k in call.keywords)) for part in ast.walk(argument)
                    if isinstance(part, ast.Name)}  # fmt: skip
            if used <= known and all(keyword_.arg for keyword_ in call.keywords):
                inner = ", ".join([ast.unparse(a) for a in call.args] + [f"{k.arg}={ast.unparse(k.value)}" for k in call.keywords])
                return inner, ast.unparse(arguments).removeprefix("self").removeprefix(", ")
    return None


def _input_spec(facts: TaskFacts, rank: int) -> TensorSpec:
    spec = facts.inputs[0] if facts.inputs else None
    if spec is None or len(spec.shape) != rank or spec.dtype != "float32":
        raise NoPlan
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
