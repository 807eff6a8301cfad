"""What a run shows while it goes on: a live table on a terminal, one line per event elsewhere."""

import time
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.spinner import Spinner
from rich.text import Text

from tritonsmith.cli.tables import candidate_table, row_score
from tritonsmith.graph.folder import Event
from tritonsmith.graph.summary import CandidateRow

_SHOWN_DECISIONS = 6


class Progress(AbstractContextManager["Progress"], Protocol):
    """Something that is told every event of a run."""

    def __call__(self, event: Event) -> None:
        """Take note of one event, from any thread."""
        ...


def open_progress(console: Console) -> Progress:
    """A live table when the console is a terminal, else one line per event."""
    return LiveProgress(console) if console.is_terminal else PlainProgress(console)


class RunPicture:
    """The candidates of a run as its events tell of them."""

    def __init__(self) -> None:
        self.rows: dict[str, CandidateRow] = {}
        self.doing: dict[str, str] = {}
        """Branch to what it does now."""

    def update(self, event: Event) -> None:
        """Take in one event."""
        name, branch, kind = event.get("candidate"), str(event.get("branch", "main")), event.get("event")
        if kind == "stage":
            if branch == "main":  # the branches have joined, or not begun
                self.doing.clear()
            self.doing.pop("main", None)
            self.doing[branch] = f"{event['node']} {name or ''}".strip()
        elif kind == "candidate" and name:
            fields = {key: event.get(key) for key in ("parent", "stage", "rationale", "recipe")}
            self.rows[name] = CandidateRow.model_validate({"id": name, "status": "...", **fields})
        elif kind == "verdict" and name in self.rows:
            told = ("status", "score", "kind", "comparison", "label", "launches_per_forward", "median_ms", "profile")
            fields = {key: event.get(key) for key in told} | {"not_allowed": event.get("not_allowed") or ""}
            self.rows[name] = self.rows[name].model_copy(update=fields)
        elif kind == "decision":
            self.doing.pop(branch, None)


def event_line(event: Event, picture: RunPicture) -> str:
    """One event as one line; the picture already knows it."""
    name, kind = event.get("candidate") or "", event.get("event")
    where = f"{event.get('branch', 'main')}:"
    if kind == "stage":
        return f"{where} {event['node']} {name or event.get('task', '')}".rstrip()
    if kind == "candidate":
        return f"{where} wrote {name} ({event.get('stage')}): {event.get('rationale', '')}"
    if kind == "verdict":
        row, result = picture.rows.get(name), event.get("message", "")
        if row and row.score is not None:
            result = f"{row_score(row)}, {row.launches_per_forward} launches"
        if event.get("not_allowed"):
            result = f"{result}; not allowed to win: {event['not_allowed']}"
        if event.get("status") != "ok" and event.get("advice"):
            result = f"{result} [advice: {'; '.join(event['advice'])}]"
        return f"{where} {name} is {event.get('status')} ({event.get('profile')}): {result}"
    if kind == "analysis":
        return f"{where} bottleneck of {name}: {event.get('bottleneck')}; proposes {event.get('method')}"
    if kind == "findings":
        return f"{where} {name} is {', '.join(label['name'] for label in event.get('labels', [])) or 'without labels'}"
    if kind == "decision":
        return f"{where} {event.get('gate') or event.get('site')} -> {event.get('choice')}: {event.get('reason')}"
    return f"{where} {kind}: {event.get('reason', '')}"


class PlainProgress:
    """One line per event, with the seconds since the start."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._picture = RunPicture()
        self._started = time.monotonic()

    def __call__(self, event: Event) -> None:
        """Print the event."""
        self._picture.update(event)
        seconds = time.monotonic() - self._started
        self._console.print(f"{seconds:6.1f} s  {event_line(event, self._picture)}", markup=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        return None


class LiveProgress:
    """The table of candidates, the last decisions and what each branch does now; cleared at the end, when the full answer follows."""

    def __init__(self, console: Console) -> None:
        self._picture = RunPicture()
        self._decisions: list[str] = []
        self._spinner = Spinner("dots")
        self._started = time.monotonic()
        self._live = Live(console=console, get_renderable=self._render, refresh_per_second=4, transient=True)

    def __call__(self, event: Event) -> None:
        """Show the event at the next refresh."""
        self._picture.update(event)
        if event.get("event") in ("decision", "analysis", "pause", "fault", "waiting"):
            self._decisions.append(event_line(event, self._picture))

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._live.stop()

    def _render(self) -> RenderableType:
        doing = "; ".join(f"{branch}: {what}" for branch, what in sorted(self._picture.doing.items())) or "starting"
        self._spinner.update(text=Text(f"{time.monotonic() - self._started:.0f} s  {doing}"))
        rows = list(self._picture.rows.values())  # a copy: events come from other threads
        parts: list[RenderableType] = [candidate_table(rows, self._live.console.width)] if rows else []
        parts += [Text.from_markup(f"[dim]{escape(line)}[/]") for line in self._decisions[-_SHOWN_DECISIONS:]]
        return Group(*parts, self._spinner)
