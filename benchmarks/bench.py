"""Measure tasks on the card of this machine and keep the rows with their raw samples: `python -m tritonsmith.benchmarks.bench`.

Writes `summary.json` (the latest row per task, card and precision class), `raw/` and `runs/` below the results folder.
With `--suite FOLDER` it measures nothing, and records the runs that `tritonsmith optimize LIST --out FOLDER` has left.
"""

import argparse
import glob
import json
import os
import shlex
import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tritonsmith.benchmarks.ablation.keep import make_portable
from tritonsmith.evaluator.caller.local import open_evaluator
from tritonsmith.evaluator.errors import TritonsmithError, UsageError
from tritonsmith.evaluator.protocol import Evaluator
from tritonsmith.evaluator.schema import TimingKind
from tritonsmith.graph.run import optimize
from tritonsmith.graph.storage.outcome import precision_of
from tritonsmith.graph.storage.summary import SUMMARY, Summary
from tritonsmith.graph.suites.folder import SUITE, is_suite, read_suite, run_folder_of
from tritonsmith.graph.suites.folder import row_of as read_row
from tritonsmith.graph.suites.records import RowState
from tritonsmith.graph.suites.tasks import PlannedTask

HERE = Path(__file__).resolve().parent
Row = dict[str, Any]


def row_of(summary: Summary, command: str, results: Path, entry: PlannedTask | None = None) -> Row:
    """The row of a run's winner; copies its raw samples to `results/raw`. Raises UsageError when there is nothing measured to record.

    A suite's entry that sets sizes has its own name in the row, since the file's name stands for the file's sizes.
    """
    winner = summary.best
    timing = winner.verdict.timing if winner else None
    if winner is None or timing is None:
        raise UsageError(f"{summary.out}: the run has no winner ({summary.stopped_because}); there is nothing to record")
    if timing.kind is not TimingKind.MEASURED or not timing.raw or not Path(timing.raw).is_file():
        raise UsageError(f"{summary.out}: there are no samples measured on a card; results hold measurements only")
    environment, correctness = winner.verdict.environment, winner.verdict.correctness
    card = str(environment.get("card") or summary.target)
    date = str(environment.get("date") or summary.date)
    reached = correctness.precision_class.value if correctness and correctness.precision_class else None
    sized = {"task": entry.key, "file": entry.path, "set": entry.overrides} if entry is not None and entry.overrides else {}
    name = f"{sized.get('task', summary.task)}-{card}-{reached}-{date}".replace(" ", "_").replace(":", "").replace("+0000", "Z")
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
        **sized,
    }


def merge(rows: list[Row], new: Row) -> list[Row]:
    """The rows with the new one in the place of an earlier one of the same task, size, card, precision class and mode."""
    return sorted([row for row in rows if _key(row) != _key(new)] + [new], key=_key)


def _key(row: Row) -> tuple[str, ...]:
    return tuple(str(row.get(name)) for name in ("task", "size", "card", "precision_class")) + (str(row.get("mode", "eval")),)


def record(summary: Summary, command: str, results: Path, folder: Path | None = None, entry: PlannedTask | None = None) -> Row:
    """Add a run's row to `results/summary.json`, and keep what its folder says. Raises UsageError as `row_of` does, and OSError."""
    row = row_of(summary, command, results, entry)
    if folder is not None:
        row["run"] = keep_run(folder, row, results)
    path = results / "summary.json"
    rows = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    path.write_text(json.dumps(merge(rows, row), indent=1) + "\n", encoding="utf-8")
    return row


def keep_run(folder: Path, row: Row, results: Path) -> str:
    """Copy a run's kernel and summary to `results/runs`, as `TASK[_size][_class][_mode]`; the summary's place. Raises OSError."""
    usual = {"size": "full", "precision_class": "ieee", "mode": "eval"}
    name = "_".join([row["task"], *(str(row[part]) for part, value in usual.items() if row[part] not in (None, "", value))])
    kept = not (folder / "best.py").is_file()  # a kernel below 1.0x is no result, and its row says its score
    best = (folder / (f"kernels/{row['winner']['sha']}.py" if kept else "best.py")).read_text(encoding="utf-8")
    told = make_portable(json.loads((folder / SUMMARY).read_text(encoding="utf-8")), folder.resolve())
    told["behind" if kept else "winner"]["verdict"]["timing"]["raw"] = row["raw"]
    (results / "runs").mkdir(parents=True, exist_ok=True)
    (results / "runs" / f"{name}.best.txt").write_text(best, encoding="utf-8")
    (results / "runs" / f"{name}.summary.json").write_text(json.dumps(told, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return f"runs/{name}.summary.json"


def record_suite(root: Path, command: str, results: Path) -> tuple[list[Row], list[str]]:
    """Record the runs in a suite's folder: their rows, and a sentence for each task that has none. Raises UsageError and OSError.

    Of two runs of a task that reach the same class, the one that asked for that class is recorded.
    """
    if not is_suite(root):
        raise UsageError(f"--suite {root}: no suite lies there ({SUITE} is missing); name what `tritonsmith optimize --out` wrote")
    rows: list[Row] = []
    faults: list[str] = []
    found: list[tuple[PlannedTask, Summary]] = []
    for task in read_suite(root).tasks:
        try:
            found.append((task, _read_measured(task, root)))
        except UsageError as error:
            faults.append(f"{task.key}: {error}")
    taken: dict[tuple[str, ...], str] = {}
    for task, summary in sorted(found, key=lambda each: each[1].precision != _reached(each[1])):
        place = (summary.task, summary.size, str(task.overrides), _reached(summary), summary.mode)
        if place in taken:
            faults.append(f"{task.key}: {taken[place]} has reached the same class, {_reached(summary)}, and has the row")
            continue
        try:
            row = record(summary, command, results, run_folder_of(root, task), task)
        except UsageError as error:
            faults.append(f"{task.key}: {error}")
            continue
        taken[place] = task.key
        rows.append(row)
    return rows, faults


def _reached(summary: Summary) -> str:
    return precision_of(summary.best.verdict) if summary.best else ""


def _read_measured(task: PlannedTask, root: Path) -> Summary:
    """The summary of a run that is over, with the place where its raw samples lie now. Raises UsageError that says what is missing."""
    row, folder = read_row(task, root), run_folder_of(root, task)
    if row.state is not RowState.DONE:
        raise UsageError(f"the run is not over ({row.state.value}{f': {row.reason}' if row.reason else ''}); there is nothing to record")
    summary = Summary.model_validate_json((folder / SUMMARY).read_text(encoding="utf-8"))
    if task.overrides and task.key == summary.task:
        raise UsageError(f"it sets {', '.join(task.overrides)} and is named as its file, whose row it would take; give the entry a name")
    winner = summary.best
    if winner is None or winner.verdict.timing is None or winner.verdict.timing.raw is None:
        return summary
    if summary.behind is None and not (folder / "best.py").is_file():
        raise UsageError(f"{folder / 'best.py'} is missing; copy the whole folder of the suite")
    timing = winner.verdict.timing.model_copy(update={"raw": _find_raw(winner.verdict.timing.raw, root)})
    verdict = winner.verdict.model_copy(update={"timing": timing})
    role = "winner" if summary.winner is not None else "behind"
    return summary.model_copy(update={role: winner.model_copy(update={"verdict": verdict})})


def _find_raw(told: str, root: Path) -> str:
    """The file itself, else the one of its name below the folder that was copied: that whose last folders are the same too.

    Processes and cards count their samples from 0, so a name alone can be there twice. Raises UsageError.
    """
    if Path(told).is_file():
        return told

    def count_common(path: Path) -> int:
        pairs = zip(reversed(path.parts), reversed(Path(told).parts), strict=False)
        return next((number for number, (one, other) in enumerate(pairs) if one != other), len(path.parts))

    found = sorted(root.rglob(glob.escape(Path(told).name)), key=count_common, reverse=True)
    if not found:
        raise UsageError(f"its samples, {Path(told).name}, are neither at {told} nor below {root}; copy the whole folder of the suite")
    if len(found) > 1 and count_common(found[0]) == count_common(found[1]):
        raise UsageError(f"its samples, {Path(told).name}, are there twice below {root}; copy the suite's folder as it was")
    return str(found[0])


def main() -> int:
    """Run every named task (default: all that come along) as often as asked and record each run; or record a suite's runs."""
    parser = argparse.ArgumentParser(prog="python -m tritonsmith.benchmarks.bench", description=__doc__)
    parser.add_argument("tasks", nargs="*", help="task files; default: benchmarks/tasks/*.py")
    parser.add_argument("--suite", type=Path, metavar="FOLDER", help="record the runs of this suite; no card is needed")
    parser.add_argument("--command", help="with --suite: what its rows name as their command; default: tritonsmith optimize FOLDER")
    parser.add_argument("--precision", default="auto", choices=("auto", "ieee", "split", "tf32", "16-bit"))
    parser.add_argument("--mode", choices=("eval", "train"))
    parser.add_argument("--baselines", default="four", choices=("four", "six"), help="of quick verdicts; strict ones have six")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--results", type=Path, default=HERE / "results")
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    options = parser.parse_args()
    if options.command and options.suite is None:
        parser.error("--command belongs to --suite")
    if options.suite is not None:
        return _record_suite(options)
    folder = options.runs / f"bench-{datetime.now(UTC).strftime('%Y%m%dT%H%M%SZ')}"
    tasks = [os.path.relpath(task) for task in options.tasks or sorted((HERE / "tasks").glob("*.py"))]
    try:
        (folder / "raw").mkdir(parents=True, exist_ok=True)
        with open_evaluator("auto", folder / "raw", baselines=options.baselines) as evaluator:
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
    command += f" --baselines {options.baselines}" if options.baselines != "four" else ""
    precision = None if options.precision == "auto" else options.precision
    out = folder / f"{Path(task).stem}-{number}"
    try:
        summary = optimize(task, evaluator=evaluator, size="full", precision=precision, mode=options.mode, out=str(out))
        row = record(summary, command, options.results, out)
    except UsageError as error:
        sys.stderr.write(f"error: {task}: {error}\n")
        return False
    _print_row(row)
    return True


def _record_suite(options: argparse.Namespace) -> int:
    try:
        if options.tasks:
            raise UsageError(f"--suite {options.suite}: it has its tasks; leave out {' '.join(options.tasks)}")
        command = options.command or shlex.join(["tritonsmith", "optimize", str(options.suite)])
        rows, faults = record_suite(options.suite, command, options.results)
    except (UsageError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    for row in rows:
        _print_row(row)
    for fault in faults:
        sys.stderr.write(f"error: {fault}\n")
    return 1 if faults else 0


def _print_row(row: Row) -> None:
    scores = f"{row['score']:.3f}x {row['baseline']}, {row['score_eager']:.3f}x eager"
    sys.stdout.write(f"{row['task']} ({row['precision_class']}, {row['mode']}): {scores} on {row['card']}\n")


if __name__ == "__main__":
    sys.exit(main())
