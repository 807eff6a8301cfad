"""The folder of a suite: its plan, what lies there of each task, and the rows."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.schema import Hardware
from tritonsmith.graph.runs.config import PLACES
from tritonsmith.graph.runs.reads import refuse_changed_reads
from tritonsmith.graph.storage.files import fault_of, put_text
from tritonsmith.graph.storage.folder import RunBusy
from tritonsmith.graph.storage.outcome import RunOutcome, precision_of
from tritonsmith.graph.storage.summary import SUMMARY, Summary
from tritonsmith.graph.suites.records import FORMAT, RowState, SuitePlan, SuiteResults, SuiteRow, results_csv
from tritonsmith.graph.suites.tasks import PlannedTask

SUITE = "suite.json"
"""The plan."""
RESULTS = "results.json"
"""Every row, as it was when the last process ended."""
_LOCK = "suite.lock"
_FIXED = ("tasks", "settings", "precision", "mode", "format")
"""What may not change from one process of a suite to the next; task files count by their content."""


def run_folder_of(root: Path, task: PlannedTask) -> Path:
    """The folder of a task's run."""
    return root / "tasks" / task.key


def failure_of(root: Path, task: PlannedTask) -> Path:
    """The file that says why a task's run could not be made."""
    return root / "tasks" / f"{task.key}.failed.json"


def begin_suite(plan: SuitePlan, root: Path) -> SuitePlan:
    """Write the plan into a new folder, or go on with the same one that is there. Call it under `lock_suite`. Raises UsageError."""
    if (root / SUITE).is_file():
        stored = read_suite(root)
        other = [name for name in _FIXED if _fixed_part(stored, name) != _fixed_part(plan, name)]
        if other:
            raise UsageError(f"--out {root}: another suite lies there (it differs in {', '.join(other)}); name a new folder")
        for task in plan.tasks:
            refuse_changed_reads(run_folder_of(root, task), task.path)
        plan = plan.model_copy(update={"card": stored.card, "kind": stored.kind, "date": stored.date})
    elif any(path.name != _LOCK for path in root.iterdir()):
        raise UsageError(f"--out {root}: the folder is not empty and holds no suite; name a new one")
    write_suite(plan, root)
    return plan


def settle_card(plan: SuitePlan, root: Path, hardware: Hardware) -> SuitePlan:
    """Hold the suite to one card: its first process names it. Raises UsageError for a process with another one."""
    card, kind = hardware.name, "measured" if hardware.present else "estimated"
    if plan.card and (plan.card, plan.kind) != (card, kind):
        raise UsageError(
            f"--out {root}: its figures are {plan.kind} for {plan.card}, and here they would be {kind} for {card}; "
            "a suite has one kind of card: name a new folder"
        )
    plan = plan.model_copy(update={"card": card, "kind": kind})
    write_suite(plan, root)
    return plan


def read_suite(root: Path) -> SuitePlan:
    """The plan in a folder. Raises UsageError that says why there is none."""
    path = root / SUITE
    try:
        plan = SuitePlan.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ValidationError) as error:
        raise UsageError(f"{path}: cannot be read as the plan of a suite ({fault_of(error)}); name another folder") from error
    if plan.format != FORMAT:
        raise UsageError(f"{path}: format {plan.format} is not {FORMAT}; use the version that wrote it")
    return plan


def write_suite(plan: SuitePlan, root: Path) -> None:
    """Write the plan. Raises UsageError."""
    try:
        put_text(root / SUITE, plan.model_dump_json(indent=1) + "\n")
    except OSError as error:
        raise UsageError(f"--out {root}: cannot write there ({error.strerror}); name a folder that you may write to") from error


def is_suite(folder: Path) -> bool:
    """Whether a suite lies in a folder."""
    return (folder / SUITE).is_file()


@contextmanager
def lock_suite(root: Path) -> Iterator[None]:
    """Make the folder, and keep every other process away from it. A process that dies lets go. Raises RunBusy or UsageError."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(root / _LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise UsageError(f"--out {root}: cannot write there ({error.strerror}); name a folder that you may write to") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise RunBusy(f"{root}: another process works on this suite; wait for it, or stop it first") from None
    finally:
        os.close(descriptor)


def row_of(task: PlannedTask, root: Path) -> SuiteRow:
    """The row of a task, from the files of its run."""
    folder = run_folder_of(root, task)
    row = SuiteRow(task=task.key, path=task.path, size=task.size or "", folder=folder.relative_to(root).as_posix())
    failed = failure_of(root, task)
    if failed.is_file():
        return row.model_copy(update={"state": RowState.FAILED, "reason": _read_reason(failed)})
    try:
        summary = Summary.model_validate_json((folder / SUMMARY).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return row
    except (OSError, ValueError) as error:
        return row.model_copy(update={"state": RowState.FAILED, "reason": f"{SUMMARY} cannot be read ({fault_of(error)})"})
    row = row.model_copy(
        update={
            "state": RowState.WAITING if summary.outcome is RunOutcome.WAITING else RowState.DONE, "outcome": summary.outcome.value,
            "reason": summary.stopped_because, "size": summary.size, "candidates": len(summary.candidates), "seconds": summary.seconds,
            "tokens": summary.usage.tokens, "money": summary.usage.money,
        }
    )  # fmt: skip
    winner = summary.best
    if winner is None or winner.verdict.timing is None:
        return row
    timing = winner.verdict.timing
    return row.model_copy(
        update={
            "score": timing.score, "kind": timing.kind.value, "comparison": timing.said.value, "baseline": timing.baseline,
            "baselines": len(timing.baselines_ms),
            "median_ms": timing.median_ms, "baseline_ms": timing.baselines_ms.get(timing.baseline),
            "label": winner.verdict.label.value if winner.verdict.label else "", "precision": precision_of(winner.verdict),
        }
    )  # fmt: skip


def collect_results(plan: SuitePlan, root: Path) -> SuiteResults:
    """Read every row, and write `results.json` and `results.csv`. Raises UsageError."""
    rows = tuple(row_of(task, root) for task in plan.tasks)
    results = SuiteResults(plan=plan, rows=rows, date=datetime.now(UTC).isoformat(timespec="seconds"))
    try:
        put_text(root / RESULTS, results.model_dump_json(indent=1) + "\n")
        put_text(root / "results.csv", results_csv(results))
    except OSError as error:
        raise UsageError(f"{root}: the results cannot be written ({error.strerror}); give the same command when there is room") from error
    return results


def note_failure(root: Path, task: PlannedTask, reason: str, *, resumable: bool = False) -> None:
    """Keep why a task's run could not be made, and whether the same run can go on. Raises UsageError where that cannot be written."""
    path = failure_of(root, task)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        put_text(path, json.dumps({"reason": reason, "resumable": resumable}, ensure_ascii=False) + "\n")
    except OSError as error:
        raise UsageError(f"--out {root}: cannot write there ({error.strerror}); give the same command when there is room") from error


def must_begin_anew(root: Path, task: PlannedTask) -> bool:
    """Whether a task's run failed in a way that going on with it would only repeat."""
    try:
        return not json.loads(failure_of(root, task).read_text(encoding="utf-8")).get("resumable")
    except FileNotFoundError:
        return False
    except (OSError, ValueError, AttributeError):
        return True


def _read_reason(path: Path) -> str:
    try:
        return str(json.loads(path.read_text(encoding="utf-8"))["reason"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"{path.name} cannot be read ({error})"


def _fixed_part(plan: SuitePlan, name: str) -> object:
    if name == "tasks":
        return [task.model_dump(exclude={"path", "fault"}) for task in plan.tasks]
    if name == "settings":
        return {key: value for key, value in plan.settings.items() if key not in PLACES}
    return getattr(plan, name)
