"""How long a quick verdict takes without a card: the first of an evaluator, and the median of the later ones. Prints a table.

`python -m tritonsmith.benchmarks.verdict_times [--checkout NAME=DIR ...] [--repeats 5] [--out FILE]`. Each checkout is measured in a
process of its own, in turn, so that two states of the project can be compared in one run. Candidates differ in a comment or a block size
only, so that none is a verdict of before. Times are wall seconds from the question to the verdict; the machine must be idle otherwise.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tritonsmith.benchmarks.checkouts import add_checkout_option, environment_of, read_checkouts
from tritonsmith.benchmarks.host import begin_record, print_line, write_record

_HERE = Path(__file__).parent
_WAVEFRONT = _HERE / "results" / "first_minutes" / "gru_wavefront.txt"
"""The wavefront that the demo wins with, as the built-in author writes it for these sizes."""
_WAVEFRONT_SIZES = {"seq_len": 16, "input_size": 32, "hidden_size": 64}
PROMISED = {"pointwise": 2.0, "wavefront": 6.0}
"""Seconds that the median of later verdicts may take on two idle cores."""
_TASK = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.gelu(x)


def get_inputs():
    return [torch.randn(100, 1000)]


def get_init_inputs():
    return []
"""
_KERNEL = """
import torch
import triton
import triton.language as tl


@triton.jit
def gelu(x, y, n, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + place, mask=place < n, other=0.0)
    tl.store(y + place, 0.5 * value * (1 + tl.erf(value * 0.7071067811865476)), mask=place < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        gelu[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
        return y
"""
_DRIVER = """
import json, sys, time
from tritonsmith.evaluator.caller.local import LocalEvaluator
from tritonsmith.evaluator.tasks.files import load_task
path, size, repeats = sys.argv[1], sys.argv[2], int(sys.argv[3])
text, task, told = sys.stdin.read(), load_task(path, size, json.loads(sys.argv[4])), []
with LocalEvaluator("h200") as evaluator:
    for number in range(repeats + 1):
        began = time.perf_counter()
        verdict = evaluator.evaluate_now(task, text + f"\\n# candidate {number}\\n")
        told.append((time.perf_counter() - began, verdict.status.value))
print(json.dumps(told))
"""


def measure(checkout: Path, task: Path, size: str, text: str, repeats: int, sizes: dict[str, int]) -> dict[str, Any]:
    """The first and the later verdicts of one evaluator of a checkout. Raises RuntimeError where a verdict is not `ok`."""
    command = [sys.executable, "-P", "-c", _DRIVER, str(task), size, str(repeats), json.dumps(sizes)]
    told = json.loads(subprocess.run(command, input=text, env=environment_of(checkout), capture_output=True, text=True, check=True).stdout)
    if any(status != "ok" for _, status in told):
        raise RuntimeError(f"{checkout}: verdicts {[status for _, status in told]}")
    seconds = [round(one, 3) for one, _ in told]
    return {"first_s": seconds[0], "later_s": statistics.median(seconds[1:]), "samples_s": seconds}


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description="How long a quick verdict takes without a card.")
    add_checkout_option(parser)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    record = begin_record("verdict_times", arguments) | {"promised_s": PROMISED, "verdicts": {}}
    print_line(f"{'kernel':<10} {'checkout':<20} {'first s':>8} {'later s':>8} {'at most':>8}   (load {record['load_average']:.1f})")
    with tempfile.TemporaryDirectory() as folder:
        pointwise = Path(folder) / "gelu.py"
        pointwise.write_text(_TASK, encoding="utf-8")
        cases = {
            "pointwise": (pointwise, "full", _KERNEL, {}),
            "wavefront": (_HERE / "tasks" / "39_gru.py", "small", _WAVEFRONT.read_text(encoding="utf-8"), _WAVEFRONT_SIZES),
        }
        for kernel, (task, size, text, sizes) in cases.items():
            for name, checkout in read_checkouts(options).items():
                timed = measure(checkout, task, size, text, options.repeats, sizes)
                record["verdicts"].setdefault(kernel, {})[name] = timed
                print_line(f"{kernel:<10} {name:<20} {timed['first_s']:>8.2f} {timed['later_s']:>8.2f} {PROMISED[kernel]:>8.2f}")
    if options.out:
        write_record(record, options.out)


if __name__ == "__main__":
    main()
