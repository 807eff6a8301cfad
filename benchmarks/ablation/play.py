"""One cell played: forked from the run it builds on, begun with what that has asked and judged, or gone on with where it was left."""

import asyncio
import shutil
from contextlib import aclosing
from pathlib import Path
from typing import Any

from tritonsmith.benchmarks.ablation.cells import Cell
from tritonsmith.benchmarks.ablation.schema import AblationPlan, CellState
from tritonsmith.benchmarks.ablation.sharing import CellEvaluator
from tritonsmith.evaluator.errors import InfrastructureError, RunStopped
from tritonsmith.graph.policies.forked import decisions_before
from tritonsmith.graph.run import RunConfig
from tritonsmith.graph.runs.fork import fork_run
from tritonsmith.graph.runs.run import Run
from tritonsmith.graph.runs.try_again import read_fatal_fault, read_shareable, write_tape
from tritonsmith.graph.storage.folder import MANIFEST
from tritonsmith.graph.storage.summary import read_summary
from tritonsmith.nodes.chat.connect import Models
from tritonsmith.prompts.author import Author, AuthorError


def config_of(cell: Cell, plan: AblationPlan, root: Path) -> RunConfig:
    """The settings of a cell's run: its task's entry goes before the plan."""
    return RunConfig.model_validate(
        {
            **plan.settings, "task": cell.task.path, "size": cell.task.size, "overrides": cell.task.overrides,
            "precision": cell.task.precision or plan.precision, "mode": cell.task.mode or plan.mode,
            "policy": cell.policy.given, "seeds": cell.policy.seeds, "out": str(cell.folder(root)),
        }
    )  # fmt: skip


async def play(
    cell: Cell, plan: AblationPlan, root: Path, *, evaluator: CellEvaluator, author: Author | None, models: Models | None
) -> None:
    """Run a cell to its end.

    Raises RunStopped when somebody stopped it, InfrastructureError and AuthorError where evaluator or author failed, and
    everything else that the run raises.
    """
    folder = cell.folder(root)
    run = await asyncio.to_thread(_make_run, cell, plan, root, {"evaluator": evaluator, "author": author, "models": models})
    async with aclosing(run.stream()) as events:
        async for _ in events:
            pass
    if run.summary is None:
        raise RunStopped(run.stopped or "the run was stopped")
    if evaluator.broken:
        raise InfrastructureError(evaluator.broken)
    if fault := read_fatal_fault(folder):
        raise AuthorError(fault)


def _make_run(cell: Cell, plan: AblationPlan, root: Path, players: dict[str, Any]) -> Run:
    """The run that lies in the cell's folder, else a fork of the base's run, else one of its own."""
    folder, base = cell.folder(root), cell.base_folder(root)
    if (folder / MANIFEST).is_file() and cell.state(root) is CellState.OPEN:
        return Run.of(folder, **players)
    own = read_shareable(folder)  # of a try that failed
    if folder.exists():
        shutil.rmtree(folder)
    if base is not None and cell.policy.at and _was_reached(cell.policy.at, base):
        run = fork_run(base, at=cell.policy.at, policy=cell.policy.given, out=folder, **players)
        write_tape(folder, [*read_shareable(folder), *own])
        return run
    write_tape(folder, [*own, *(read_shareable(base) if base is not None else ())])
    return Run(config_of(cell, plan, root), **players)


def _was_reached(at: str, base: Path) -> bool:
    """Whether the base's run was over and asked its policy at the site: else there is nothing to fork, and the two are the same run."""
    summary = read_summary(base)
    return summary is not None and decisions_before(at, summary.decisions)[1]
