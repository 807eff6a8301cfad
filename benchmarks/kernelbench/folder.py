"""The task files of a folder as jobs: which there are, how they are named, and which are the largest."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tritonsmith.benchmarks.kernelbench.judging import count_bytes
from tritonsmith.evaluator.caller.questions.describe import run_probe
from tritonsmith.evaluator.errors import InfrastructureError, TaskError, UsageError
from tritonsmith.evaluator.tasks.files import load_task

LEVELS = ("level1", "level2", "level3")
"""Folders of KernelBench that are taken."""
_PROCESSORS_PER_PROBE = 2
"""Processors of the host per process that counts a task's bytes."""


def find_tasks(folder: Path) -> dict[str, Path]:
    """Task files by name: `level1/23_Softmax` in KernelBench's folder, `rms_norm` in a folder of files; numbers in their order.

    Raises UsageError for a folder without task files.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder}: is no folder; name KernelBench's folder with level1, level2 and level3, or one of task files")
    levels = [level for level in LEVELS if (folder / level).is_dir()]
    paths = [path for level in levels for path in (folder / level).glob("*.py")] or list(folder.glob("*.py"))
    if not paths:
        raise UsageError(f"{folder}: holds no task files; name KernelBench's folder with level1, level2 and level3, or one of task files")
    named = {path.relative_to(folder).with_suffix("").as_posix(): path.resolve() for path in paths}
    return dict(sorted(named.items(), key=lambda item: [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", item[0])]))


def select_tasks(tasks: dict[str, Path], only: str) -> dict[str, Path]:
    """The tasks whose name, or its part up to the first underscore, is among the comma-separated ones. Raises UsageError."""
    wanted = [name.strip() for name in only.split(",") if name.strip()]
    found = {name: [task for task in tasks if task == name or task.startswith(f"{name}_")] for name in wanted}
    if missing := [name for name, matches in found.items() if not matches]:
        raise UsageError(f"--only {','.join(missing)}: no such task; the names are like {', '.join(list(tasks)[:3])}")
    chosen = {task for matches in found.values() for task in matches}
    return {name: path for name, path in tasks.items() if name in chosen}


def select_largest(tasks: dict[str, Path], count: int, cache: Path) -> dict[str, Path]:
    """The tasks with the most bytes of inputs and outputs, largest first; those whose bytes are unknown are left out.

    What is counted is kept in `cache` at once, since a count takes seconds per task.
    """
    known: dict[str, int | None] = json.loads(cache.read_text(encoding="utf-8")) if cache.exists() else {}
    unknown = [name for name in tasks if name not in known]
    with ThreadPoolExecutor(max(1, (os.cpu_count() or 1) // _PROCESSORS_PER_PROBE)) as pool:
        for name, size in zip(unknown, pool.map(lambda name: _count_task(tasks[name]), unknown), strict=True):
            known[name] = size
            cache.parent.mkdir(parents=True, exist_ok=True)
            cache.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
    return {name: tasks[name] for name in rank_by_bytes(known, tasks)[:count]}


def rank_by_bytes(known: dict[str, int | None], names: Iterable[str]) -> Sequence[str]:
    """The names with known bytes, largest first."""
    sized = [(size, name) for name in names if (size := known.get(name)) is not None]
    return [name for _, name in sorted(sized, key=lambda pair: -pair[0])]


def _count_task(path: Path) -> int | None:
    try:
        return count_bytes(run_probe(load_task(path))[0])
    except (TaskError, InfrastructureError):
        return None
