"""Whether what a task read is still as it was, asked without running the task."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tritonsmith.evaluator.processes.scrubbed import scrubbed_environment
from tritonsmith.evaluator.reads.record import TaskReads


def find_changes(folder: str | Path, reads: TaskReads) -> Iterator[str]:
    """What has changed, each as the subject of a sentence; paths inside the task's folder are looked for in `folder`."""
    return reads.find_changes(Path(folder), scrubbed_environment(Path()))
