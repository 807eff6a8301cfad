"""What a plan holds in every family, and how a traced forward is read into one."""

from __future__ import annotations

import keyword

from pydantic import Field

from tritonsmith.author.cards.model import CardModel
from tritonsmith.evaluator.schema import OpNode, Record, TaskFacts


class KernelPlan(Record):
    """What every template needs: the signature of `__init__`, the lines that make members, the arguments of forward."""

    card: CardModel
    """The card that it is for."""
    signature: str
    fixed: dict[str, str] = Field(default_factory=dict)
    """Arguments of the constructor that the kernel is made for, as Python writes them; others are refused."""
    members: tuple[str, ...]
    arguments: str
    libdevice: bool = False
    """Whether a kernel calls CUDA's device library."""

    @property
    def calls(self) -> tuple[str, ...]:
        """What stays a PyTorch call, as people write it."""
        return ()

    def take_cut(self, cut: str) -> KernelPlan:
        """The plan with other choices between own kernels and a library's calls; families of one algorithm have none.

        Raises NoPlan where these cannot be written.
        """
        return self

    def name_local(self, name: str) -> str:
        """A name for a variable of forward that none of its arguments has."""
        while name in [argument.partition("=")[0] for argument in self.arguments.split(", ")]:
            name += "_"
        return name

    def shortest_chain(self, facts: TaskFacts) -> int:
        """Dependent steps of the best schedule that the family knows."""
        return facts.serial_steps


class NoPlan(Exception):
    """This graph is not of the family that reads it.

    Args:
        missing: what the family cannot write, each to follow "no recipe for", with its part of forward where one is to blame; none where
            the task is of another family altogether.
    """

    def __init__(self, *missing: tuple[str, OpNode | None]) -> None:
        super().__init__(", ".join(what for what, _ in missing))
        self.missing = missing


class NoSize(NoPlan):
    """The family can write the task at its own size, and not at every one that it declares."""


def forward_arguments(facts: TaskFacts) -> str:
    """The arguments of forward; those that the task gives no input for are None. Raises NoPlan for names that Python cannot write."""
    names: list[str] = []
    for position, node in enumerate(node for node in facts.ops if node.op == "placeholder"):
        if not node.target.isidentifier() or keyword.iskeyword(node.target):
            raise NoPlan((f"the argument {node.target} of forward", node))
        names.append(node.target if position < len(facts.inputs) else f"{node.target}=None")
    return ", ".join(names)


def name_starred(facts: TaskFacts) -> tuple[TaskFacts, str, str]:
    """The facts with a name for each of several arguments `*rest`; forward's arguments, and the line that gives them their names."""
    starred = [node for node in facts.ops if node.op == "placeholder" and node.target.startswith("*")]
    if not starred:
        return facts, forward_arguments(facts), ""
    star = starred[0].target
    ops = tuple(node.model_copy(update={"target": node.name}) if node in starred else node for node in facts.ops)
    plain = facts.model_copy(update={"ops": tuple(node for node in facts.ops if node not in starred)})
    arguments = ", ".join([*filter(None, [forward_arguments(plain)]), star])
    unpacked = ", ".join(node.name for node in starred) + ("," if len(starred) == 1 else "")
    return facts.model_copy(update={"ops": ops}), arguments, f"{unpacked} = {star[1:]}"
