"""An evaluator and a detector that answer from tables, for tests and lessons without a card."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tritonsmith.evaluator.cards.cards import named_card
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.protocol import Evaluator, RaceReport
from tritonsmith.evaluator.reads.record import TaskReads
from tritonsmith.evaluator.records.contest import NO_CARD, Contest, ContestReport
from tritonsmith.evaluator.records.limits import Counters, FloorShare, Limit
from tritonsmith.evaluator.schema import (
    Comparison,
    Correctness,
    Hardware,
    KernelFacts,
    Label,
    LaunchFacts,
    Status,
    Task,
    TaskFacts,
    Timing,
    TimingKind,
    Verdict,
)
from tritonsmith.evaluator.texts.detect.detection import Detection, Trait, TraitHit


@dataclass
class ScriptedEvaluator(Evaluator):
    """Answers with verdicts from tables, by text; a text without a verdict is `unsupported`. An exception in a table is raised."""

    verdicts: Mapping[str, Verdict | Exception]
    strict: Mapping[str, Verdict | Exception] = field(default_factory=dict)
    """Verdicts of the strict profile where they differ."""
    facts: TaskFacts = field(default_factory=lambda: TaskFacts(reads=TaskReads()))
    """Of any task. No file is run, so none is read."""
    hardware: Hardware = field(default_factory=lambda: named_card("h200"))
    calls: list[tuple[str, str]] = field(default_factory=list)
    """Every evaluation: text and profile."""
    racer: Callable[[KernelText, Sequence[KernelText], int], RaceReport] | None = None
    """Answers timed races."""
    region_racer: Callable[[Sequence[Contest]], ContestReport] | None = None
    """Answers races of regions."""
    codes: Mapping[str, str] = field(default_factory=dict)
    """What texts compile to; a text that is not in it is not compiled."""
    counted: Mapping[str, Counters] = field(default_factory=dict)
    """What a card counts of texts."""
    closed: bool = False
    at_once: bool = False
    """Whether it is asked what the module itself takes; its tables are about kernels."""

    async def read_code(self, task: Task, kernel: KernelText) -> str:
        """The digest of the table."""
        del task
        return self.codes.get(kernel.text, "")

    async def count(self, task: Task, kernel: KernelText) -> Counters | None:
        """The counters of the table."""
        del task
        return self.counted.get(kernel.text)

    async def describe(self, task: Task) -> TaskFacts:
        """The facts of the table, for any task."""
        del task
        return self.facts

    async def evaluate(self, task: Task, kernel: KernelText, profile: str = "quick") -> Verdict:
        """The verdict of the table."""
        del task
        source = kernel.text
        self.calls.append((source, profile))
        missing = Verdict(status=Status.UNSUPPORTED, message="the script has no verdict about this kernel")
        table = self.strict if profile == "strict" and source in self.strict else self.verdicts
        found = table.get(source, missing)
        if isinstance(found, Exception):
            raise found
        return found

    async def race(
        self, task: Task, incumbent: KernelText, entrants: Sequence[KernelText], facts: LaunchFacts, keep: int, seconds: float
    ) -> RaceReport | None:
        """What the script says of a race; None where it has none."""
        del task, facts, seconds
        return None if self.racer is None else self.racer(incumbent, entrants, keep)

    async def race_regions(self, task: Task, contests: Sequence[Contest], seconds: float) -> ContestReport:
        """What the script says of regions; a note where it says nothing."""
        del task, seconds
        return ContestReport(note=NO_CARD) if self.region_racer is None else self.region_racer(contests)

    async def aclose(self) -> None:
        """Note that the run is over."""
        self.closed = True


@dataclass(frozen=True)
class ScriptedDetector:
    """Answers with labels from a table, by text."""

    labels: Mapping[str, Sequence[str]]

    def __call__(self, source: str, facts: LaunchFacts, task_facts: TaskFacts, hardware: Hardware, timing: Timing | None) -> Detection:
        """The labels of the table, each on line 1."""
        del facts, task_facts, hardware, timing
        return Detection(labels=tuple(TraitHit(name=Trait(name), line=1, evidence="scripted") for name in self.labels.get(source, ())))


def scripted_verdict(
    score: float | None,
    *,
    status: Status = Status.OK,
    launches: int = 1,
    programs: int = 1,
    message: str = "",
    kind: TimingKind = TimingKind.ESTIMATED,
    comparison: Comparison | None = None,
    label: Label | None = None,
    share: float | None = None,
    library: Mapping[str, int] | None = None,
    quarantine: str = "",
    floor: float | None = None,
    counters: Counters | None = None,
) -> Verdict:
    """A verdict with this score against a baseline of one millisecond; without a score, a failing one of the status.

    A comparison makes it a measurement; without one the score has a band of 5 %. `share` is the share of time in own kernels, `library`
    counts library calls, and `floor` is the share of its floor, by bytes, that it reaches.
    """
    kernel = KernelFacts(name="kernel", launches=launches, grid=(programs, 1, 1))
    facts = LaunchFacts(
        launches_per_forward=launches, triton_launches=launches, kernels=(kernel,), own_time_share=share, library_calls=dict(library or {}),
        counters=counters,
    )
    kind = TimingKind.MEASURED if comparison is not None else kind
    if score is None:
        return Verdict(status=Status.RUNTIME_ERROR if status is Status.OK else status, message=message, facts=facts)
    return Verdict(
        status=Status.OK,
        correctness=Correctness(max_abs_err=0.0, mean_abs_err=0.0, err_vs_oracle=0.0, reference_err_vs_oracle=0.0, trials=1),
        timing=Timing(
            kind=kind, median_ms=1.0 / score, baselines_ms={"eager": 1.0}, baseline="eager", score=score, score_eager=score,
            band=(score * 0.95, score * 1.05) if kind is TimingKind.ESTIMATED else None, comparison=comparison or _compare(score),
            floor=None if floor is None else FloorShare(limit=Limit.BYTES, ms=floor / score, share=floor),
        ),  # fmt: skip
        facts=facts,
        label=label,
        quarantine=quarantine,
        message=message,
    )


def _compare(score: float) -> Comparison:
    if score * 0.95 > 1:
        return Comparison.FASTER
    return Comparison.SLOWER if score * 1.05 < 1 else Comparison.AMBIGUOUS
