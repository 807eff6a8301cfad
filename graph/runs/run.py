"""One run in its folder: begun, or continued where an earlier process left it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from pathlib import Path
from typing import Any

from langgraph.runtime import RunControl

from tritonsmith.author.examples import digest
from tritonsmith.evaluator.caller.sharing.open import open_judges
from tritonsmith.evaluator.errors import RunError, RunStopped, UsageError
from tritonsmith.evaluator.protocol import Evaluator
from tritonsmith.evaluator.schema import Task
from tritonsmith.evaluator.tasks.files import at_size, choose_load_size, load_task
from tritonsmith.graph.checkpoints.saver import check_checkpoints, open_checkpoints
from tritonsmith.graph.context import Context, Sessions
from tritonsmith.graph.policies.forked import policy_in
from tritonsmith.graph.policies.load import load_policy
from tritonsmith.graph.policies.view import Policy
from tritonsmith.graph.runs.active import under_way
from tritonsmith.graph.runs.conclude import begin_event, conclude, end_event, run_event
from tritonsmith.graph.runs.config import RunConfig, models_of, name_models, passed_objects
from tritonsmith.graph.runs.drive import Drive
from tritonsmith.graph.runs.manifest import Manifest, read_manifest, read_parent, read_same_run
from tritonsmith.graph.runs.players import Players, SharedPlayers, open_players
from tritonsmith.graph.runs.reads import doubt_judgements
from tritonsmith.graph.state import total
from tritonsmith.graph.storage.files import fault_of
from tritonsmith.graph.storage.folder import (
    CHECKPOINTS,
    EVENTS,
    MANIFEST,
    TAPE,
    Event,
    EventLog,
    OnEvent,
    RunBusy,
    drop_if_fruitless,
    explain_disk_errors,
    lock_run,
    make_folder,
    name_folder,
    seconds_in,
)
from tritonsmith.graph.storage.outcome import count_words, describe_waiting
from tritonsmith.graph.storage.store import Store
from tritonsmith.graph.storage.summary import Summary, read_summary
from tritonsmith.graph.tracing.tracer import RunTrace, tracing
from tritonsmith.nodes.chat.connect import Models
from tritonsmith.prompts.author import Author
from tritonsmith.prompts.templates.render import VERSION


class Run:
    """One run in its folder: begun, or gone on with where an earlier process has left it.

    `async for event in run.stream()` does the work; afterwards `summary` has the answer, or `stopped` says why there is none yet.
    """

    def __init__(
        self, config: RunConfig, *, evaluator: Evaluator | None = None, author: Author | None = None, models: Models | None = None,
        shared: SharedPlayers | None = None, sketch: Task | None = None,
    ) -> None:  # fmt: skip
        """A new run. `models` stands for the settings of `config` where models are objects; an evaluator that is passed in stays open.

        `sketch` is the task as a caller has read it by these settings, at its full size: then its file is not read again. `shared` is
        what the runs of a suite have in common, as the settings name it; each of them can be resumed without it.
        """
        self.config = config if models is None else name_models(config, models)
        self.folder = name_folder(config.out, Path(config.task).stem)
        self.summary: Summary | None = None
        self.stopped = ""
        self._evaluator, self._author = evaluator, author
        self._models = models or models_of(config)
        self._passed = passed_objects(evaluator, author, self._models)
        self._shared = shared or SharedPlayers()
        self._control = RunControl()
        self._again = False
        self._sketch = sketch

    @classmethod
    def of(
        cls, folder: str | Path, *, evaluator: Evaluator | None = None, author: Author | None = None, models: Models | None = None,
        shared: SharedPlayers | None = None,
    ) -> Run:  # fmt: skip
        """The run that lies in a folder. Raises UsageError when none does, or when it cannot be gone on with."""
        folder = Path(folder)
        manifest = read_manifest(folder)
        config = manifest.config(folder)
        run = cls(config, evaluator=evaluator, author=author, models=models, shared=shared)
        run.folder, run.config, run._again = folder, config, True
        run.summary = read_summary(folder)
        if run.summary is None:
            run._sketch = _read_task(config)
            manifest.refuse_what_changed(folder, run._sketch.source, run._passed)
        return run

    def stop(self, reason: str = "asked to") -> None:
        """Ask the run to stop at the next safe point; what is asked or judged just now is finished first. From any thread."""
        self._control.request_drain(reason)

    async def stream(self) -> AsyncGenerator[Event, None]:
        """Work to the end, and yield every event once it is in `events.jsonl`. A finished run yields only its end.

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
            yield end_event(finished)
            return
        policy = policy_in(self.folder, load_policy(self.config.policy))  # a wrong name or file must not leave an empty folder behind
        sketch, self._sketch = self._sketch or _read_task(self.config), None  # a later part reads the file anew: it may have changed
        check_checkpoints(self.config.checkpoints)
        resumed = (self.folder / MANIFEST).is_file()
        config = self.config
        players = open_players(
            self._models, author=self._author, record=config.record, replay=config.replay, spool=config.spool, memory=config.memory,
            remember=config.remember, budget=config.budget, resumed=resumed, gate=self._shared.gate,
        )  # fmt: skip
        manifest = read_same_run(self.folder, config, sketch.source, self._passed) if resumed else None
        if manifest is None:
            make_folder(self.folder)
        try:
            with under_way(self), explain_disk_errors(self.folder), lock_run(self.folder):
                async with aclosing(self._work(manifest, players, policy, sketch)) as events:
                    async for event in events:
                        yield event
        except RunBusy:
            raise
        except UsageError:
            if manifest is None and not players.may_wait:
                drop_if_fruitless(self.folder)  # the same command, corrected, may then name the same folder
            raise

    async def _work(self, earlier_manifest: Manifest | None, players: Players, policy: Policy, sketch: Task) -> AsyncGenerator[Event, None]:
        if earlier_manifest is None and (self.folder / MANIFEST).is_file():
            raise RunBusy(f"--out {self.folder}: another process has begun a run there just now; name another folder")
        finished = read_summary(self.folder)
        if earlier_manifest is not None and finished is not None:  # by another process, since we looked
            self.summary = finished
            yield end_event(finished)
            return
        manifest = earlier_manifest or Manifest.of(self.config, sketch.source, self._passed, read_parent(self.folder))
        if earlier_manifest is None:
            manifest.write(self.folder)
        (earlier, parts), started = seconds_in(self.folder / EVENTS), time.monotonic()
        log = EventLog(self.folder / EVENTS)
        players.run_tape.stopping = lambda: self._control.drain_reason
        anew = players.run_tape.replies_only = doubt_judgements(self.folder, sketch.path)
        context = await asyncio.to_thread(self._context, players, policy, earlier)  # opening waits for processes
        # a run that waits takes its steps from the beginning: what it waited for changes what earlier steps answer
        checkpoints = open_checkpoints("none" if players.may_wait or anew else self.config.checkpoints, self.folder, manifest.thread)
        try:
            async with self._trace(sketch, context, manifest) as trace, checkpoints as saver:
                drive = Drive(context, manifest.thread, saver, self._control, trace.config)
                try:
                    found = await drive.find(players.run_tape.tape.faults if players.run_tape.tape else [])
                except (TypeError, KeyError, ValueError) as error:  # what damaged bytes are read as
                    path = self.folder / CHECKPOINTS
                    why = f"cannot be read ({fault_of(error)}); remove it, and the run goes on from what its tape has"
                    raise UsageError(f"{path}: {why}") from error
                _require_kernels(drive.kernels, context.store, self.config.task)
                task = drive.state["task"] if found else _size_task(self.config, sketch, context.evaluator)
                yield log(begin_event(task, context, self.folder.name, resumed=parts > 0))
                async with aclosing(drive.events(task)) as events:
                    async for event in events:
                        yield log(event)
                if drive.drained:
                    await context.evaluator.settle()
        finally:
            if self._evaluator is None and self._shared.evaluator is None:
                await context.evaluator.aclose()
        if drive.drained:
            self.stopped = self._control.drain_reason or "asked to"
            self._control, self._again = RunControl(), True  # the same object may go on
            yield log(run_event("stopped", reason=self.stopped))
            return
        self.stopped = ""
        if "winner" not in drive.state and drive.waits_for is None:
            raise RunError(
                f"{self.folder}: the graph ended without an answer, so its checkpoints do not fit it; remove {CHECKPOINTS}, and "
                f"tritonsmith resume {self.folder} goes on from the run's tape"
            )
        seconds = earlier + time.monotonic() - started
        more = _facts_of_the_run(drive, players, manifest)
        summary = await asyncio.to_thread(conclude, drive.state, context, players, seconds, more)
        yield log(end_event(summary))
        self.summary = summary

    def _context(self, players: Players, policy: Policy, earlier: float) -> Context:
        config, out = self.config, self.folder
        store = Store(out)
        given = self._evaluator or self._shared.evaluator
        judge = players.evaluator(
            out / TAPE, config.target, lambda: given or open_judges(config, out / "raw")
        )
        keep = players.run_tape.recorder.write if players.run_tape.recorder else None
        return Context(
            author=players.author, evaluator=judge, policy=policy, store=store, budget=config.budget, seeds=config.seeds,
            allow=config.allow, tuning=config.tuning, claims_from=config.claims_from,
            seed_from=config.seed_from, memory=players.recall(), sessions=Sessions(earlier, keep),
        )  # fmt: skip

    def _trace(self, sketch: Task, context: Context, manifest: Manifest) -> RunTrace:
        return tracing(
            task=sketch.name, policy=context.policy.name, run_id=manifest.run, target=context.evaluator.hardware.name,
            model=context.author.name, graph_version=manifest.graph, key_names=(self.config.key_env,),
            models=(self._models.author, self._models.analyst, self._models.repair),
            metadata={f"parent_{name}": value for name, value in (manifest.parent or {}).items()},
        )  # fmt: skip


def _read_task(config: RunConfig) -> Task:
    """The task as its file says it, at its full size. Raises TaskError."""
    return load_task(config.task, "full", dict(config.overrides), config.precision, config.mode, config.backward)


def _size_task(config: RunConfig, sketch: Task, evaluator: Evaluator) -> Task:
    """The task at the size that the settings ask for. Raises TaskError."""
    return at_size(sketch, choose_load_size(config.size, evaluator.hardware.present), dict(config.overrides))


def _require_kernels(shas: Iterable[str], store: Store, task: str) -> None:
    """Raise UsageError where texts are gone that the run's states name."""
    missing = sorted(sha for sha in shas if not store.kernel_path(sha).is_file())
    if missing:
        folder, several = store.root, len(missing) > 1
        named = f"{count_words(len(missing), 'kernel')} of the run {'are' if several else 'is'} missing"
        raise UsageError(
            f"{folder / 'kernels'}: {named} ({missing[0]}.py{', ...' * several}); put {'them' if several else 'it'} back, or remove "
            f"{folder / CHECKPOINTS}, and the run goes on from its tape; or begin anew: tritonsmith optimize {task}"
        )


def _facts_of_the_run(drive: Drive, players: Players, manifest: Manifest) -> dict[str, Any]:
    """Fields of a summary that no state has: parent of a fork, prompts, and files that the run waits for."""
    facts: dict[str, Any] = {"parent": manifest.parent}
    used = total(drive.state.get("usage"))
    if used.calls or used.retries:
        facts["prompts"] = {"version": VERSION, "digest": digest()}
    if drive.waits_for is not None:  # which may have come since
        files = players.waits_for or (str(drive.waits_for),)
        facts |= {"waits_for": files, "stopped_because": describe_waiting(files)}
    return facts


async def run_to_end(run: Run, on_event: OnEvent | None) -> Summary:
    """The summary of a run that is taken to its end. Raises RunStopped when somebody stopped it, and what `Run.stream` raises."""
    async with aclosing(run.stream()) as events:
        async for event in events:
            if on_event is not None:
                on_event(event)
    if run.summary is None:
        raise RunStopped(f"Stopped at a safe point ({run.stopped}). Go on with: tritonsmith resume {run.folder}")
    return run.summary
