"""Which of a task's sizes need plans of their own: those that the kernels for another one do not take."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Protocol, TypeVar

from tritonsmith.evaluator.schema import OpNode, SizeValue, Task, TaskFacts
from tritonsmith.evaluator.tasks import at_shape, declared_shapes, list_members
from tritonsmith.prompts.recipes.plan import NoPlan, NoSize
from tritonsmith.prompts.recipes.regions.shapes.numbers import blank

_MOST_PLANS = 8
"""Sizes with plans of their own: each is planned, and its kernels are compiled, by itself."""
_TOLD = 60
"""Characters of a value in a message."""


class SizedPlan(Protocol):
    """A plan for one size, or for any size of the leading axis."""

    def takes(self, facts: TaskFacts) -> bool:
        """Whether its kernels are right at another size."""
        ...

    def resembles(self, facts: TaskFacts) -> bool:
        """Whether nothing that the module is given tells another size from its own."""
        ...


Plan = TypeVar("Plan", bound=SizedPlan)


def read_others(task: Task, facts: TaskFacts, own: Plan, read: Callable[[Task, TaskFacts], Plan]) -> tuple[Plan, ...]:
    """The plans that the declared sizes need besides that for the task's own. Raises NoSize with the size that cannot be had.

    Args:
        task: at its own size.
        facts: with those at other sizes.
        own: the plan for its own size.
        read: gives the plan for another one. Raises NoPlan.
    """
    plans = [own]
    for other in sorted(facts.other_shapes, key=_find_lead, reverse=True):
        if any(plan.takes(other) for plan in plans):
            continue
        if not other.ops or other.ops_left_out:
            raise NoSize((f"the size {_tell(other.sizes)} that SHAPES declares ({other.trace_error or 'its forward is too long'})", None))
        if any(plan.resembles(other) for plan in plans):
            raise NoSize((f"the size {_tell(other.sizes)} that SHAPES declares: nothing that the module is given shows it", None))
        if len(plans) == _MOST_PLANS:
            raise NoSize((f"more than {_MOST_PLANS} sizes that kernels depend on, of those that SHAPES declares", None))
        try:
            plans.append(read(at_shape(task, other.sizes), other))
        except NoPlan as reason:
            missing = reason.missing or (("a plan", None),)
            raise NoSize(*((f"{what} at the size {_tell(other.sizes)} that SHAPES declares", node) for what, node in missing)) from None
    _require_spans(task, facts, plans)
    return tuple(plans[1:])


def varies_in_front(facts: TaskFacts) -> bool:
    """Whether the declared sizes have inputs that differ in their leading axis."""
    return len({_find_lead(one) for one in (facts, *facts.other_shapes) if one.inputs}) > 1


def resemble(facts: Iterable[OpNode], others: Iterable[OpNode]) -> bool:
    """Whether two forwards make the same calls, with other numbers."""
    return [_write_call(node) for node in facts] == [_write_call(node) for node in others]


def _write_call(node: OpNode) -> tuple[str, ...]:
    return node.name, node.op, node.target, node.module_type, blank(repr((node.args, node.kwargs)))


def _require_spans(task: Task, facts: TaskFacts, plans: list[Plan]) -> None:
    """Raises NoSize for a span of many sizes, unless one plan takes both ends of it, and with them what lies between."""
    known = [(one.sizes, one) for one in facts.other_shapes]
    for shape in declared_shapes(task) if known else ():
        members, ends = list_members(shape)
        if not ends:
            continue
        groups: dict[str, list[TaskFacts]] = {}
        for sizes in members:
            rest = repr({name: value for name, value in sizes.items() if name not in ends})
            groups.setdefault(rest, []).extend(one for other, one in known if other == sizes)
        for group in groups.values():
            if not any(all(plan.takes(one) for one in group) for plan in plans):
                spans = {name: shape[name] for name in ends}
                raise NoSize((f"every size from the first to the second of {_tell(spans)} that SHAPES declares, on which kernels depend; "
                              "list sizes one by one", None))  # fmt: skip


def _find_lead(facts: TaskFacts) -> int:
    """The size of the leading axis."""
    first = next((spec for spec in facts.inputs if spec is not None and spec.shape), None)
    return first.shape[0] if first is not None else 0


def _tell(sizes: Mapping[str, SizeValue | tuple[int, int]]) -> str:
    return ", ".join(f"{name} = {value!r}"[:_TOLD] for name, value in sizes.items())
