"""An author that answers from tables: the whole graph runs in a test or a lesson, without a model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tritonsmith.evaluator.schema import (
    Stage,
)
from tritonsmith.prompts.analysis import Analysis, Category
from tritonsmith.prompts.author import AuthorError, Brief, Draft


@dataclass
class ScriptedAuthor:
    """Answers with kernel texts from tables; with None where the table has no further one (AuthorError for a seed)."""

    seeds: Sequence[str] = ()
    """One text per branch."""
    repairs: Mapping[str, str] = field(default_factory=dict)
    """Failing text to its repair."""
    analyses: Mapping[str, Analysis | Sequence[Analysis]] = field(default_factory=dict)
    """Text to its analysis, or to the analyses of successive requests; missing texts are not worth optimizing."""
    optimized: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Text to the texts of successive optimizations."""
    variants: Mapping[tuple[Stage, str], Sequence[str]] = field(default_factory=dict)
    """Tuning stage and text to its variants."""
    name: str = "scripted"
    briefs: list[tuple[str, Brief]] = field(default_factory=list)
    """Every request with its brief."""

    async def seed(self, brief: Brief) -> Draft:
        """The text of this branch. Raises AuthorError when the table has none."""
        self.briefs.append(("seed", brief))
        if brief.branch >= len(self.seeds):
            raise AuthorError(f"the script has no seed for branch {brief.branch} of {brief.task.name}; add one to `seeds`")
        return Draft(source=self.seeds[brief.branch], rationale=f"seed {brief.branch}")

    async def repair(self, brief: Brief) -> Draft | None:
        """The text that fixes the current one."""
        source = self.repairs.get(self._note("repair", brief))
        return None if source is None else Draft(source=source, rationale="repaired")

    async def analyze(self, brief: Brief) -> Analysis:
        """The analysis of the current text; the last one of several is repeated."""
        source = self._note("analyze", brief)
        found = self.analyses.get(source)
        if isinstance(found, Analysis):
            return found
        if found:
            asked = sum(kind == "analyze" and seen.current is not None and seen.current.source == source for kind, seen in self.briefs)
            return found[min(asked, len(found)) - 1]
        return Analysis(
            bottleneck="none", optimisation_method="none", modification_plan="", category=Category.MEMORY,
            worth_optimizing=False, reason="the script has no analysis of this kernel",
        )  # fmt: skip

    async def optimize(self, brief: Brief) -> Draft | None:
        """The next optimized text of the current one."""
        source = self._note("optimize", brief)
        asked = sum(kind == "optimize" and seen.current is not None and seen.current.source == source for kind, seen in self.briefs)
        texts = self.optimized.get(source, ())
        return Draft(source=texts[asked - 1], rationale="optimized") if asked <= len(texts) else None

    async def tune(self, brief: Brief) -> tuple[Draft, ...]:
        """The variants of the current text for the stage."""
        texts = self.variants.get((brief.stage, self._note(brief.stage.value, brief)), ())
        return tuple(Draft(source=text, rationale=f"{brief.stage.value} variant") for text in texts)

    def _note(self, kind: str, brief: Brief) -> str:
        self.briefs.append((kind, brief))
        return brief.current.source if brief.current else ""
