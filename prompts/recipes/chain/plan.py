"""Reads the traced forward of a task: is it an elementwise chain, and has it a linear layer in front?"""

from __future__ import annotations

import math
from typing import Any

from tritonsmith.evaluator.schema import OpNode, Record, Task, TaskFacts, TensorSpec
from tritonsmith.prompts.recipes.members import attribute, complete_members, parameter_lines, parent_lines
from tritonsmith.prompts.recipes.operations import OPERATIONS, expression, operation_name
from tritonsmith.prompts.recipes.plan import KernelPlan, NoPlan, forward_arguments

DTYPES = ("float32", "float16", "bfloat16")
"""Types of inputs that the kernels load and widen to fp32."""


class Operand(Record):
    """A tensor that a fused kernel reads."""

    value: str
    """Its name in the kernel."""
    source: str
    """Its expression in forward."""
    index: str
    """Which of its elements belongs to the flat output position `offset`."""
    numel: int


class ChainPlan(KernelPlan):
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
        return math.prod(self.shape)


def read_plain_chain(task: Task, facts: TaskFacts) -> ChainPlan | None:
    """The plan of elementwise operations on tensors that broadcast to one output."""
    plan = _read_chain(facts)
    return None if plan is None or plan.weight else plan


def read_linear_chain(task: Task, facts: TaskFacts) -> ChainPlan | None:
    """The plan of a linear layer with elementwise operations behind it."""
    plan = _read_chain(facts)
    return plan if plan and plan.weight else None


def _read_chain(facts: TaskFacts) -> ChainPlan | None:
    if len(facts.outputs) != 1 or not facts.ops:
        return None
    try:
        return _ChainReader(facts).plan()
    except (NoPlan, ValueError):
        return None


class _ChainReader:
    """Walks the trace once and writes the kernel's lines."""

    def __init__(self, facts: TaskFacts) -> None:
        self.facts = facts
        self.shape = facts.outputs[0].shape
        self.inputs = [spec for spec in facts.inputs if spec is not None]
        self.sources: dict[str, tuple[str, TensorSpec]] = {}
        """By node: what forward calls a tensor, and its kind."""
        self.variables: dict[str, str] = {}
        """By node: what the kernel calls its value."""
        self.operands: list[Operand] = []
        self.members: list[str] = []
        self.lines: list[str] = []
        self.linear: dict[str, Any] = {}
        """Fields of the plan that the linear layer fills; empty without one."""
        self.result = ""
        self.flops = 0.0

    def plan(self) -> ChainPlan:
        for node in self.facts.ops:
            self._visit(node)
        if self.linear and math.prod(self.shape) != self.linear["rows"] * self.linear["columns"]:
            raise NoPlan
        return ChainPlan(
            signature="*init_inputs",
            members=complete_members(self.members, list(self.facts.parameters), self.facts),
            arguments=forward_arguments(self.facts),
            operands=tuple(self.operands),
            lines=tuple(self.lines),
            result=self.result,
            shape=self.shape,
            dtype=self.facts.outputs[0].dtype,
            flops=self.flops,
            **self.linear,
        )

    def _visit(self, node: OpNode) -> None:
        if node.op == "placeholder":
            position = len(self.sources)
            if position >= len(self.inputs) or self.inputs[position].dtype not in DTYPES:
                raise NoPlan
            self.sources[node.name] = (node.target, self.inputs[position])
        elif node.op == "get_attr":
            if node.target not in self.facts.parameters:
                raise NoPlan
            self.members.extend(parameter_lines(node.target, self.facts))
            self.sources[node.name] = (attribute(node.target), self.facts.parameters[node.target])
        elif node.op == "call_module" and node.module_type == "Linear":
            self._start_with_linear(node)
        elif node.op == "output":
            result = node.args[0]
            if not isinstance(result, dict) or result.get("ref") not in self.variables or not (self.lines or self.linear):
                raise NoPlan
            self.result = self.variables[result["ref"]]
        else:
            self._apply(node)

    def _apply(self, node: OpNode) -> None:
        name = operation_name(node)
        if name is None:
            raise NoPlan
        for argument in (*node.args, *node.kwargs.values()):
            if isinstance(argument, dict) and "ref" in argument:
                self._load(argument["ref"])
        self.variables[node.name] = f"t{len(self.lines)}"
        self.lines.append(f"{self.variables[node.name]} = {expression(node, name, self.variables)}")
        self.flops += OPERATIONS[name].flops * math.prod(self.shape)

    def _load(self, name: str) -> None:
        """Make a tensor an operand of the kernel the first time an elementwise node reads it."""
        if name in self.sources and name not in self.variables:
            source, spec = self.sources[name]
            self.variables[name] = f"v{len(self.operands)}"
            index = _flat_index(spec.shape, self.shape)
            self.operands.append(Operand(value=self.variables[name], source=source, index=index, numel=math.prod(spec.shape)))

    def _start_with_linear(self, node: OpNode) -> None:
        if self.linear or self.lines:
            raise NoPlan
        source = node.args[0]["ref"]
        if source not in self.sources:
            raise NoPlan
        value, spec = self.sources[source]
        inner, columns = int(node.attributes["in_features"]), int(node.attributes["out_features"])
        if spec.dtype != "float32" or spec.shape[-1] != inner:
            raise NoPlan
        names = [name for name in (f"{node.target}.weight", f"{node.target}.bias") if name in self.facts.parameters]
        self.members.extend(parent_lines(f"{node.target}.weight"))
        self.members.extend(parameter_lines(name, self.facts)[-1] for name in names)
        self.linear = {
            "x": value, "weight": attribute(names[0]), "bias": attribute(names[1]) if len(names) > 1 else "",
            "rows": math.prod(spec.shape[:-1]), "columns": columns, "inner": inner,
        }  # fmt: skip
        self.variables[node.name] = "total"


def _flat_index(shape: tuple[int, ...], target: tuple[int, ...]) -> str:
    """Index into a contiguous tensor of `shape` that broadcasts to `target`, from the flat position `offset` in `target`."""
    if shape == target:
        return "offset"
    if len(shape) > len(target):
        raise NoPlan
    padded = (1,) * (len(target) - len(shape)) + shape
    terms: list[str] = []
    outer, stride = 1, 1
    for size, wanted in zip(reversed(padded), reversed(target), strict=True):
        if size not in (1, wanted):
            raise NoPlan
        if size > 1:
            term = "offset" if outer == 1 else f"offset // {outer}"
            terms.append(f"({term}) % {wanted}" + (f" * {stride}" if stride > 1 else ""))
            stride *= size
        outer *= wanted
    return " + ".join(reversed(terms)) or "offset * 0"
