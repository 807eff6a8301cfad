"""The experiment's loop: takes cells that nobody has, several at a time, until all are finished; a cell that fails is a row."""

import asyncio
import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tritonsmith.benchmarks.ablation.cells import Cell, cells_of, row_of
from tritonsmith.benchmarks.ablation.plan import begin, read_plan, settle
from tritonsmith.benchmarks.ablation.play import play
from tritonsmith.benchmarks.ablation.schema import Ablation, AblationPlan, CellRow, CellState
from tritonsmith.benchmarks.ablation.sharing import CellEvaluator, MemoEvaluator, SeedsFrom
from tritonsmith.benchmarks.ablation.tables import tabulate, write_tables
from tritonsmith.benchmarks.ablation.tuning import variants_of
from tritonsmith.evaluator.caller.sharing.open import open_judges
from tritonsmith.evaluator.errors import RunStopped, TritonsmithError, UsageError
from tritonsmith.evaluator.protocol import Evaluator
from tritonsmith.graph.background import run_to_completion
from tritonsmith.graph.run import RunConfig
from tritonsmith.graph.runs.active import active_runs
from tritonsmith.graph.runs.reads import refuse_changed_reads
from tritonsmith.graph.storage.folder import RunBusy
from tritonsmith.nodes.authors.make import make_author
from tritonsmith.nodes.chat.connect import Models
from tritonsmith.prompts.author import Author

AuthorOf = Callable[[Cell], Author]
"""Makes the author of one run."""
OnRow = Callable[[CellRow, int, int], None]
"""Hears of every run that this process has finished: its row, how many cells are finished, and how many there are."""
_PAUSE = 0.25
"""Seconds between looks at what other processes have finished."""


@dataclass
class _SharedWork:
    """What the workers of one process share."""

    plan: AblationPlan
    root: Path
    shared: MemoEvaluator
    author: AuthorOf | None
    models: Models | None
    on_row: OnRow | None
    cells: tuple[Cell, ...]
    old: dict[str, int] = field(default_factory=dict)
    """Failures of earlier processes, by cell, with the time of their files: these cells are tried once more."""
    warm: set[str] = field(default_factory=set)
    """Tasks that this process's evaluator knows already."""
    stopped: str = ""
    """Why somebody stopped the runs of this process."""


async def ablate_async(
    plan: AblationPlan,
    out: str | Path,
    *,
    evaluator: Evaluator | None = None,
    author: AuthorOf | None = None,
    models: Models | None = None,
    parallel: int = 1,
    on_row: OnRow | None = None,
) -> Ablation:
    """Run what is missing of an experiment, `parallel` runs at a time on one evaluator, and write its tables.

    Any number of processes may work on one folder. Raises UsageError for a plan or a folder that does not fit, InfrastructureError
    when no evaluator can be opened, and RunStopped when somebody stopped the runs; a run that fails becomes a row with its reason.
    """
    root = Path(out)
    plan = begin(plan, root)
    cells = cells_of(plan)
    for cell in cells:
        await asyncio.to_thread(refuse_changed_reads, cell.folder(root), cell.task.path)
    if any(cell.state(root) is not CellState.DONE for cell in cells):
        judge: Evaluator = evaluator if evaluator is not None else await asyncio.to_thread(_open_evaluator, plan, root)
        try:
            plan = settle(plan, root, judge.hardware)
            work = _SharedWork(plan, root, MemoEvaluator(judge), author, models, on_row, cells)
            work.old = {cell.name: cell.failure(root).stat().st_mtime_ns for cell in cells if cell.state(root) is CellState.FAILED}
            try:
                async with asyncio.TaskGroup() as group:
                    for _ in range(max(1, parallel)):
                        group.create_task(_run_cells(work))
            except ExceptionGroup as several:
                raise several.exceptions[0] from None
            if work.stopped:
                raise RunStopped(f"{work.stopped}; give the same command again to go on with {root}")
        finally:
            if evaluator is None:
                await judge.aclose()
    return await asyncio.to_thread(retabulate, root)


def ablate(
    plan: AblationPlan,
    out: str | Path,
    *,
    evaluator: Evaluator | None = None,
    author: AuthorOf | None = None,
    models: Models | None = None,
    parallel: int = 1,
    on_row: OnRow | None = None,
) -> Ablation:
    """`ablate_async` for callers that are not asynchronous."""
    return run_to_completion(ablate_async(plan, out, evaluator=evaluator, author=author, models=models, parallel=parallel, on_row=on_row))


def rows_of(plan: AblationPlan, root: Path) -> tuple[CellRow, ...]:
    """The rows of all cells as they are now."""
    cells = cells_of(plan)
    known = {cell.memo(root).folder: cell.memo(root) for cell in cells}
    judged = {folder: memo.all() for folder, memo in known.items()}
    order = {policy.key: place for place, policy in enumerate(plan.policies)}
    rows = [row_of(cell, root, plan, judged[cell.memo(root).folder]) for cell in cells]
    tasks = {task.key: place for place, task in enumerate(plan.tasks)}
    return tuple(sorted(rows, key=lambda row: (tasks[row.task], order[row.policy], row.repeat)))


def retabulate(root: Path) -> Ablation:
    """Make every table of an experiment once more from its files. Raises UsageError."""
    plan = read_plan(root)
    tables = tabulate(plan, rows_of(plan, root), variants_of(cells_of(plan), root))
    write_tables(tables, root)
    return tables


def _open_evaluator(plan: AblationPlan, root: Path) -> Evaluator:
    raw = root / "raw" / f"{time.time_ns()}-{os.getpid()}"  # processes share the folder, and each counts its samples from 0
    raw.mkdir(parents=True, exist_ok=True)
    return open_judges(RunConfig.model_validate({**plan.settings, "task": ""}), raw, keep=False)  # repeats are to vary


async def _run_cells(work: _SharedWork) -> None:
    while not work.stopped:
        with ExitStack() as cell_lock:
            cell = _take(work, cell_lock)
            if cell is not None:
                await _run_cell(cell, work)
                continue
        if all(_is_finished(cell, work) for cell in work.cells):
            return
        await asyncio.sleep(_PAUSE)


def _take(work: _SharedWork, cell_lock: ExitStack) -> Cell | None:
    """Take a cell that can be run now: of tasks that the evaluator knows, else of those that fewest others work on; bases first, since
    other cells wait for them."""
    open_ = [cell for cell in work.cells if not _is_finished(cell, work)]
    busy: dict[str, int] = {}
    free = []
    for cell in open_:
        with cell.take(work.root) as taken:
            if taken:
                free.append(cell)
            else:
                busy[cell.task.key] = busy.get(cell.task.key, 0) + 1
    ready = [cell for cell in free if _is_ready(cell, work)]
    for cell in sorted(ready, key=lambda cell: (cell.task.key not in work.warm, cell.policy.base is not None, busy.get(cell.task.key, 0))):
        with ExitStack() as attempt:
            if attempt.enter_context(cell.take(work.root)) and not _is_finished(cell, work):
                cell_lock.push(attempt.pop_all())
                work.warm.add(cell.task.key)
                return cell
    return None


def _is_finished(cell: Cell, work: _SharedWork) -> bool:
    """Whether the cell is done, or has failed since this process began."""
    state = cell.state(work.root)
    if state is not CellState.FAILED:
        return state is CellState.DONE
    try:
        return work.old.get(cell.name) != cell.failure(work.root).stat().st_mtime_ns
    except FileNotFoundError:
        return False  # another process tries it again


def _is_ready(cell: Cell, work: _SharedWork) -> bool:
    """Whether the run that the cell builds on is over; one that failed is done without."""
    if cell.policy.base is None:
        return True
    return any(
        _is_finished(other, work)
        for other in work.cells
        if (other.task.key, other.repeat, other.policy.key) == (cell.task.key, cell.repeat, cell.policy.base)
    )


async def _run_cell(cell: Cell, work: _SharedWork) -> None:
    evaluator = CellEvaluator(work.shared, cell.memo(work.root), cell.name)
    try:
        await play(cell, work.plan, work.root, evaluator=evaluator, author=_make_author(cell, work), models=work.models)
        reason = ""
        cell.failure(work.root).unlink(missing_ok=True)
    except RunStopped as stop:
        work.stopped = work.stopped or str(stop)
        for other in active_runs():  # one that began after the signal does not know of it
            other.stop(work.stopped)
        return
    except RunBusy:  # somebody resumed the run by itself
        await asyncio.sleep(_PAUSE)
        return
    except TritonsmithError as error:
        reason = str(error)
    except Exception as error:  # noqa: BLE001 - the boundary of one run: what ends it is its row, and the experiment goes on
        reason = f"{type(error).__name__}: {error}"
    try:
        if reason:
            cell.fail(work.root, reason)
        row = await asyncio.to_thread(row_of, cell, work.root, work.plan)
    except OSError as error:
        raise UsageError(f"--out {work.root}: cannot write there ({error.strerror}); give the same command when there is room") from error
    if work.on_row is not None:
        work.on_row(row, sum(_is_finished(each, work) for each in work.cells), len(work.cells))


def _make_author(cell: Cell, work: _SharedWork) -> Author | None:
    """The author of a run: the caller's, or the built-in one with the repeat's own seeds; None lets the run open its models."""
    if work.author is not None:
        return work.author(cell)
    if work.plan.seed_step and work.models is None:
        return SeedsFrom(make_author("offline"), work.plan.seed_step * (cell.repeat - 1))
    return None
