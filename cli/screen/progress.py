"""What a run shows while it goes on: a live table on a terminal, one line per event elsewhere."""

from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from tritonsmith.cli.screen.picture import NOT_JUDGED, RunPicture, read_events
from tritonsmith.cli.screen.tables import candidate_table, row_score
from tritonsmith.graph.storage.folder import Event
from tritonsmith.graph.storage.outcome import RunOutcome, count_words
from tritonsmith.graph.storage.summary import CandidateRow

_SENTENCES = 6
"""Decisions and similar events that are shown under the table."""
_LEAST_ROWS = 4


class Progress(AbstractContextManager["Progress"], Protocol):
    """Something that hears every event of a run."""

    def __call__(self, event: Event) -> None:
        """Take note of one event, from any thread."""
        ...


def open_progress(console: Console) -> Progress:
    """A live table when the console is a terminal that can redraw, else one line per event."""
    return LiveProgress(console) if console.is_interactive and console.file.isatty() else PlainProgress(console)


def note(event: Event, picture: RunPicture) -> None:
    """Take in an event; one that begins another process of the run brings what its folder holds of the earlier ones."""
    if event.get("event") == "run" and event.get("resumed") and not picture.rows:
        try:
            for earlier in read_events(Path(str(event.get("folder"))) / "events.jsonl"):
                picture.update(earlier)
        except OSError:  # the view goes on without what came before
            return picture.update(event)
    picture.update(event)


class PlainProgress:
    """One line per event, with the seconds that the run has taken."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._picture = RunPicture()

    def __call__(self, event: Event) -> None:
        """Print the event."""
        note(event, self._picture)
        line = f"{self._picture.seconds():7.1f} s  {event_line(event, self._picture)}"
        self._console.print(line, markup=False, emoji=False, highlight=False, soft_wrap=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        return None


class LiveProgress:
    """The live view; cleared at the end, when the full answer follows."""

    def __init__(self, console: Console) -> None:
        self._picture = RunPicture()
        view = LiveView(self._picture)
        self._live = Live(console=console, get_renderable=lambda: view, refresh_per_second=4, transient=True)

    def __call__(self, event: Event) -> None:
        """Show the event at the next refresh."""
        note(event, self._picture)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._live.stop()


class LiveView:
    """A picture as a terminal shows it: what runs, the candidates, the last decisions, each branch's node, and the budget.

    Fits into the terminal's height: what does not is left out, and how much that is stands there.
    """

    def __init__(self, picture: RunPicture) -> None:
        self._picture = picture
        self._spinner = Spinner("dots")

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        picture, now, height = self._picture, datetime.now(UTC), console.height
        doing = sorted(picture.doing.items())  # copies: events come from another thread
        sentences = [event_line(event, picture) for event in list(picture.sentences.values())[-_SENTENCES:]]
        rows = list(picture.rows.values())
        room = height - len(doing) - 5  # heading, header of the table, what is left out, budget, the cursor's line
        sentences = sentences[-max(1, min(_SENTENCES, room - min(len(rows), _LEAST_ROWS))) :]
        visible = rows_that_fit(rows, max(1, room - len(sentences)), picture.best)
        parts: list[RenderableType] = [_one_line(heading(picture), "bold")]
        if rows:
            parts.append(candidate_table(visible, options.max_width, picture.best.id if picture.best else None, fold=False))
        if len(visible) < len(rows):
            parts.append(_one_line(_count_left_out(rows, visible), "dim"))
        parts += [_one_line(line, "dim") for line in sentences]
        parts += [_doing_line(branch, str(what), (now - what.since).total_seconds()) for branch, what in doing]
        self._spinner.update(text=_one_line(budget_line(picture, now)))
        yield Group(*parts, self._spinner if picture.end is None else _one_line(budget_line(picture)))


def heading(picture: RunPicture) -> str:
    """`39_gru (small), policy default, offline, for NVIDIA H200`, as far as it is known."""
    about = picture.about
    if not about and not picture.rows:
        return "starting the evaluator"
    size = f" ({about['size']})" if about.get("size") else ""
    parts = [f"{Path(str(about.get('task') or 'run')).stem}{size}", f"policy {about['policy']}" if about.get("policy") else ""]
    parts += [str(about.get("model") or ""), f"for {about['target']}" if about.get("target") else ""]
    return ", ".join(part for part in parts if part)


def budget_line(picture: RunPicture, now: datetime | None = None) -> str:
    """What is used, and of how much: `5 of 60 candidates, 34 s of 600, 12,345 tokens, $0.0120 of $1.00`."""
    limits = picture.budget
    made = len(picture.rows)
    used = [f"{made} of {count_words(limits.candidates, 'candidate')}" if limits.candidates else count_words(made, "candidate")]
    used.append(f"{picture.seconds(now):.0f} s{f' of {limits.seconds:.0f}' if limits.seconds else ''}")
    if picture.tokens or limits.tokens:
        used.append(f"{picture.tokens:,}{f' of {limits.tokens:,}' if limits.tokens else ''} tokens")
    if picture.money or limits.money:
        used.append(f"${picture.money:.4f}{f' of ${limits.money:.2f}' if limits.money else ''}")
    return ", ".join(used)


def rows_that_fit(rows: list[CandidateRow], room: int, best: CandidateRow | None) -> list[CandidateRow]:
    """The latest rows, and the best one before them."""
    if len(rows) <= room:
        return rows
    last = rows[len(rows) - room :]
    return last if best is None or best in last else [best, *last[1:]]


def _count_left_out(rows: list[CandidateRow], visible: list[CandidateRow]) -> str:
    names = {row.id for row in visible}
    hidden = [row for row in rows if row.id not in names]
    failed = sum(row.status not in ("ok", NOT_JUDGED) for row in hidden)
    return f"... {count_words(len(hidden), 'more candidate')} ({failed} of them failed)"


def _one_line(text: str, style: str = "") -> Text:
    return Text(text, style=style, no_wrap=True, overflow="ellipsis")


def _doing_line(branch: str, what: str, seconds: float) -> Table:
    line = Table.grid(padding=(0, 1, 0, 0))
    line.add_column(no_wrap=True)
    line.add_column(no_wrap=True, overflow="ellipsis")
    line.add_column(no_wrap=True)
    line.add_row(Text(branch, style="cyan"), Text(what), f"{max(0.0, seconds):.0f} s")
    return line


def event_line(event: Event, picture: RunPicture) -> str:
    """One event as one line; the picture already knows it."""
    kind = str(event.get("event"))
    words = _WORDS.get(kind)
    text = words(event, picture) if words else f"{kind}: {event.get('reason', '')}".rstrip(": ")
    return f"{event.get('branch', 'main')}: {' '.join(text.split())}"


def _run_words(event: Event, picture: RunPicture) -> str:
    if not event.get("resumed"):
        return f"begins {heading(picture)}"
    best = f", best {picture.best.id} with {row_score(picture.best)}" if picture.best else ""
    return f"goes on with {heading(picture)}; so far {budget_line(picture)}{best}"


def _verdict_words(event: Event, picture: RunPicture) -> str:
    name = str(event.get("candidate"))
    row, result = picture.rows.get(name), event.get("message") or ""
    if row and row.score is not None:
        time = f", {row.median_ms:.4g} ms" if row.median_ms is not None else ""
        floor = f", {row.floor_share:.0%} of its floor ({row.floor_limit})".replace("%", " %") if row.floor_share is not None else ""
        result = f"{row_score(row, wide=True)}{time}{floor}, {count_words(row.launches_per_forward or 0, 'launch', 'launches')}"
    if event.get("not_allowed"):
        result = f"{result}; not allowed to win: {event['not_allowed']}"
    if event.get("status") != "ok" and event.get("advice"):
        result = f"{result} [advice: {'; '.join(event['advice'])}]"
    return f"{name} is {event.get('status')} ({event.get('profile')}): {result}"


def _usage_words(event: Event, picture: RunPicture) -> str:
    money = f", ${event['money']:.4f}" if event.get("money") else ""
    spent = f"{event.get('input_tokens', 0):,} tokens read, {event.get('output_tokens', 0):,} written{money}"
    in_all = f"{picture.tokens:,} tokens in all"
    if event.get("answered", True):  # runs of earlier versions tell of answers alone
        return f"{event.get('model')} answered {event.get('request')}: {spent}; {in_all}"
    cost = f": {spent}; {in_all}" if event.get("input_tokens") or event.get("output_tokens") else ""
    return f"{event.get('model')} gave no answer to {event.get('request')}{cost}"


def _end_words(event: Event, picture: RunPicture) -> str:
    if event.get("outcome") == RunOutcome.WAITING.value:
        return f"ends here, {event.get('stopped_because')}"
    name = "winner" if event.get("outcome") in (None, RunOutcome.FASTER.value) else "best kernel"
    winner = f"{name} {event['winner']}: {event.get('result')}" if event.get("winner") else str(event.get("kept") or "no winner")
    return f"ended: {winner}; {event.get('stopped_because', '')}".rstrip("; ")


_WORDS = {
    "run": _run_words,
    "stage": lambda event, picture: f"{event.get('node')} {event.get('candidate') or event.get('task') or ''}",
    "candidate": lambda event, picture: f"wrote {event.get('candidate')} ({event.get('stage')}): {event.get('rationale', '')}",
    "evaluating": lambda event, picture: f"{event.get('node')} judges {event.get('candidate')} ({event.get('profile')})",
    "step": lambda event, picture: (
        f"{event.get('node')} judges {event.get('candidate')} ({event.get('profile')}), {event.get('seconds')} s so far"
        f"{': ' if event.get('step') else ''}{event.get('step') or ''}"
    ),
    "verdict": _verdict_words,
    "usage": _usage_words,
    "analysis": lambda event, picture: (
        f"bottleneck of {event.get('candidate')}: {event.get('bottleneck')}; proposes {event.get('method')}"
    ),
    "findings": lambda event, picture: (
        f"{event.get('candidate')} is {', '.join(label['name'] for label in event.get('labels', [])) or 'without labels'}"
    ),
    "decision": lambda event, picture: f"{event.get('gate') or event.get('site')} -> {event.get('choice')}: {event.get('reason')}",
    "twin": lambda event, picture: f"{event.get('candidate')} compiles to the code of {event.get('earlier')}: not judged",
    "racing": lambda event, picture: (
        f"{event.get('node')} races {event.get('contests')} kinds of regions of {event.get('candidate')} against the library"
    ),
    "raced": lambda event, picture: (
        event.get("note") or f"{event.get('raced')} of {event.get('contests')} contests raced in {event.get('seconds', 0.0):.0f} s"
    ),
    "counters": lambda event, picture: f"counters of {event.get('candidate')}: {event.get('words')}",
    "search": lambda event, picture: f"{event.get('node')} searches around {event.get('candidate')}: {event.get('sentence')}",
    "end": _end_words,
}
