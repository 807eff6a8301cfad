"""Traces of runs, for LangSmith or any OpenTelemetry server: readable, without keys and kernels, and never in the run's way.

For a run of one's own:

    from tritonsmith.graph.tracing import tracing

    with make_context(...) as context, tracing(task=task.name, policy=context.policy.name) as trace:
        answer = build_graph().compile().invoke({"task": task}, trace.config, context=context)

Without LANGSMITH_TRACING or LANGSMITH_OTEL_ENABLED in the environment that costs nothing and sends nothing.
"""

import asyncio
import concurrent.futures
import importlib.metadata
import logging
import os
import time
import warnings
from collections.abc import Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import Any, Self, cast
from uuid import UUID, uuid4

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.runnables import RunnableConfig
from langchain_core.tracers.langchain import LangChainTracer
from langchain_core.tracers.schemas import Run
from langsmith import Client
from langsmith.utils import LangSmithError
from pydantic import ValidationError
from urllib3.util.retry import Retry

from tritonsmith.graph.tracing.link import CLOSING_SECONDS, Link
from tritonsmith.graph.tracing.redact import Redactor, secrets_in
from tritonsmith.graph.tracing.shown import line_of_work, summarize_answer, summarize_decision, summarize_inputs, summarize_state
from tritonsmith.graph.tracing.target import Target, open_links, provider_for, target_of

_BRANCHES = ("branch", "improve")
"""Nodes that hold a line of work each."""
_GATE = "decide_"
"""How the names of gates begin."""
_ASK_AGAIN_SECONDS = 20.0
"""Seconds before a server that had no project yet is asked for it again."""


class TraceClient(Client):
    """LangSmith's client for one run; nothing leaves it that the redactor has not seen."""

    def __init__(self, redactor: Redactor, links: Iterable[Link], project: str, **options: Any) -> None:
        """`links` are all ways out, LangSmith's first; the options are Client's."""
        self.redactor, self.links = redactor, tuple(links)
        self._project = project
        self._project_id: UUID | None = None
        self._ask_again = 0.0
        self._feedback_thread: concurrent.futures.ThreadPoolExecutor | None = None
        self._feedback: list[concurrent.futures.Future[Any]] = []
        super().__init__(anonymizer=redactor, retry_config=Retry(total=0), omit_traced_runtime_info=True, **options)

    @property
    def is_off(self) -> bool:
        """Whether nothing would be sent."""
        return all(link.off for link in self.links)

    def create_run(self, name: str, inputs: dict[str, Any], run_type: Any, **fields: Any) -> None:
        """Begin a run; the library's own anonymizer sees inputs, outputs, metadata and errors only."""
        super().create_run(self.redactor.text(name), inputs, run_type, **self._fit(fields))

    def update_run(self, run_id: Any, **fields: Any) -> None:
        """Go on with a run."""
        super().update_run(run_id, **self._fit(fields))

    def feedback(self, run: UUID, trace: UUID, key: str, score: float, comment: str) -> None:
        """Give a run a score, from a separate thread: some versions of the client send scores at once and not in batches."""
        if self.is_off or self.tracing_mode == "otel":
            return
        if self._feedback_thread is None:
            self._feedback_thread = concurrent.futures.ThreadPoolExecutor(1, "tritonsmith-feedback")
        self._feedback.append(self._feedback_thread.submit(self._give, run, trace, key, score, self.redactor.text(comment)))

    def _give(self, run: UUID, trace: UUID, key: str, score: float, comment: str) -> None:
        with suppress(LangSmithError, ValueError):  # the link has warned of a server that does not take it
            self.create_feedback(run, key, score=score, comment=comment, trace_id=trace, session_id=self._session(), stop_after_attempt=1)

    def _session(self) -> UUID | None:
        """The project's id, as soon as the server has one; newer servers find a run by both."""
        if self._project_id is None and time.monotonic() >= self._ask_again:
            self._ask_again = time.monotonic() + _ASK_AGAIN_SECONDS  # a first run's project comes with its first steps
            with suppress(LangSmithError, KeyError, TypeError, ValidationError):
                self._project_id = self.read_project(project_name=self._project).id
        return self._project_id

    def finish(self) -> bool:
        """Send what is left within the time there is, and stop; whether all of it was sent."""
        links = [link for link in self.links if not link.off]
        for link in links:
            link.finish_within(CLOSING_SECONDS)
        late: set[Any] = set()
        if self._feedback_thread is not None:
            late = set(concurrent.futures.wait(self._feedback, timeout=max((link.left for link in links), default=0.0)).not_done)
            self._feedback_thread.shutdown(wait=False, cancel_futures=True)
        self.flush(timeout=max((link.left for link in links), default=0.0))
        unsent = self.tracing_queue is not None and self.tracing_queue.unfinished_tasks > 0
        return not (late or unsent or any(link.is_busy for link in links))

    def _fit(self, fields: dict[str, Any]) -> dict[str, Any]:
        fields.pop("serialized", None)  # how a model object was made: its settings are in the metadata already
        redacted = {name: self.redactor(fields[name]) for name in ("extra", "tags", "events") if fields.get(name) is not None}
        return {**fields, **redacted}


class _Nobody:
    """Takes no trace; LangChain's tracer wants a client in any case."""

    is_off = True

    def feedback(self, run: UUID, trace: UUID, key: str, score: float, comment: str) -> None:
        """Nothing happens."""


class RunTracer(LangChainTracer):
    """Hears of every step through LangChain's callbacks; shows states small and branches by their names."""

    client: Any
    """A TraceClient, or nobody."""

    def on_chain_start(self, serialized: dict[str, Any], inputs: Any, *, name: str | None = None, **more: Any) -> Run:
        """A step begins."""
        parent = self.run_map.get(str(more.get("parent_run_id")))
        if name in _BRANCHES and parent is not None and parent.parent_run_id is None:
            name = line_of_work(inputs) or name
        return super().on_chain_start(serialized, summarize_inputs(inputs), name=name, **more)

    def on_chain_end(self, outputs: Any, *, run_id: UUID, inputs: Any = None, **more: Any) -> Run:
        """A step is over."""
        run = self.run_map.get(str(run_id))
        show = summarize_answer if run is not None and run.parent_run_id is None else summarize_state
        summary = summarize_decision(outputs) if run is not None and run.name.startswith(_GATE) else show(outputs)
        return super().on_chain_end(summary, run_id=run_id, inputs=None if inputs is None else summarize_state(inputs), **more)

    def root_of(self, run: UUID | None) -> UUID | None:
        """The trace that a run which is going on belongs to."""
        known = self.run_map.get(str(run))
        return known.trace_id if known is not None else None

    def feedback(self, run: UUID | None, key: str, score: float, comment: str) -> None:
        """Give a run that is going on a score."""
        trace = self.root_of(run)
        if run is not None and trace is not None:
            self.client.feedback(run, trace, key, score, comment)

    def _persist_run_single(self, run: Run) -> None:
        if not self.client.is_off:
            super()._persist_run_single(run)

    def _update_run_single(self, run: Run) -> None:  # type: ignore[override]  # a static method there
        if not self.client.is_off:
            super()._update_run_single(run)


class RunTrace:
    """The trace of one run while the `with` block lasts; `config` goes into the graph's."""

    def __init__(self, config: RunnableConfig, target: Target, redactor: Redactor) -> None:
        self.config = config
        """What the graph's configuration has to hold: run name, tags, metadata and, where something is sent, the tracer."""
        self._target, self._redactor = target, redactor
        self._client: TraceClient | None = None
        self._provider: Any = None

    @property
    def is_on(self) -> bool:
        """Whether somebody takes what is sent."""
        return self._client is not None and not self._client.is_off

    def __enter__(self) -> Self:
        if not self._target.wanted:
            return self
        _hush()
        smith, otlp = open_links(self._target)
        if smith is not None or otlp is not None:
            try:
                self._client = self._open(smith, otlp)
            except Exception as error:  # noqa: BLE001 - the libraries may dislike any setting; the run goes on
                for link in (smith, otlp):
                    if link is not None:
                        link.close_now(f"the settings of {link.name} cannot be used ({self._redactor.text(str(error))})")
        tracer: BaseCallbackHandler = RunTracer(client=cast(Client, self._client or _Nobody()), project_name=self._target.project)
        # also where nothing is sent: without it LangChain would make a tracer of its own, which waits and repeats
        self.config = {**self.config, "callbacks": [tracer]}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._client is None:
            return
        links = [link for link in self._client.links if not link.off]
        try:
            complete = self._client.finish()
            if self._provider is not None:
                complete = self._provider.force_flush(int(1000 * max((link.left for link in links), default=0.0))) and complete
            for link in links:
                if not complete:
                    link.warn(f"{link.name} did not take the whole trace within {CLOSING_SECONDS:g} s")
                link.close_now()
            self._client.close(timeout=0)
            if self._provider is not None:
                self._provider.shutdown()
        except Exception as fault:  # noqa: BLE001 - the libraries may fail with anything; the run's result stands
            for link in links:
                link.close_now(f"the trace could not be finished ({type(fault).__name__})")

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await asyncio.to_thread(self.__exit__, kind, error, trace)

    def _open(self, smith: Link | None, otlp: Link | None) -> TraceClient:
        options: dict[str, Any] = {"tracing_mode": "langsmith"}
        if otlp is not None:
            self._provider = provider_for(self._target.otlp, otlp)
            options = {"tracing_mode": "hybrid" if smith else "otel", "otel_tracer_provider": self._provider}
        info = (smith.server_info if smith is not None else None) or {}  # a server that is late to tell is taken for an old one
        key = self._target.key if smith is not None else ""
        links = [link for link in (smith, otlp) if link is not None]
        options |= {"api_url": self._target.endpoint, "api_key": key, "session": links[0], "info": info}
        return TraceClient(self._redactor, links, self._target.project, **options)


class _Quiet(logging.Filter):
    """Keeps back what the link says in one sentence, or what the user cannot change."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record is shown."""
        return not record.getMessage().startswith(("Run compression is not enabled", "Error creating feedback"))


_QUIET = _Quiet()


def _hush() -> None:
    logging.getLogger("langsmith.client").addFilter(_QUIET)  # once, however often it is asked for
    warnings.filterwarnings("ignore", message="Creating feedback for a run without session_id")


def tracing(
    *,
    task: str,
    policy: str,
    run_id: str | None = None,
    target: str = "",
    model: str = "",
    graph_version: str = "",
    key_names: Iterable[str] = (),
    models: Iterable[object] = (),
    metadata: Mapping[str, str | int | float | bool] | None = None,
) -> RunTrace:
    """The trace of one run, to be used in a `with` or `async with` block around the graph.

    `run_id` names the thread, so that a run that goes on is a second trace of the same thread. `key_names` are further variables
    of the environment whose values are keys, `models` are model objects that may hold keys of their own. Nothing is raised: what
    is wrong with a server is one warning of the logger `tritonsmith.tracing`.
    """
    thread = run_id or uuid4().hex
    named = {"policy": policy, "task": task, "target": target, "model": model}
    about = {
        "thread_id": thread, "run": thread, **{name: value for name, value in named.items() if value}, "graph_version": graph_version,
        "tritonsmith_version": importlib.metadata.version("tritonsmith"), **(metadata or {}),
    }  # fmt: skip
    config = RunnableConfig(
        run_name=f"{task}/{policy}",
        tags=[f"{name}:{value}" for name, value in named.items() if value],
        metadata={name: value for name, value in about.items() if value != ""},
    )
    redactor = Redactor([*(os.environ.get(name, "") for name in key_names), *secrets_in(*models)])
    return RunTrace(config, target_of(os.environ), redactor)
