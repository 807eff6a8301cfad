"""Reads the traced forward of a task: is it an elementwise chain?"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from tritonsmith.author.cards.model import CardModel
from tritonsmith.author.compiler.ir.printer import print_expression
from tritonsmith.author.compiler.ir.walk import names_in
from tritonsmith.author.compiler.operations import OPERATIONS, write_operation
from tritonsmith.author.constructor import made_for
from tritonsmith.author.families.chain.sizes import Sizes, Source, find_sizes, write_index
from tritonsmith.author.members import Line, attribute, complete_members, list_parameter, settle_members
from tritonsmith.author.plan import KernelPlan, NoPlan, forward_arguments
from tritonsmith.author.types import WORKED
from tritonsmith.evaluator.schema import OpNode, Record, Task, TaskFacts
from tritonsmith.prompts.node_names import name_node, operation_name


class Operand(Record):
    """A tensor that a fused kernel reads."""

    value: str
    """Its name in the kernel."""
    source: str
    """Its expression in forward."""
    index: str
    """Which of its elements belongs to the flat output position `offset`."""
    per_column: bool = False
    """Whether it is one value for each position along the last axis, and nothing else."""


class ChainPlan(KernelPlan):
    """A chain of elementwise operations; `value` of the last line is stored."""

    operands: tuple[Operand, ...]
    lines: tuple[str, ...]
    result: str
    sizes: Sizes
    given: tuple[str, ...]
    """The tensors among forward's arguments that it checks."""
    dtype: str
    elements: int = 0
    """Of the result."""
    flops: float = 0.0


_OF_SIZE = {"elements", "flops", "rows", "product_flops"}
"""What a plan tells of the task's size, and its kernels do not depend on."""


def covers_chain(read: Callable[[Task, TaskFacts, CardModel], ChainPlan], plan: KernelPlan, task: Task, facts: TaskFacts) -> bool:
    """Whether a plan's kernels are those for the task at another size: forward takes the rest from its inputs."""
    try:
        other = read(task, facts, plan.card)
    except NoPlan:
        return False
    return plan.model_dump(exclude=_OF_SIZE) == other.model_dump(exclude=_OF_SIZE)


def read_plain_chain(task: Task, facts: TaskFacts, card: CardModel) -> ChainPlan:
    """The plan of elementwise operations on tensors that broadcast to one output. Raises NoPlan."""
    return ChainPlan(**ChainReader(task, facts, card).fields())


class ChainReader:
    """Walks the trace once and writes the kernel's lines; a family with something else in front adds it in a class of its own."""

    def __init__(self, task: Task, facts: TaskFacts, card: CardModel) -> None:
        if not facts.ops or len(facts.outputs) != 1:
            raise NoPlan
        self.task, self.facts, self.card = task, facts, card
        self.shape = facts.outputs[0].shape
        self.inputs = [spec for spec in facts.inputs if spec is not None]
        self.sources: dict[str, Source] = {}
        """By node: the tensors of the trace."""
        self.variables: dict[str, str] = {}
        """By node: what the kernel calls its value."""
        self.operands: dict[str, Source] = {}
        """By the name of its value: every tensor that elementwise nodes read."""
        self.members: list[Line] = []
        self.lines: list[str] = []
        self.head: tuple[Source, ...] = ()
        """What stands in front of the chain reads; empty where nothing does."""
        self.result = ""
        self.flops = 0.0
        self.libdevice = False

    def fields(self) -> dict[str, Any]:
        """The fields of a ChainPlan. Raises NoPlan."""
        self._refuse_other_forms()
        for node in self.facts.ops:
            try:
                self._visit(node)
            except ValueError as error:
                raise NoPlan((str(error), node)) from None
        sources = (*self.head, *self.operands.values())
        sizes = find_sizes(self.shape, sources, fixed=bool(self.facts.size_lines) or self.is_fixed())
        signature, fixed = made_for(self.task.source, self.facts.init_inputs)
        return {
            "card": self.card,
            "signature": signature,
            "fixed": fixed,
            "members": settle_members(complete_members(self.members, self.facts.parameters, self.facts)),
            "arguments": forward_arguments(self.facts),
            "operands": tuple(self._operand(value, source, sizes) for value, source in self.operands.items()),
            "lines": tuple(self.lines),
            "result": self.result,
            "sizes": sizes,
            "given": tuple(dict.fromkeys(source.name for source in sources if source.given)),
            "dtype": self.facts.outputs[0].dtype,
            "elements": math.prod(self.shape),
            "flops": self.flops,
            "libdevice": self.libdevice,
        }

    def is_fixed(self) -> bool:
        """Whether the kernel is made for these sizes only."""
        return False

    def is_head(self, node: OpNode) -> bool:
        """Whether a node is what may stand in front of the chain."""
        return False

    def is_view(self, node: OpNode) -> bool:
        """Whether a node only names axes of a tensor anew, for what stands in front."""
        return False

    def goes_ahead(self, node: OpNode) -> bool:
        """Whether a node may stand in front of the head."""
        return False

    def start(self, node: OpNode) -> None:
        """Read what stands in front. Raises ValueError for what cannot be written."""

    def name_view(self, node: OpNode) -> None:
        """Read a view. Raises ValueError for what cannot be written."""

    def _operand(self, value: str, source: Source, sizes: Sizes) -> Operand:
        per_column = len(self.shape) > 1 and source.shape[-1:] == self.shape[-1:] and math.prod(source.shape) == self.shape[-1]
        per_column &= math.prod(self.shape[:-1]) > 1
        return Operand(value=value, source=source.name, index=write_index(source, self.shape, sizes.free), per_column=per_column)

    def _refuse_other_forms(self) -> None:
        """Name everything at once that is no elementwise operation, then a head that stands elsewhere than in front."""
        unknown = [node for node in self.facts.ops if not self._is_known(node)]
        if unknown:
            raise NoPlan(*((name_node(node), node) for node in unknown))
        heads = [node for node in self.facts.ops if self.is_head(node)]
        if len(heads) > 1:
            raise NoPlan  # which other families write
        first = next((node for node in self.facts.ops if _computes(node) and not self.is_view(node) and not self.goes_ahead(node)), None)
        if heads and heads[0] is not first:
            raise NoPlan((f"{name_node(heads[0])} behind another operation", heads[0]))

    def _is_known(self, node: OpNode) -> bool:
        return not _computes(node) or self.is_head(node) or self.is_view(node) or operation_name(node) is not None

    def _visit(self, node: OpNode) -> None:
        if node.op == "placeholder":
            position = len(self.sources)
            if position >= len(self.inputs):
                raise ValueError(f"the argument {node.target} of forward, which is no tensor")
            spec = self.inputs[position]
            if spec.dtype not in WORKED:
                raise ValueError(f"the {spec.dtype} input {node.target}")
            self.sources[node.name] = Source(node.target, spec.shape, spec.dtype, given=True)
        elif node.op == "get_attr":
            if node.target not in self.facts.parameters:
                raise ValueError(f"self.{node.target}, which is neither a parameter nor a persistent buffer")
            self.members.extend(list_parameter(node.target, self.facts))
            spec = self.facts.parameters[node.target]
            self.sources[node.name] = Source(attribute(node.target), spec.shape, spec.dtype, given=False)
        elif self.is_head(node):
            self.start(node)
        elif self.is_view(node):
            self.name_view(node)
        elif node.op == "output":
            result = node.args[0]
            if not isinstance(result, dict) or result.get("ref") not in self.variables or not (self.lines or self.head):
                raise ValueError("a forward that returns something else than the tensor it computes")
            self.result = self.variables[result["ref"]]
        else:
            self.apply(node)

    def apply(self, node: OpNode) -> None:
        """Write one elementwise operation. Raises ValueError for what cannot be written."""
        name = operation_name(node)
        assert name is not None, "others are refused before"
        for argument in (*node.args, *node.kwargs.values()):
            if isinstance(argument, dict) and "ref" in argument:
                self.load(argument["ref"])
        self.variables[node.name] = f"t{len(self.lines)}"
        self.lines.append(f"{self.variables[node.name]} = {self.write(node, name, self.variables)}")
        self.flops += OPERATIONS[name].flops * math.prod(self.shape)

    def write(self, node: OpNode, name: str, variables: Mapping[str, str]) -> str:
        """The expression of an elementwise operation. Raises ValueError for what cannot be written."""
        written = write_operation(node, name, variables)
        self.libdevice |= "libdevice" in names_in(written)
        return print_expression(written)

    def load(self, name: str) -> None:
        """Make a tensor an operand of the kernel the first time an elementwise node reads it."""
        if name in self.sources and name not in self.variables:
            self.variables[name] = f"v{len(self.operands)}"
            self.operands[self.variables[name]] = self.sources[name]


def _computes(node: OpNode) -> bool:
    return node.op in ("call_module", "call_function", "call_method")
