"""The search space of a candidate: a recipe's tunables where a recipe wrote it, what its text offers otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from tritonsmith.author.backward import add_backward
from tritonsmith.author.book import Match, match_recipe
from tritonsmith.author.recipe import Recipe, Settings
from tritonsmith.evaluator.schema import Stage, TaskFacts
from tritonsmith.evaluator.texts.spaces.read import read_space
from tritonsmith.evaluator.texts.spaces.space import Parameter, TextSpace, Value, Values
from tritonsmith.prompts.author import Brief

_EXTRAS = ("maxnreg", "hint_", "num_stages", "loop_stages")
"""How parameters of a text begin that are read from it, where the recipe has no setting of that name."""


class TuningSpace(Protocol):
    """What can be tuned in a candidate."""

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """What can be varied."""
        ...

    @property
    def starts(self) -> tuple[Values, ...]:
        """Configurations to try first."""
        ...

    @property
    def unread(self) -> tuple[str, ...]:
        """Sentences about what was stated and could not be used."""
        ...

    def of_stages(self, stages: tuple[Stage, ...]) -> tuple[Parameter, ...]:
        """The parameters that these stages vary."""
        ...

    def write(self, values: Mapping[str, Value]) -> str | None:
        """The text with these values as plain constants; None where they do not go together."""
        ...


class RecipeSpace:
    """A recipe's tunables, and what the text that it writes offers beyond them.

    Args:
        recipe: who writes the text.
        found: the task's plan and recipes.
        settings: those of the candidate; values of the text's own parameters stand among them.
        brief: the card.
    """

    starts: tuple[Values, ...] = ()

    def __init__(self, recipe: Recipe, found: Match, settings: Settings, brief: Brief) -> None:
        self._recipe = recipe
        self.recipe_name = recipe.name
        self._found = found
        self._settings = settings
        self._brief = brief
        text = read_space(recipe.render(found.plan, settings), dimensions_of(brief.facts))
        self.unread = text.unread
        own = [
            Parameter(name, stage, tuple(dict.fromkeys([*values, settings[name]])), settings[name], f"recipe {recipe.name}")
            for stage in recipe.tunables
            for name, values in recipe.list_tunables(found.plan, stage).items()
        ]
        for stage, names in recipe.own_tunables(found.plan).items():
            for name, of_all in names.items():
                current = settings.get(name, settings[of_all])
                values = tuple(dict.fromkeys([*recipe.tunables[stage][of_all], current]))
                own.append(Parameter(name, stage, values, current, f"recipe {recipe.name}"))
        set_by_recipe = tuple(recipe.defaults(found.plan, brief.hardware, brief.task.precision) or ())
        more = [part for part in text.parameters if part.name.startswith(_EXTRAS) and not part.name.startswith(set_by_recipe)]
        self._extras = {part.name for part in more}
        extra = [Parameter(part.name, part.stage, part.values, settings.get(part.name, part.current), part.origin) for part in more]
        self.parameters = tuple([*own, *extra])

    def of_stages(self, stages: tuple[Stage, ...]) -> tuple[Parameter, ...]:
        """The parameters that these stages vary."""
        return tuple(parameter for parameter in self.parameters if parameter.stage in stages and len(parameter.values) > 1)

    def settings_for(self, values: Mapping[str, Value]) -> Settings | None:
        """The settings of a configuration, those that follow from others included; None where the recipe says that they do not fit."""
        chosen = {name: value for name, value in values.items() if value is not None}
        left_out = {name for name, value in values.items() if value is None}
        settings = {name: value for name, value in (self._settings | chosen).items() if name not in left_out}
        settings = self._recipe.complete(self._found.plan, settings, self._brief.hardware)
        return settings if self._recipe.fits(self._found.plan, settings, self._brief.hardware) else None

    def write(self, values: Mapping[str, Value]) -> str | None:
        """The text of a configuration; None where the recipe says that it does not fit."""
        settings = self.settings_for(values)
        if settings is None:
            return None
        text = self._recipe.render(self._found.plan, settings)
        extra = {name: value for name, value in settings.items() if name in self._extras}
        whole = read_space(text).write(extra) if extra else text
        return whole and add_backward(whole, self._brief.task, self._brief.facts)


def space_of(brief: Brief) -> TuningSpace:
    """The space of the brief's current candidate; without parameters where nothing can be varied."""
    attempt = brief.current
    if attempt is None:
        return TextSpace("")
    candidate = attempt.candidate
    if candidate.recipe:
        found = match_recipe(candidate.recipe, brief.task, brief.facts, brief.hardware)
        recipe = found.recipe(candidate.recipe) if found else None
        if found is not None and recipe is not None:
            return RecipeSpace(recipe, found, dict(candidate.settings), brief)
    return read_space(attempt.source, dimensions_of(brief.facts))


def dimensions_of(facts: TaskFacts) -> frozenset[int]:
    """Sizes of the task's tensors."""
    tensors = [*(spec for spec in facts.inputs if spec), *facts.outputs, *facts.parameters.values()]
    return frozenset(size for spec in tensors for size in spec.shape)
