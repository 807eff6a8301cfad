"""The cells of an experiment: where each lies, how far it is, who works on it, and its row in the tables."""

import fcntl
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tritonsmith.benchmarks.ablation.schema import AblationPlan, CellRow, CellState, PlannedPolicy
from tritonsmith.benchmarks.ablation.sharing import Memo, SharedVerdict
from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.schema import Stage, Status
from tritonsmith.graph.pool import is_proven
from tritonsmith.graph.storage.files import fault_of, lines_of, parse_object
from tritonsmith.graph.storage.folder import TAPE
from tritonsmith.graph.storage.summary import CandidateRow, Summary, Winner
from tritonsmith.graph.suites.tasks import PlannedTask

_TUNING = (Stage.TUNE_GRID.value, Stage.TUNE_BLOCK.value, Stage.TUNE_MEMORY.value)


@dataclass(frozen=True)
class Cell:
    """One run of the experiment."""

    task: PlannedTask
    policy: PlannedPolicy
    repeat: int

    @property
    def name(self) -> str:
        """`task/policy/repeat`."""
        return f"{self.task.key}/{self.policy.key}/{self.repeat}"

    def folder(self, root: Path) -> Path:
        """The run's folder."""
        return root / "cells" / self.task.key / self.policy.key / str(self.repeat)

    def base_folder(self, root: Path) -> Path | None:
        """The folder of the run that it builds on; None where it builds on none."""
        return None if self.policy.base is None else root / "cells" / self.task.key / self.policy.base / str(self.repeat)

    def memo(self, root: Path) -> Memo:
        """The verdicts that it shares with the other policies."""
        return Memo(root / "shared" / self.task.key / str(self.repeat))

    def failure(self, root: Path) -> Path:
        """The file that says why the run could not be made."""
        return self.folder(root).with_name(f"{self.repeat}.failed.json")

    def state(self, root: Path) -> CellState:
        """How far it is, by its files."""
        if self.failure(root).is_file():
            return CellState.FAILED
        return CellState.DONE if (self.folder(root) / "summary.json").is_file() else CellState.OPEN

    def fail(self, root: Path, reason: str) -> None:
        """Note why the run could not be made."""
        path = self.failure(root)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"reason": reason}, ensure_ascii=False) + "\n", encoding="utf-8")

    @contextmanager
    def take(self, root: Path) -> Iterator[bool]:
        """Take the cell for as long as the block lasts; False where another process has it. A process that dies lets go."""
        path = root / "locks" / f"{self.task.key}--{self.policy.key}--{self.repeat}.lock"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = path.open("a")
        except OSError as error:
            raise UsageError(f"--out {root}: cannot write there ({error.strerror}); name a folder that you may write to") from error
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            yield True


def cells_of(plan: AblationPlan) -> tuple[Cell, ...]:
    """Every cell: all policies of a task's repeat side by side, the bases first."""
    policies = sorted(plan.policies, key=lambda policy: (policy.base is not None, not policy.shares))
    return tuple(Cell(task, policy, repeat) for repeat in range(1, plan.repeats + 1) for task in plan.tasks for policy in policies)


def row_of(cell: Cell, root: Path, plan: AblationPlan, known: dict[tuple[str, str], SharedVerdict] | None = None) -> CellRow:
    """The cell's row from the files of its run; `known` are the verdicts of its task and repeat, where they were read before."""
    row = CellRow(
        task=cell.task.key, policy=cell.policy.key, repeat=cell.repeat, state=cell.state(root), kind=plan.kind, card=plan.card,
        precision=plan.precision_of(cell.task),
        folder=cell.folder(root).relative_to(root).as_posix(), size=cell.task.size or "",
    )  # fmt: skip
    if row.state is CellState.FAILED:
        return row.model_copy(update={"reason": _read_reason(cell.failure(root))})
    if row.state is CellState.OPEN:
        return row
    try:
        summary = Summary.model_validate_json((cell.folder(root) / "summary.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        return row.model_copy(update={"state": CellState.FAILED, "reason": f"summary.json cannot be read ({fault_of(error)})"})
    judged = cell.memo(root).all() if known is None else known
    row = row.model_copy(
        update={"reason": summary.stopped_because, "size": summary.size, "seconds": summary.seconds, **_find_parent(cell, root)}
        | _count_work(summary, cell, root, judged)
        | _read_seeds(summary)
    )
    return row if summary.best is None else _add_winner(row, summary.best)


def _add_winner(row: CellRow, winner: Winner) -> CellRow:
    timing = winner.verdict.timing
    if timing is None or not winner.confirmed:
        return row.model_copy(update={"reason": row.reason or "the winner was not confirmed", "winner": winner.id})
    if timing.kind.value != row.kind:
        why = f"its figures are {timing.kind.value} and the experiment's are {row.kind}"
        return row.model_copy(update={"state": CellState.FAILED, "reason": why})
    reached = winner.verdict.correctness.precision_class if winner.verdict.correctness else None
    low, high = timing.interval or (None, None)
    found = {
        "solved": True, "faster": is_proven(winner.verdict), "low": low, "high": high,
        "score": timing.score, "score_eager": timing.score_eager,
        "comparison": timing.comparison.value if timing.comparison else "", "baseline": timing.baseline, "median_ms": timing.median_ms,
        "baseline_ms": timing.baselines_ms.get(timing.baseline), "label": winner.verdict.label.value if winner.verdict.label else "",
        "winner": winner.id, "winner_stage": winner.stage, "winner_sha": winner.sha, "recipe": winner.recipe,
        "precision": reached.value if reached else row.precision,
    }  # fmt: skip
    return row.model_copy(update=found)


def _read_seeds(summary: Summary) -> dict[str, object]:
    """The first verdict of every seed; a confirmation since then does not count."""
    seeds = sorted((row for row in summary.candidates if row.stage == Stage.SEED.value), key=lambda row: (row.branch or 0, row.id))
    return {"seed_scores": tuple(map(first_score, seeds)), "seed_shas": tuple(seed.sha for seed in seeds)}


def first_score(row: CandidateRow) -> float | None:
    """The score of the first verdict; a confirmation since then does not count."""
    return row.search_score if row.search_score is not None else row.score


def _count_work(summary: Summary, cell: Cell, root: Path, judged: dict[tuple[str, str], SharedVerdict]) -> dict[str, object]:
    """What the run rests on, also where another run paid for it."""
    asked = {(row.sha, "quick") for row in summary.candidates if row.status != "not evaluated"}
    asked |= {(row.sha, "strict") for row in summary.candidates if row.profile == "strict"}
    used = [verdict for key, verdict in judged.items() if key in asked]
    return {
        "candidates": len(summary.candidates),
        "working": sum(row.status == Status.OK.value for row in summary.candidates),
        "analysed": len(summary.analyses),
        "tuned": sum(row.stage in _TUNING for row in summary.candidates),
        "evaluations": len(used),
        "evaluation_seconds": round(sum(verdict.seconds for verdict in used), 3),
        "shared_evaluations": sum(verdict.cell != cell.name for verdict in used),
        "shared_seconds": round(sum(verdict.seconds for verdict in used if verdict.cell != cell.name), 3),
        "calls": summary.usage.calls,
        "shared_calls": _count_shared_calls(cell, root) if summary.usage.calls else 0,
        "input_tokens": summary.usage.input_tokens,
        "output_tokens": summary.usage.output_tokens,
        "money": summary.usage.money,
    }


def _count_shared_calls(cell: Cell, root: Path) -> int:
    """How many of the run's replies were taken from the run that it builds on: those to the same request."""
    base = cell.base_folder(root)
    if base is None:
        return 0
    tape = lines_of((base / TAPE).read_bytes()) if (base / TAPE).is_file() else []
    known = [_request_key(line) for line in _parse_lines(tape) if line.get("kind") == "reply" and "reply" in line]
    asked = _parse_lines(path.read_bytes() for path in (cell.folder(root) / "llm").glob("*.json"))
    return sum(_request_key(call) in known for call in asked if call.get("reply") is not None)


def _request_key(line: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(line.get(name) for name in ("name", "call", "messages"))


def _parse_lines(texts: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """What can be read: a run that is whole nevertheless must not cost the tables of all others."""
    for text in texts:
        try:
            yield parse_object(text)
        except ValueError:
            continue


def _find_parent(cell: Cell, root: Path) -> dict[str, object]:
    """Whose run it was forked from, by the run's own note."""
    try:
        parent = json.loads((cell.folder(root) / "run.json").read_text(encoding="utf-8")).get("parent")
    except (OSError, ValueError, AttributeError):
        return {}
    return {"base": cell.policy.base or "", "at": str(parent.get("at", ""))} if isinstance(parent, dict) else {}


def _read_reason(path: Path) -> str:
    try:
        return str(json.loads(path.read_text(encoding="utf-8"))["reason"])
    except (OSError, ValueError, KeyError, TypeError):
        return "the reason cannot be read"
