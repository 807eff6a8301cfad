"""The compiled graph for the LangGraph server (`langgraph.json`): settings come as plain values, a task as its path.

No classes here, because a server may load this file a second time under another name. Each thread has a folder of its own under
`out`; an evaluator belongs to a card and is shared by everything that the server runs.
"""

import asyncio
import re
import threading
from functools import cache, lru_cache
from pathlib import Path

from langgraph.config import get_config

from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.local import open_evaluator
from tritonsmith.evaluator.schema import Allow, Evaluator
from tritonsmith.graph.builder import build_graph
from tritonsmith.graph.context import Context
from tritonsmith.graph.folder import TAPE
from tritonsmith.graph.players import open_players
from tritonsmith.graph.policies import load_policy
from tritonsmith.graph.settings import Settings, TaskInput
from tritonsmith.graph.store import Store

_KEPT_CONTEXTS = 256
_opening = threading.Lock()


@cache
def _evaluator(target: str, sandbox: str) -> Evaluator:
    return open_evaluator(target, sandbox=sandbox)


@lru_cache(_KEPT_CONTEXTS)  # one that was dropped is made again from the state and the thread's folder
def _opened(settings: Settings, thread: str) -> Context:
    policy = load_policy(settings.policy_file or settings.policy)
    players = open_players(settings.models, replay=settings.replay, spool=settings.spool, memory=settings.memory, budget=settings.budget)
    store = Store(Path(settings.out) / thread)
    kept = store.root / TAPE if players.may_wait else None  # other runs go on from the server's own checkpoints
    judge = players.evaluator(kept, settings.target, lambda: _evaluator(settings.target, settings.sandbox))
    return Context(
        author=players.author, evaluator=judge, policy=policy, store=store, budget=settings.budget, seeds=settings.seeds,
        allow=Allow(settings.allow), memory=players.recall(),
    )  # fmt: skip


def _opened_once(settings: Settings, thread: str) -> Context:
    with _opening:  # the caches alone would let two runs that start together open two evaluators
        return _opened(settings, thread)


async def open_settings(settings: Settings | None) -> Context:
    """The context for these settings in this thread, opened once and off the event loop. Raises UsageError."""
    thread = str(get_config().get("configurable", {}).get("thread_id") or "no-thread")
    try:
        return await asyncio.to_thread(_opened_once, settings or Settings(), thread)
    except UsageError as error:
        raise UsageError(_as_settings(str(error))) from error


def _as_settings(sentence: str) -> str:
    """A sentence for the command line in the words of a form: `--base-url ...` is the setting `base_url`."""
    named = re.sub(r"--([a-z][a-z-]*)", lambda option: option[1].replace("-", "_"), sentence)
    return f"setting {named}" if sentence.startswith("--") else named


graph = build_graph(Settings, open_settings, TaskInput).compile(name="tritonsmith")
