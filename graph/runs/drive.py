"""Driving the graph: from where a run's checkpoints stand to its end, event by event."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.errors import GraphDrained
from langgraph.runtime import RunControl
from langgraph.types import StateSnapshot

from tritonsmith.evaluator.schema import Task
from tritonsmith.graph.builder import build_graph, step_limit
from tritonsmith.graph.context import Context
from tritonsmith.graph.state import State
from tritonsmith.graph.storage.folder import Event
from tritonsmith.nodes.chat.records import Waiting
from tritonsmith.prompts.author import AuthorError


class Drive:
    """One process's part of a run. `state` is the latest one; `drained` tells that it was asked to stop.

    `waits_for` is the file that the graph stopped for; None where it did not. `kernels` are the shas of texts that found states name.
    """

    def __init__(
        self, context: Context, thread: str, saver: BaseCheckpointSaver[str] | None, control: RunControl, given: Mapping[str, Any]
    ) -> None:
        """`given` goes into the invocation's config: names and tags for traces."""
        self.state: State = {}
        self.drained = False
        self.waits_for: Path | None = None
        self.kernels: frozenset[str] = frozenset()
        self._context, self._saver, self._control = context, saver, control
        self._graph = build_graph().compile(checkpointer=saver, name="tritonsmith")
        self._config = cast(
            RunnableConfig, {**given, "recursion_limit": step_limit(context.budget), "configurable": {"thread_id": thread}}
        )
        self._found: StateSnapshot | None = None

    async def find(self, faults: list[dict[str, Any]]) -> bool:
        """Look where an earlier process left the run, and fill the ledger from its states; False without any.

        `faults` are branches that the author failed: no state has them.
        """
        if self._saver is None:
            return False
        found = await self._graph.aget_state(self._config, subgraphs=True)
        if not found.values or (found.metadata or {}).get("step", -1) < 0:
            return False  # killed before the first step: only the input is there
        self._found, self.state = found, cast(State, found.values)
        if "run" in self.state:
            session = self._context.session(self.state["run"])
            inner = [task.state.values for task in found.tasks if isinstance(task.state, StateSnapshot)]
            parts = [cast(State, part) for part in (self.state, *inner, *(task.result for task in found.tasks)) if isinstance(part, dict)]
            for part in parts:
                session.absorb(part)
            self.kernels = frozenset(candidate.sha for part in parts for candidate in part.get("candidates", {}).values())
            for line in faults:
                session.remember_fault(line["branch"], AuthorError(line["error"]), fatal=line["fatal"])
        return True

    async def events(self, task: Task) -> AsyncGenerator[Event, None]:
        """Take the steps that are left; the state is at hand afterwards. Raises what a node raises."""
        if self._found is not None and "winner" in self.state:
            return  # only what follows the graph was not finished
        self.state = self.state or {"task": task}
        options: dict[str, Any] = {} if self._saver is None else {"durability": "sync"}
        steps = self._graph.astream(
            None if self._found is not None else {"task": task},  # an input would begin a run that is under way anew
            self._config,
            context=self._context,
            stream_mode=["custom", "values"],
            subgraphs=True,  # without it the branches' events are lost
            control=self._control,
            **options,
        )
        try:
            async with aclosing(cast("AsyncGenerator[Any, None]", steps)) as parts:
                async for namespace, mode, data in parts:
                    if mode == "custom":
                        yield cast(Event, data)
                    elif not namespace:
                        self.state = cast(State, data)
        except Waiting as wait:
            self.waits_for = wait.file
        except GraphDrained:
            self.drained = True
