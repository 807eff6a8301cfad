"""What a run says while it goes on, where no command shows it: one line that changes on a terminal and in a notebook."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, TextIO

from rich.console import Console

from tritonsmith.graph.storage.folder import Event, OnEvent


def choose_listener(
    progress: bool | Callable[[dict[str, Any]], None], stream: TextIO
) -> contextlib.AbstractContextManager[OnEvent | None]:
    """What hears the events of a run: nothing, the caller's own function, or lines on a stream."""
    if callable(progress):
        return contextlib.nullcontext(progress)
    return _tell(Console(file=stream)) if progress else contextlib.nullcontext(None)


@contextlib.contextmanager
def _tell(console: Console) -> Iterator[OnEvent]:
    """Rich finds out by itself whether it is in a notebook; there and on a terminal the line at the bottom changes."""
    live = console.is_jupyter or console.is_terminal
    status = console.status("starting the evaluator") if live else None
    with status or contextlib.nullcontext():

        def listen(event: Event) -> None:
            if status is not None and event.get("event") in ("stage", "evaluating"):
                status.update(describe_work(event))
            elif line := describe_event(event):
                console.print(line, markup=False, highlight=False, soft_wrap=True)

        yield listen


def describe_work(event: Event) -> str:
    """What is done just now."""
    node, candidate = str(event.get("node") or "work"), str(event.get("candidate") or "")
    return f"{node} {candidate}".strip()


def describe_event(event: Event) -> str:
    """One event as one line; empty for one that only moves the run on."""
    kind = event.get("event")
    if kind == "run":
        return f"{event.get('task', 'module')}: begins, for {event.get('target', 'this machine')}"
    if kind == "verdict":
        score = event.get("score")
        said = f"{score:.2f}x" if isinstance(score, float) else str(event.get("message") or "")[:160]
        return f"{event.get('candidate')} is {event.get('status')}{f': {said}' if said else ''}"
    if kind in ("end", "stopped"):
        return str(event.get("answer") or event.get("reason") or "")
    return ""
