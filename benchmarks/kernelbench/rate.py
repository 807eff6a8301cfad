"""What a verdict costs, next to KernelBench's own evaluation: `python -m tritonsmith.benchmarks.kernelbench.rate --checkout DIR`.

Twenty right kernels for five tasks under 1 GB. Per task a fresh evaluator judges the reference's own text first, which makes what
candidates share. Then the quick verdicts of four kernels and their strict verdicts follow without a pause. Then the evaluator ends, and
`eval_kernel_against_ref` judges the same four, each in a fresh process with 5 correctness and 100 timing trials. A task is measured as a
whole; tasks that have all rows are skipped. `--table` makes the page of the rows.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tritonsmith.benchmarks.host import cpu_name, print_line
from tritonsmith.benchmarks.kernelbench.crew import CardWorker, JobAsker, share_work
from tritonsmith.benchmarks.kernelbench.judging import make_row
from tritonsmith.benchmarks.kernelbench.large import KERNELS, TASKS
from tritonsmith.benchmarks.kernelbench.options import ROWS, describe_row, make_parser, run_script, split_names, write_command
from tritonsmith.benchmarks.kernelbench.rows.rate_page import FIRST, OUTSIDE, write_rate
from tritonsmith.benchmarks.kernelbench.rows.records import JudgeJob, JudgeRow, Ruling
from tritonsmith.benchmarks.kernelbench.rows.sheet import RowFile
from tritonsmith.benchmarks.kernelbench.texts import copy_reference, set_constants
from tritonsmith.evaluator.errors import UsageError

_OUTSIDE_MODULE = "tritonsmith.benchmarks.kernelbench.outside"


@dataclass(frozen=True)
class RateTask:
    """One of the large tasks at a size under 1 GB, with one constant of its kernel that is varied."""

    name: str
    sizes: dict[str, int]
    constant: str
    values: tuple[int, ...]

    def reference(self) -> str:
        """The task's text at this size, for a judge that knows no overrides."""
        return set_constants((TASKS / f"{self.name}.py").read_text(encoding="utf-8"), self.sizes, f"{self.name}.py")

    def kernels(self) -> dict[str, str]:
        """The kernel's variants by name."""
        text = (KERNELS / f"{self.name}.py").read_text(encoding="utf-8")
        return {f"{self.constant} {value}": set_constants(text, {self.constant: value}, f"{self.name}.py") for value in self.values}

    def jobs(self, size: str = "full") -> list[JudgeJob]:
        """The questions for our evaluator, in their order: the copy, all quick ones, all strict ones."""
        path = TASKS / f"{self.name}.py"
        first = JudgeJob(
            name=self.name, kind=FIRST, task=str(path), text=copy_reference(self.reference(), path.name), size=size,
            overrides=self.sizes if size == "full" else {}, expected="accepted",
        )  # fmt: skip
        return [first] + [
            first.model_copy(update={"kind": f"{profile}: {variant}", "profile": profile, "text": text})
            for profile in ("quick", "strict")
            for variant, text in self.kernels().items()
        ]

    def keys(self) -> list[tuple[str, str]]:
        """The rows that the task must have."""
        return [job.key for job in self.jobs()] + [(self.name, f"{OUTSIDE}: {variant}") for variant in self.kernels()]


RATE_TASKS = (
    RateTask("gelu", {"rows": 8192, "columns": 8192}, "BLOCK", (512, 1024, 2048, 4096)),
    RateTask("softmax", {"rows": 8192, "columns": 8192}, "WARPS", (4, 8, 16, 32)),
    RateTask("layer_norm", {"rows": 32_768, "columns": 2_560}, "WARPS", (2, 4, 8, 16)),
    RateTask("sum_axis", {"batch": 32, "rows": 2_048, "columns": 1_280}, "BLOCK", (32, 64, 128, 256)),
    RateTask("running_sum", {"rows": 4_096, "columns": 16_384}, "BLOCK", (512, 1024, 2048, 4096)),
)
OutsideJudge = Callable[[str, str], dict[str, Any]]
"""Answers a reference's and a kernel's text as `outside.evaluate` does."""


def ask_outside(checkout: str, device: str, limit: float, reference: str, kernel: str) -> dict[str, Any]:
    """KernelBench's answer in a fresh process. What fails, or takes longer than `limit` seconds, is an answer with an `error`."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as cache:
        environment = os.environ | {"TRITON_CACHE_DIR": cache} | ({"CUDA_VISIBLE_DEVICES": device} if device else {})
        command = [sys.executable, "-P", "-m", _OUTSIDE_MODULE, checkout]
        request = json.dumps({"reference": reference, "kernel": kernel})
        try:
            done = subprocess.run(command, input=request, env=environment, capture_output=True, text=True, timeout=limit)
        except subprocess.TimeoutExpired:
            return {"error": f"KernelBench's evaluation took longer than {limit:.0f} s"}
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        return {"error": f"KernelBench's evaluation failed: {said[0][:300]}"}
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def make_outside_row(job: JudgeJob, answer: dict[str, Any], seconds: float) -> JudgeRow:
    """The row of KernelBench's answer; its times are milliseconds, and its score is against eager."""
    if "error" in answer:
        return make_row(job, ruling=Ruling.OPEN, message=answer["error"], seconds=seconds)
    if not (answer["compiled"] and answer["correct"]):
        return make_row(job, ruling=Ruling.REFUSED, message=answer["metadata"], seconds=seconds)
    own, eager = answer["runtime_ms"], answer["reference_ms"]
    return make_row(
        job, ruling=Ruling.JUDGED, seconds=seconds, timing="measured", median_ms=own, baselines_ms={"eager": eager}, score_eager=eager / own
    )


def measure_task(
    task: RateTask, worker: JobAsker, outside: OutsideJudge | None, keep: Callable[[JudgeRow], None], size: str = "full"
) -> None:
    """All rows of a task: ours one after the other, then the worker ends, then KernelBench's where there is one to ask."""
    try:
        for job in task.jobs(size):
            keep(worker.ask(job))
    finally:
        worker.close()
    if outside is None:
        return
    for variant, text in task.kernels().items():
        job = JudgeJob(name=task.name, kind=f"{OUTSIDE}: {variant}", task="", text=text, expected="accepted")
        started = time.monotonic()
        answer = outside(task.reference(), text)
        keep(make_outside_row(job, answer, round(time.monotonic() - started, 2)))


def main(
    arguments: Sequence[str] | None = None, opener: Callable[[str, str, float], JobAsker] = CardWorker,
    ask: Callable[[str, str, float, str, str], dict[str, Any]] = ask_outside,
) -> int:  # fmt: skip
    """0 when every task has its rows and, with --table, every figure is reached; 1 otherwise; 2 for bad input."""
    parser = make_parser("rate", __doc__)
    parser.add_argument("--checkout", default="", help="a checkout of KernelBench; default: the installed package")
    parser.add_argument("--alone", action="store_true", help="leave KernelBench's evaluation out")
    options = parser.parse_args(arguments)
    options.rows = options.rows or ROWS / "rate.jsonl"

    def work() -> int:
        rows = RowFile(options.rows)
        if options.table:
            return 0 if write_rate(rows.read(), [key for task in RATE_TASKS for key in task.keys()], options.results / options.name) else 1
        return _measure(options, rows, write_command("rate", arguments), opener, ask)

    return run_script(work, options.rows)


def _measure(
    options: argparse.Namespace, rows: RowFile, command: str, opener: Callable[[str, str, float], JobAsker],
    ask: Callable[[str, str, float, str, str], dict[str, Any]],
) -> int:  # fmt: skip
    if options.checkout and not Path(options.checkout).is_dir():
        raise UsageError(f"--checkout {options.checkout}: is no folder; name a checkout of KernelBench, or use --alone")
    checkout = os.path.abspath(options.checkout) if options.checkout else ""
    judged = {row.key for row in rows.read()}
    waiting = [task for task in RATE_TASKS if not judged.issuperset(task.keys())]
    print_line(f"{len(RATE_TASKS) - len(waiting)} of {len(RATE_TASKS)} tasks have their rows in {options.rows}; {len(waiting)} to measure")
    keeping = threading.Lock()

    def keep(row: JudgeRow) -> None:
        with keeping:
            rows.add(row.model_copy(update={"command": command, "host": cpu_name()}))
            print_line(describe_row(row))

    def measure(device: str, task: RateTask) -> None:
        outside = None if options.alone else partial(ask, checkout, device, options.limit)
        measure_task(task, opener(options.target, device, options.limit), outside, keep, options.size)

    left = share_work([partial(measure, device) for device in split_names(options.devices) or [""]], waiting, options.seconds)
    if left:
        print_line(f"{left} tasks are left; the same command goes on")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
