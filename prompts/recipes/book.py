"""The recipe book: the families of recipes, and which recipes can write a task on a card."""

from __future__ import annotations

from dataclasses import dataclass

from tritonsmith.evaluator.schema import Hardware, OpNode, Task, TaskFacts
from tritonsmith.prompts.recipes.chain.recipes import LINEAR, POINTWISE
from tritonsmith.prompts.recipes.gru.recipes import GRU
from tritonsmith.prompts.recipes.operations import operation_name
from tritonsmith.prompts.recipes.plan import GETITEM, KernelPlan
from tritonsmith.prompts.recipes.recipe import Recipe, RecipeFamily

FAMILIES: tuple[RecipeFamily, ...] = (GRU, LINEAR, POINTWISE)
"""In the order in which they try to read a task."""
BOOK: dict[str, Recipe] = {recipe.name: recipe for family in FAMILIES for recipe in family.recipes}


@dataclass(frozen=True)
class Match:
    """A task's plan and the recipes that can write it on a card, lowest level first."""

    plan: KernelPlan
    recipes: tuple[Recipe, ...]

    def recipe(self, name: str) -> Recipe | None:
        """The recipe of that name, if it fits."""
        return next((recipe for recipe in self.recipes if recipe.name == name), None)


def match(task: Task, facts: TaskFacts, hardware: Hardware) -> Match | None:
    """The recipes that can write this task; None when none can. The first family that can read the task decides."""
    for family in FAMILIES:
        plan = family.read(task, facts)
        if plan is not None:
            fitting = tuple(recipe for recipe in family.recipes if recipe.defaults(plan, hardware, task.precision) is not None)
            return Match(plan, fitting) if fitting else None
    return None


def name_unsupported(facts: TaskFacts) -> str:
    """Names what no recipe can write, in forward's order; empty when every node is of a known kind."""
    if not facts.ops:
        return f"its forward cannot be traced ({facts.trace_error or 'no trace'})"
    names = (_name_unless_known(node) for node in facts.ops)
    return ", ".join(dict.fromkeys(name for name in names if name))


def _name_unless_known(node: OpNode) -> str:
    if node.op in ("placeholder", "output", "get_attr") or node.target in GETITEM or operation_name(node):
        return ""
    if any(node.module_type in family.modules for family in FAMILIES):
        return next((refusal for family in FAMILIES if (refusal := family.refuse(node))), "")
    return f"nn.{node.module_type}" if node.op == "call_module" else node.target.rpartition(".")[2]
