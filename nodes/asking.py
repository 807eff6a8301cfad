"""Asking the author: the brief it gets, and the ledger of what a model's answers cost."""

import asyncio
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tritonsmith.evaluator.schema import Candidate, Stage
from tritonsmith.graph.pool import lineage, refusal
from tritonsmith.graph.state import BranchState, State, Usage, allow_of
from tritonsmith.nodes.common import Runner, context_of, session_of
from tritonsmith.prompts.analysis import Analysis
from tritonsmith.prompts.author import Attempt, Brief

Answer = TypeVar("Answer")


@dataclass
class Meter:
    """What one request to the author cost, and the calls it made."""

    usage: Usage = field(default_factory=Usage)
    calls: list[dict[str, Any]] = field(default_factory=list)


_METER: ContextVar[Meter | None] = ContextVar("tritonsmith_meter", default=None)


@contextmanager
def metered() -> Iterator[Meter]:
    """Collect what authors report through `record_call` in this task."""
    meter = Meter()
    token = _METER.set(meter)
    try:
        yield meter
    finally:
        _METER.reset(token)


def record_call(usage: Usage, call: dict[str, Any]) -> None:
    """For authors that call a model: report one call; `call` is written to `llm/` as it stands."""
    meter = _METER.get()
    if meter is not None:
        meter.usage += usage
        meter.calls.append(call)


async def ask(request: str, answer: Awaitable[Answer], state: State | BranchState, runtime: Runner) -> tuple[Answer, dict[str, Usage]]:
    """The author's answer, and the update of the state's `usage`; prompts and replies are written even if the author fails."""
    with metered() as meter:
        try:
            reply = await answer
        finally:
            store = context_of(runtime).store
            for number, call in enumerate(meter.calls, start=1):
                await asyncio.to_thread(store.save_call, f"{request}-{number}", call)
    if not meter.calls:
        return reply, {}
    session_of(state, runtime).note_usage(request, meter.usage)
    return reply, {request: meter.usage}


async def brief_for(
    state: State | BranchState,
    runtime: Runner,
    *,
    current: Candidate | None = None,
    analysis: Analysis | None = None,
    stage: Stage = Stage.SEED,
    others: tuple[Candidate, ...] = (),
) -> Brief:
    """Everything the author may know; the history is the candidate's ancestors, then `others`, each with its verdict."""
    context = context_of(runtime)
    index = state.get("index")
    candidates = state.get("candidates", {})
    chain = lineage(candidates, current.id)[:-1] if current else []
    seen = {candidate.id for candidate in chain} | ({current.id} if current else set())
    chain += [candidate for candidate in others if candidate.id not in seen]
    return Brief(
        task=state["task"],
        facts=state["facts"],
        hardware=context.evaluator.hardware,
        branch=index if isinstance(index, int) else 0,
        current=await _attempt(state, runtime, current) if current else None,
        history=tuple([await _attempt(state, runtime, candidate) for candidate in chain]),
        analysis=analysis,
        stage=stage,
        allow=allow_of(state),
    )


async def _attempt(state: State | BranchState, runtime: Runner, candidate: Candidate) -> Attempt:
    source = await asyncio.to_thread(context_of(runtime).store.get, candidate.sha)
    verdict = state.get("verdicts", {}).get(candidate.id)
    return Attempt(candidate=candidate, source=source, verdict=verdict, refusal=refusal(verdict, allow_of(state)) if verdict else "")
