"""Reads the traced forward of a task: is it an elementwise chain, and has it a linear layer in front?"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from tritonsmith.evaluator.schema import OpNode, Record, Task, TaskFacts
from tritonsmith.prompts.recipes.chain.sizes import Sizes, Source, find_sizes, write_index
from tritonsmith.prompts.recipes.constructor import made_for
from tritonsmith.prompts.recipes.members import attribute, complete_members, parameter_lines, parent_lines
from tritonsmith.prompts.recipes.operations import OPERATIONS, expression, operation_name
from tritonsmith.prompts.recipes.plan import KernelPlan, NoPlan, forward_arguments, name_node

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


class ChainPlan(KernelPlan):
    """A chain of elementwise operations, after a linear layer when `weight` names one; `value` of the last line is stored."""

    operands: tuple[Operand, ...]
    lines: tuple[str, ...]
    result: str
    sizes: Sizes
    given: tuple[str, ...]
    """The tensors among forward's arguments that it checks."""
    dtype: str
    x: str = ""
    weight: str = ""
    bias: str = ""
    columns: int = 0
    inner: int = 0
    half: bool = False
    """Whether it multiplies 16-bit matrices."""
    flops: float = 0.0


def read_plain_chain(task: Task, facts: TaskFacts) -> ChainPlan:
    """The plan of elementwise operations on tensors that broadcast to one output. Raises NoPlan."""
    plan = _ChainReader(task, facts).plan()
    if plan.weight:
        raise NoPlan
    return plan


def read_linear_chain(task: Task, facts: TaskFacts) -> ChainPlan:
    """The plan of a linear layer with elementwise operations behind it. Raises NoPlan."""
    plan = _ChainReader(task, facts).plan()
    if not plan.weight:
        raise NoPlan
    return plan


class _ChainReader:
    """Walks the trace once and writes the kernel's lines."""

    def __init__(self, task: Task, facts: TaskFacts) -> None:
        if not facts.ops:
            raise NoPlan
        if len(facts.outputs) != 1:
            raise NoPlan((f"a forward that returns {len(facts.outputs)} tensors", None))
        self.task, self.facts = task, facts
        self.shape = facts.outputs[0].shape
        self.inputs = [spec for spec in facts.inputs if spec is not None]
        self.sources: dict[str, Source] = {}
        """By node: the tensors of the trace."""
        self.variables: dict[str, str] = {}
        """By node: what the kernel calls its value."""
        self.operands: dict[str, Source] = {}
        """By the name of its value: every tensor that elementwise nodes read."""
        self.members: list[str] = []
        self.lines: list[str] = []
        self.linear: dict[str, Any] = {}
        """Fields of the plan that the linear layer fills; empty without one."""
        self.product: tuple[Source, ...] = ()
        """The linear layer's input; empty without one."""
        self.result = ""
        self.flops = 0.0

    def plan(self) -> ChainPlan:
        self._refuse_other_forms()
        for node in self.facts.ops:
            try:
                self._visit(node)
            except ValueError as error:
                raise NoPlan((str(error), node)) from None
        if self.product and math.prod(self.product[0].shape) != math.prod(self.shape):
            raise NoPlan(("nn.Linear whose result is broadcast", None))
        sources = (*self.product, *self.operands.values())
        sizes = find_sizes(self.shape, sources, fixed=bool(self.facts.size_lines))
        signature, fixed = made_for(self.task.source, self.facts.init_inputs)
        return ChainPlan(
            signature=signature,
            fixed=fixed,
            members=complete_members(self.members, list(self.facts.parameters), self.facts),
            arguments=forward_arguments(self.facts),
            operands=tuple(
                Operand(value=value, source=source.name, index=write_index(source, self.shape, sizes.free))
                for value, source in self.operands.items()
            ),
            lines=tuple(self.lines),
            result=self.result,
            sizes=sizes,
            given=tuple(dict.fromkeys(source.name for source in sources if source.given)),
            dtype=self.facts.outputs[0].dtype,
            flops=self.flops,
            **self.linear,
        )

    def _refuse_other_forms(self) -> None:
        """Name everything at once that is no elementwise operation, then a linear layer that stands elsewhere than in front."""
        unknown = [node for node in self.facts.ops if not _is_known(node)]
        if unknown:
            raise NoPlan(*((name_node(node), node) for node in unknown))
        linears = [node for node in self.facts.ops if node.module_type == "Linear"]
        if len(linears) > 1:
            raise NoPlan(("a second nn.Linear", linears[1]))
        if linears and linears[0] is not next(node for node in self.facts.ops if _computes(node)):
            raise NoPlan(("nn.Linear behind another operation", linears[0]))

    def _visit(self, node: OpNode) -> None:
        if node.op == "placeholder":
            position = len(self.sources)
            if position >= len(self.inputs):
                raise ValueError(f"the argument {node.target} of forward, which is no tensor")
            spec = self.inputs[position]
            if spec.dtype not in DTYPES:
                raise ValueError(f"the {spec.dtype} input {node.target}")
            self.sources[node.name] = Source(node.target, spec.shape, spec.dtype, given=True)
        elif node.op == "get_attr":
            if node.target not in self.facts.parameters:
                raise ValueError(f"self.{node.target}, which is neither a parameter nor a persistent buffer")
            self.members.extend(parameter_lines(node.target, self.facts))
            spec = self.facts.parameters[node.target]
            self.sources[node.name] = Source(attribute(node.target), spec.shape, spec.dtype, given=False)
        elif node.op == "call_module" and node.module_type == "Linear":
            self._start_with_linear(node)
        elif node.op == "output":
            result = node.args[0]
            if not isinstance(result, dict) or result.get("ref") not in self.variables or not (self.lines or self.linear):
                raise ValueError("a forward that returns something else than the tensor it computes")
            self.result = self.variables[result["ref"]]
        else:
            self._apply(node)

    def _apply(self, node: OpNode) -> None:
        name = operation_name(node)
        assert name is not None, "others are refused before"
        for argument in (*node.args, *node.kwargs.values()):
            if isinstance(argument, dict) and "ref" in argument:
                self._load(argument["ref"])
        self.variables[node.name] = f"t{len(self.lines)}"
        self.lines.append(f"{self.variables[node.name]} = {expression(node, name, self.variables)}")
        self.flops += OPERATIONS[name].flops * math.prod(self.shape)

    def _load(self, name: str) -> None:
        """Make a tensor an operand of the kernel the first time an elementwise node reads it."""
        if name in self.sources and name not in self.variables:
            self.variables[name] = f"v{len(self.operands)}"
            self.operands[self.variables[name]] = self.sources[name]

    def _start_with_linear(self, node: OpNode) -> None:
        if not node.args:
            raise ValueError("nn.Linear with its input by name")
        source = self.sources[node.args[0]["ref"]]
        inner, columns = int(node.attributes["in_features"]), int(node.attributes["out_features"])
        weight = self.facts.parameters[f"{node.target}.weight"].dtype
        if source.dtype != weight or source.shape[-1] != inner:
            raise ValueError(f"nn.Linear of {weight} on {source.dtype}")
        names = [name for name in (f"{node.target}.weight", f"{node.target}.bias") if name in self.facts.parameters]
        self.members.extend(parent_lines(f"{node.target}.weight"))
        self.members.extend(parameter_lines(name, self.facts)[-1] for name in names)
        self.linear = {
            "x": source.name, "weight": attribute(names[0]), "bias": attribute(names[1]) if len(names) > 1 else "",
            "columns": columns, "inner": inner, "half": weight != "float32",
        }  # fmt: skip
        self.product = (dataclasses.replace(source, shape=(*source.shape[:-1], columns), inner=inner),)
        self.variables[node.name] = "total"


def _is_known(node: OpNode) -> bool:
    """Whether a node is a linear layer, an elementwise operation, or none that computes."""
    return not _computes(node) or node.module_type == "Linear" or operation_name(node) is not None


def _computes(node: OpNode) -> bool:
    return node.op in ("call_module", "call_function", "call_method")
