"""The folder of a run: made before it begins, told every event, and found again by a run that goes on."""

import json
import re
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tritonsmith.evaluator.errors import UsageError

Event = dict[str, Any]
"""One line of `events.jsonl`. `event` is stage, candidate, verdict, analysis, findings, decision, pause, fault, waiting or stop;
`time`, `node`, `branch` and `candidate` are always there."""

OnEvent = Callable[[Event], None]

SETTINGS = "run.json"
"""The settings of a run that can go on later."""
_WRITTEN_AGAIN = ("events.jsonl", "usage.csv")
"""What a run that goes on writes from its beginning once more."""


def prepare_folder(out: str | None, task_name: str, settings: dict[str, Any] | None = None) -> Path:
    """Make the results' folder; one that holds a run of the same settings is used again.

    Raises UsageError when it holds anything else or cannot be written.
    """
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    folder = Path(out) if out else Path("runs") / f"{re.sub(r'[^A-Za-z0-9_.-]+', '_', task_name)}-{stamp}"
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"--out {folder}: that is a file; name a new folder")
    try:
        if folder.exists() and any(folder.iterdir()):
            kept = _kept(folder)
            if settings is None or kept is None:
                raise UsageError(f"--out {folder}: the folder is not empty; name a new one, so that no earlier result is overwritten")
            if kept != settings:
                other = ", ".join(sorted(name for name in {*kept, *settings} if kept.get(name) != settings.get(name)))
                raise UsageError(f"--out {folder}: a run with other settings lies there ({other}); name a new one, or resume that run")
            for name in _WRITTEN_AGAIN:
                (folder / name).unlink(missing_ok=True)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "events.jsonl").touch()
        if settings is not None:
            (folder / SETTINGS).write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--out {folder}: cannot write there ({error.strerror}); name a folder that you may write to") from error
    return folder


def kept_settings(folder: Path) -> dict[str, Any]:
    """The settings of a run that can go on. Raises UsageError that says why there are none."""
    if not folder.is_dir():
        raise UsageError(f"{folder}: there is no such folder; name the folder of a run")
    found = _kept(folder)
    if found is None:
        raise UsageError(f"{folder}: no run that waits lies there; only runs of --model handoff:DIR or --evaluator spool:DIR can go on")
    return found


def drop_if_fruitless(folder: Path) -> None:
    """Remove the folder of a run that could not start: no kernel was written and no model has answered."""
    answers = (path for path in (folder / "llm").glob("*.json") if not path.stem.endswith(".failed"))
    if not any((folder / "kernels").glob("*.py")) and not any(answers):
        shutil.rmtree(folder, ignore_errors=True)


class EventLog:
    """Appends events to a file, one JSON object per line, and passes them on."""

    def __init__(self, path: Path, on_event: OnEvent | None) -> None:
        """The file, and who else is told."""
        self._path = path
        self._on_event = on_event

    def __call__(self, data: Event) -> None:
        """Tell of one event."""
        event = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), **data}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(event, ensure_ascii=False, default=str) + "\n")
        if self._on_event:
            self._on_event(event)


def _kept(folder: Path) -> dict[str, Any] | None:
    try:
        found = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
