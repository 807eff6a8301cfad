"""What is asked of a judge, and the row that its answer becomes."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from tritonsmith.evaluator.processes.requests import ServerRequest
from tritonsmith.evaluator.schema import Record


class Ruling(StrEnum):
    """What became of a question."""

    JUDGED = "judged"
    """The candidate is right, and there is a score."""
    REFUSED = "refused"
    """The candidate is at fault, says the verdict."""
    OPEN = "not judged"
    """There is no verdict about the candidate; the message says why."""


class JudgeJob(Record):
    """One question: a candidate's text for a task file."""

    name: str
    """Of the task, such as `level1/23_Softmax`; with `kind` it is unique among the rows of a file."""
    kind: str
    """`copy`, `right`, `wrong`, or what else a script tells apart."""
    task: str
    """Path of the task file."""
    text: str
    size: str = "full"
    overrides: dict[str, int] = {}
    precision: str = ""
    """Empty for the task's own class."""
    profile: str = "quick"
    baselines: tuple[str, ...] = ()
    """Those that the candidate is timed against; when empty four in `quick`, six in `strict`."""
    expected: str = ""
    """`accepted` or `refused`, where a table compares it with the ruling."""

    @property
    def key(self) -> tuple[str, str]:
        """What a row is found by."""
        return self.name, self.kind


class JudgeRow(Record):
    """One answer, as it stands on a line of a row file."""

    name: str
    kind: str
    profile: str = "quick"
    size: str = "full"
    expected: str = ""
    ruling: Ruling
    status: str = ""
    """Of the verdict; empty without one."""
    message: str = ""
    label: str = ""
    precision: str = ""
    """The class that the task asked for."""
    precision_class: str = ""
    """The class that the candidate reached."""
    mode: str = ""
    """`eval` or `train`, where the verdict says it."""
    timing: str = ""
    """`measured` or `estimated`."""
    score_eager: float | None = None
    interval_eager: tuple[float, float] | None = None
    """95 % interval of the score against eager, from the pairs."""
    ratios_eager: tuple[float, ...] = ()
    """Pair by pair, eager over candidate: the raw samples of the score."""
    score: float | None = None
    baseline: str = ""
    """The strongest one, which `score` is against."""
    median_ms: float | None = None
    baselines_ms: dict[str, float] = {}
    control: float | None = None
    memory: dict[str, Any] = {}
    """The evaluator's memory plan, as the verdict's environment has it: at least `plan` and `peak_bytes`."""
    task_bytes: int | None = None
    """Bytes of inputs and outputs."""
    card_bytes_before: int | None = None
    """Memory of the card in use before the question."""
    card_bytes_peak: int | None = None
    """Most memory of the card in use while the question was answered."""
    card_gb: float | None = None
    """Memory (10^9 bytes) that was left free at the start, where an idle process held the rest of the card."""
    seconds: float = 0.0
    """From the question to the verdict."""
    seconds_by_step: dict[str, float] = {}
    """Of them, as the judge of a card counts them."""
    describe_seconds: float = 0.0
    """Before that: facts of the task, and its reference run on the card."""
    card: str = ""
    device: str = ""
    """The card's number on its host, where one was named."""
    host: str = ""
    versions: dict[str, str] = {}
    date: str = ""
    command: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """What a row is found by."""
        return self.name, self.kind

    @property
    def as_expected(self) -> bool:
        """Whether the candidate was accepted or refused as the job says; a question without verdict is neither."""
        return self.expected == {Ruling.JUDGED: "accepted", Ruling.REFUSED: "refused"}.get(self.ruling)


class RowAnswer(Record):
    """The row that a job becomes."""

    row: JudgeRow


class AskRow(ServerRequest[RowAnswer]):
    """A job for a card's worker."""

    op = "judge"
    answered_by = RowAnswer
    job: JudgeJob
    next: JudgeJob | None = None
    """The job that is likely to come after it; its task is traced meanwhile."""
