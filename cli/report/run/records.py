"""What a report of a run says, as `report.json` holds it; pages and tables are made from this and from the texts."""

from enum import StrEnum
from typing import Any, Literal

from pydantic import Field

from tritonsmith.evaluator.schema import Record, Verdict
from tritonsmith.graph.state import Usage
from tritonsmith.graph.storage.summary import Summary

FORMAT = 1


class RunState(StrEnum):
    """How far the run is."""

    FINISHED = "finished"
    WAITING = "waiting"
    """For replies or verdicts that come in files; `tritonsmith resume` goes on."""
    UNFINISHED = "unfinished"
    """At work now, or killed."""


class Tone(StrEnum):
    """What the headline may claim; the page's colour follows it."""

    PROVEN = "proven"
    """Measured faster beyond the noise, and confirmed."""
    ESTIMATE = "estimate"
    OPEN = "open"
    """A best kernel that is not confirmed."""
    KEPT = "kept"
    """The module's own fastest form is the answer."""
    NONE = "none"
    """No right kernel, or none that is faster."""
    WAITING = "waiting"


class Point(Record):
    """One verdict of the search, for the chart."""

    candidate: str
    stage: str
    seconds: float
    """Working seconds of the run when the verdict came."""
    status: str
    score: float | None = None
    best: float | None = None
    """Best score of candidates that may win, this one included."""


class Change(Record):
    """How a candidate's text differs from its parent's, in lines."""

    parent: str
    added: int
    removed: int


class RunReport(Record):
    """A run as a reader sees it: answer, history and figures."""

    format: int = FORMAT
    kind: Literal["run"] = "run"
    state: RunState
    tone: Tone
    headline: str
    """The answer: `FASTER than eager: 4.65x (4.50 to 4.80), measured`, `NOT FASTER: ...`, `right; ...` or `WAITING for 2 replies`."""
    command: str = ""
    """What runs it again."""
    command_note: str = ""
    """What the command cannot say."""
    notes: tuple[str, ...] = ()
    """What is missing from the folder, one sentence each."""
    versions: dict[str, str] = Field(default_factory=dict)
    recording: str = ""
    """Name of the recording that the run was played from; empty for one that was not."""
    parent: dict[str, Any] | None = None
    """The run that this one was forked from, and the site."""
    points: tuple[Point, ...] = ()
    changes: dict[str, Change] = Field(default_factory=dict)
    times: dict[str, float] = Field(default_factory=dict)
    """By decision: working seconds of the run when it was taken."""
    analysed: dict[str, str] = Field(default_factory=dict)
    """By analysis, the candidate that it is about."""
    usage_by_model: dict[str, Usage] = Field(default_factory=dict)
    evaluation_seconds: float = 0.0
    """What the evaluator spent on all verdicts together."""
    verdicts: dict[str, Verdict] = Field(default_factory=dict)
    """By candidate, the one that counts: the strict one, once there is one."""
    summary: Summary
