"""The built-in author: writes, repairs, analyses and tunes kernels from the recipe book. Needs no model and no network."""

from __future__ import annotations

import itertools
import math
import re

from tritonsmith.author.analyst import analyze
from tritonsmith.author.backward import add_backward, refuse_backward
from tritonsmith.author.book import BOOK, Match, explain_refusal, list_matches, match, match_recipe
from tritonsmith.author.compiler.plan import RegionPlan
from tritonsmith.author.compiler.reading.choices import SETTING
from tritonsmith.author.plan import NoPlan
from tritonsmith.author.race import list_contests
from tritonsmith.author.recipe import Recipe, Settings
from tritonsmith.evaluator.records.contest import Contest
from tritonsmith.evaluator.schema import Hardware, Stage, Status, Task, TaskFacts
from tritonsmith.prompts.analysis import Analysis
from tritonsmith.prompts.author import Attempt, AuthorError, Brief, Draft
from tritonsmith.prompts.regions import RegionRow, list_kernels

_MAX_VARIANTS = 8
"""Variants of one tuning stage."""
_VARIED = (Stage.TUNE_BLOCK, Stage.TUNE_MEMORY, Stage.TUNE_GRID)
"""Stages whose tunables make the seeds of further rounds."""
_MOST_LOOKS = 24
"""Settings that are written out in search of another seed."""
_SAME_ERROR = 0.1
"""Share by which errors on inputs that are drawn anew may differ, where they have one cause."""
_SHARED = re.compile(r"shared memory, Required: (\d+), Hardware limit: (\d+)")
"""Bytes that a kernel needs and may have, in Triton's message."""


class RecipeAuthor:
    """Author over the built-in recipes; the same brief always gets the same answer."""

    name = "offline"
    computes_analyses = True

    def require(self, task: Task, facts: TaskFacts, hardware: Hardware) -> None:
        """Raises AuthorError for a task that no recipe can write."""
        _match_or_refuse(task, facts, hardware)

    async def seed(self, brief: Brief) -> Draft:
        """A recipe by branch: branch 0 gets the plainest, branch 1 the next level, then the best of each other family that can write the
        task without PyTorch calls, and so on in a circle; a second round has other settings."""
        first = _require_match(brief)
        others = list_matches(brief.task, brief.facts, brief.hardware) if brief.branch >= len(first.recipes) else ()
        ways = [(recipe, first) for recipe in first.recipes]
        ways += [(one.recipes[-1], one) for one in others if one.recipe(first.recipes[0].name) is None and not one.plan.calls]
        recipe, found = ways[brief.branch % len(ways)]
        settings = _default_settings(recipe, found, brief)
        rounds = brief.branch // len(ways)
        if rounds:
            options = _list_different(recipe, settings, rounds + 1, found, brief)
            settings = options[rounds % len(options)]
        return _write_draft(recipe, found, settings, f"{recipe.name} {recipe.describes}", brief)

    async def repair(self, brief: Brief) -> Draft | None:
        """Smaller tiles for what does not fit, more exact products for what is inaccurate, a recipe of the next level for what works
        and may not win by its label. Where other products leave the error as it was, all are exact next. What fails otherwise is
        written by a plainer recipe, then by another family; None at the end."""
        found, attempt = _require_match(brief), brief.current
        recipe = found.recipe(attempt.candidate.recipe) if attempt else None
        if attempt is None or recipe is None or attempt.verdict is None:
            return None
        settings = dict(attempt.candidate.settings)
        status, message = attempt.verdict.status, attempt.verdict.message
        if status is Status.LAUNCH_ERROR:
            numbers = _SHARED.search(message)
            need = f"it needs {numbers[1]} bytes of shared memory of {numbers[2]}" if numbers else "it cannot be launched"
            for changed in _shrink(recipe, settings, found):
                changed = recipe.complete(found.plan, changed, brief.hardware)
                if _is_new(recipe, changed, brief):
                    return _write_draft(recipe, found, changed, f"{need}: {_describe_change(settings, changed)}", brief)
        if status is Status.INACCURATE:
            repeated = _repeats_error(attempt, brief)
            why = "the same error with other products" if repeated else "not accurate enough"
            for exact in _list_sharper(recipe, settings)[-1 if repeated else 0 :][:1]:
                if recipe.fits(found.plan, exact, brief.hardware) and _is_new(recipe, exact, brief):
                    return _write_draft(recipe, found, exact, f"{why}: {_describe_change(settings, exact)}", brief)
        if status is Status.OK:
            for better in found.recipes:
                settings = _default_settings(better, found, brief)
                if better.level > recipe.level and _is_new(better, settings, brief):
                    return _write_draft(better, found, settings, f"{better.name} {better.describes}", brief)
            return None
        return _fall_back(recipe, found, brief)

    def list_contests(self, brief: Brief) -> tuple[Contest, ...]:
        """The regions of the kernel in hand that another way to write them may make faster."""
        return list_contests(brief, _require_match(brief))

    def account(self, brief: Brief) -> tuple[RegionRow, ...]:
        """What each part of the current kernel takes; by its kernels alone where no recipe wrote it."""
        recipe = BOOK.get(brief.current.candidate.recipe) if brief.current else None
        found = match_recipe(recipe.name, brief.task, brief.facts, brief.hardware) if recipe else None
        if recipe is None or found is None:
            return list_kernels(brief.current.verdict if brief.current else None)
        return recipe.account(found.plan, brief)

    async def analyze(self, brief: Brief) -> Analysis:
        """Computed from the verdict's facts and timing, the task's facts and the card."""
        return analyze(brief, _require_match(brief))

    async def optimize(self, brief: Brief) -> Draft | None:
        """The recipe that the analysis names."""
        if brief.analysis is None or not brief.analysis.worth_optimizing:
            return None
        found = _find_match(brief.analysis.kernel_type, str(brief.analysis.settings.get(SETTING, "")), brief)
        recipe = found.recipe(brief.analysis.kernel_type) if found is not None else None
        if recipe is None or found is None:
            return None
        settings = _default_settings(recipe, found, brief) | brief.analysis.settings
        if not _is_new(recipe, settings, brief):
            return None
        return _write_draft(recipe, found, settings, brief.analysis.optimisation_method, brief)

    async def tune(self, brief: Brief) -> tuple[Draft, ...]:
        """Other values of the stage's tunables, all else as in `brief.current`; nothing that the history has seen."""
        found, attempt = _require_match(brief), brief.current
        recipe = found.recipe(attempt.candidate.recipe) if attempt else None
        if attempt is None or recipe is None:
            return ()
        current = dict(attempt.candidate.settings)
        variants = [changed for changed in _list_variants(recipe, current, brief.stage, found, brief) if _is_new(recipe, changed, brief)]
        chosen = variants[:_MAX_VARIANTS]
        return tuple(_write_draft(recipe, found, changed, _describe_change(current, changed), brief) for changed in chosen)


def _find_match(name: str, cut: str, brief: Brief) -> Match | None:
    """The plan and recipes of a recipe's family, the plan with a cut; None where they cannot write the task."""
    found = match_recipe(name, brief.task, brief.facts, brief.hardware) if name in BOOK else None
    try:
        return found.take_cut(cut) if found is not None else None
    except NoPlan:
        return found


def _require_match(brief: Brief) -> Match:
    """The plan and recipes of the current kernel's family, with its cut; of the first that can write the task where it has none."""
    candidate = brief.current.candidate if brief.current else None
    found = _find_match(candidate.recipe, str(candidate.settings.get(SETTING, "")), brief) if candidate is not None else None
    return found if found is not None else _match_or_refuse(brief.task, brief.facts, brief.hardware)


def _list_sharper(recipe: Recipe, settings: Settings) -> list[Settings]:
    """More exact settings step by step, down to exact products for all."""
    made = []
    changed = recipe.sharpen(settings)
    while changed and changed not in made:
        made.append(changed)
        changed = recipe.sharpen(changed)
    return made


def _repeats_error(attempt: Attempt, brief: Brief) -> bool:
    """Whether an earlier text of the same recipe with other settings had the error of this one: then it is not in what was changed."""
    own = attempt.verdict.correctness if attempt.verdict else None
    if own is None:
        return False
    for earlier in reversed(brief.history):
        known = earlier.verdict
        alike = earlier.candidate.recipe == attempt.candidate.recipe and earlier.candidate.settings != attempt.candidate.settings
        if alike and known is not None and known.status is Status.INACCURATE and known.correctness is not None:
            return math.isclose(known.correctness.err_vs_oracle, own.err_vs_oracle, rel_tol=_SAME_ERROR)
    return False


def _fall_back(recipe: Recipe, found: Match, brief: Brief) -> Draft | None:
    """A plainer recipe of the family, the nearest first, then the plainest of another family that can write the task."""
    plainer = [(other, found) for other in reversed(found.recipes) if other.level < recipe.level]
    others = [one for one in list_matches(brief.task, brief.facts, brief.hardware) if one.recipe(recipe.name) is None]
    for other, its in [*plainer, *((one.recipes[0], one) for one in others)]:
        settings = _default_settings(other, its, brief)
        if all(attempt.candidate.recipe != other.name for attempt in brief.history) and _is_new(other, settings, brief):
            return _write_draft(other, its, settings, f"{recipe.name} fails here; {other.name} {other.describes}", brief)
    return None


def _match_or_refuse(task: Task, facts: TaskFacts, hardware: Hardware) -> Match:
    found = match(task, facts, hardware)
    if found is None:
        raise AuthorError(
            f"{task.path}: the built-in author has no recipe for {explain_refusal(task, facts, hardware)}; "
            "docs/recipes.md lists what it can; ask a model instead: --model openai:NAME [--base-url URL]"
        )
    if why_not := refuse_backward(task):
        raise AuthorError(f"{task.path}: the built-in author cannot run the original's operations again for gradients, since {why_not}")
    return found


def _default_settings(recipe: Recipe, found: Match, brief: Brief) -> Settings:
    settings = recipe.defaults(found.plan, brief.hardware, brief.task.precision)
    assert settings is not None, "match() keeps only recipes that have settings"
    cut = found.plan.cut if isinstance(found.plan, RegionPlan) else ""
    return settings | {SETTING: cut} if cut else settings


def _write_draft(recipe: Recipe, found: Match, settings: Settings, rationale: str, brief: Brief) -> Draft:
    if found.plan.calls:
        rationale = f"{rationale}; PyTorch does {', '.join(found.plan.calls)}"
    if brief.task.backward:
        rationale = f"{rationale}; backward runs the original's operations again"
    text = add_backward(recipe.render(found.plan, settings), brief.task, brief.facts)
    return Draft(source=text, rationale=rationale, recipe=recipe.name, settings=settings)


def _list_variants(recipe: Recipe, current: Settings, stage: Stage, found: Match, brief: Brief) -> list[Settings]:
    tunables = recipe.list_tunables(found.plan, stage)
    values = [list(options) for options in tunables.values()]
    made: list[Settings] = []
    for choice in itertools.product(*values) if tunables else ():
        changed = recipe.complete(found.plan, current | dict(zip(tunables, choice, strict=True)), brief.hardware)
        if changed != current and changed not in made and recipe.fits(found.plan, changed, brief.hardware):
            made.append(changed)
    return sorted(made, key=lambda changed: sum(changed[key] != current[key] for key in tunables))


def _list_different(recipe: Recipe, settings: Settings, most: int, found: Match, brief: Brief) -> list[Settings]:
    """These settings and others next to them, up to `most`, each with a text of its own."""
    variants = [one for stage in _VARIED for one in _list_variants(recipe, settings, stage, found, brief)]
    texts: dict[str, Settings] = {}
    for one in [settings, *variants[:_MOST_LOOKS]]:
        texts.setdefault(recipe.render(found.plan, one), one)
        if len(texts) == most:
            break
    return list(texts.values())


def _is_new(recipe: Recipe, settings: Settings, brief: Brief) -> bool:
    seen: list[Attempt] = [*brief.history, *([brief.current] if brief.current else [])]
    return all(attempt.candidate.recipe != recipe.name or attempt.candidate.settings != settings for attempt in seen)


def _shrink(recipe: Recipe, settings: Settings, found: Match) -> list[Settings]:
    """Settings with one value halved (pipeline stages: one less), in the recipe's order."""
    made = []
    for key, least in recipe.shrink.items():
        value = int(settings[key])
        smaller = value - 1 if key == "num_stages" else value // 2
        if smaller >= least and recipe.uses(found.plan, key):
            made.append(settings | {key: smaller})
    return made


def _describe_change(before: Settings, after: Settings) -> str:
    return ", ".join(f"{key} {before.get(key)} -> {value}" for key, value in after.items() if before.get(key) != value)
