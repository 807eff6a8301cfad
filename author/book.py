"""The recipe book: the families of recipes, and which recipes can write a task on a card."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tritonsmith.author.cards.model import model_card
from tritonsmith.author.compiler.ir.stacks import STACKS
from tritonsmith.author.compiler.recipes import REGIONS
from tritonsmith.author.families.chain.product_recipes import PRODUCT
from tritonsmith.author.families.chain.recipes import POINTWISE
from tritonsmith.author.families.convnet.recipes import CONVNET
from tritonsmith.author.families.recurrent.recipes import RECURRENT
from tritonsmith.author.families.recurrent.stack import write_stack
from tritonsmith.author.plan import KernelPlan, NoPlan, NoSize
from tritonsmith.author.recipe import Recipe, RecipeFamily
from tritonsmith.author.writes import find_overwritten, list_given_writes
from tritonsmith.evaluator.schema import Hardware, OpNode, Task, TaskFacts
from tritonsmith.evaluator.tasks.files import at_shape, declared_shapes

STACKS.known[:] = [write_stack]  # regions call these kernels

FAMILIES: tuple[RecipeFamily, ...] = (RECURRENT, CONVNET, PRODUCT, POINTWISE, REGIONS)
"""In the order in which they try to read a task. The first writes it, unless a later one predicts clearly less time than the first does."""
_CLEARLY = 0.9
"""Such a share of the first family's time. Its kernels take more sizes than those of later families."""
_MOST_NAMED = 3
"""Operations that a refusal names; what one model would not do, it need not read to its end."""
_QUOTED_CHARACTERS = 80
BOOK: dict[str, Recipe] = {recipe.name: recipe for family in FAMILIES for recipe in family.recipes}


@dataclass(frozen=True)
class Match:
    """A task's plan and the recipes that can write it on a card, lowest level first."""

    plan: KernelPlan
    recipes: tuple[Recipe, ...]

    def take_cut(self, cut: str) -> Match:
        """The same recipes over the plan of another cut. Raises NoPlan where the plan has none."""
        return self if cut == "" else Match(self.plan.take_cut(cut), self.recipes)

    def recipe(self, name: str) -> Recipe | None:
        """The recipe of that name, if it fits."""
        return next((recipe for recipe in self.recipes if recipe.name == name), None)


def match(task: Task, facts: TaskFacts, hardware: Hardware) -> Match | None:
    """The recipes that can write this task; None when none can."""
    found = next(_try_families(task, facts, hardware), None)
    return found if found is not None and found.recipes else None


def match_recipe(name: str, task: Task, facts: TaskFacts, hardware: Hardware) -> Match | None:
    """What the family of this recipe makes of the task; None where the recipe cannot write it."""
    return next((found for found in _try_families(task, facts, hardware) if found.recipe(name) is not None), None)


def list_matches(task: Task, facts: TaskFacts, hardware: Hardware) -> tuple[Match, ...]:
    """What every family that can write this task makes of it; the first is that of `match`."""
    return tuple(found for found in _try_families(task, facts, hardware) if found.recipes)


def _try_families(task: Task, facts: TaskFacts, hardware: Hardware) -> Iterator[Match]:
    """By family that can read the task: its plan, and its recipes that fit the card.

    A family that predicts its time waits for others, unless the task has several sizes.
    """
    if _find_obstacle(task, facts):
        return
    waiting: list[tuple[float, Match]] = []
    several = bool(declared_shapes(task))
    for family in _list_families(facts):
        try:
            plan = family.read(task, facts, model_card(hardware))
        except NoPlan:
            continue
        if not all(family.covers(plan, at_shape(task, other.sizes), other) for other in facts.other_shapes if other.ops):
            continue
        found = Match(plan, tuple(recipe for recipe in family.recipes if recipe.defaults(plan, hardware, task.precision) is not None))
        seconds = family.predict(plan, hardware, task.precision) if found.recipes and not several else None
        if seconds is None:
            yield found
        else:
            waiting.append((seconds if waiting else _CLEARLY * seconds, found))
    yield from (found for _, found in sorted(waiting, key=lambda one: one[0]))


def explain_refusal(task: Task, facts: TaskFacts, hardware: Hardware) -> str:
    """What of a task no recipe can write, in forward's order, with the lines of the task that ask for it."""
    if obstacle := _find_obstacle(task, facts):
        return f"this forward ({obstacle})"
    found = [_find_reason(family, task, facts, hardware) for family in _list_families(facts)]
    reasons = [reason for reason in found if reason is not None and reason.missing]
    if reasons:  # of the family that can nearly write it
        missing = min(reasons, key=lambda reason: (not isinstance(reason, NoSize), len(reason.missing))).missing
        first = {what: node for what, node in reversed(missing)}
        named = [_quote(task, what, first[what]) for what in dict.fromkeys(what for what, _ in missing)]
        return ", ".join(named[:_MOST_NAMED]) + (f" and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else "")
    if facts.updates:
        return f"a forward that updates buffers in training mode ({', '.join(facts.updates[:_MOST_NAMED])})"
    return f"this task that fits {hardware.name}"


def _find_reason(family: RecipeFamily, task: Task, facts: TaskFacts, hardware: Hardware) -> NoPlan | None:
    """Why a family cannot write a task; without anything missing where the task is of another family altogether."""
    try:
        family.read(task, facts, model_card(hardware))
    except NoPlan as reason:
        return reason
    return None


def _list_families(facts: TaskFacts) -> tuple[RecipeFamily, ...]:
    """The families to try: not all of them give what forward leaves in buffers, or see what it changes in place.

    Only the last one knows modules in another mode than the model's, such as a frozen batch norm.
    """
    if any("training" in node.attributes for node in facts.ops if node.op == "call_module"):
        return FAMILIES[-1:]
    fitting = [family for family in FAMILIES if family.updates or not facts.updates]
    overwrites = find_overwritten(facts.ops) is not None or bool(list_given_writes(facts.ops))
    return tuple(family for family in fitting if not (family.misses_writes and overwrites))


def _find_obstacle(task: Task, facts: TaskFacts) -> str:
    """Why the operators of a task do not say what its forward does; empty where they do."""
    if not facts.ops:
        return facts.trace_error or "it was not traced"
    if facts.value_lines:
        return f"it goes by the values of tensors, {_quote_line(task, facts.value_lines[0])}"
    return f"it has {len(facts.ops) + facts.ops_left_out} operators" if facts.ops_left_out else ""


def _quote(task: Task, what: str, node: OpNode | None) -> str:
    """With the line of the task that asks for it, where that is known."""
    known = node is not None and 0 < node.line <= len(task.source.splitlines())
    return f"{what} ({_quote_line(task, node.line)})" if node is not None and known else what


def _quote_line(task: Task, line: int) -> str:
    text = " ".join(task.source.splitlines()[line - 1].split())
    shown = text if len(text) <= _QUOTED_CHARACTERS else f"{text[: _QUOTED_CHARACTERS - 3]}..."
    return f"line {line}: {shown}"
