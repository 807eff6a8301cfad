"""The measured cut: which parts of a kernel to race, and how the forward is cut by what each way takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tritonsmith.author.book import Match, match_recipe
from tritonsmith.author.compiler.contests import Part, list_parts
from tritonsmith.author.compiler.costs import predict_work
from tritonsmith.author.compiler.plan import RegionPlan
from tritonsmith.author.compiler.reading.choices import CALLS, SETTING, Choice, read_cut, write_cut
from tritonsmith.author.compiler.recipes import PLAIN_RECIPE
from tritonsmith.author.cost import time_bytes
from tritonsmith.author.measured import Measured
from tritonsmith.author.plan import NoPlan
from tritonsmith.evaluator.records.contest import Contest, ContestTimes
from tritonsmith.prompts.analysis import Analysis, Category, Complexity, Promise
from tritonsmith.prompts.author import Brief

_CLEAR = 0.97
"""Share of its time that another way must take less than."""
_LEAST_US = 1.0
"""Microseconds that another way must save."""
_TURNING = 0.5
"""Share of a card's bandwidth that a change of the order of axes reaches."""
_KEPT = 0.5
"""Share of the promised gain that must come true."""
_IMAGE_AXES = 4
_MOST_TOLD = 3
"""Parts that an analysis names."""
_WORDS = {Choice.OWN: "own kernel", Choice.LIBRARY: "library", Choice.CHANNELS_LAST: "library with channels last",
          Choice.OWN_LAST: "own kernel with channels last", Choice.APART: "own kernel without the other product"}  # fmt: skip


def list_contests(brief: Brief, match: Match) -> tuple[Contest, ...]:
    """The contests that are worth a race for the kernel in hand, the most important ones first."""
    found: dict[str, Contest] = {}
    for part in _list_parts(brief, match):
        for contest in (part.contest, part.chained):
            if contest is not None:
                found.setdefault(contest.key, contest)
    return tuple(found.values())


@dataclass(frozen=True)
class Cut:
    """Another cut, and what it should save."""

    choices: Mapping[str, Choice]
    gain_us: float
    words: str
    """What changes, and by which times."""


def propose_cut(brief: Brief, match: Match, found: Measured, evidence: Mapping[str, float | int | str]) -> Analysis | None:
    """The analysis that proposes the fastest cut by the race in the brief; None where no cut that is new is clearly faster.

    Args:
        brief: with the answers of the race.
        match: of the kernel in hand.
        found: what it takes.
        evidence: what the analysis rests on besides.
    """
    plan = _find_plan(brief, match)
    if brief.raced is None or plan is None:
        return None
    parts = _list_parts(brief, match)
    tried = {str(attempt.candidate.settings.get(SETTING, "")) for attempt in (*brief.history, *([brief.current] if brief.current else []))}
    race = _Race(plan, parts, brief.raced.times)
    cuts = [race.choose_each(), race.choose_chain()]
    for cut in sorted((cut for cut in cuts if cut is not None), key=lambda cut: -cut.gain_us):
        setting = write_cut({**read_cut(plan.cut), **cut.choices})
        if setting in tried or cut.gain_us <= 0 or not _can_write(plan, setting, brief):
            continue
        own = plan is match.plan
        left = max(found.median_ms - cut.gain_us * 1e-3, found.floor_ms) if own else _sum_plan(race, cut, brief)
        return _write_analysis(brief, found, setting, cut, found.median_ms / left, evidence)
    return None


def tell_races(brief: Brief, match: Match) -> str:
    """What the race came to where it changes nothing, as the end of a sentence; empty where nothing was asked."""
    if brief.raced is None or brief.raced.note:
        return brief.raced.note if brief.raced else ""
    keys = {part.contest.key for part in _list_parts(brief, match)}
    raced = sum(bool(brief.raced.times[key].times) for key in keys if key in brief.raced.times)
    kinds = f"{raced} {'kind of region was' if raced == 1 else 'kinds of regions were'}"
    return f"{kinds} raced against the library, and no other way to write one is clearly faster" if raced else ""


def _find_plan(brief: Brief, match: Match) -> RegionPlan | None:
    if isinstance(match.plan, RegionPlan):
        return match.plan
    found = match_recipe(PLAIN_RECIPE.name, brief.task, brief.facts, brief.hardware)
    return found.plan if found is not None and isinstance(found.plan, RegionPlan) else None


def _list_parts(brief: Brief, match: Match) -> list[Part]:
    plan = _find_plan(brief, match)
    if plan is None:
        return []
    verdict = brief.current.verdict if brief.current and plan is match.plan else None
    return list_parts(plan, brief.hardware, verdict)


@dataclass(frozen=True)
class _Change:
    """Another way to write a part."""

    part: Part
    choice: Choice
    before_us: float
    after_us: float
    among: bool = False
    """Whether it is so fast only among others with channels last."""

    @property
    def gain_us(self) -> float:
        return self.before_us - self.after_us

    @property
    def words(self) -> str:
        way = f"{_WORDS[self.choice]}{' throughout' if self.among else ''}"
        before, after = f"{_WORDS[self.part.now]} {self.before_us:.3g} us", f"{way} {self.after_us:.3g} us"
        return f"region {self.part.number} ({self.part.what}): {before}, {after}"


@dataclass(frozen=True)
class _Race:
    """The parts of a plan with what each way takes; microseconds."""

    plan: RegionPlan
    parts: Sequence[Part]
    times: Mapping[str, ContestTimes]

    @property
    def now_us(self) -> float:
        """All parts as they are."""
        chained = sum(part.now is Choice.CHANNELS_LAST for part in self.parts) > 1
        return sum(self.find_now(part) for part in self.parts) + (self._turn_us() if chained else 0.0)

    def find_now(self, part: Part) -> float:
        """A part as it is: as raced, or else as measured in the whole module."""
        find = {Choice.CHANNELS_LAST: self._find_chained, Choice.OWN_LAST: self._find_own_last}.get(part.now)
        chained = find(part) if find is not None else None
        found = self.times.get(part.contest.key, ContestTimes()).find(part.now.value)
        raced = found.us if found is not None else None
        return chained if chained is not None else raced if raced is not None else part.ms * 1e3

    def _find_chained(self, part: Part) -> float | None:
        """A convolution among others with channels last; None where that was not raced."""
        answer = self.times.get(part.chained.key, ContestTimes()) if part.chained else ContestTimes()
        found = answer.find(Choice.CHANNELS_LAST.value)
        return found.us if found is not None else None

    def _find_own_last(self, part: Part) -> float | None:
        """A convolution's own kernel among others with channels last, or else by itself; None where that was not raced."""
        contests = [one for one in (part.chained, part.contest) if one is not None]
        found = [self.times.get(one.key, ContestTimes()).find(Choice.OWN_LAST.value) for one in contests]
        return next((one.us for one in found if one is not None and one.us is not None), None)

    def _turn_us(self) -> float:
        """Images that forward is given and gives, in another order."""
        ends = [one for one in (*self.plan.forward.inputs, *self.plan.forward.stored) if len(one.shape) == _IMAGE_AXES]
        return sum(time_bytes(self.plan.card, 2.0 * one.bytes / _TURNING) for one in ends) * 1e6

    def _change(self, part: Part) -> _Change | None:
        """The fastest other way of a part by itself, where it is clearly faster."""
        answer = self.times.get(part.contest.key, ContestTimes())
        known = {one.name: one.us for one in answer.times if one.us is not None}
        if not known:
            return None
        before, best = self.find_now(part), min(known, key=lambda name: known[name])
        if best == part.now.value or known[best] > min(_CLEAR * before, before - _LEAST_US):
            return None
        return _Change(part, Choice(best), before, known[best])

    def choose_each(self) -> Cut | None:
        """The fastest way of each part by itself."""
        return self._join([change for part in self.parts if (change := self._change(part)) is not None])

    def choose_chain(self) -> Cut | None:
        """All convolutions with channels last, so that images change their order at the ends of the forward only.

        What else is faster another way is written so.
        """
        changes: list[_Change] = []
        convolutions = 0
        for part in self.parts:
            chained = self._find_chained(part)
            convolutions += chained is not None
            if chained is None:
                changes += [change] if (change := self._change(part)) is not None else []
            elif (own := self._find_own_last(part)) is not None and own < chained:
                if part.now is not Choice.OWN_LAST:
                    changes.append(_Change(part, Choice.OWN_LAST, self.find_now(part), own, among=True))
            elif part.now is not Choice.CHANNELS_LAST:
                changes.append(_Change(part, Choice.CHANNELS_LAST, self.find_now(part), chained, among=True))
        return self._join(changes) if convolutions > 1 else None

    def _join(self, changes: Sequence[_Change]) -> Cut | None:
        if not changes:
            return None
        ordered = sorted(changes, key=lambda change: -change.gain_us)
        more = len(ordered) - _MOST_TOLD
        words = "; ".join(change.words for change in ordered[:_MOST_TOLD]) + (f"; and {more} more" if more > 0 else "")
        choices = {node: choice for change in ordered for node, choice in change.part.choose(change.choice).items()}
        last = [choices.get(part.nodes[0], part.now) is Choice.CHANNELS_LAST for part in self.parts]
        after = sum(self.find_now(part) for part in self.parts) - sum(change.gain_us for change in ordered)
        return Cut(choices, self.now_us - after - (self._turn_us() if sum(last) > 1 else 0.0), words)


def _can_write(plan: RegionPlan, setting: str, brief: Brief) -> bool:
    """Whether a module of this cut can be written, and has a kernel."""
    try:
        other = plan.take_cut(setting)
        return bool(other.kernels) and PLAIN_RECIPE.defaults(other, brief.hardware, brief.task.precision) is not None
    except NoPlan:
        return False


def _sum_plan(race: _Race, cut: Cut, brief: Brief) -> float:
    """Milliseconds of a plan that no kernel in hand is of: its regions by the race, as far as they were in it."""
    others = predict_work(race.plan, brief.task.precision) * 1e3 - sum(part.ms for part in race.parts)
    return max(others + (race.now_us - cut.gain_us) * 1e-3, 1e-6)


def _write_analysis(
    brief: Brief, found: Measured, setting: str, cut: Cut, expected: float, evidence: Mapping[str, float | int | str]
) -> Analysis:
    score = brief.current.verdict.score if brief.current and brief.current.verdict else None
    bound = round(score * (1 + _KEPT * (expected - 1)), 4) if score else 0.0
    left = any(choice in CALLS for choice in cut.choices.values())
    seconds = brief.raced.seconds if brief.raced else 0.0
    gain = cut.gain_us * 1e-3
    return Analysis(
        bottleneck=f"{gain:.3g} of {found.median_ms:.3g} ms can be saved by other ways to write regions: {cut.words}",
        optimisation_method=f"{'leave to the library what it does faster' if left else 'own kernels'}: {cut.words}",
        modification_plan="Each named region is written in the way that was fastest in the race. All others stay as they are.",
        category=Category.ALGORITHM,
        expected_speedup=round(expected, 2),
        worth_optimizing=True,
        reason=f"{expected:.2f}x expected by the race of regions",
        implementation_complexity=Complexity.MEDIUM,
        kernel_type=PLAIN_RECIPE.name,
        fallback_strategy="keep the current kernel",
        returns=brief.facts.returns,
        promise=Promise(metric="score", before=score, bound=bound, at_most=False) if score else None,
        evidence={**evidence, "raced_gain_ms": round(gain, 4), "race_seconds": round(seconds, 1)},
        settings={SETTING: setting},
    )
