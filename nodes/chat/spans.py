"""What nodes tell a trace beside their inputs and outputs: evaluations, model calls that no library tells of, and scores.

All of it goes through LangChain's callbacks, so whoever listens there hears it; without a listener nothing happens.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from langchain_core.callbacks import AsyncCallbackManager
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGeneration, LLMResult
from langchain_core.runnables.config import RunnableConfig, ensure_config, get_async_callback_manager_for_config

from tritonsmith.evaluator.schema import Status, TimingKind, Verdict
from tritonsmith.graph.traced import verdict_shown
from tritonsmith.graph.tracing import RunTracer
from tritonsmith.nodes.chat.records import Reply, Request

_LIBRARY_CALLS: ContextVar[list[str] | None] = ContextVar("tritonsmith_library_calls", default=None)


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
    """Tell of a piece of work; what stands in `outputs` at its end is told too."""
    manager = _manager(RunnableConfig(tags=tags))
    if not manager.handlers:
        yield Span(manager)
        return
    told = await manager.on_chain_start({}, inputs, name=name, run_type="tool")
    one = Span(manager, told.run_id)
    try:
        yield one
    except BaseException as error:
        await told.on_chain_error(error)
        raise
    await told.on_chain_end(one.outputs)


def score_verdict(one: Span, verdict: Verdict) -> None:
    """What an evaluation found, as the span's outputs and as its scores."""
    one.outputs = verdict_shown(verdict)
    one.score("correct", float(verdict.status is Status.OK), verdict.status.value)
    if verdict.score is not None:
        one.score("speedup", verdict.score, speedup_comment(verdict))


def score_run(verdict: Verdict | None) -> None:
    """The winner's score, or that there is none, on the whole trace."""
    manager = _manager(RunnableConfig())
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


@contextmanager
def library_calls() -> Iterator[list[str]]:
    """Names of the calls that a model's library tells of while this lasts."""
    calls: list[str] = []
    token = _LIBRARY_CALLS.set(calls)
    try:
        yield calls
    finally:
        _LIBRARY_CALLS.reset(token)


def note_library_call(name: str) -> None:
    """A library of models is asked, and tells of it by itself."""
    calls = _LIBRARY_CALLS.get()
    if calls is not None:
        calls.append(name)


def about(request: Request) -> RunnableConfig:
    """How a request to a model is named and found in a trace."""
    return RunnableConfig(
        run_name=request.label,
        tags=[f"role:{request.role}", f"stage:{request.stage}"],
        metadata={"role": request.role, "stage": request.stage, "request": request.name, "call": request.call},
    )


async def tell_reply(request: Request, name: str, reply: Reply) -> None:
    """Tell of an answer that no library told of: from a recording, from a person, or from a Chat of the user's own."""
    manager = _manager(about(request))
    if not manager.handlers:
        return
    provider = name.partition(":")[0]
    manager.add_metadata({"ls_model_name": reply.model or name, "ls_provider": provider, "ls_model_type": "chat"}, inherit=False)
    spoken: list[BaseMessage] = [
        HumanMessage(turn.content) if turn.role == "user" else AIMessage(turn.content) for turn in request.messages
    ]
    used = UsageMetadata(
        input_tokens=reply.usage.input_tokens, output_tokens=reply.usage.output_tokens, total_tokens=reply.usage.tokens
    )
    answer = AIMessage(
        reply.text, usage_metadata=used, response_metadata={"finish_reason": reply.finish_reason, "model_name": reply.model or name}
    )
    for run in await manager.on_chat_model_start({}, [spoken], name=request.label):
        await run.on_llm_end(LLMResult(generations=[[ChatGeneration(message=answer)]]))


def _manager(config: RunnableConfig) -> AsyncCallbackManager:
    return get_async_callback_manager_for_config(ensure_config(config))


def _tracers(manager: AsyncCallbackManager) -> list[RunTracer]:
    return [handler for handler in manager.handlers if isinstance(handler, RunTracer)]
