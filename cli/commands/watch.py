"""`tritonsmith watch`: follow a run that another process works on, from what it writes into its folder."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import typer

from tritonsmith.cli.options import JsonOption, RunArgument, err, print_json
from tritonsmith.evaluator.errors import UsageError
from tritonsmith.graph.storage.folder import EVENTS, LOCK, Event

_LOOK_SECONDS = 0.2
_WRITTEN_SECONDS = 2.0
"""How long a lock without a readable process id may stay one that is just being written."""
_LAST = ("end", "stopped")


def watch(run: RunArgument, as_json: JsonOption = False) -> None:
    """Show RUN while another process works on it, and its answer when it ends; exit code 1 without a right kernel, 3 when it waits."""
    folder = Path(run)
    if not (folder / EVENTS).is_file() and not (folder.is_dir() and is_worked_on(folder)):
        raise UsageError(f"{run}: no run lies there; name the folder of a run")
    from tritonsmith.cli.screen.answer import WAITS, exit_code, show
    from tritonsmith.cli.screen.progress import open_progress
    from tritonsmith.graph.storage.summary import read_summary

    last: Event = {}
    try:
        with open_progress(err) as progress:
            for last in follow(folder):
                progress(last)
    except KeyboardInterrupt:
        err.print("No longer watching; the run itself goes on.")
        return
    summary = read_summary(folder)
    if summary is not None:
        print_json(summary) if as_json else show(summary)
        raise typer.Exit(exit_code(summary))
    waits = last.get("event") == "end"  # a run that is over has a summary
    ends = {"stopped": f"was stopped ({last.get('reason')})", "end": f"is {last.get('stopped_because')}"}
    how = ends.get(str(last.get("event")), "was killed, for nobody works on it and it has no end")
    err.print(f"The run {how}; go on with: tritonsmith resume {run}")
    raise typer.Exit(WAITS if waits else 1)


def follow(folder: Path) -> Iterator[Event]:
    """Every event of the run so far and to come, until the run is over or nobody works on it any longer."""
    from tritonsmith.cli.screen.picture import parse_event

    pending, at, over = b"", 0, False
    while True:
        gone = not is_worked_on(folder)  # asked before reading: what was written last is read nevertheless
        data = _read_from(folder / EVENTS, at)
        at += len(data)
        *lines, pending = (pending + data).split(b"\n")
        for event in filter(None, map(parse_event, lines)):
            over = event["event"] in _LAST
            yield event
        if not data and (over or gone):
            return
        if not data:
            time.sleep(_LOOK_SECONDS)


def _read_from(path: Path, at: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(at)
            return file.read()
    except FileNotFoundError:  # the run is about to begin
        return b""


def is_worked_on(folder: Path) -> bool:
    """Whether the process that has last taken the run in hand lives; True where that cannot be known from this machine."""
    try:
        pid, _, host = (folder / LOCK).read_text(encoding="utf-8").strip().partition(" on ")
        if host and host != os.uname().nodename:
            return True
        os.kill(int(pid), 0)
    except PermissionError:  # somebody else's process
        return True
    except OSError:  # no such file, or no such process
        return False
    except (ValueError, OverflowError):  # the file is just being written, unless that was long ago
        return time.time() - (folder / LOCK).stat().st_mtime < _WRITTEN_SECONDS
    return True
