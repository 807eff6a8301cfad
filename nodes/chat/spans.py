"""Reports calls to models to a trace, where no library reports them itself.

All of it goes through LangChain's callbacks, so every listener there hears it. Without a listener nothing happens.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.messages.ai import UsageMetadata
from langchain_core.outputs import ChatGeneration, LLMResult
from langchain_core.runnables.config import RunnableConfig

from tritonsmith.graph.tracing.spans import callback_manager
from tritonsmith.nodes.chat.records import Reply, Request

_LIBRARY_CALLS: ContextVar[list[str] | None] = ContextVar("tritonsmith_library_calls", default=None)


@contextmanager
def collect_library_calls() -> Iterator[list[str]]:
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
    """Report an answer that no library reports: of a recording, a person, or a user's own Chat."""
    manager = callback_manager(about(request))
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
