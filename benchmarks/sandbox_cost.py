"""What the sandbox costs one run: starting and ending a process that does nothing, confined and plain in turn. Prints a table.

`python -m tritonsmith.benchmarks.sandbox_cost [--pairs 30] [--out FILE]`. A pair starts one process of each kind, back to back and in
alternating order, so that what else the machine does falls on both; on a busy one, run it under `chrt -f 10`. Each time is wall time in
milliseconds, from the call that starts the process until its end was seen (`start`) and until its folder is gone (`end`).
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tritonsmith.benchmarks.host import begin_record, print_line, write_record
from tritonsmith.evaluator.errors import InfrastructureError
from tritonsmith.evaluator.sandbox.oneself import guard_self
from tritonsmith.evaluator.sandbox.policy import SandboxPolicy
from tritonsmith.evaluator.sandbox.process import SandboxedProcess
from tritonsmith.evaluator.sandbox.self_test import try_bubblewrap, try_own_layers

PROMISED_MS = 50.0
_MODULE = "tritonsmith.evaluator.errors"  # has nothing to do and loads nothing
_PATIENCE_SECONDS = 60


def time_process(policy: SandboxPolicy | None) -> tuple[float, float]:
    """Milliseconds of start and end of one process. Raises InfrastructureError when it did not end as it should."""
    began = time.perf_counter()
    process = SandboxedProcess(_MODULE, policy=policy)
    process.alive_after(_PATIENCE_SECONDS)
    code = process.process.poll()
    ended = time.perf_counter()
    process.kill()
    if code:
        raise InfrastructureError(f"the process that does nothing ended with code {code}")
    return (ended - began) * 1e3, (time.perf_counter() - ended) * 1e3


def measure(policy: SandboxPolicy, pairs: int) -> dict[str, Any]:
    """Plain and confined runs in turn; the cost is the median of the pairs' differences."""
    samples: dict[str, list[tuple[float, float]]] = {"plain": [], "confined": []}
    for number in range(pairs + 1):
        for kind in ("plain", "confined") if number % 2 else ("confined", "plain"):
            start, end = time_process(policy if kind == "confined" else None)
            if number:  # the first pair fills the page cache
                samples[kind].append((round(start, 2), round(end, 2)))
    costs = [sum(confined) - sum(plain) for plain, confined in zip(samples["plain"], samples["confined"], strict=True)]
    medians = {kind: [statistics.median(run[part] for run in runs) for part in (0, 1)] for kind, runs in samples.items()}
    quartiles = statistics.quantiles(costs, n=4)
    return {
        "cost_ms": statistics.median(costs), "cost_quartiles_ms": [quartiles[0], quartiles[2]],
        "median_ms": {kind: {"start": start, "end": end} for kind, (start, end) in medians.items()}, "samples_ms": samples,
    }  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point."""
    parser = argparse.ArgumentParser(description="What the sandbox costs one run.")
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "sandbox_cost.json")
    options = parser.parse_args(arguments)
    guard_self()
    record = begin_record("sandbox_cost", arguments) | {"promised_ms": PROMISED_MS, "pairs": options.pairs, "forms": {}}
    print_line(f"{'form':<28} {'plain':>9} {'confined':>9} {'cost':>9}   (ms, median of {options.pairs} interleaved pairs; at most 50)")
    for name in ("our layers alone", "bubblewrap and our layers"):
        try:
            policy, report = try_bubblewrap() if name.startswith("bubblewrap") else try_own_layers(cuda=False)
        except InfrastructureError as error:
            record["forms"][name] = {"unavailable": str(error)}
            print_line(f"{name:<28} {error}")
            continue
        outcome = measure(policy, options.pairs)
        record["forms"][name] = outcome | {"layers": report["layers"]}
        plain, confined = (sum(outcome["median_ms"][kind].values()) for kind in ("plain", "confined"))
        print_line(f"{name:<28} {plain:>9.1f} {confined:>9.1f} {outcome['cost_ms']:>9.1f}")
    write_record(record, options.out)


if __name__ == "__main__":
    main()
