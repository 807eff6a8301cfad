"""Which of a task's sizes need plans of their own: those that the kernels for another one do not take."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from tritonsmith.author.compiler.module.record import ModuleText
from tritonsmith.author.plan import NoPlan, NoSize
from tritonsmith.evaluator.schema import OpNode, SizeValue, Task, TaskFacts
from tritonsmith.evaluator.tasks.declared import list_members
from tritonsmith.evaluator.tasks.files import at_shape, declared_shapes

_MOST_PLANS = 24
"""Sizes with plans of their own: each is read and written by itself, which takes seconds for a large network."""
_MOST_ELEMENTS = 2**30
"""Of a tensor at the end of a span: larger ones may need indices of 64 bits, which their kernels would show and others would not."""
_MOST_KINDS = 8
"""Forwards of a module, each for sizes that kernels are alike for: more would be no text that a person reads."""
_LEAST_WITHIN = 3
"""Plans from which the rule for a long span is read."""
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


@dataclass(frozen=True)
class LongSpan:
    """Sizes too many to be planned one by one, with plans for a few of them."""

    says: str
    low: TaskFacts
    high: TaskFacts
    within: tuple[int, ...]
    """The plans, by their number, for odd sizes within: if their texts follow one rule, that holds for the whole span."""


def read_others(
    task: Task, facts: TaskFacts, own: Plan, read: Callable[[Task, TaskFacts], Plan]
) -> tuple[tuple[Plan, ...], tuple[LongSpan, ...]]:
    """The plans that the declared sizes need, the task's own first, and long spans. Raises NoSize with the size that cannot be had.

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
    return tuple(plans), tuple(_list_spans(task, facts, plans))


def varies_in_front(task: Task, facts: TaskFacts) -> bool:
    """Whether declared sizes have inputs that differ in their leading axis, or are so many that kernels should take any size of it."""
    long = any(list_members(shape)[1] for shape in declared_shapes(task))
    return not facts.other_shapes or long or len({_find_lead(one) for one in (facts, *facts.other_shapes) if one.inputs}) > 1


def resemble(facts: Iterable[OpNode], others: Iterable[OpNode]) -> bool:
    """Whether two forwards make the same calls, with other numbers."""
    return [_describe_call(node) for node in facts] == [_describe_call(node) for node in others]


def _describe_call(node: OpNode) -> tuple[object, ...]:
    return node.name, node.op, node.target, node.module_type, _blank(node.args), _blank(node.kwargs)


def _blank(value: object) -> object:
    """A value without its numbers, but for their signs."""
    match value:
        case bool():
            return value
        case int() | float() if math.isfinite(value):
            return "#" if value >= 0 else "-#"
        case list() | tuple():
            return tuple(map(_blank, value))
        case dict():
            return tuple((key, _blank(held)) for key, held in value.items())
        case _:
            return repr(value)


def _list_spans(task: Task, facts: TaskFacts, plans: list[Plan]) -> Iterator[LongSpan]:
    """The long spans, but for those of which one plan takes both ends, and with them what lies between. Raises NoSize."""
    known = [(one.sizes, one) for one in facts.other_shapes]
    for shape in declared_shapes(task) if known else ():
        members, names = list_members(shape)
        groups: dict[str, list[TaskFacts]] = {}
        for sizes in members if names else ():
            rest = repr({name: value for name, value in sizes.items() if name not in names})
            groups.setdefault(rest, []).extend(one for other, one in known if other == sizes)
        for group in groups.values():
            if not any(all(plan.takes(one) for one in group) for plan in plans):
                low, high, *between = group
                takers = [next(number for number, plan in enumerate(plans) if plan.takes(one)) for one in between]
                says = _tell({name: shape[name] for name in names})
                if len(set(takers)) < _LEAST_WITHIN or _count_elements(high) > _MOST_ELEMENTS:
                    raise NoSize((_explain_span(says), None))
                yield LongSpan(says, low, high, tuple(dict.fromkeys(takers)))


def _count_elements(facts: TaskFacts) -> int:
    """Of the largest tensor."""
    return max((math.prod(spec.shape) for node in facts.ops for spec in node.outputs), default=0)


def require_whole(text: ModuleText, spans: Sequence[LongSpan]) -> None:
    """Raises NoSize for a text that does not take every declared size, or has too many forwards."""
    if text.missed:
        raise NoSize(*((_explain_span(spans[place].says), None) for place in text.missed))
    if len(text.sized) > _MOST_KINDS:
        raise NoSize((f"sizes that SHAPES declares, for which {len(text.sized)} different forwards are needed", None))


def _explain_span(says: str) -> str:
    """Why a long span cannot be had."""
    return f"every size of {says} that SHAPES declares, between which kernels differ; shorter spans or single sizes may do"


def _find_lead(facts: TaskFacts) -> int:
    """The size of the leading axis."""
    first = next((spec for spec in facts.inputs if spec is not None and spec.shape), None)
    return first.shape[0] if first is not None else 0


def _tell(sizes: Mapping[str, SizeValue | tuple[int, int]]) -> str:
    return ", ".join(f"{name} = {value!r}"[:_TOLD] for name, value in sizes.items())
