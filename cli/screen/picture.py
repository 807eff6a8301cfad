"""A run as its events show it: candidates, what each branch does now, decisions, and what is used of the budget."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tritonsmith.evaluator.schema import Comparison, Status
from tritonsmith.graph.state import Budget
from tritonsmith.graph.storage.files import lines_of, parse_object
from tritonsmith.graph.storage.folder import Event
from tritonsmith.graph.storage.outcome import count_words
from tritonsmith.graph.storage.summary import CandidateRow

NOT_JUDGED = "..."
"""Status of a candidate without a verdict."""
_VERDICT = (
    "status", "score", "interval", "kind", "comparison", "label", "launches_per_forward", "median_ms", "profile", "floor_share",
    "floor_limit",
)  # fmt: skip
_SENTENCES = ("size", "decision", "analysis", "pause", "fault", "waiting", "twin", "stop")
"""Events that are shown as sentences under the table."""


@dataclass
class Doing:
    """What a branch does now."""

    node: str
    since: datetime
    candidate: str = ""
    evaluating: dict[str, str] = field(default_factory=dict)
    """Candidates under evaluation with the profile."""
    note: str = ""
    step: str = ""
    """What the latest evaluation is at."""

    def __str__(self) -> str:
        if self.evaluating:
            what = ", ".join(self.evaluating)
            profile = "strict" if "strict" in self.evaluating.values() else "quick"
            return f"{self.node} {what} ({profile}){f': {self.step}' if self.step else ''}"
        return f"{self.node} {self.candidate}".rstrip() + (f": {self.note}" if self.note else "")


class RunPicture:
    """Takes in events, of one process or of several in turn; an event that comes again changes nothing."""

    def __init__(self) -> None:
        self.rows: dict[str, CandidateRow] = {}
        self.doing: dict[str, Doing] = {}
        """Branch to what it does now."""
        self.sentences: dict[str, Event] = {}
        """Events that are shown as sentences, by what makes them the same event."""
        self.about: Event = {}
        """The latest `run` event: task, size, policy, model, target."""
        self.budget = Budget(candidates=None)
        self.end: Event | None = None
        """The last event of a run that is over, or that was stopped and may go on."""
        self._calls: dict[tuple[str, int], tuple[int, float]] = {}
        self._totals: tuple[int, float] = (0, 0.0)
        self._before = 0.0
        self._began: datetime | None = None
        self._last: datetime | None = None

    @property
    def tokens(self) -> int:
        """Tokens of the run so far."""
        return max(self._totals[0], sum(tokens for tokens, _ in self._calls.values()))

    @property
    def money(self) -> float:
        """US dollars of the run so far."""
        return max(self._totals[1], sum(money for _, money in self._calls.values()))

    @property
    def best(self) -> CandidateRow | None:
        """The best working candidate of those that may win; a measured gain goes before a higher score that may be noise."""
        working = [row for row in self.rows.values() if row.status == Status.OK.value and row.score is not None and not row.not_allowed]
        return max(working, key=lambda row: (row.comparison == Comparison.FASTER.value, row.score or 0.0), default=None)

    def seconds(self, now: datetime | None = None) -> float:
        """Wall seconds of all processes that have worked on the run, up to `now` while it goes on, else up to the last event."""
        if self._began is None or self._last is None:
            return 0.0
        until = self._last if now is None or self.end is not None else max(now, self._last)
        return self._before + (until - self._began).total_seconds()

    def update(self, event: Event) -> None:
        """Take in one event."""
        kind, time = str(event.get("event")), _time_of(event)
        if kind == "run":
            self._begin(event, time)
        self._began = self._began or time
        self._last = max(self._last or time, time)
        name, branch = event.get("candidate"), str(event.get("branch", "main"))
        if kind == "stage":
            self._stage(event, branch, time)
        elif kind == "candidate" and name:
            self._candidate(name, event)
        elif kind == "evaluating" and name:
            node = str(event.get("node"))
            doing = self.doing.get(branch)
            if doing is None or doing.node != node:  # a tuning stage is judged by a node of its own, which announces no stage
                doing = self.doing[branch] = Doing(node, time)
            doing.evaluating[name] = str(event.get("profile"))
            doing.note = ""
        elif kind == "step" and branch in self.doing:
            self.doing[branch].step = str(event.get("step") or "")
        elif kind == "verdict" and name:
            self._verdict(name, branch, event)
        elif kind == "size":
            self.about = {**self.about, "size": event.get("size")}
        elif kind == "usage":
            self._usage(event)
        elif kind == "search" and branch in self.doing:
            self.doing[branch].note = _search_note(event)
        elif kind == "decision":
            self.doing.pop(branch, None)
        elif kind in ("end", "stopped"):
            self.end = event
            self.doing.clear()
        if kind in _SENTENCES:
            self.sentences[f"{kind} {event.get('id') or time.isoformat()} {branch}"] = event
        if kind in ("pause", "waiting") and branch in self.doing:
            self.doing[branch].note = str(event.get("reason", ""))

    def _begin(self, event: Event, time: datetime) -> None:
        if self._began is not None and self._last is not None:
            self._before += (self._last - self._began).total_seconds()
        self._began = self._last = time
        self.about, self.end = event, None
        self.doing.clear()
        self.budget = Budget.model_validate(event.get("budget") or {"candidates": None})

    def _stage(self, event: Event, branch: str, time: datetime) -> None:
        if branch == "main":  # the branches have joined, or not begun
            self.doing.clear()
        self.doing.pop("main", None)
        node = str(event.get("node"))
        self.doing[branch] = Doing(node, time, str(event.get("candidate") or ""), note="waits for its turn" if node == "evaluate" else "")

    def _candidate(self, name: str, event: Event) -> None:
        known = self.rows.get(name)
        if known is not None and known.sha and known.sha == event.get("sha"):
            return  # the step ran again
        fields: dict[str, Any] = {key: event.get(key) or "" for key in ("stage", "sha", "rationale", "recipe")}
        tokens = sum(tokens for (request, _), (tokens, _) in self._calls.items() if request == f"{name}-{event.get('stage')}")
        self.rows[name] = CandidateRow(id=name, status=NOT_JUDGED, parent=event.get("parent"), tokens=tokens, **fields)

    def _verdict(self, name: str, branch: str, event: Event) -> None:
        if branch in self.doing:
            self.doing[branch].evaluating.pop(name, None)
            self.doing[branch].step = ""
        if name in self.rows:
            fields: dict[str, Any] = {key: event[key] for key in _VERDICT if key in event}
            text = {"not_allowed": event.get("not_allowed") or "", "message": event.get("message") or ""}
            row = self.rows[name].model_dump() | fields | text
            self.rows[name] = CandidateRow.model_validate(row)

    def _usage(self, event: Event) -> None:
        request, call = str(event.get("request")), int(event.get("call") or 1)
        self._calls[request, call] = (event.get("input_tokens", 0) + event.get("output_tokens", 0), float(event.get("money") or 0.0))
        self._totals = (int(event.get("total_tokens") or 0), float(event.get("total_money") or 0.0))


def read_events(path: Path) -> Iterator[Event]:
    """The events in a file; a line that was cut when its process was killed is passed over. Raises OSError."""
    for line in lines_of(path.read_bytes()):
        event = parse_event(line)
        if event is not None:
            yield event


def parse_event(line: bytes) -> Event | None:
    """One line of `events.jsonl`; None where it is not whole."""
    try:
        event = parse_object(line)
    except ValueError:
        return None
    return event if "event" in event else None


def _time_of(event: Event) -> datetime:
    try:
        time = datetime.fromisoformat(str(event.get("time")))
    except ValueError:
        return datetime.now(UTC)
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _search_note(event: Event) -> str:
    """How far a tuning search is: what it tried, and the best ratio of its races or estimates."""
    best, kind = event.get("best_ratio"), event.get("kind")
    found = "" if best is None else f", best {best:.3f}x by {'race' if kind == 'measured' else 'estimate'}"
    return f"{event.get('tried')} of {count_words(int(event.get('size') or 0), 'configuration')}, {event.get('pruned')} pruned{found}"
