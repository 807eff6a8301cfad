"""How long the loop of a change takes: `make check`, `make demo` and `make test` of one or several checkouts, in turn. Prints a table.

`python -m tritonsmith.benchmarks.loop_times [--checkout NAME=DIR ...] [--targets check,demo,test] [--out FILE]`. Set-up is not counted:
each checkout is set up first. Times are wall seconds; the machine must be idle otherwise.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tritonsmith.benchmarks.checkouts import add_checkout_option, read_checkouts
from tritonsmith.benchmarks.host import begin_record, print_line, write_record

PROMISED = {"check": 45.0, "demo": 60.0, "test": 240.0}
"""Seconds that each target may take on two idle cores."""


def time_target(checkout: Path, target: str) -> dict[str, Any]:
    """Wall seconds, exit code and last line of one target, in an environment without another checkout's Python."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV", "MAKEFLAGS")}
    began = time.perf_counter()
    done = subprocess.run(["make", target], cwd=checkout, env=environment, capture_output=True, text=True, check=False)
    seconds = round(time.perf_counter() - began, 1)
    return {"seconds": seconds, "exit_code": done.returncode, "last_line": (done.stdout.strip().splitlines() or [""])[-1]}


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description="How long the loop of a change takes.")
    add_checkout_option(parser)
    parser.add_argument("--targets", default=",".join(PROMISED))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    checkouts = read_checkouts(options)
    record = begin_record("loop_times", arguments) | {"promised_s": PROMISED, "targets": {}}
    for checkout in checkouts.values():
        time_target(checkout, ".venv/.ready")
    print_line(f"{'target':<8} {'checkout':<20} {'seconds':>8} {'at most':>8}  exit code")
    for target in options.targets.split(","):
        for name, checkout in checkouts.items():
            timed = time_target(checkout, target)
            record["targets"].setdefault(target, {})[name] = timed
            print_line(f"{target:<8} {name:<20} {timed['seconds']:>8.1f} {PROMISED[target]:>8.1f}  {timed['exit_code']}")
    if options.out:
        write_record(record, options.out)


if __name__ == "__main__":
    main()
