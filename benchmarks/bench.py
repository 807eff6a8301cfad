"""Measure tasks on the card of this machine and keep the rows with their raw samples: `python -m tritonsmith.benchmarks.bench`.

Writes `summary.json` (the latest row per task, card and precision class) and `raw/` below the results folder.
"""

import argparse
import json
import os
import shlex
import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tritonsmith.evaluator.errors import TritonsmithError, UsageError
from tritonsmith.evaluator.local import open_evaluator
from tritonsmith.evaluator.protocol import Evaluator
from tritonsmith.evaluator.schema import TimingKind
from tritonsmith.graph.run import optimize
from tritonsmith.graph.storage.summary import Summary

HERE = Path(__file__).resolve().parent
Row = dict[str, Any]


def row_of(summary: Summary, command: str, results: Path) -> Row:
    """The row of a run's winner; copies its raw samples to `results/raw`. Raises UsageError when there is nothing measured to record."""
    winner = summary.winner
    timing = winner.verdict.timing if winner else None
    if winner is None or timing is None:
        raise UsageError(f"{summary.out}: the run has no winner ({summary.stopped_because}); there is nothing to record")
    if timing.kind is not TimingKind.MEASURED or not timing.raw or not Path(timing.raw).is_file():
        raise UsageError(f"{summary.out}: there are no samples measured on a card; results hold measurements only")
    environment, correctness = winner.verdict.environment, winner.verdict.correctness
    card = str(environment.get("card") or summary.target)
    date = str(environment.get("date") or summary.date)
    reached = correctness.precision_class.value if correctness and correctness.precision_class else None
    name = f"{summary.task}-{card}-{reached}-{date}".replace(" ", "_").replace(":", "").replace("+0000", "Z")
    raw = results / "raw" / f"{name}.json"
    raw.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(timing.raw, raw)
    return {
        "task": summary.task,
        "size": summary.size,
        "card": card,
        "precision_class": reached,
        "mode": summary.mode,
        "label": winner.verdict.label.value if winner.verdict.label else None,
        "median_ms": timing.median_ms,
        "baselines_ms": timing.baselines_ms,
        "baseline": timing.baseline,
        "score": timing.score,
        "score_eager": timing.score_eager,
        "interval": timing.interval,
        "err_vs_oracle": correctness.err_vs_oracle if correctness else None,
        "reference_err_vs_oracle": correctness.reference_err_vs_oracle if correctness else None,
        "winner": {"id": winner.id, "stage": winner.stage, "recipe": winner.recipe, "sha": winner.sha, "confirmed": winner.confirmed},
        "policy": summary.policy,
        "model": summary.model,
        "date": date,
        "versions": environment.get("versions", {}),
        "command": command,
        "raw": raw.relative_to(results).as_posix(),
    }


def merge(rows: list[Row], new: Row) -> list[Row]:
    """The rows with the new one in the place of an earlier one of the same task, size, card and precision class."""

    def key(row: Row) -> tuple[str, ...]:
        return tuple(str(row.get(name)) for name in ("task", "size", "card", "precision_class")) + (str(row.get("mode", "eval")),)

    return sorted([row for row in rows if key(row) != key(new)] + [new], key=key)


def record(summary: Summary, command: str, results: Path) -> Row:
    """Add a run's row to `results/summary.json`. Raises UsageError as `row_of` does."""
    row = row_of(summary, command, results)
    path = results / "summary.json"
    rows = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    path.write_text(json.dumps(merge(rows, row), indent=1) + "\n", encoding="utf-8")
    return row


def main() -> int:
    """Run every named task (default: all that come along) as often as asked and record each run."""
    parser = argparse.ArgumentParser(prog="python -m tritonsmith.benchmarks.bench", description=__doc__)
    parser.add_argument("tasks", nargs="*", help="task files; default: benchmarks/tasks/*.py")
    parser.add_argument("--precision", default="auto", choices=("auto", "ieee", "split", "tf32", "16-bit"))
    parser.add_argument("--mode", choices=("eval", "train"))
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--results", type=Path, default=HERE / "results")
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    options = parser.parse_args()
    folder = options.runs / f"bench-{datetime.now(UTC).strftime('%Y%m%dT%H%M%SZ')}"
    tasks = [os.path.relpath(task) for task in options.tasks or sorted((HERE / "tasks").glob("*.py"))]
    try:
        (folder / "raw").mkdir(parents=True, exist_ok=True)
        with open_evaluator("auto", folder / "raw") as evaluator:
            if not evaluator.hardware.present:
                raise UsageError("there is no CUDA card here; results hold measurements only (`tritonsmith doctor` says what is missing)")
            failed = [task for task in tasks for number in range(options.repeats) if not _bench(task, number, folder, evaluator, options)]
    except (TritonsmithError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2 if isinstance(error, UsageError | OSError) else 1
    except KeyboardInterrupt:
        sys.stderr.write(f"Interrupted; rows of finished runs are in {options.results / 'summary.json'}\n")
        return 130
    return 1 if failed else 0


def _bench(task: str, number: int, folder: Path, evaluator: Evaluator, options: argparse.Namespace) -> bool:
    """Run and record one task; False when there is no row for it, which is said on stderr."""
    command = shlex.join(["tritonsmith", "optimize", task, "--size", "full", "--precision", options.precision])
    command += f" --mode {options.mode}" if options.mode else ""
    precision = None if options.precision == "auto" else options.precision
    out = folder / f"{Path(task).stem}-{number}"
    try:
        summary = optimize(task, evaluator=evaluator, size="full", precision=precision, mode=options.mode, out=str(out))
        row = record(summary, command, options.results)
    except UsageError as error:
        sys.stderr.write(f"error: {task}: {error}\n")
        return False
    scores = f"{row['score']:.3f}x {row['baseline']}, {row['score_eager']:.3f}x eager"
    sys.stdout.write(f"{row['task']}: {scores} on {row['card']}\n")
    return True


if __name__ == "__main__":
    sys.exit(main())
