"""What a suite shows while it goes on: a live table of its tasks on a terminal, one line per verdict and end elsewhere."""

from contextlib import AbstractContextManager
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tritonsmith.cli.screen.picture import RunPicture
from tritonsmith.cli.screen.progress import budget_line, event_line, note
from tritonsmith.cli.screen.tables import row_score
from tritonsmith.graph.storage.folder import Event
from tritonsmith.graph.storage.outcome import count_words, digits
from tritonsmith.graph.suites.records import RowState, SuiteRow
from tritonsmith.graph.suites.tasks import PlannedTask

_PRINTED = ("run", "verdict", "pause", "fault", "waiting", "stop", "stopped")
"""Events that are printed where there is no live table; the end of a run is the line of its row."""


class SuiteProgress(AbstractContextManager["SuiteProgress"], Protocol):
    """Something that hears every event of every task, and of every task that is finished."""

    def on_event(self, task: PlannedTask, event: Event) -> None:
        """Take note of one event."""
        ...

    def on_row(self, row: SuiteRow) -> None:
        """Take note of a finished task, from any thread."""
        ...


def open_suite_progress(console: Console, total: int, finished: int) -> SuiteProgress:
    """A live table when the console is a terminal that can redraw, else lines."""
    live = console.is_interactive and console.file.isatty()
    return LiveSuiteProgress(console, total, finished) if live else PlainSuiteProgress(console, total, finished)


def row_line(row: SuiteRow) -> str:
    """`39_gru: faster, 1.70x ESTIMATE against cuda_graph; 12 candidates, 34 s`, or why there is no result."""
    if row.state is not RowState.DONE:
        return f"{row.task}: {row.state.value}: {row.reason}"
    kind = "measured" if row.kind == "measured" else "ESTIMATE"
    score = f", {digits(row.score)}x {kind} against {row.baseline}" if row.score is not None else ""
    return f"{row.task}: {row.outcome.replace('_', ' ')}{score}; {count_words(row.candidates, 'candidate')}, {row.seconds:.0f} s"


class PlainSuiteProgress:
    """One line per verdict and per finished task, each with the name of its task."""

    def __init__(self, console: Console, total: int, finished: int) -> None:
        self._console, self._total, self._finished = console, total, finished
        self._pictures: dict[str, RunPicture] = {}

    def on_event(self, task: PlannedTask, event: Event) -> None:
        """Print the event where it is one of those that a reader of many runs needs."""
        picture = self._pictures.setdefault(task.key, RunPicture())
        note(event, picture)
        if event.get("event") in _PRINTED:
            self._print(f"{task.key}  {event_line(event, picture)}")

    def on_row(self, row: SuiteRow) -> None:
        """Print the row, and how many tasks are finished."""
        self._pictures.pop(row.task, None)
        self._finished += 1
        self._print(f"[{self._finished}/{self._total}] {row_line(row)}")

    def _print(self, line: str) -> None:
        self._console.print(line, markup=False, emoji=False, highlight=False, soft_wrap=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        return None


class LiveSuiteProgress:
    """The live view: how many tasks are finished, those that are worked on now, and the last ones that ended."""

    def __init__(self, console: Console, total: int, finished: int) -> None:
        self._total, self._finished = total, finished
        self._pictures: dict[str, RunPicture] = {}
        self._ended: list[SuiteRow] = []
        self._faster = 0
        self._live = Live(console=console, get_renderable=lambda: self, refresh_per_second=4, transient=True)

    def on_event(self, task: PlannedTask, event: Event) -> None:
        """Show the event at the next refresh."""
        note(event, self._pictures.setdefault(task.key, RunPicture()))

    def on_row(self, row: SuiteRow) -> None:
        """Move the task to those that have ended."""
        self._pictures.pop(row.task, None)
        self._finished += 1
        self._faster += row.outcome == "faster"
        self._ended = [*self._ended, row][-100:]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        pictures = list(self._pictures.items())  # a copy: events come from another thread
        finished = f"{self._finished} of {count_words(self._total, 'task')} finished"
        heading = f"{finished}, {self._faster} of them faster; {len(pictures)} under way"
        table = Table.grid(padding=(0, 2, 0, 0))
        for _ in range(3):
            table.add_column(no_wrap=True)
        table.add_column(no_wrap=True, overflow="ellipsis")
        room = max(1, console.height - 4)
        for key, picture in pictures[:room]:
            doing = "; ".join(str(what) for what in list(picture.doing.values())) or "starting"
            table.add_row(Text(key, style="cyan"), row_score(picture.best) if picture.best else "-", budget_line(picture), Text(doing))
        parts: list[RenderableType] = [Text(heading, style="bold", no_wrap=True, overflow="ellipsis"), table]
        left = max(0, room - len(pictures))
        parts += [Text(row_line(row), style="dim", no_wrap=True, overflow="ellipsis") for row in self._ended[-left:] if left]
        yield Group(*parts)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._live.stop()
