"""Judges the worked examples of the prompts, each against its own task: `python -m tritonsmith.benchmarks.judge_examples`.

`[--cards 1] [--profile strict|quick] [--only NAME,NAME] [--seconds 190] [--out FILE.json]`. Several cards share the work. After
`--seconds` none is begun any more, and the table names those that are left for `--only`. Each line is printed as soon as it is known.
Without a card the small sizes are judged in the interpreter, and nothing is timed. Exit code 1 where one is refused or slower.
"""

from __future__ import annotations

import argparse
import asyncio
import queue
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tritonsmith.author.worked_examples import FOLDER, WORKED, read_worked
from tritonsmith.benchmarks.host import begin_record, print_line, write_record
from tritonsmith.evaluator.caller.local import LocalEvaluator
from tritonsmith.evaluator.errors import InfrastructureError, TaskError
from tritonsmith.evaluator.schema import Status, Verdict
from tritonsmith.evaluator.tasks.files import load_task, settle_task


def judge(evaluator: LocalEvaluator, name: str, profile: str) -> dict[str, Any]:
    """One example's row: status, times, score, share of its bound, and the verdict's own words."""
    began = time.perf_counter()
    try:
        task = load_task(FOLDER / name / "task.py", "full" if evaluator.hardware.present else "small")
        task = settle_task(task, asyncio.run(evaluator.describe(task)))
        verdict = evaluator.evaluate_now(task, read_worked(name).source, profile)
    except (InfrastructureError, TaskError) as error:
        return {"name": name, "status": "not judged", "message": str(error), "seconds": time.perf_counter() - began}
    return {"name": name, "seconds": time.perf_counter() - began, **_tell(verdict)}


def _tell(verdict: Verdict) -> dict[str, Any]:
    timing = verdict.timing
    row: dict[str, Any] = {"status": verdict.status.value, "message": verdict.message, "label": str(verdict.label or "")}
    if timing is not None:
        row |= {
            "score": timing.score, "interval": timing.interval, "comparison": timing.said.value, "ms": timing.median_ms,
            "baseline": timing.baseline, "baselines_ms": timing.baselines_ms, "kind": timing.kind.value,
            "floor": timing.floor.share if timing.floor else None,
        }  # fmt: skip
    told = {"name", "registers", "spills", "device_ms", "shared_memory"}
    row["kernels"] = [kernel.model_dump(include=told) for kernel in verdict.facts.kernels]
    return row


def write_row(row: dict[str, Any]) -> str:
    """The line of a row in the table."""
    if "score" not in row:
        return f"{row['name']:18} {row['status']:12} {row['seconds']:5.0f} s  {row['message'][:300]}"
    low, high = row["interval"] or (0.0, 0.0)
    against = row["baselines_ms"].get(row["baseline"], 0.0)
    return (
        f"{row['name']:18} {row['status']:12} {row['seconds']:5.0f} s  {row['score']:6.3f}x ({low:.3f} to {high:.3f})  {row['ms']:.4f} ms, "
        f"{row['baseline']} {against:.4f} ms, {100 * (row['floor'] or 0):.0f} % of the floor, {row['kind']}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge all and print the table; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--cards", type=int, default=1)
    parser.add_argument("--profile", choices=("strict", "quick"), default="strict")
    parser.add_argument("--only", default=",".join(WORKED), help="names, with commas between them")
    parser.add_argument("--seconds", type=float, default=190.0)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args(arguments)
    if unknown := sorted(set(given.only.split(",")) - set(WORKED)):
        parser.error(f"--only {','.join(unknown)}: no such example; they are {', '.join(WORKED)}")
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
    for name in given.only.split(","):
        waiting.put(name)
    rows: list[dict[str, Any]] = []
    record = begin_record("judge_examples", arguments) | {"rows": rows}
    end = time.monotonic() + given.seconds

    def work(device: str | None) -> None:
        with LocalEvaluator("auto", device=device, baselines="six") as evaluator:
            while time.monotonic() < end:
                try:
                    name = waiting.get_nowait()
                except queue.Empty:
                    return
                rows.append(judge(evaluator, name, given.profile))
                print_line(write_row(rows[-1]))
                if given.out is not None:
                    write_record(record, given.out)

    workers = [threading.Thread(target=work, args=(str(number) if given.cards > 1 else None,)) for number in range(given.cards)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    left = [name for name in given.only.split(",") if name not in {row["name"] for row in rows}]
    if left:
        print_line(f"not begun within {given.seconds:g} s: --only {','.join(left)}")
    bad = [row["name"] for row in rows if row["status"] != Status.OK.value or (row.get("kind") == "measured" and row["score"] < 1.0)]
    print_line(f"{len(rows) - len(bad)} of {len(rows)} right and at or above their baseline; not so: {' '.join(bad) or 'none'}")
    return 1 if bad or left else 0


if __name__ == "__main__":
    sys.exit(main())
