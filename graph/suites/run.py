"""Runs a suite: tasks side by side on one evaluator, until each is over; a task that fails is a row, and the others go on."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tritonsmith.evaluator.caller.sharing.open import open_judges
from tritonsmith.evaluator.caller.sharing.views import EvaluatorView, SharedEvaluator
from tritonsmith.evaluator.errors import InfrastructureError, RunError, RunStopped, TritonsmithError, UsageError
from tritonsmith.evaluator.protocol import Evaluator
from tritonsmith.graph.background import run_to_completion
from tritonsmith.graph.runs.active import active_runs
from tritonsmith.graph.runs.config import RunConfig
from tritonsmith.graph.runs.players import SharedPlayers
from tritonsmith.graph.runs.run import Run
from tritonsmith.graph.runs.try_again import read_fatal_fault, read_shareable, write_tape
from tritonsmith.graph.storage.folder import MANIFEST, Event, RunBusy
from tritonsmith.graph.suites.folder import (
    begin_suite,
    collect_results,
    failure_of,
    lock_suite,
    must_begin_anew,
    note_failure,
    row_of,
    run_folder_of,
    settle_card,
)
from tritonsmith.graph.suites.records import RowState, SuitePlan, SuiteResults, SuiteRow
from tritonsmith.graph.suites.tasks import Overrides, PlannedTask, find_tasks
from tritonsmith.prompts.author import Author, AuthorError

OnTask = Callable[[PlannedTask, Event], None]
"""Hears every event of every task's run."""
OnRow = Callable[[SuiteRow], None]
"""Hears of every task that this process has finished; called in a thread."""
AuthorOf = Callable[[PlannedTask], Author]
"""Makes the author of one task's run."""
_OWN = frozenset({"task", "size", "overrides", "precision", "mode", "out"})
"""Fields of a run's settings that the plan sets by itself."""
_NOT_SHARED = {"record": "--record", "replay": "--replay"}
"""Files that belong to one run."""
_HANDOFF = "handoff:"


@dataclass
class _Work:
    """What the workers of one process share."""

    plan: SuitePlan
    root: Path
    shared: SharedEvaluator | None
    gate: asyncio.Semaphore
    author: AuthorOf | None
    on_event: OnTask | None
    on_row: OnRow | None
    waiting: deque[PlannedTask] = field(default_factory=deque)
    stopped: str = ""
    """Why somebody stopped the runs of this process."""


def plan_suite(
    names: Sequence[str],
    *,
    settings: dict[str, Any] | None = None,
    size: str | None = None,
    overrides: Overrides | None = None,
    precision: Any = None,
    mode: Any = None,
    parallel: int | None = None,
    model_calls: int = 8,
) -> SuitePlan:
    """The plan for the tasks that these words name; `settings` are further fields of RunConfig, the same for all. Raises UsageError."""
    common = dict(settings or {})
    refused = sorted(_OWN & set(common)) + sorted(set(common) - set(RunConfig.model_fields))
    if refused:
        raise UsageError(f"settings of a suite: {', '.join(refused)} cannot be set for all tasks")
    for name, option in _NOT_SHARED.items():
        if common.get(name) is not None:
            raise UsageError(f"{option} {common[name]}: a recording holds one run; name one task, or leave the option out")
    try:
        config = RunConfig(task="", **common)
    except ValidationError as error:
        first = error.errors()[0]
        raise UsageError(f"setting {'.'.join(map(str, first['loc']))}: {first['msg']} (got {first['input']!r})") from error
    return SuitePlan(
        tasks=find_tasks(names, size=size, overrides=overrides, precision=precision, mode=mode),
        settings=config.model_dump(mode="json", exclude=set(_OWN)), precision=precision, mode=mode,
        parallel=parallel, each_card=2 if config.model == "offline" else 4, model_calls=model_calls,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
    )  # fmt: skip


async def optimize_suite_async(
    plan: SuitePlan,
    out: str | Path,
    *,
    evaluator: Evaluator | None = None,
    author: AuthorOf | None = None,
    on_event: OnTask | None = None,
    on_row: OnRow | None = None,
) -> SuiteResults:
    """Run what is missing of a suite, and write its results. An evaluator that is passed in stays open.

    Tasks that are over are left as they are, unfinished ones go on, and failed ones are tried again. Raises UsageError for a folder that
    does not fit, InfrastructureError when no evaluator can be opened, and RunStopped when somebody stopped the runs.
    """
    root = Path(out)
    with lock_suite(root):
        plan = begin_suite(plan, root)
        missing = deque(task for task in plan.tasks if row_of(task, root).state is not RowState.DONE)
        opened: Evaluator | None = None
        try:
            if evaluator is None and any(not task.fault for task in missing) and plan.settings.get("spool") is None:
                evaluator = opened = await asyncio.to_thread(_open_evaluator, plan, root)
            if evaluator is not None:
                plan = settle_card(plan, root, evaluator.hardware)
            shared = SharedEvaluator(evaluator) if evaluator is not None else None
            work = _Work(plan, root, shared, asyncio.Semaphore(plan.model_calls), author, on_event, on_row, missing)
            try:
                async with asyncio.TaskGroup() as group:
                    at_once = plan.parallel or plan.each_card * (shared.cards if shared is not None else 1)
                    for _ in range(min(at_once, len(missing))):
                        group.create_task(_work_off(work))
            except ExceptionGroup as several:
                raise several.exceptions[0] from None
            if work.stopped:
                raise RunStopped(f"{work.stopped}; go on with: tritonsmith resume {root}")
        finally:
            if opened is not None:
                await opened.aclose()
        return await asyncio.to_thread(collect_results, plan, root)


def optimize_suite(plan: SuitePlan, out: str | Path, **players: Any) -> SuiteResults:
    """`optimize_suite_async` for callers that are not asynchronous."""
    return run_to_completion(optimize_suite_async(plan, out, **players))


def _open_evaluator(plan: SuitePlan, root: Path) -> Evaluator:
    raw = root / "raw" / f"{time.time_ns()}-{os.getpid()}"  # each process counts its samples from 0
    raw.mkdir(parents=True, exist_ok=True)
    return open_judges(RunConfig.model_validate({**plan.settings, "task": ""}), raw)


async def _work_off(work: _Work) -> None:
    while work.waiting and not work.stopped:
        task = work.waiting.popleft()
        try:
            reason, resumable = (task.fault, False) if task.fault else await _run_task(task, work)
        except RunStopped as stop:
            work.stopped = work.stopped or str(stop)
            for other in active_runs():  # one that began after the signal does not know of it
                other.stop(work.stopped)
            return
        await asyncio.to_thread(_finish_task, task, work, reason, resumable)


def _finish_task(task: PlannedTask, work: _Work, reason: str, resumable: bool) -> None:
    failure_of(work.root, task).unlink(missing_ok=True)
    if reason:
        note_failure(work.root, task, reason, resumable=resumable)
    if work.on_row is not None:
        work.on_row(row_of(task, work.root))


async def _run_task(task: PlannedTask, work: _Work) -> tuple[str, bool]:
    """Take a task's run to its end; returns why that was not possible, and whether the run can go on. Raises RunStopped."""
    view = work.shared.view(task.key) if work.shared is not None else None
    try:
        run = await asyncio.to_thread(_make_run, task, work, view)
        async with aclosing(run.stream()) as events:
            async for event in events:
                if work.on_event is not None:
                    work.on_event(task, event)
        if run.summary is None:
            raise RunStopped(run.stopped or "the run was stopped")
        if view is not None and view.broken:
            raise InfrastructureError(view.broken)
        if fault := await asyncio.to_thread(read_fatal_fault, run.folder):
            raise AuthorError(fault)
    except RunStopped:
        raise
    except (RunError, RunBusy) as error:  # such as a full disk: what was finished is kept
        return str(error), True
    except TritonsmithError as error:
        return str(error), False
    except Exception as error:  # noqa: BLE001 - the boundary of one task: what ends its run is its row, and the suite goes on
        return f"{type(error).__name__}: {error}", False
    finally:
        if view is not None:
            view.leave()
    return "", False


def _make_run(task: PlannedTask, work: _Work, view: EvaluatorView | None) -> Run:
    """The run that lies in the task's folder, else a new one; one that failed begins anew with what it has paid for."""
    folder = run_folder_of(work.root, task)
    shared = SharedPlayers(view, work.gate)
    author = work.author(task) if work.author is not None else None
    if (folder / MANIFEST).is_file() and not must_begin_anew(work.root, task):
        return Run.of(folder, author=author, shared=shared)
    if folder.is_dir():
        fresh = folder.with_name(f".{task.key}.again")
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir()
        write_tape(fresh, read_shareable(folder))  # on a full disk this raises, and the old one is still there
        shutil.rmtree(folder)
        fresh.rename(folder)
    return Run(config_of(task, work.plan, work.root), author=author, shared=shared)


def config_of(task: PlannedTask, plan: SuitePlan, root: Path) -> RunConfig:
    """The settings of a task's run: its entry goes before the plan.

    Requests to a person go into a folder per task, since two runs may ask by the same name.
    """
    settings = dict(plan.settings)
    for role in ("model", "analyst_model", "repair_model"):
        if str(settings.get(role)).startswith(_HANDOFF):
            settings[role] = f"{settings[role]}/{task.key}"
    return RunConfig.model_validate(
        {
            **settings, "task": task.path, "size": task.size, "overrides": task.overrides,
            "precision": task.precision or plan.precision, "mode": task.mode or plan.mode, "out": str(run_folder_of(root, task)),
        }
    )  # fmt: skip
