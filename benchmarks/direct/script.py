"""Times kernels of the built-in author next to their references: `python -m tritonsmith.benchmarks.direct FOLDER --texts TEXTS`.

FOLDER is KernelBench's own, or any folder of task files. TEXTS holds kernels named TASK__NAME.py, as
`python -m tritonsmith.benchmarks.kernelbench.author FOLDER --plan --texts TEXTS` writes them. Processes compile ahead, and one process
compares and times. Nothing is judged: inputs are the task's own, nothing is hidden, and no score follows from a row. The kernels run
outside of the sandbox, so name only texts that the built-in author wrote.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from tritonsmith.benchmarks.direct.child import Child, ChildDied
from tritonsmith.benchmarks.host import print_line
from tritonsmith.benchmarks.kernelbench.folder import find_tasks, select_tasks
from tritonsmith.benchmarks.kernelbench.options import ROWS, run_script
from tritonsmith.evaluator.cards.machine import card_memory_in_use
from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.schema import Record

_COMPILER = "tritonsmith.benchmarks.direct.compiler"
_TIMER = "tritonsmith.benchmarks.direct.timer"
_LIMIT = 40.0
"""Seconds after which a kernel is given up; a process that compiles may take three times as long."""
_LAST_WORDS = 200


class DirectJob(Record):
    """One kernel and its task."""

    name: str
    task: str
    text: str


def find_jobs(tasks: dict[str, Path], folder: Path) -> list[DirectJob]:
    """The kernels of a folder whose tasks are wanted, in the order of the tasks. Raises UsageError where there is none."""
    texts = sorted(folder.glob("*__*.py"))
    jobs = [
        DirectJob(name=text.stem, task=str(path), text=str(text.resolve()))
        for name, path in tasks.items() for text in texts if text.stem.startswith(f"{name.replace('/', '_')}__")
    ]  # fmt: skip
    if not jobs:
        raise UsageError(f"--texts {folder}: holds no kernel TASK__NAME.py of these tasks; `kernelbench.author FOLDER --plan --texts` does")
    return jobs


class CompilerCrew:
    """Processes that compile kernels in the order of the jobs, without memory of the card."""

    def __init__(self, jobs: Iterable[DirectJob], number: int) -> None:
        self._waiting: queue.SimpleQueue[DirectJob] = queue.SimpleQueue()
        self._done: dict[str, threading.Event] = {}
        for job in jobs:
            self._waiting.put(job)
            self._done[job.name] = threading.Event()
        for _ in range(number):
            threading.Thread(target=self._work, daemon=True, name="compiler").start()

    def wait(self, job: DirectJob) -> None:
        """Wait until a kernel was tried; the timing process compiles what this could not."""
        self._done[job.name].wait(3 * _LIMIT)

    def _work(self) -> None:
        child = Child(_COMPILER)
        while True:
            try:
                job = self._waiting.get_nowait()
            except queue.Empty:
                child.close()
                return
            try:
                child.ask(job.model_dump(), 3 * _LIMIT)
            except ChildDied:
                child.close()
                child = Child(_COMPILER)
            self._done[job.name].set()


def time_jobs(jobs: Sequence[DirectJob], rows: Path, seconds: float) -> int:
    """Time the jobs one after the other and add a row for each; returns how many are left when `seconds` are over."""
    rows.parent.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    crew = CompilerCrew(jobs, max(1, (os.cpu_count() or 2) - 2))
    child = Child(_TIMER)
    try:
        for number, job in enumerate(jobs):
            if time.monotonic() - began > seconds:
                return len(jobs) - number
            crew.wait(job)
            try:
                row = child.ask(job.model_dump(), _LIMIT)
            except ChildDied as error:
                row = {"kernel": job.name, "fault": str(error)}
            if "fault" in row:  # what a fault of the card leaves behind spoils the next kernel
                child.close()
                child = Child(_TIMER)
            with rows.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
            print_line(f"[{number + 1}/{len(jobs)}] {describe_row(row)}")
    finally:
        child.close()
    return 0


def describe_row(row: dict[str, object]) -> str:
    """A row on one line of the screen."""
    if "fault" in row:
        return f"{row['kernel']}: {' '.join(str(row['fault']).split())[-_LAST_WORDS:]}"
    graph = f", in a graph {row['graph_ms']:.4g}" if row.get("graph_ms") is not None else ""
    return f"{row['kernel']}: {row['ms']:.4g} ms, eager {row['ref_ms']:.4g}{graph}, distance {row['error']:.2g}"


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when every kernel has a row, 1 when some are left, 2 for bad input."""
    parser = argparse.ArgumentParser(prog="python -m tritonsmith.benchmarks.direct", description=__doc__)
    parser.add_argument("folder", type=Path, help="KernelBench's folder with level1, level2 and level3, or a folder of task files")
    parser.add_argument("--texts", type=Path, required=True, help="folder of kernels TASK__NAME.py")
    parser.add_argument("--only", default="", help="comma-separated tasks: level1/23,level3/43")
    parser.add_argument("--rows", type=Path, default=ROWS / "direct.jsonl", help="the file that rows are added to")
    parser.add_argument("--seconds", type=float, default=1e9, help="take no further kernel after so many seconds")
    options = parser.parse_args(arguments)
    return run_script(lambda: _work(options), options.rows)


def _work(options: argparse.Namespace) -> int:
    if card_memory_in_use() is None:
        raise UsageError("there is no CUDA card here; `tritonsmith optimize TASK --target h200` gives estimates without one")
    tasks = find_tasks(options.folder)
    jobs = find_jobs(select_tasks(tasks, options.only) if options.only else tasks, options.texts)
    left = time_jobs(jobs, options.rows, options.seconds)
    if left:
        print_line(f"{left} kernels are left")
    return 1 if left else 0
