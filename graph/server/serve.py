"""Runs the graph for a LangGraph server: opens author and evaluator from plain settings, and gives each run a folder.

An evaluator belongs to a card, and all runs of the server share it. Author, policy and store belong to a run.
"""

import asyncio
import re
import threading
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, lru_cache
from pathlib import Path
from typing import cast

from langgraph.config import get_config

from tritonsmith.evaluator.caller.local import BaselineSet, open_evaluator
from tritonsmith.evaluator.errors import TritonsmithError, UsageError
from tritonsmith.evaluator.protocol import Evaluator
from tritonsmith.evaluator.schema import Allow
from tritonsmith.graph.builder import Node
from tritonsmith.graph.context import Context
from tritonsmith.graph.policies.load import load_policy
from tritonsmith.graph.runs.conclude import begin_event, conclude, end_event
from tritonsmith.graph.runs.players import Players, open_players
from tritonsmith.graph.searches import Tuning
from tritonsmith.graph.server.settings import RunForm, ServedError
from tritonsmith.graph.state import State, Update
from tritonsmith.graph.storage.folder import EVENTS, TAPE, Event, EventLog
from tritonsmith.graph.storage.store import Store
from tritonsmith.nodes.common import NodeRuntime

_KEPT = 256
"""Runs whose author, store and policy are kept in memory."""
_SHORT = 8
"""Characters of a run's id that name its folder within the thread's."""
_opening = threading.Lock()


@dataclass(frozen=True)
class OpenedRun:
    """What one run works with."""

    context: Context
    players: Players

    in_folder: bool
    """Whether the run has its folder yet."""


@cache
def _evaluator(target: str, sandbox: str, baselines: BaselineSet) -> Evaluator:
    return open_evaluator(target, sandbox=sandbox, baselines=baselines)


@cache
def _no_store() -> Store:
    """The store of the node that begins a run and writes no kernel. All runs share it: removing a folder blocks the event loop."""
    return Store()


@lru_cache(_KEPT)  # what was dropped is made again from the state and the folders
def _open_run(settings: RunForm, thread: str, run: str) -> OpenedRun:
    policy = load_policy(settings.policy_file or settings.policy)
    players = open_players(settings.models, replay=settings.replay, spool=settings.spool, memory=settings.memory, budget=settings.budget)
    folder = settings.results / thread
    store = Store(folder / run[:_SHORT]) if run else _no_store()
    # a run that waits is begun again in its thread, and asks nothing twice; other runs go on from the server's own checkpoints
    tape = folder / TAPE if players.may_wait else None
    judge = players.evaluator(tape, settings.target, lambda: _evaluator(settings.target, settings.sandbox, settings.baselines))
    context = Context(
        author=players.author, evaluator=judge, policy=policy, store=store, budget=settings.budget, seeds=settings.seeds,
        allow=Allow(settings.allow), claims_from=settings.claims_from,
        tuning=None if settings.tuning is None else Tuning(settings.tuning), memory=players.recall(),
        seed_from=settings.seed_from,
    )  # fmt: skip
    return OpenedRun(context, players, bool(run))


def open_run(settings: RunForm | None, thread: str, run: str) -> OpenedRun:
    """What a run works with, opened once. Raises UsageError in the words of the form, and InfrastructureError."""
    try:
        with _opening:  # the caches alone would let two runs that start together open two evaluators
            return _open_run(settings or RunForm(), thread, run)
    except UsageError as error:
        raise UsageError(_as_settings(str(error))) from error


async def serve(name: str, node: Node, state: State, runtime: NodeRuntime) -> Update:
    """One node for a server: its events also go into the run's folder. Raises ServedError with one sentence for the caller."""
    thread = str(get_config().get("configurable", {}).get("thread_id") or "no-thread")
    try:
        return await _serve(name, node, state, runtime, thread)
    except (TritonsmithError, OSError) as error:  # a full disk is a sentence too
        raise ServedError(str(error)) from error


async def _serve(name: str, node: Node, state: State, runtime: NodeRuntime, thread: str) -> Update:
    settings = cast("RunForm | None", runtime.context)
    events: list[Event] = []

    def tell(event: Event) -> None:
        events.append({"time": datetime.now(UTC).isoformat(timespec="milliseconds"), **event})
        runtime.stream_writer(event)

    first = name == "describe"  # it begins a run, whose id and folder are known when it is done
    opened = await asyncio.to_thread(open_run, settings, thread, "" if first else state["run"])
    try:
        update = await node(state, replace(runtime, context=opened.context, stream_writer=tell))
        if first:
            opened = await asyncio.to_thread(open_run, settings, thread, update["run"])
            tell(begin_event(update["task"], opened.context, update["run"]))
            events.insert(0, events.pop() | {"time": events[0]["time"]})
        elif name == "finish":
            last = cast(State, {**state, **update})
            summary = await asyncio.to_thread(conclude, last, opened.context, opened.players, last.get("elapsed", 0.0))
            tell(end_event(summary))
        return update
    finally:
        if opened.in_folder:
            await asyncio.to_thread(_write, opened.context.store.root / EVENTS, events)


def _write(path: Path, events: list[Event]) -> None:
    log = EventLog(path)
    for event in events:
        log(event)


def _as_settings(sentence: str) -> str:
    """A sentence for the command line in the words of a form: `--base-url ...` is the setting `base_url`."""
    named = re.sub(r"--([a-z][a-z-]*)", lambda option: option[1].replace("-", "_"), sentence)
    return f"setting {named}" if sentence.startswith("--") else named
