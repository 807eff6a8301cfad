"""One cell played: begun with what the run it builds on has asked and judged, or gone on with where an earlier process left it."""

import json
import shutil
from collections.abc import Iterable
from contextlib import aclosing
from pathlib import Path
from typing import Any

from tritonsmith.benchmarks.ablation.cells import Cell
from tritonsmith.benchmarks.ablation.schema import CellState, Plan
from tritonsmith.benchmarks.ablation.sharing import CellEvaluator
from tritonsmith.evaluator.errors import InfrastructureError, RunStopped
from tritonsmith.graph.folder import TAPE
from tritonsmith.graph.manifest import MANIFEST
from tritonsmith.graph.run import Run, RunConfig
from tritonsmith.nodes.chat_connect import Models
from tritonsmith.prompts.author import Author, AuthorError

Line = dict[str, Any]
_PASSED_ON = ("tape", "reply", "hardware", "facts", "verdict", "memory")
"""Lines of a tape that hold for any policy; failures belong to the run that met them."""


def config_of(cell: Cell, plan: Plan, root: Path) -> RunConfig:
    """The settings of a cell's run."""
    return RunConfig.model_validate(
        {
            **plan.settings, "task": cell.task.path, "size": cell.task.size, "overrides": cell.task.overrides, "precision": plan.precision,
            "policy": cell.policy.given, "seeds": cell.policy.seeds, "out": str(cell.folder(root)),
        }
    )  # fmt: skip


async def play(cell: Cell, plan: Plan, root: Path, *, evaluator: CellEvaluator, author: Author | None, models: Models | None) -> None:
    """Run a cell to its end.

    Raises RunStopped when somebody stopped it, InfrastructureError and AuthorError where evaluator or author failed, and whatever
    else the run raises.
    """
    folder = cell.folder(root)
    if (folder / MANIFEST).is_file() and cell.state(root) is CellState.OPEN:
        run = Run.of(folder, evaluator=evaluator, author=author, models=models)
    else:
        _begin(cell, root)
        run = Run(config_of(cell, plan, root), evaluator=evaluator, author=author, models=models)
    async with aclosing(run.stream()) as events:
        async for _ in events:
            pass
    if run.summary is None:
        raise RunStopped(run.stopped or "the run was stopped")
    if evaluator.broken:
        raise InfrastructureError(evaluator.broken)
    for line in _tape(folder):
        if line.get("kind") == "fault" and line.get("fatal"):
            raise AuthorError(str(line.get("error", "the author failed")))


def _begin(cell: Cell, root: Path) -> None:
    """An empty folder, but for replies and verdicts: the cell's own of an earlier try, and those of the run that it builds on."""
    folder = cell.folder(root)
    base = cell.base_folder(root)
    lines = [*_tape(folder), *(_tape(base) if base is not None else ())]
    if folder.exists():
        shutil.rmtree(folder)
    kept = list(_once(line for line in lines if line.get("kind") in _PASSED_ON))
    if kept:
        folder.mkdir(parents=True)
        partial = folder.with_name(f"{folder.name}.tape.part")
        partial.write_text("".join(json.dumps(line, ensure_ascii=False, sort_keys=True) + "\n" for line in kept), encoding="utf-8")
        partial.replace(folder / TAPE)


def _once(lines: Iterable[Line]) -> Iterable[Line]:
    """Lines without those that say the same as an earlier one; one head, one card."""
    seen = set()
    for line in lines:
        about = () if line["kind"] in ("tape", "hardware") else ("key", "name", "call", "task", "kernel", "profile")
        key = (line["kind"], *(str(line.get(name)) for name in about))
        if key not in seen:
            seen.add(key)
            yield line


def _tape(folder: Path) -> list[Line]:
    """The lines of a run's tape; none where there is no tape, and without a last line that a kill has cut."""
    found = []
    try:
        text = (folder / TAPE).read_text(encoding="utf-8")
    except OSError:
        return []
    for line in text.splitlines():
        try:
            told = json.loads(line)
        except ValueError:
            continue
        if isinstance(told, dict):
            found.append(told)
    return found
