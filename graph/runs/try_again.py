"""A run that failed is tried again with what it has paid for: the replies and verdicts of its tape."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tritonsmith.graph.storage.files import lines_of, parse_object, put_text
from tritonsmith.graph.storage.folder import TAPE

Line = dict[str, Any]
_SHAREABLE = ("tape", "reply", "hardware", "facts", "verdict", "memory", "seed")
"""Lines of a tape that hold for any policy; failures belong to the run that met them."""


def read_fatal_fault(folder: Path) -> str:
    """Why the author of a run could not go on; empty where it could."""
    for line in _read_tape(folder):
        if line.get("kind") == "fault" and line.get("fatal"):
            return str(line.get("error", "the author failed"))
    return ""


def write_tape(folder: Path, lines: list[Line]) -> None:
    """Give a run that begins replies and verdicts."""
    fresh = list(_drop_repeats(lines))
    if fresh:
        folder.mkdir(parents=True, exist_ok=True)
        put_text(folder / TAPE, "".join(json.dumps(line, ensure_ascii=False, sort_keys=True) + "\n" for line in fresh))


def read_shareable(folder: Path) -> list[Line]:
    """What a run's tape holds for any policy."""
    return [line for line in _read_tape(folder) if line.get("kind") in _SHAREABLE]


def _drop_repeats(lines: Iterable[Line]) -> Iterable[Line]:
    """Lines without those that say the same as an earlier one; one head, one card."""
    seen = set()
    for line in lines:
        about = () if line["kind"] in ("tape", "hardware") else ("key", "name", "call", "task", "kernel", "profile")
        key = (line["kind"], *(str(line.get(name)) for name in about))
        if key not in seen:
            seen.add(key)
            yield line


def _read_tape(folder: Path) -> list[Line]:
    """The lines of a run's tape; none where there is no tape, and without a last line that a kill has cut."""
    found = []
    try:
        data = (folder / TAPE).read_bytes()
    except OSError:
        return []
    for line in lines_of(data):
        try:
            found.append(parse_object(line))
        except ValueError:
            continue
    return found
