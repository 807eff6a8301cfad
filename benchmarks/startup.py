"""How long the command line takes to begin: wall and processor time of calls that need neither a run nor a card. Prints a table.

`python -m tritonsmith.benchmarks.startup [--checkout NAME=DIR ...] [--repeats 5] [--out FILE]`. Every call is a process of its own. A
first one, which is not counted, fills the page cache and writes bytecode. Processor time hardly depends on what else the machine does;
wall time does. Every checkout runs with this Python and its packages.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tritonsmith.benchmarks.checkouts import add_checkout_option, environment_of, read_checkouts
from tritonsmith.benchmarks.host import begin_record, print_line, write_record

_KERNEL = Path(__file__).parent / "hacks" / "kernels" / "warmed_softmax.py"
PROMISED = {"--help": 1.0, "optimize nowhere.py": 1.5, f"detect {_KERNEL.name}": 1.0}
"""Calls with the wall seconds that they may take on two idle cores."""


def time_call(checkout: Path, words: Sequence[str]) -> tuple[float, float]:
    """Wall and processor seconds of one call of a checkout's command, with what it starts."""
    command = [sys.executable, "-P", "-c", "from tritonsmith.cli.main import main; main()", *words]
    environment = environment_of(checkout)
    began = time.perf_counter()
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, _, used = os.wait4(process.pid, 0)
    process.returncode = 0  # waited for
    return time.perf_counter() - began, used.ru_utime + used.ru_stime


def measure(checkout: Path, words: Sequence[str], repeats: int) -> dict[str, Any]:
    """Medians and samples of one call."""
    samples = [time_call(checkout, words) for _ in range(repeats + 1)][1:]
    wall, cpu = ([round(sample[part], 4) for sample in samples] for part in (0, 1))
    return {"wall_s": statistics.median(wall), "cpu_s": statistics.median(cpu), "samples_wall_s": wall, "samples_cpu_s": cpu}


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description="How long the command line takes to begin.")
    add_checkout_option(parser)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    record = begin_record("startup", arguments) | {"repeats": options.repeats, "promised_s": PROMISED, "calls": {}}
    note = f"(medians of {options.repeats}; load {record['load_average']:.1f})"
    print_line(f"{'call':<28} {'checkout':<20} {'wall s':>8} {'cpu s':>8} {'at most':>8}   {note}")
    for call, promised in PROMISED.items():
        words = [str(_KERNEL) if word == _KERNEL.name else word for word in call.split()]
        for name, checkout in read_checkouts(options).items():
            timed = measure(checkout, words, options.repeats)
            record["calls"].setdefault(call, {})[name] = timed
            print_line(f"{call:<28} {name:<20} {timed['wall_s']:>8.2f} {timed['cpu_s']:>8.2f} {promised:>8.2f}")
    if options.out:
        write_record(record, options.out)


if __name__ == "__main__":
    main()
