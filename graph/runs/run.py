"""One run in its folder: begun, or continued where an earlier process left it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any

from langgraph.runtime import RunControl

from tritonsmith.evaluator.errors import RunError, RunStopped, UsageError
from tritonsmith.evaluator.local import open_evaluator
from tritonsmith.evaluator.schema import Evaluator, Task
from tritonsmith.evaluator.tasks import load_task
from tritonsmith.graph.checkpoints.saver import check_checkpoints, open_checkpoints
from tritonsmith.graph.context import Context, Sessions
from tritonsmith.graph.policies.forked import policy_in
from tritonsmith.graph.policies.load import load_policy
from tritonsmith.graph.policies.view import Policy
from tritonsmith.graph.runs.config import ROLES, RunConfig, kept_settings, models_of
from tritonsmith.graph.runs.drive import Drive
from tritonsmith.graph.runs.manifest import MANIFEST, Manifest, read_manifest, read_parent
from tritonsmith.graph.runs.players import Players, open_players
from tritonsmith.graph.state import State
from tritonsmith.graph.storage.files import fault_of
from tritonsmith.graph.storage.folder import (
    CHECKPOINTS,
    EVENTS,
    TAPE,
    Event,
    EventLog,
    OnEvent,
    RunBusy,
    drop_if_fruitless,
    faults_told,
    held,
    make_folder,
    name_folder,
    seconds_in,
)
from tritonsmith.graph.storage.store import Store
from tritonsmith.graph.storage.summary import Summary, read_summary, summarize, write_best
from tritonsmith.graph.tracing.tracer import Trace, tracing
from tritonsmith.nodes.chat.connect import Models
from tritonsmith.nodes.evaluators.tape import TapeEvaluator
from tritonsmith.prompts.author import Author
from tritonsmith.prompts.templates.render import VERSION, digest

_ACTIVE: list[Run] = []


class Run:
    """One run in its folder: begun, or gone on with where an earlier process has left it.

    `async for event in run.stream()` does the work; afterwards `summary` has the answer, or `stopped` says why there is none yet.
    """

    def __init__(
        self, config: RunConfig, *, evaluator: Evaluator | None = None, author: Author | None = None, models: Models | None = None
    ) -> None:
        """A new run. `models` stands for the settings of `config` where models are objects; an evaluator that is passed in stays open."""
        self.config = config if models is None else _with_names(config, models)
        self.folder = name_folder(config.out, Path(config.task).stem)
        self.summary: Summary | None = None
        self.stopped = ""
        self._evaluator, self._author = evaluator, author
        self._models = models or models_of(config)
        self._control = RunControl()
        self._again = False

    @classmethod
    def of(
        cls, folder: str | Path, *, evaluator: Evaluator | None = None, author: Author | None = None, models: Models | None = None
    ) -> Run:
        """The run that lies in a folder. Raises UsageError when none does, or when it cannot be gone on with."""
        folder = Path(folder)
        manifest = read_manifest(folder)
        config = manifest.config(folder)
        run = cls(config, evaluator=evaluator, author=author, models=models)
        run.folder, run.config, run._again = folder, config, True
        run.summary = read_summary(folder)
        if run.summary is None:
            source = load_task(config.task, "full", dict(config.overrides), config.precision).source
            manifest.refuse_what_changed(folder, source, run._objects)
        return run

    @property
    def _objects(self) -> tuple[str, ...]:
        """What was passed from Python, by name."""
        given: dict[str, object] = {"evaluator": self._evaluator, "author": self._author}
        given |= dict(zip(ROLES, (self._models.author, self._models.analyst, self._models.repair), strict=True))
        return tuple(name for name, value in given.items() if value is not None and not isinstance(value, str))

    def stop(self, reason: str = "asked to") -> None:
        """Ask the run to stop at the next safe point; what is asked or judged just now is finished first. From any thread."""
        self._control.request_drain(reason)

    async def stream(self) -> AsyncGenerator[Event, None]:
        """Work to the end, and tell of every event as it is written to `events.jsonl`; a finished run tells of its end alone.

        Raises UsageError (AuthorError and TaskError among them) with a sentence for the user, InfrastructureError when not even the
        reference could be run, and RunError when the run cannot go on now.
        """
        finished = read_summary(self.folder) if (self.folder / MANIFEST).is_file() else None
        if finished is not None:
            if not self._again:
                raise UsageError(
                    f"--out {self.folder}: a finished run lies there; name a new folder, or see that one: tritonsmith resume {self.folder}"
                )
            self.summary = finished
            yield _end(finished)
            return
        policy = policy_in(self.folder, load_policy(self.config.policy))  # a wrong name or file must not leave an empty folder behind
        sketch = load_task(self.config.task, "full", dict(self.config.overrides), self.config.precision)
        check_checkpoints(self.config.checkpoints)
        resumed = (self.folder / MANIFEST).is_file()
        config = self.config
        players = open_players(
            self._models, author=self._author, record=config.record, replay=config.replay, spool=config.spool, memory=config.memory,
            budget=config.budget, resumed=resumed,
        )  # fmt: skip
        manifest = self._manifest(sketch, players) if resumed else None
        if manifest is None:
            make_folder(self.folder)
        _ACTIVE.append(self)
        try:
            with faults_told(self.folder), held(self.folder):
                async with aclosing(self._work(manifest, players, policy, sketch)) as events:
                    async for event in events:
                        yield event
        except RunBusy:
            raise
        except UsageError:
            if manifest is None and not players.may_wait:
                drop_if_fruitless(self.folder)  # the same command, corrected, may then name the same folder
            raise
        finally:
            _ACTIVE.remove(self)

    def _manifest(self, sketch: Task, players: Players) -> Manifest:
        """The manifest of the run that lies in the folder already. Raises UsageError where this is another one."""
        manifest = read_manifest(self.folder)
        settings, others = kept_settings(self.config), kept_settings(manifest.config(self.folder))
        if settings != others:
            other = ", ".join(sorted(name for name in settings if others[name] != settings[name]))
            raise UsageError(
                f"--out {self.folder}: a run with other settings lies there ({other}); name a new folder, or go on with that run: "
                f"tritonsmith resume {self.folder}"
            )
        manifest.refuse_what_changed(self.folder, sketch.source, self._objects)
        return manifest

    async def _work(self, kept: Manifest | None, players: Players, policy: Policy, sketch: Task) -> AsyncGenerator[Event, None]:
        if kept is None and (self.folder / MANIFEST).is_file():
            raise RunBusy(f"--out {self.folder}: another process has begun a run there just now; name another folder")
        finished = read_summary(self.folder)
        if kept is not None and finished is not None:  # by another process, since we looked
            self.summary = finished
            yield _end(finished)
            return
        manifest = kept or Manifest.of(self.config, sketch.source, self._objects, read_parent(self.folder))
        if kept is None:
            manifest.write(self.folder)
        (earlier, parts), started = seconds_in(self.folder / EVENTS), time.monotonic()
        log = EventLog(self.folder / EVENTS)
        players.kept.stopping = lambda: self._control.drain_reason
        context = await asyncio.to_thread(self._context, players, policy, earlier)  # opening waits for processes
        # a run that waits takes its steps from the beginning: what it waited for changes what earlier steps answer
        checkpoints = open_checkpoints("none" if players.may_wait else self.config.checkpoints, self.folder, manifest.thread)
        try:
            async with self._trace(sketch, context, manifest) as trace, checkpoints as saver:
                drive = Drive(context, manifest.thread, saver, self._control, trace.config)
                try:
                    found = await drive.find(players.kept.tape.faults if players.kept.tape else [])
                except (TypeError, KeyError, ValueError) as error:  # what damaged bytes are read as
                    path = self.folder / CHECKPOINTS
                    why = f"cannot be read ({fault_of(error)}); remove it, and the run goes on from what its tape has"
                    raise UsageError(f"{path}: {why}") from error
                task = drive.state["task"] if found else _sized(self.config, sketch, context.evaluator)
                yield log(self._begin(task, context, resumed=parts > 0))
                async with aclosing(drive.events(task)) as events:
                    async for event in events:
                        yield log(event)
                if drive.drained and isinstance(context.evaluator, TapeEvaluator):
                    await context.evaluator.settle()
        finally:
            if self._evaluator is None:
                await context.evaluator.aclose()
        if drive.drained:
            self.stopped = self._control.drain_reason or "asked to"
            self._control, self._again = RunControl(), True  # the same object may go on
            yield log(_event("stopped", reason=self.stopped))
            return
        self.stopped = ""
        if "winner" not in drive.state and not players.may_wait:
            raise RunError(
                f"{self.folder}: the graph ended without an answer, so its checkpoints do not fit it; remove {CHECKPOINTS}, and "
                f"tritonsmith resume {self.folder} goes on from the run's tape"
            )
        summary = await self._conclude(drive.state, context, players, earlier + time.monotonic() - started, manifest)
        yield log(_end(summary))
        self.summary = summary

    def _context(self, players: Players, policy: Policy, earlier: float) -> Context:
        config, out = self.config, self.folder
        store = Store(out)
        judge = players.evaluator(
            out / TAPE, config.target, lambda: self._evaluator or open_evaluator(config.target, out / "raw", sandbox=config.sandbox)
        )
        keep = players.kept.recorder.write if players.kept.recorder else None
        return Context(
            author=players.author, evaluator=judge, policy=policy, store=store, budget=config.budget, seeds=config.seeds,
            allow=config.allow, memory=players.recall(), sessions=Sessions(earlier, keep),
        )  # fmt: skip

    def _trace(self, sketch: Task, context: Context, manifest: Manifest) -> Trace:
        return tracing(
            task=sketch.name, policy=context.policy.name, run_id=manifest.run, target=context.evaluator.hardware.name,
            model=context.author.name, graph_version=manifest.graph, key_names=(self.config.key_env,),
            models=(self._models.author, self._models.analyst, self._models.repair),
            metadata={f"parent_{name}": value for name, value in (manifest.parent or {}).items()},
        )  # fmt: skip

    def _begin(self, task: Task, context: Context, *, resumed: bool) -> Event:
        return _event(
            "run", run=self.folder.name, folder=str(self.folder), task=task.name, size=task.size, policy=context.policy.name,
            model=context.author.name, target=context.evaluator.hardware.name, budget=context.budget.model_dump(mode="json"),
            resumed=resumed,
        )  # fmt: skip

    async def _conclude(self, state: State, context: Context, players: Players, seconds: float, manifest: Manifest) -> Summary:
        """Write what the run leaves behind; `summary.json` last, for it says that the run is over."""
        hardware = context.evaluator.hardware
        summary = summarize(
            state, policy=context.policy.name, model=players.author.name, target=hardware.name, seconds=seconds, out=str(self.folder)
        )
        told: dict[str, Any] = {"parent": manifest.parent}
        if summary.usage.calls or summary.usage.retries:
            told["prompts"] = {"version": VERSION, "digest": digest()}
        if state.get("winner") is None and players.waits_for:
            told["waits_for"] = players.waits_for
        summary = summary.model_copy(update=told)
        if players.memory is not None:
            await asyncio.to_thread(players.memory.remember, state, context.store.get, hardware)
        write_best(summary, context.store)
        summary.write(self.folder)
        return summary


def active_runs() -> tuple[Run, ...]:
    """The runs of this process that are under way."""
    return tuple(_ACTIVE)


def _with_names(config: RunConfig, models: Models) -> RunConfig:
    """The settings with what `models` tells in plain values."""
    roles = dict(zip(ROLES, (models.author, models.analyst, models.repair), strict=True))
    named = {name: value for name, value in roles.items() if isinstance(value, str)}
    prices = None if models.prices is None else str(models.prices)
    rest = {"base_url": models.base_url, "key_env": models.key_env, "model_timeout": models.seconds, "prices": prices}
    return config.model_copy(update={**named, **rest})


def _sized(config: RunConfig, sketch: Task, evaluator: Evaluator) -> Task:
    size = config.size or ("full" if evaluator.hardware.present else "small")
    if size == "full":
        return sketch
    return load_task(config.task, size, dict(config.overrides), config.precision)


def _event(event: str, **data: Any) -> Event:
    return {"event": event, "node": event, "branch": "main", "candidate": None, **data}


def _end(summary: Summary) -> Event:
    winner = summary.winner.id if summary.winner else None
    told = {"winner": winner, "result": summary.result, "stopped_because": summary.stopped_because}
    return {**_event("end", **told), "candidate": winner}


async def run_to_end(run: Run, on_event: OnEvent | None) -> Summary:
    """The summary of a run that is taken to its end. Raises RunStopped when somebody stopped it, and what `Run.stream` raises."""
    async with aclosing(run.stream()) as events:
        async for event in events:
            if on_event is not None:
                on_event(event)
    if run.summary is None:
        raise RunStopped(f"Stopped at a safe point ({run.stopped}). Go on with: tritonsmith resume {run.folder}")
    return run.summary
