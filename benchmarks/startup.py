"""How long the command line takes to begin: wall and processor time of calls that need neither a run nor a card. Prints a table.

`python -m tritonsmith.benchmarks.startup [--repeats 5] [--command tritonsmith] [--out FILE]`. Every call is a process of its own. A first
one, which is not counted, fills the page cache and writes bytecode. Processor time hardly depends on what else the machine does; wall time
does. `--command` measures another checkout: its own `tritonsmith`, or this one's with another PYTHONPATH.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import shlex
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tritonsmith.benchmarks.host import cpu_name, print_line

_HERE = Path(__file__).parent
_KERNEL = _HERE / "hacks" / "kernels" / "warmed_softmax.py"
PROMISED = {"--help": 1.0, "optimize nowhere.py": 1.5, f"detect {_KERNEL.name}": 1.0}
"""Calls with the wall seconds that they may take on two idle cores."""


def time_call(command: Sequence[str]) -> tuple[float, float]:
    """Wall and processor seconds of one process with what it starts."""
    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, _, used = os.wait4(process.pid, 0)
    process.returncode = 0  # waited for
    return time.perf_counter() - began, used.ru_utime + used.ru_stime


def measure(command: Sequence[str], repeats: int) -> dict[str, Any]:
    """Medians and samples of one call."""
    samples = [time_call(command) for _ in range(repeats + 1)][1:]
    wall, cpu = ([round(sample[part], 4) for sample in samples] for part in (0, 1))
    return {"wall_s": statistics.median(wall), "cpu_s": statistics.median(cpu), "samples_wall_s": wall, "samples_cpu_s": cpu}


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description="How long the command line takes to begin.")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--command", type=shlex.split, default=[sys.executable, "-c", "from tritonsmith.cli.main import main; main()"])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    record: dict[str, Any] = {
        "command": shlex.join(options.command), "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": {"cpu": cpu_name(), "cores": os.cpu_count(), "kernel": platform.release(), "python": platform.python_version()},
        "load_average": os.getloadavg()[0], "repeats": options.repeats, "calls": {},
    }  # fmt: skip
    note = f"(medians of {options.repeats}; load {record['load_average']:.1f})"
    print_line(f"{'call':<28} {'wall s':>8} {'cpu s':>8} {'at most':>8}   {note}")
    for call, promised in PROMISED.items():
        words = [str(_KERNEL) if word == _KERNEL.name else word for word in call.split()]
        told = measure([*options.command, *words], options.repeats)
        record["calls"][call] = told | {"promised_s": promised}
        print_line(f"{call:<28} {told['wall_s']:>8.2f} {told['cpu_s']:>8.2f} {promised:>8.2f}")
    if options.out:
        options.out.write_text(json.dumps(record) + "\n", encoding="utf-8")
        print_line(f"samples: {options.out}")


if __name__ == "__main__":
    main()
