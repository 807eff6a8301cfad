"""What nodes tell a trace of their own work: evaluations and scores. Without a listener nothing happens."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from langchain_core.callbacks import AsyncCallbackManager
from langchain_core.runnables.config import RunnableConfig, ensure_config, get_async_callback_manager_for_config

from tritonsmith.evaluator.schema import Status, TimingKind, Verdict
from tritonsmith.graph.tracing.shown import summarize_verdict
from tritonsmith.graph.tracing.tracer import RunTracer


@dataclass
class Span:
    """A piece of a node's work, while it goes on."""

    manager: AsyncCallbackManager
    run: UUID | None = None
    """None where nobody listens."""
    outputs: dict[str, Any] = field(default_factory=dict)

    def score(self, key: str, value: float, comment: str) -> None:
        """Give the span a score."""
        for tracer in _tracers(self.manager):
            tracer.feedback(self.run, key, value, comment)


@asynccontextmanager
async def span(name: str, inputs: dict[str, Any], tags: list[str]) -> AsyncIterator[Span]:
    """Report a piece of work to the trace, with its `outputs` at the end."""
    manager = callback_manager(RunnableConfig(tags=tags))
    if not manager.handlers:
        yield Span(manager)
        return
    run = await manager.on_chain_start({}, inputs, name=name, run_type="tool")
    work = Span(manager, run.run_id)
    try:
        yield work
    except BaseException as error:
        await run.on_chain_error(error)
        raise
    await run.on_chain_end(work.outputs)


def score_verdict(work: Span, verdict: Verdict) -> None:
    """What an evaluation found, as the span's outputs and as its scores."""
    work.outputs = summarize_verdict(verdict)
    work.score("correct", float(verdict.status is Status.OK), verdict.status.value)
    if verdict.score is not None:
        work.score("speedup", verdict.score, speedup_comment(verdict))
    if verdict.timing is not None and verdict.timing.floor is not None:
        work.score("floor_share", verdict.timing.floor.share, f"{verdict.timing.floor.words}, {verdict.timing.kind.value}")


def score_run(verdict: Verdict | None) -> None:
    """The winner's score, or that there is none, on the whole trace."""
    manager = callback_manager(RunnableConfig())
    for tracer in _tracers(manager):
        run = tracer.root_of(manager.parent_run_id)
        tracer.feedback(run, "correct", float(verdict is not None), verdict.status.value if verdict else "no kernel works")
        if verdict is not None and verdict.score is not None:
            tracer.feedback(run, "speedup", verdict.score, speedup_comment(verdict))


def speedup_comment(verdict: Verdict) -> str:
    """Whether a score was measured or estimated, and against what."""
    timing = verdict.timing
    if timing is None:
        return ""
    how = "measured" if timing.kind is TimingKind.MEASURED else "estimated, not measured"
    return f"{how}: {timing.median_ms:.4g} ms, baseline {timing.baseline} ({verdict.profile} profile)"


def callback_manager(config: RunnableConfig) -> AsyncCallbackManager:
    """The callbacks of the node that runs now, with these additions."""
    return get_async_callback_manager_for_config(ensure_config(config))


def _tracers(manager: AsyncCallbackManager) -> list[RunTracer]:
    return [handler for handler in manager.handlers if isinstance(handler, RunTracer)]
