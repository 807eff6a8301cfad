"""Reads the traced forward of a task: is it a GRU, a linear layer with a pointwise tail, or a pointwise chain?"""

from __future__ import annotations

import keyword
from typing import Any

from tritonsmith.evaluator.schema import OpNode, Record, Task, TaskFacts, TensorSpec
from tritonsmith.prompts.recipes.members import assign, attribute, gru_maker, nested, parameter, without
from tritonsmith.prompts.recipes.operations import OPERATIONS, expression, operation_name

GETITEM = ("_operator.getitem", "operator.getitem", "getitem")
CASTS = ("to", "float", "contiguous", "cuda", "detach")


class Plan(Record):
    """What every template needs: the signature of `__init__`, the lines that make members, the arguments of forward."""

    signature: str
    members: tuple[str, ...]
    arguments: str


class GruPlan(Plan):
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


class Operand(Record):
    """A tensor that a fused kernel reads: its name in forward and the element it holds at flat output position `offset`."""

    value: str
    source: str
    index: str
    numel: int


class ChainPlan(Plan):
    """A chain of elementwise operations, after a linear layer when `weight` names one; `value` of the last line is stored."""

    operands: tuple[Operand, ...]
    lines: tuple[str, ...]
    result: str
    shape: tuple[int, ...]
    dtype: str
    x: str = ""
    weight: str = ""
    bias: str = ""
    rows: int = 0
    columns: int = 0
    inner: int = 0
    flops: float = 0.0

    @property
    def size(self) -> int:
        """Elements of the result."""
        return _product(self.shape)


class _NoPlan(Exception):
    """This graph is not of the family at hand."""


def unsupported(facts: TaskFacts) -> str:
    """Names what no recipe can write, most telling first; empty when every node is of a known kind."""
    if not facts.ops:
        return f"its forward cannot be traced ({facts.trace_error or 'no trace'})"
    names: list[str] = []
    for node in facts.ops:
        if node.op in ("placeholder", "output", "get_attr") or node.target in GETITEM or operation_name(node):
            continue
        name = f"nn.{node.module_type}" if node.op == "call_module" else node.target.rpartition(".")[2]
        if node.module_type == "GRU" and node.attributes.get("bidirectional"):
            name = "a bidirectional nn.GRU"
        elif node.module_type in ("GRU", "Linear"):
            continue
        if name not in names:
            names.append(name)
    return ", ".join(names)


def gru_plan(task: Task, facts: TaskFacts) -> GruPlan | None:
    """The plan of a one-directional GRU stack whose results are returned as they are, as the last step, or through nn.Linear."""
    nodes = [node for node in facts.ops if node.module_type == "GRU" and node.op == "call_module"]
    if len(nodes) != 1:
        return None
    try:
        return _GruReader(task, facts, nodes[0]).plan()
    except _NoPlan:
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
            raise _NoPlan
        spec = _input_spec(self.facts, 3)
        for item in self.facts.ops:
            self._visit(item)
        (result,) = [item for item in self.facts.ops if item.op == "output"]
        value = self._text(result.args[0])
        lines = (f"return {value}",)
        first = bool(attributes.get("batch_first", False))
        steps, batch = (spec.shape[1], spec.shape[0]) if first else (spec.shape[0], spec.shape[1])
        make, signature = gru_maker(self.task.source, node)
        return GruPlan(
            signature=signature,
            members=tuple(dict.fromkeys((*nested(node.target), assign(node.target, make), *self.members, *self._unused()))),
            arguments=_arguments(self.facts),
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

    def _unused(self) -> list[str]:
        """Members for parameters that forward does not touch: weights are transferred by name, so the names must exist."""
        owners = (self.node.target, *self.linears)
        names = [name for name in self.facts.parameters if not name.startswith(tuple(f"{owner}." for owner in owners))]
        return without(self.members, names, self.facts)

    def _h0(self) -> str:
        given = self.node.args[1] if len(self.node.args) > 1 else self.node.kwargs.get("hx")
        return "None" if given is None else self._text(given)

    def _visit(self, node: OpNode) -> None:
        if node.op == "placeholder":
            self.values[node.name] = node.target
        elif node.op == "get_attr":
            if node.target not in self.facts.parameters:
                raise _NoPlan
            self.members.extend(parameter(node.target, self.facts))
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
            raise _NoPlan

    def _linear(self, node: OpNode) -> None:
        value = self._text(node.args[0])
        inputs, outputs = int(node.attributes["in_features"]), int(node.attributes["out_features"])
        bias = bool(node.attributes.get("bias", f"{node.target}.bias" in self.facts.parameters))
        self.linears.append(node.target)
        self.members.extend(nested(node.target))
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
            raise _NoPlan

    def _text(self, value: Any) -> str:
        if isinstance(value, dict) and value.get("ref") in self.values:
            return self.values[value["ref"]]
        if isinstance(value, (list, tuple)) and value:
            return "(" + ", ".join(self._text(item) for item in value) + ",)"
        raise _NoPlan


def chain_plan(task: Task, facts: TaskFacts) -> ChainPlan | None:
    """The plan of elementwise operations on tensors that broadcast to one output, with or without a linear layer in front."""
    try:
        return _read_chain(facts)
    except (_NoPlan, ValueError):
        return None


def _read_chain(facts: TaskFacts) -> ChainPlan:
    if len(facts.outputs) != 1 or not facts.ops:
        raise _NoPlan
    shape = facts.outputs[0].shape
    inputs = [spec for spec in facts.inputs if spec is not None]
    variables: dict[str, str] = {}
    operands: dict[str, Operand] = {}
    members: list[str] = []
    lines: list[str] = []
    linear: dict[str, Any] = {}
    sources: dict[str, tuple[str, TensorSpec]] = {}
    flops = 0.0

    def use(name: str) -> None:
        """Make a tensor an operand of the kernel the first time an elementwise node reads it."""
        if name in sources and name not in variables:
            source, spec = sources[name]
            variables[name] = f"v{len(operands)}"
            size = _product(spec.shape)
            operands[name] = Operand(value=variables[name], source=source, index=_flat_index(spec.shape, shape), numel=size)

    for node in facts.ops:
        if node.op == "placeholder":
            if len(sources) >= len(inputs) or inputs[len(sources)].dtype not in ("float32", "float16", "bfloat16"):
                raise _NoPlan
            sources[node.name] = (node.target, inputs[len(sources)])
        elif node.op == "get_attr":
            if node.target not in facts.parameters:
                raise _NoPlan
            members.extend(parameter(node.target, facts))
            sources[node.name] = (attribute(node.target), facts.parameters[node.target])
        elif node.op == "call_module" and node.module_type == "Linear":
            if linear or lines:
                raise _NoPlan
            linear = _linear_head(node, sources, facts)
            members.extend(linear.pop("members"))
            variables[node.name] = "total"
        elif node.op == "output":
            result = node.args[0]
            if not isinstance(result, dict) or result.get("ref") not in variables or not (lines or linear):
                raise _NoPlan
            final = variables[result["ref"]]
        else:
            name = operation_name(node)
            if name is None:
                raise _NoPlan
            for argument in (*node.args, *node.kwargs.values()):
                if isinstance(argument, dict) and "ref" in argument:
                    use(argument["ref"])
            variables[node.name] = f"t{len(lines)}"
            lines.append(f"{variables[node.name]} = {expression(node, name, variables)}")
            flops += OPERATIONS[name].flops * _product(shape)
    if linear and _product(shape) != linear["rows"] * linear["columns"]:
        raise _NoPlan
    return ChainPlan(
        signature="*init_inputs", members=_with_unused(members, facts), arguments=_arguments(facts),
        operands=tuple(operands.values()), lines=tuple(lines), result=final, shape=shape, dtype=facts.outputs[0].dtype,
        flops=flops, **linear,
    )  # fmt: skip


def _with_unused(members: list[str], facts: TaskFacts) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*members, *without(members, list(facts.parameters), facts))))


def _linear_head(node: OpNode, sources: dict[str, tuple[str, TensorSpec]], facts: TaskFacts) -> dict[str, Any]:
    source = node.args[0]["ref"]
    if source not in sources:
        raise _NoPlan
    value, spec = sources[source]
    inner, columns = int(node.attributes["in_features"]), int(node.attributes["out_features"])
    if spec.dtype != "float32" or spec.shape[-1] != inner:
        raise _NoPlan
    names = [name for name in (f"{node.target}.weight", f"{node.target}.bias") if name in facts.parameters]
    members = [line for line in nested(f"{node.target}.weight")]
    for name in names:
        members.append(parameter(name, facts)[-1])
    return {
        "members": members, "x": value, "weight": attribute(names[0]), "bias": attribute(names[1]) if len(names) > 1 else "",
        "rows": _product(spec.shape[:-1]), "columns": columns, "inner": inner,
    }  # fmt: skip


def _product(shape: tuple[int, ...]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total


def _flat_index(shape: tuple[int, ...], target: tuple[int, ...]) -> str:
    """Index into a contiguous tensor of `shape` that broadcasts to `target`, from the flat position `offset` in `target`."""
    if shape == target:
        return "offset"
    if len(shape) > len(target):
        raise _NoPlan
    padded = (1,) * (len(target) - len(shape)) + shape
    terms: list[str] = []
    outer, stride = 1, 1
    for size, wanted in zip(reversed(padded), reversed(target), strict=True):
        if size not in (1, wanted):
            raise _NoPlan
        if size > 1:
            term = "offset" if outer == 1 else f"offset // {outer}"
            terms.append(f"({term}) % {wanted}" + (f" * {stride}" if stride > 1 else ""))
            stride *= size
        outer *= wanted
    return " + ".join(reversed(terms)) or "offset * 0"


def _arguments(facts: TaskFacts) -> str:
    names: list[str] = []
    for position, node in enumerate(node for node in facts.ops if node.op == "placeholder"):
        if not node.target.isidentifier() or keyword.iskeyword(node.target):
            raise _NoPlan
        names.append(node.target if position < len(facts.inputs) else f"{node.target}=None")
    return ", ".join(names)


def _input_spec(facts: TaskFacts, rank: int) -> TensorSpec:
    spec = facts.inputs[0] if facts.inputs else None
    if spec is None or len(spec.shape) != rank or spec.dtype != "float32":
        raise _NoPlan
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
