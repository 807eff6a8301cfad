"""Steps of the graph for LangGraph: callable both ways, with one run each in a trace, not two or three."""

from collections.abc import Awaitable, Callable, Hashable
from typing import Any

from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.types import TracePolicy
from langsmith.utils import tracing_is_enabled

from tritonsmith.graph.background import run_blocking
from tritonsmith.graph.state import Update
from tritonsmith.graph.tracing.shown import summarize_decision, summarize_state


class Step(Runnable[Any, Any]):
    """A node: an asynchronous function of the state that synchronous invocations may use too, on one background event loop.

    A RunnableLambda would do the same and show up in a trace a second time, below its own node.
    """

    def __init__(self, name: str, work: Callable[[Any], Awaitable[Update]]) -> None:
        self.name = name
        self._work = work

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """The update, for callers that are not asynchronous."""
        return run_blocking(self._update(input))

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """The update."""
        return await self._work(input)

    async def _update(self, state: Any) -> Update:
        return await self._work(state)


class Edge(Runnable[Any, Any]):
    """A fork: reads the next node from the state. A trace does not show it; the node before it has the answer."""

    def __init__(self, name: str, read: Callable[[Any], Hashable | list[Any]]) -> None:
        self.name = name
        self._read = read

    def invoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """The way."""
        return self._read(input)

    async def ainvoke(self, input: Any, config: RunnableConfig | None = None, **kwargs: Any) -> Any:
        """The way."""
        return self._read(input)


def _shrink(show: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Small payloads for LangChain's own tracer; without one nothing is prepared."""
    return lambda value: show(value) if tracing_is_enabled() else value


NODE_TRACE = TracePolicy(process_inputs=_shrink(summarize_state), process_outputs=_shrink(summarize_state))
GATE_TRACE = TracePolicy(process_inputs=_shrink(summarize_state), process_outputs=_shrink(summarize_decision))
