"""How long the loop of a change takes: `make check`, `make demo` and `make test` of one or several checkouts, in turn. Prints a table.

`python -m tritonsmith.benchmarks.loop_times [--checkout DIR ...] [--targets check,demo,test] [--out FILE]`. Set-up is not counted: each
checkout is set up first. Times are wall seconds; the machine must be idle otherwise.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tritonsmith.benchmarks.host import cpu_name, print_line

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
    parser.add_argument("--checkout", type=Path, action="append", help="a checkout to measure; this one where none is named")
    parser.add_argument("--targets", default=",".join(PROMISED))
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    checkouts = [checkout.resolve() for checkout in options.checkout or [Path(__file__).parents[1]]]
    record: dict[str, Any] = {
        "command": "python -m tritonsmith.benchmarks.loop_times " + " ".join(sys.argv[1:]),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": {"cpu": cpu_name(), "cores": os.cpu_count(), "kernel": platform.release(), "python": platform.python_version()},
        "load_average": os.getloadavg()[0], "promised_s": PROMISED, "targets": {},
    }  # fmt: skip
    for checkout in checkouts:
        time_target(checkout, ".venv/.ready")
    print_line(f"{'target':<8} {'checkout':<20} {'seconds':>8} {'at most':>8}  exit code")
    for target in options.targets.split(","):
        for checkout in checkouts:
            told = time_target(checkout, target)
            record["targets"].setdefault(target, {})[checkout.name] = told
            print_line(f"{target:<8} {checkout.name:<20} {told['seconds']:>8.1f} {PROMISED[target]:>8.1f}  {told['exit_code']}")
            if options.out:
                options.out.write_text(json.dumps(record) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
