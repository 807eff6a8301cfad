"""What a plan holds in every family, and how a traced forward is read into one."""

from __future__ import annotations

import keyword

from pydantic import Field

from tritonsmith.evaluator.schema import Record, TaskFacts

GETITEM = ("_operator.getitem", "operator.getitem", "getitem")
"""Targets of nodes that index."""


class KernelPlan(Record):
    """What every template needs: the signature of `__init__`, the lines that make members, the arguments of forward."""

    signature: str
    fixed: dict[str, str] = Field(default_factory=dict)
    """Arguments of the constructor that the kernel is made for, as Python writes them; others are refused."""
    members: tuple[str, ...]
    arguments: str

    def name_local(self, name: str) -> str:
        """A name for a variable of forward that none of its arguments has."""
        while name in [argument.partition("=")[0] for argument in self.arguments.split(", ")]:
            name += "_"
        return name

    def shortest_chain(self, facts: TaskFacts) -> int:
        """Dependent steps of the best schedule that the family knows."""
        return facts.serial_steps


class NoPlan(Exception):
    """This graph is not of the family that reads it."""


def forward_arguments(facts: TaskFacts) -> str:
    """The arguments of forward; those that the task gives no input for are None. Raises NoPlan for names that Python cannot write."""
    names: list[str] = []
    for position, node in enumerate(node for node in facts.ops if node.op == "placeholder"):
        if not node.target.isidentifier() or keyword.iskeyword(node.target):
            raise NoPlan
        names.append(node.target if position < len(facts.inputs) else f"{node.target}=None")
    return ", ".join(names)
