"""One tuning search: proposals become texts, texts are compiled and raced against the best kernel, and the few best become drafts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from tritonsmith.author.space import RecipeSpace, TuningSpace
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.protocol import GAIN, Fate, RaceFigures, RaceReport, RaceRow
from tritonsmith.evaluator.schema import Stage, TimingKind, Verdict
from tritonsmith.evaluator.texts.spaces.linked import LinkedWarps, link_warps
from tritonsmith.evaluator.texts.spaces.space import Parameter, Values
from tritonsmith.graph.searches import Search, SearchTrial
from tritonsmith.graph.storage.outcome import count_words
from tritonsmith.nodes.search.propose import Proposer
from tritonsmith.prompts.author import Draft

FINALISTS = 3
"""Configurations of one search that get full verdicts."""
_LITTLE = 1.02
"""Ratio up to which a second and third verdict cost more than they may find: on a cumsum of 4 GB each took 16 s, for 0.7 % (H200,
2026-11-27; benchmarks/results/raw/tuning_2026-11-27_again_records.jsonl)."""
_BATCH = 8
"""Configurations that are proposed, compiled and raced together."""
_BATCH_OF_WHOLE = 16
"""The same of a space that is tried whole: there no proposal waits for what came of others, and a slow compilation holds up fewer."""
_WITHOUT_CARD = 12
"""Configurations of one search where estimates rank: these tell few of them apart."""
_UNRACED = 8
"""Configurations that get full verdicts where nobody can race them."""

_PATIENCE = 24
"""Raced configurations in a row that bring nothing after which a search ends."""
_BLIND = "without a card nothing tells compiler options and cache hints apart"
"""Why a search has no parameters although the text does."""

Race = Callable[[Sequence[KernelText], float], Awaitable[RaceReport | str | None]]
"""Races texts for so many seconds at the most. A sentence where it failed, None where nobody can race."""
Foresee = Callable[[str], str]
"""Why a text cannot be better, as a sentence; empty where it may."""
Tell = Callable[[Search], None]
"""Hears of the search after every batch."""


@dataclass(frozen=True)
class Limits:
    """What one search may use."""

    configurations: int
    seconds: float | None = None
    stop: Callable[[], str | None] = lambda: None
    """Why the run has to stop now; None while it may go on."""


@dataclass
class _Entry:
    """A configuration on its way."""

    values: Values
    text: KernelText | None
    trial: SearchTrial


@dataclass
class TuningSearch:
    """A search around one kernel.

    Args:
        stage: the stage that it belongs to.
        stages: the stages whose parameters are varied.
        base: id of the kernel.
        source: its text.
        space: what can be varied.
        measured: whether races are measured.
    """

    stage: Stage
    stages: tuple[Stage, ...]
    base: str
    source: KernelText
    space: TuningSpace
    measured: bool
    race: Race
    foresee: Foresee
    tell: Tell = lambda search: None
    blind: Callable[[Parameter], bool] = lambda parameter: False
    """Whether nothing here can tell a parameter's values apart."""
    registers: int | None = None
    """Registers per thread of the kernel that has most of them; None where that is not known."""
    _entries: list[_Entry] = field(default_factory=list)
    _seconds: float = 0.0
    _raced: bool = True
    """Whether somebody can race."""

    async def run(self, limits: Limits) -> tuple[list[Draft], Search]:
        """The drafts that are to be judged in full, best first, and the record; its trials name no candidates yet."""
        varied = self.space.of_stages(self.stages)
        parameters = tuple(parameter for parameter in varied if not self.blind(parameter))
        most = limits.configurations if self.measured else min(limits.configurations, _WITHOUT_CARD)
        tuned = any(parameter.needed for parameter in self.space.parameters)
        linked = link_warps(self.space.parameters, parameters, self.registers) if self.measured else LinkedWarps()
        seed = f"{self.source.sha} {self.stages}"
        proposer = Proposer(parameters, most, self.space.starts, seed, present=tuned, linked=linked)
        ended = "" if parameters else _BLIND if varied else "the text has nothing that this stage varies"
        while not ended:
            left = most - len(self._entries)
            batch = proposer.ask(min(_BATCH_OF_WHOLE if proposer.whole else _BATCH, left)) if left > 0 else []
            ended = self._why_over(limits, left, bool(batch))
            if not ended:
                ended = await self._try(batch, proposer, limits)
                self.tell(self._record(parameters, proposer, ended))
        chosen = self._choose()
        return [self._draft(entry) for entry in chosen], self._record(parameters, proposer, ended)

    def _why_over(self, limits: Limits, left: int, proposed: bool) -> str:
        if reason := limits.stop():
            return reason
        if left <= 0:
            return f"{count_words(len(self._entries), 'configuration')} tried, which is this search's part of the budget"
        if not proposed:
            return "every configuration is tried"
        if limits.seconds is not None and self._seconds >= limits.seconds:
            return f"{self._seconds:.0f} s are spent, this search's part of the budget"
        if (rest := self._count_in_vain()) >= _PATIENCE:
            return f"the last {count_words(rest, 'configuration')} raced brought no more than {GAIN - 1.0:.1%}"
        if not self._raced and self._count_open() >= _UNRACED:
            return "nobody can race here, so the first configurations get full verdicts"
        return ""

    def _count_open(self) -> int:
        return sum(entry.trial.fate == Fate.UNTIMED for entry in self._entries)

    def _count_in_vain(self) -> int:
        """Raced configurations since the best ratio last rose."""
        best, since = 1.0, 0
        for ratio in (entry.trial.ratio for entry in self._entries if self.measured and entry.trial.ratio is not None):
            best, since = (ratio, 0) if ratio > GAIN * best else (best, since + 1)
        return since

    async def _try(self, batch: Sequence[Values], proposer: Proposer, limits: Limits) -> str:
        """Write, compile and race a batch; why the search ends, or nothing."""
        entries = [self._write(values) for values in batch]
        open_ones = [entry for entry in entries if entry.text is not None and not entry.trial.fate]
        failure = ""
        rows: dict[str, RaceRow] = {}
        if open_ones and self._raced:
            seconds = float("inf") if limits.seconds is None else max(1.0, limits.seconds - self._seconds)
            report = await self.race([entry.text for entry in open_ones if entry.text], min(seconds, 1e6))
            if isinstance(report, RaceReport):
                self._seconds += report.seconds
                rows = {row.sha: row for row in report.rows}
                failure = report.note
            else:
                self._raced = False
                failure = report or ""
        for entry in entries:
            self._settle(entry, rows.get(entry.trial.sha))
            proposer.tell(entry.values, entry.trial.ratio)
        self._entries += entries
        return failure

    def _write(self, values: Values) -> _Entry:
        """The configuration's text; one that does not fit, repeats a text or cannot be better is settled at once."""
        differs = {name: value for name, value in values.items() if value != self._current[name]}
        trial = SearchTrial(values=differs)
        text = self.space.write(values)
        if text is None:
            reason = "these values do not go together" if isinstance(self.space, RecipeSpace) else "the text cannot be written"
            return _Entry(values, None, trial.model_copy(update={"fate": Fate.PRUNED.value, "reason": reason}))
        kernel = KernelText.of(text)
        trial = trial.model_copy(update={"sha": kernel.sha})
        if kernel.sha == self.source.sha or any(entry.trial.sha == kernel.sha for entry in self._entries):
            return _Entry(values, None, trial.model_copy(update={"fate": Fate.PRUNED.value, "reason": "it gives the same text"}))
        if reason := self.foresee(text):
            return _Entry(values, None, trial.model_copy(update={"fate": "foreseen", "reason": reason}))
        return _Entry(values, kernel, trial)

    @property
    def _current(self) -> Values:
        return {parameter.name: parameter.current for parameter in self.space.parameters}

    def _settle(self, entry: _Entry, row: RaceRow | None) -> None:
        if entry.trial.fate:
            return
        found = {} if row is None else {name: getattr(row, name) for name in RaceFigures.model_fields}
        fate = Fate.UNTIMED if row is None else row.fate
        entry.trial = entry.trial.model_copy(update={**found, "fate": fate.value})

    def _choose(self) -> list[_Entry]:
        """The entries for full verdicts: faster in their race, or by estimate; the first ones where nobody raced.

        An entry whose race shows it clearly behind the best one is none: a full verdict costs as much as a race of several. So only the
        best one is judged where it gains little.
        """
        kept = [entry for entry in self._entries if entry.trial.fate == Fate.KEPT.value]
        faster = sorted(filter(self._may_gain, kept), key=lambda entry: -round(entry.trial.ratio or 0.0, 9))
        if faster:
            least, _ = faster[0].trial.interval or (0.0, 0.0)
            if self.measured and (faster[0].trial.ratio or 0.0) < _LITTLE:
                return faster[:1]
            return [entry for entry in faster if _highest(entry.trial) >= least][:FINALISTS]
        needed = any(parameter.needed for parameter in self.space.parameters)
        if needed and (timed := [entry for entry in self._entries if entry.trial.ratio is not None]):
            return [max(timed, key=lambda entry: entry.trial.ratio or 0.0)]  # plain constants in place of an autotuner
        if kept or any(entry.trial.fate == Fate.ALIKE.value for entry in self._entries):
            return []
        return [entry for entry in self._entries if entry.trial.fate == Fate.UNTIMED.value][:_UNRACED]

    def _may_gain(self, entry: _Entry) -> bool:
        """Whether a full verdict may show that it is faster; an estimate has said so already."""
        return not self.measured or ((entry.trial.ratio or 0.0) > 1.0 and _highest(entry.trial) >= GAIN)

    def _draft(self, entry: _Entry) -> Draft:
        assert entry.text is not None
        trial = entry.trial
        changes = ", ".join(f"{name} {self._current[name]} -> {value}" for name, value in trial.values.items())
        words = changes or "plain constants in place of the autotuner"
        if trial.ratio is not None:
            how = f"in a race of {count_words(trial.pairs, 'pair')}" if trial.pairs else "by a light estimate"
            words += f" ({trial.ratio:.3f}x {self.base} {how})"
        if isinstance(self.space, RecipeSpace):
            settings = self.space.settings_for(entry.values) or {}
            return Draft(source=entry.text.text, rationale=words, recipe=self.space.recipe_name, settings=settings)
        tuned = any(parameter.needed for parameter in self.space.parameters)
        return Draft(source=entry.text.text, rationale=words, replaces=self.base if tuned else None)

    def _record(self, parameters: Sequence[Parameter], proposer: Proposer, ended: str) -> Search:
        raced = any(entry.trial.ratio is not None for entry in self._entries)
        kind = (TimingKind.MEASURED if self.measured else TimingKind.ESTIMATED) if raced else None
        return Search(
            stage=self.stage.value, joint=len(self.stages) > 1, base=self.base, kind=kind, size=proposer.size,
            space={parameter.name: list(parameter.values) for parameter in parameters}, linked=proposer.linked_names,
            origins={parameter.name: parameter.origin for parameter in parameters},
            proposed_by="all" if proposer.whole else "optuna", trials=tuple(entry.trial for entry in self._entries),
            seconds=round(self._seconds, 3), ended=ended, unread=tuple(self.space.unread),
        )  # fmt: skip


def count_registers(verdict: Verdict) -> int | None:
    """Registers per thread of the kernel that has most of them; None where its verdict does not say."""
    return max((kernel.registers for kernel in verdict.facts.kernels if kernel.registers), default=None)


def _highest(trial: SearchTrial) -> float:
    """The highest ratio that the race leaves possible."""
    return trial.interval[1] if trial.interval else trial.ratio or 0.0
