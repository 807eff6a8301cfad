"""The first and the last event of a run, and the files that it leaves behind. Command line and server share them."""

from collections.abc import Mapping
from typing import Any

from tritonsmith.evaluator.schema import Task
from tritonsmith.evaluator.tasks.files import settled_size
from tritonsmith.graph.context import Context
from tritonsmith.graph.runs.players import Players
from tritonsmith.graph.state import State
from tritonsmith.graph.storage.folder import Event
from tritonsmith.graph.storage.summary import Summary, summarize, write_best


def run_event(event: str, candidate: str | None = None, **data: Any) -> Event:
    """An event of the run as a whole, which no node sends."""
    return {"event": event, "node": event, "branch": "main", "candidate": candidate, **data}


def begin_event(task: Task, context: Context, run: str, *, resumed: bool = False) -> Event:
    """The first event of a run: what it works on, and with what."""
    return run_event(
        "run", run=run, folder=str(context.store.root), task=task.name, size=settled_size(task), policy=context.policy.name,
        model=context.author.name, target=context.evaluator.hardware.name, budget=context.budget.model_dump(mode="json"),
        resumed=resumed,
    )  # fmt: skip


def end_event(summary: Summary) -> Event:
    """The last event of a run: its winner, and why it ended."""
    winner = summary.winner.id if summary.winner else None
    kept = {"kept": summary.kept.sentence} if summary.kept else {}
    return run_event(
        "end", winner, winner=winner, result=summary.result, stopped_because=summary.stopped_because, outcome=summary.outcome.value, **kept
    )  # fmt: skip


def conclude(state: State, context: Context, players: Players, seconds: float, more: Mapping[str, Any] | None = None) -> Summary:
    """Write what a run leaves behind; `summary.json` last, because it says that the run is over. `more` are further fields of it.

    Reads and writes files; asynchronous callers use a thread.
    """
    hardware = context.evaluator.hardware
    summary = summarize(
        state, policy=context.policy.name, model=context.author.name, target=hardware.name, seconds=seconds, out=str(context.store.root)
    ).model_copy(update=dict(more or {}))
    if players.memory is not None:
        players.memory.remember(state, context.store.get, hardware)
    write_best(summary, context.store, state["task"])
    summary.write(context.store.root)
    return summary
