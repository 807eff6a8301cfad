"""What a first use costs: set-up, `make demo`, `make test` and typical commands. Prints wall and processor seconds as a Markdown table.

`python -m tritonsmith.benchmarks.first_use [--checkout NAME=DIR ...] [--steps help,lint,...] [--repeats 3] [--out FILE]`. Every step is a
process of its own, the checkouts take turns, and nothing that was measured before is used. Processor seconds are those of all processes
that a step starts. They hardly depend on what else the machine does; wall seconds do. `setup` and `setup-dev` install into a fresh copy of
what git tracks; `demo` and `test` use the checkout's own `.venv`, which is brought up to date first. Commands run with this Python.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tritonsmith.benchmarks.checkouts import add_checkout_option, environment_of, read_checkouts
from tritonsmith.benchmarks.host import begin_record, print_line, write_record

_SUBREAPER = 36
"""Of prctl: orphans below this process become its children, so that their time is counted."""
_PATIENCE = 10.0
"""Seconds that orphans may take to end."""
_ROOT = Path(__file__).resolve().parents[1]
_HACKS = _ROOT / "benchmarks" / "hacks"
_TASK, _KERNEL = str(_HACKS / "tasks" / "softmax.py"), str(_HACKS / "kernels" / "softmax.py")
COMMANDS: dict[str, tuple[str, ...]] = {
    "help": ("--help",),
    "lint": ("lint", _TASK),
    "detect": ("detect", _KERNEL),
    "evaluate": ("evaluate", _TASK, _KERNEL, "--target", "h200", "--profile", "quick"),
    "evaluate-strict": ("evaluate", _TASK, _KERNEL, "--target", "h200", "--profile", "strict"),
    "optimize": ("optimize", _TASK, "--target", "h200", "--out", "run"),
}
"""What is typed, by the name of its step."""
TARGETS = {"setup": ".venv/.ready", "setup-dev": ".venv/.ready-dev", "demo": "demo", "check": "check", "test": "test"}
"""What `make` is asked for, by the name of its step."""
STEPS = ("setup", "setup-dev", *COMMANDS, "demo", "check", "test")


@dataclass(frozen=True)
class TimedStep:
    """One call: its seconds, how it ended, and the last line that it printed."""

    wall: float
    cpu: float
    exit_code: int
    last_line: str


@dataclass
class CheckoutBench:
    """Where the steps of one checkout run.

    Args:
        checkout: the folder of a clone.
        scratch: an empty folder.
    """

    checkout: Path
    scratch: Path
    _copy: Path | None = field(default=None, init=False)

    def run(self, step: str) -> TimedStep:
        """One step, timed."""
        if step in COMMANDS:
            command = [sys.executable, "-P", "-c", "from tritonsmith.cli.main import main; main()", *COMMANDS[step]]
            with tempfile.TemporaryDirectory(dir=self.scratch) as folder:
                return time_call(command, Path(folder), environment_of(self.checkout))
        words = ["make", TARGETS[step]]
        environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV", "MAKEFLAGS")}
        if step.startswith("setup"):
            return time_call(words, self._copied(), environment)
        subprocess.run(["make", TARGETS["setup-dev"]], cwd=self.checkout, env=environment, capture_output=True, check=False)
        subprocess.run(["make", TARGETS["setup"]], cwd=self.checkout, env=environment, capture_output=True, check=False)
        return time_call(words, self.checkout, environment)

    def _copied(self) -> Path:
        """A fresh copy of what git tracks."""
        if self._copy is None:
            self._copy = self.scratch / "copy"
            self._copy.mkdir()
            archive = subprocess.run(["git", "archive", "HEAD"], cwd=self.checkout, stdout=subprocess.PIPE, check=True).stdout
            subprocess.run(["tar", "x"], cwd=self._copy, input=archive, check=True)
        return self._copy


def time_call(command: Sequence[str], folder: Path, environment: dict[str, str]) -> TimedStep:
    """Run a command in a folder, and wait for all that it started."""
    environment = environment | {"TRITONSMITH_ANSWERS": "off"}
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    wall = time.perf_counter() - began
    _reap_orphans()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    last = (done.stdout.strip().splitlines() or [""])[-1].replace(f"{_ROOT}{os.sep}", "")  # a record names no folder of its host
    return TimedStep(round(wall, 2), round(cpu, 2), done.returncode, last)


def _reap_orphans() -> None:
    """Wait a while for what a command left, since only the time of processes that were waited for is counted."""
    until = time.monotonic() + _PATIENCE
    with suppress(ChildProcessError):  # none is left
        while time.monotonic() < until:
            if os.waitpid(-1, os.WNOHANG) == (0, 0):
                time.sleep(0.05)


def tabulate(rows: dict[str, dict[str, dict[str, Any]]], checkouts: Sequence[str]) -> list[str]:
    """The lines of a Markdown table: a row per step, wall and processor seconds of each checkout; `-` where a step failed."""
    heads = [f"{name}: {kind} s" for name in checkouts for kind in ("wall", "CPU")]
    lines = ["| step | " + " | ".join(heads) + " |", "|--|" + "--|" * len(heads)]
    for step, timed in rows.items():
        cells = [f"{timed[name][kind]:.1f}" if timed[name]["works"] else "-" for name in checkouts for kind in ("wall_s", "cpu_s")]
        lines.append(f"| {step} | " + " | ".join(cells) + " |")
    return lines


def measure(step: str, benches: dict[str, CheckoutBench], repeats: int, tell: Callable[[str], None]) -> dict[str, dict[str, Any]]:
    """Medians and samples of one step, by checkout."""
    taken: dict[str, list[TimedStep]] = {name: [] for name in benches}
    for _ in range(repeats if step in COMMANDS else 1):
        for name, bench in benches.items():
            timed = bench.run(step)
            tell(f"{step} {name}: {timed.wall:.1f} s, {timed.cpu:.1f} s CPU, exit code {timed.exit_code}: {timed.last_line}")
            taken[name].append(timed)
    return {
        name: {
            "wall_s": statistics.median(one.wall for one in all_of), "cpu_s": statistics.median(one.cpu for one in all_of),
            "works": all(one.exit_code == 0 for one in all_of), "samples": [vars(one) for one in all_of],
        }
        for name, all_of in taken.items()
    }  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description="What a first use costs.")
    add_checkout_option(parser)
    parser.add_argument("--steps", default=",".join(STEPS), help=f"of {', '.join(STEPS)}; default: all")
    parser.add_argument("--repeats", type=int, default=3, help="calls of each command; targets of make run once")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    if unknown := sorted(set(options.steps.split(",")) - {*STEPS}):
        parser.error(f"no such step: {', '.join(unknown)}; choose among {', '.join(STEPS)}")
    ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    record = begin_record("first_use", arguments) | {"repeats": options.repeats, "steps": {}}
    with tempfile.TemporaryDirectory(prefix="first-use-") as scratch:
        benches = {name: CheckoutBench(folder, Path(scratch) / name) for name, folder in read_checkouts(options).items()}
        for bench in benches.values():
            bench.scratch.mkdir()
        for step in options.steps.split(","):
            record["steps"][step] = measure(step, benches, options.repeats, lambda line: print_line(f"<!-- {line} -->"))
            if options.out:
                write_record(record, options.out)
    for line in tabulate(record["steps"], [*benches]):
        print_line(line)


if __name__ == "__main__":
    main()
