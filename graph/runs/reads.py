"""What the task of a run in a folder read, by the run's own tape, and whether that is still so."""

from __future__ import annotations

import logging
from pathlib import Path

from tritonsmith.evaluator.caller.questions.changes import find_changes
from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.reads.record import TaskReads
from tritonsmith.evaluator.schema import TaskFacts
from tritonsmith.graph.storage.files import parse_object
from tritonsmith.graph.storage.folder import TAPE

_BEGINNING = 40
"""Bytes of a line of the tape that hold its kind."""


def find_reads(folder: Path) -> TaskReads | None:
    """What the task of the run in a folder read when it was described; None where it was not described yet."""
    try:
        with (folder / TAPE).open("rb") as stream:
            for line in stream:
                if b'"facts"' in line[:_BEGINNING]:
                    return TaskFacts.model_validate(parse_object(line)["facts"]).reads
    except (OSError, ValueError, KeyError):  # whoever plays the tape says what is wrong with it
        pass
    return None


def doubt_judgements(folder: Path, task: str) -> bool:
    """Whether what an earlier part of the run judged does not count, because nobody knows what the task reads; then the log says so."""
    reads = find_reads(folder)
    if reads is None or not reads.unknown:
        return False
    words = "%s: only replies are used again, and everything is judged anew: of %s, %s"
    logging.getLogger("tritonsmith").warning(words, folder, task, reads.unknown)
    return True


def refuse_changed_reads(folder: Path, task: str) -> None:
    """Raise UsageError where something that the task read is not what it was when the run in a folder described the task."""
    reads = find_reads(folder)
    if reads is None or reads.unknown:  # then nothing that was judged counts, and all of it is judged anew
        return
    for changed in find_changes(Path(task).absolute().parent, reads):
        raise UsageError(
            f"{folder}: {changed}, which {task} needs, has changed since the run began; put it back as it was, or begin a new run"
        )
