"""Measure how honest the timing is: `python -m tritonsmith.benchmarks.timing.study`. Needs a CUDA card.

Four parts: `equal` (the reference's own kernel as a candidate, and the A/A controls of every verdict), `gain` (kernels with 3 % less and
3 % more work), `repeat` (strict verdicts of two separate evaluators about the same kernels) and `cost` (seconds per verdict).
Each part's verdicts go to `--out` as they come; the summary reads what is there, so that parts can be run one after the other.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console
from rich.table import Table

from tritonsmith.benchmarks.timing.figures import Figure, StudyRow, row_of, summarize
from tritonsmith.benchmarks.timing.plan import COST, REPEATED, TASKS, RepeatedKernel, schedule
from tritonsmith.evaluator.caller.local import open_evaluator
from tritonsmith.evaluator.errors import InfrastructureError, TritonsmithError, UsageError
from tritonsmith.evaluator.schema import Hardware, Task, TaskFacts, Verdict

HERE = Path(__file__).resolve().parents[1]
PARTS = ("equal", "gain", "repeat", "cost")
REST_SECONDS = 10.0
"""Before a warm verdict: processes are readied meanwhile, as they are while a model writes the next kernel."""
_TRUTH_SECONDS = 240.0
_ENVIRONMENT = ("card", "nvml", "versions", "clocks", "sandbox")
"""What of a verdict's environment a result file keeps."""
_console = Console(width=None if sys.stdout.isatty() else 180)


class StudyEvaluator(Protocol):
    """What the study asks of an evaluator; `LocalEvaluator` is one."""

    hardware: Hardware

    def evaluate_now(self, task: Task, source: str, profile: str = "quick") -> Verdict:
        """One verdict."""
        ...

    async def describe(self, task: Task) -> TaskFacts:
        """Facts of the reference."""
        ...

    def close(self) -> None:
        """End every process."""
        ...


class Study:
    """Asks for verdicts and keeps their rows.

    Args:
        opener: makes a fresh evaluator.
        out: folder of the result files.
        seconds: no verdict is asked for later than this after the start.
        profile: of the verdicts of `repeat`.
        command: as it was typed, for the result files.
        rest: seconds before each candidate of `cost` but the first, in which the pool fills as it does while a model writes.
    """

    def __init__(
        self, opener: Callable[[], StudyEvaluator], out: Path, seconds: float, profile: str, command: str, rest: float = REST_SECONDS
    ) -> None:
        self._open, self._out, self._profile, self.command = opener, out, profile, command
        self._rest = rest
        self._started, self._limit = time.monotonic(), seconds
        self._environment: dict[str, Any] = {}

    def _ask(self, evaluator: StudyEvaluator, task: Task, text: str, profile: str = "quick") -> tuple[Verdict | str, float]:
        started = time.monotonic()
        try:
            verdict = evaluator.evaluate_now(task, text, profile)
        except InfrastructureError as error:
            return str(error), time.monotonic() - started
        self._environment = self._environment or {key: value for key, value in verdict.environment.items() if key in _ENVIRONMENT}
        return verdict, time.monotonic() - started

    def _is_late(self) -> bool:
        return time.monotonic() - self._started > self._limit

    def _keep(self, part: str, rows: list[StudyRow], row: StudyRow, **more: Any) -> None:
        """Add a row, print it, and write the part's file anew: a study that is cut short keeps what it has."""
        rows.append(row)
        control = f"A/A {row.control:.4f}" if row.control is not None else "no control"
        word = row.comparison.value if row.comparison else "-"
        score = f"{row.score:.4f}" if row.score is not None else row.message[:80]
        elapsed = time.monotonic() - self._started
        line = f"{elapsed:5.0f} s {part:6} {row.kernel:24} {row.kind:6} {row.status:10} {word:10} {score} {control} {row.seconds:.1f} s"
        _console.print(line, markup=False, emoji=False, highlight=False, soft_wrap=True)
        sys.stdout.flush()
        self._out.mkdir(parents=True, exist_ok=True)
        about = {"command": self.command, "date": datetime.now(UTC).isoformat(timespec="seconds"), "environment": self._environment}
        content = about | more | {"rows": [kept.model_dump(mode="json") for kept in rows]}
        (self._out / f"{part}.json").write_text(json.dumps(content, indent=None) + "\n", encoding="utf-8")

    def pairs(self, counts: dict[str, int], truth: Callable[[], dict[str, float]]) -> None:
        """Kernels of known work; `truth` measures the true gains where some are asked for. Raises TaskError, InfrastructureError."""
        rows: list[StudyRow] = []
        evaluator = self._open()
        try:
            truths = truth() if counts["gain"] else {}
            for study_task, kind in schedule(counts):
                if self._is_late():
                    break
                answer, seconds = self._ask(evaluator, study_task.task(), study_task.candidate(kind))
                self._keep("pairs", rows, _make_row(answer, "pairs", study_task.name, kind, seconds), truths=truths)
        finally:
            evaluator.close()

    def repeat(self, kernels: Sequence[RepeatedKernel] = REPEATED) -> None:
        """Each kernel before one evaluator and then before another one, which share nothing. Raises TaskError, UsageError."""
        rows: list[StudyRow] = []
        evaluators: dict[str, StudyEvaluator] = {}
        try:
            for name in ("first", "second"):
                evaluators[name] = self._open()
            for kernel in kernels:
                task = kernel.task()
                for name, evaluator in evaluators.items():
                    if self._is_late():
                        return
                    answer, seconds = self._ask(evaluator, task, _candidate_text(kernel, task, evaluator), self._profile)
                    self._keep("repeat", rows, _make_row(answer, "repeat", kernel.name, name, seconds), profile=self._profile)
        finally:
            for evaluator in evaluators.values():
                evaluator.close()

    def cost(self, groups: Sequence[Sequence[RepeatedKernel]] = COST) -> None:
        """Per task a new evaluator: its start and first verdict, then further candidates with a rest in between. Raises TaskError."""
        rows: list[StudyRow] = []
        for group in groups:
            started = time.monotonic()
            evaluator = self._open()
            try:
                for number, kernel in enumerate(group):
                    if self._is_late():
                        break
                    task = kernel.task()
                    text = _candidate_text(kernel, task, evaluator)
                    if number:
                        time.sleep(self._rest)
                    answer, seconds = self._ask(evaluator, task, text)
                    seconds = seconds if number else time.monotonic() - started
                    kind = "warm" if number else "cold"
                    self._keep("cost", rows, _make_row(answer, "cost", kernel.name, kind, seconds))
            finally:
                evaluator.close()


def _candidate_text(kernel: RepeatedKernel, task: Task, evaluator: StudyEvaluator) -> str:
    return kernel.text(task, lambda: asyncio.run(evaluator.describe(task)), evaluator.hardware)


def _make_row(answer: Verdict | str, part: str, kernel: str, kind: str, seconds: float) -> StudyRow:
    seconds = round(seconds, 2)
    if isinstance(answer, str):
        return StudyRow(part=part, kernel=kernel, kind=kind, seconds=seconds, message=answer[:300])
    return row_of(answer, part, kernel, kind, seconds, pair_ratios(answer))


def pair_ratios(verdict: Verdict, baseline: str = "") -> list[float]:
    """Baseline over candidate, pair by pair, from the first session with this baseline; empty where there are no raw samples.

    Default: the strongest baseline. Where memory is short each baseline has a session of its own.
    """
    timing = verdict.timing
    if timing is None or not timing.raw or not Path(timing.raw).is_file():
        return []
    raw = json.loads(Path(timing.raw).read_text(encoding="utf-8"))
    name = baseline or timing.baseline
    sessions = [one["samples"] for one in (raw, *raw.get("sessions", ())) if name in one.get("samples", {})]
    samples = sessions[0][name] if sessions else {}
    pairs = zip(samples.get("candidate_ms", []), samples.get("baseline_ms", []), strict=True)
    return [round(other / candidate, 5) for candidate, other in pairs]


def measure_true_gains() -> dict[str, float]:
    """The true gain of every scalable kernel by the card's clock, in a process of its own. Raises InfrastructureError."""
    tasks = [task for task in TASKS if task.scalable]
    pairs = [[task.task(kind).model_dump(mode="json") for kind in ("gain", "equal")] for task in tasks]
    command = [sys.executable, "-P", "-m", "tritonsmith.benchmarks.timing.true_ratio"]
    done = subprocess.run(command, input=json.dumps(pairs) + "\n", capture_output=True, text=True, timeout=_TRUTH_SECONDS)
    if done.returncode != 0:
        raise InfrastructureError(f"the true ratios could not be measured: {done.stderr.strip()[-300:]}")
    return dict(zip((task.name for task in tasks), json.loads(done.stdout.splitlines()[-1]), strict=True))


def read_results(out: Path) -> tuple[list[StudyRow], dict[str, float]]:
    """Rows of every part whose file is there, and the true gains."""
    rows: list[StudyRow] = []
    truths: dict[str, float] = {}
    for part in ("pairs", "repeat", "cost"):
        path = out / f"{part}.json"
        if path.exists():
            content = json.loads(path.read_text(encoding="utf-8"))
            rows += [StudyRow.model_validate(row) for row in content["rows"]]
            truths |= content.get("truths", {})
    return rows, truths


def table_of(figures: Sequence[Figure]) -> Table:
    """What is required, and what was reached."""
    table = Table(title="timing study")
    for column in ("figure", "required", "reached", ""):
        table.add_column(column, overflow="fold")
    for figure in figures:
        style = None if figure.passed else "bold red"
        table.add_row(figure.name, figure.required, figure.reached, "yes" if figure.passed else "NO", style=style)
    return table


def main(
    arguments: Sequence[str] | None = None,
    opener: Callable[[], StudyEvaluator] | None = None,
    truth: Callable[[], dict[str, float]] = measure_true_gains,
) -> int:
    """0 when every figure of the parts that were asked for is reached, 1 when one is missed, 2 for bad input."""
    parser = argparse.ArgumentParser(prog="python -m tritonsmith.benchmarks.timing.study", description=__doc__)
    parser.add_argument("--part", default=",".join(PARTS), help="comma-separated: " + ", ".join(PARTS))
    parser.add_argument("--equal", type=int, default=60, help="verdicts about equal kernels; each has an A/A control as well")
    parser.add_argument("--gain", type=int, default=32, help="verdicts about a true gain of 3 %%")
    parser.add_argument("--loss", type=int, default=12, help="verdicts about a true loss of 3 %%")
    parser.add_argument("--kernels", type=int, default=len(REPEATED), help="kernels of `repeat`")
    parser.add_argument("--profile", default="strict", choices=("quick", "strict"), help="profile of `repeat`")
    parser.add_argument("--seconds", type=float, default=1e9, help="ask for no further verdict after so many seconds")
    parser.add_argument("--rest", type=float, default=REST_SECONDS, help="seconds before each warm verdict of `cost`")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "timing_study")
    parser.add_argument("--report", action="store_true", help="only print the summary of the results that are there")
    options = parser.parse_args(arguments)
    parts = options.part.split(",")
    if wrong := set(parts) - set(PARTS):
        parser.error(f"--part: {', '.join(sorted(wrong))} is not one of {', '.join(PARTS)}")
    try:
        if not options.report:
            _measure(options, parts, sys.argv[1:] if arguments is None else arguments, opener or open_on_card, truth)
    except (TritonsmithError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2 if isinstance(error, UsageError | OSError) else 1
    except KeyboardInterrupt:
        sys.stderr.write(f"Interrupted; verdicts so far are in {options.out} (`--report` sums them up)\n")
        return 130
    rows, truths = read_results(options.out)
    figures = summarize(rows, truths, parts)
    _console.print(table_of(figures))
    if options.out.is_dir():
        (options.out / "summary.json").write_text(json.dumps([vars(figure) for figure in figures], indent=1) + "\n", encoding="utf-8")
    return 0 if all(figure.passed for figure in figures) else 1


def open_on_card() -> StudyEvaluator:
    """A fresh evaluator of the card of this machine. Raises UsageError where there is none."""
    evaluator = open_evaluator()
    if not evaluator.hardware.present:
        evaluator.close()
        raise UsageError("there is no CUDA card here; the study measures (`tritonsmith doctor` says what is missing)")
    return evaluator


def _measure(
    options: argparse.Namespace, parts: Sequence[str], arguments: Sequence[str], opener: Callable[[], StudyEvaluator],
    truth: Callable[[], dict[str, float]],
) -> None:  # fmt: skip
    command = shlex.join(["python", "-m", "tritonsmith.benchmarks.timing.study", *arguments])
    study = Study(opener, options.out, options.seconds, options.profile, command, options.rest)
    if "equal" in parts or "gain" in parts:
        gains = "gain" in parts
        counts = {"equal": options.equal if "equal" in parts else 0, "gain": options.gain * gains, "loss": options.loss * gains}
        study.pairs(counts, truth)
    if "repeat" in parts:
        study.repeat(REPEATED[: options.kernels])
    if "cost" in parts:
        study.cost()


if __name__ == "__main__":
    sys.exit(main())
