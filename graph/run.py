"""Running the graph on a task file: from settings to a folder with the winner and everything that led to it."""

import asyncio
import json
import re
import shutil
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from pydantic import Field, ValidationError

from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.local import open_evaluator
from tritonsmith.evaluator.schema import Allow, Evaluator, PrecisionClass, Record, Task
from tritonsmith.evaluator.tasks import load_task
from tritonsmith.graph.background import run_blocking
from tritonsmith.graph.builder import build_graph, step_limit
from tritonsmith.graph.context import Context
from tritonsmith.graph.policies import load_policy
from tritonsmith.graph.state import Budget, State
from tritonsmith.graph.store import Store
from tritonsmith.graph.summary import Summary, summarize, write_best
from tritonsmith.graph.view import Policy
from tritonsmith.nodes.authors import make_author
from tritonsmith.prompts.author import Author

Event = dict[str, Any]
"""One line of `events.jsonl`. `event` is stage, candidate, verdict, analysis, findings, decision or stop;
`time`, `node`, `branch` and `candidate` are always there."""

OnEvent = Callable[[Event], None]


class RunConfig(Record):
    """The settings of a run, all plain values."""

    task: str
    """Path of the task file."""
    size: str | None = None
    """`full`, `small`, or None: full with a card in this machine, else small."""
    overrides: dict[str, int | float | bool | str] = Field(default_factory=dict)
    precision: PrecisionClass = PrecisionClass.IEEE
    model: str = "offline"
    base_url: str | None = None
    policy: str = "default"
    seeds: int = 2
    target: str = "auto"
    sandbox: str = "auto"
    """`auto` (the layers that work here), `strict` (refuse where a needed one is missing) or `off`."""
    allow: Allow = Allow.HYBRID
    """Which labels may win: `kernel`, `hybrid` (kernels too) or `library` (all)."""
    budget: Budget = Field(default_factory=Budget)
    out: str | None = None
    """Folder for the results; None: `runs/<task>-<utc time>`."""


def make_context(
    *,
    model: str = "offline",
    base_url: str | None = None,
    target: str = "auto",
    policy: str | Policy = "default",
    seeds: int = 2,
    budget: Budget | None = None,
    out: str | Path | None = None,
    author: Author | None = None,
    evaluator: Evaluator | None = None,
    sandbox: str = "auto",
    allow: str | Allow = Allow.HYBRID,
) -> Context:
    """A context for scripts that invoke the compiled graph themselves; use it in a `with` block, which ends the evaluator's processes.

    Without `out` the kernels lie in a temporary folder that goes with the context. Raises UsageError.
    """
    if allow not in list(Allow):
        raise UsageError(f"--allow {allow}: choose one of {', '.join(Allow)}")
    chosen = load_policy(policy) if isinstance(policy, str) else policy
    writer = author or make_author(model, base_url)
    store = Store(Path(out) if out is not None else None)
    judge = evaluator or open_evaluator(target, store.root / "raw", sandbox=sandbox)
    limits, may_win = budget or Budget(), Allow(allow)
    return Context(author=writer, evaluator=judge, policy=chosen, store=store, budget=limits, seeds=seeds, allow=may_win)


async def optimize_async(
    config: RunConfig, *, evaluator: Evaluator | None = None, author: Author | None = None, on_event: OnEvent | None = None
) -> Summary:
    """Run one task to its end and write the results; every event goes to `on_event` as it happens.

    An evaluator that is passed in stays open. Raises UsageError (AuthorError and TaskError among them) with a sentence for
    the user, and InfrastructureError when not even the reference could be run.
    """
    load_policy(config.policy)  # a wrong name or file must not leave an empty folder behind
    writer = author or make_author(config.model, config.base_url)
    started = time.monotonic()
    sketch = load_task(config.task, "full", dict(config.overrides), config.precision)
    out = prepare_folder(config.out, sketch.name)
    try:
        context = await asyncio.to_thread(  # opening the evaluator waits for its processes
            make_context,
            policy=config.policy,
            target=config.target,
            sandbox=config.sandbox,
            seeds=config.seeds,
            allow=config.allow,
            budget=config.budget,
            out=out,
            author=writer,
            evaluator=evaluator,
        )
        try:
            state = await _drive(_sized(config, sketch, context.evaluator), context, _Log(out / "events.jsonl", on_event))
        finally:
            if evaluator is None:
                await context.evaluator.aclose()
    except UsageError:
        _drop_if_fruitless(out)  # the same command, corrected, may then name the same folder
        raise
    seconds, target = time.monotonic() - started, context.evaluator.hardware.name
    summary = summarize(state, policy=context.policy.name, model=writer.name, target=target, seconds=seconds, out=str(out))
    write_best(summary, context.store)
    summary.write(out)
    return summary


def optimize(
    task: str | Path, *, evaluator: Evaluator | None = None, author: Author | None = None, on_event: OnEvent | None = None, **options: Any
) -> Summary:
    """`optimize_async` for callers that are not asynchronous; `options` are the fields of RunConfig. Raises UsageError."""
    unknown = sorted(set(options) - set(RunConfig.model_fields))
    if unknown:
        raise UsageError(f"optimize() knows no option {', '.join(unknown)}; the options are {', '.join(RunConfig.model_fields)}")
    try:
        config = RunConfig(task=str(task), **options)
    except ValidationError as error:
        first = error.errors()[0]
        raise UsageError(f"option {'.'.join(map(str, first['loc']))}: {first['msg']} (got {first['input']!r})") from error
    work = optimize_async(config, evaluator=evaluator, author=author, on_event=on_event)
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    return run_blocking(work)  # a notebook: its own loop is busy calling us


def prepare_folder(out: str | None, task_name: str) -> Path:
    """Make the results' folder. Raises UsageError when it holds something already or cannot be written."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    folder = Path(out) if out else Path("runs") / f"{re.sub(r'[^A-Za-z0-9_.-]+', '_', task_name)}-{stamp}"
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"--out {folder}: that is a file; name a new folder")
    try:
        if folder.exists() and any(folder.iterdir()):
            raise UsageError(f"--out {folder}: the folder is not empty; name a new one, so that no earlier result is overwritten")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "events.jsonl").touch()
    except OSError as error:
        raise UsageError(f"--out {folder}: cannot write there ({error.strerror}); name a folder that you may write to") from error
    return folder


def _drop_if_fruitless(folder: Path) -> None:
    if not any((folder / "kernels").glob("*.py")):  # the folder was empty when we began, so all in it is ours
        shutil.rmtree(folder, ignore_errors=True)


class _Log:
    """Appends events to a file, one JSON object per line, and passes them on."""

    def __init__(self, path: Path, on_event: OnEvent | None) -> None:
        self._path = path
        self._on_event = on_event

    def __call__(self, data: Event) -> None:
        event = {"time": datetime.now(UTC).isoformat(timespec="milliseconds"), **data}
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(event, ensure_ascii=False, default=str) + "\n")
        if self._on_event:
            self._on_event(event)


def _sized(config: RunConfig, sketch: Task, evaluator: Evaluator) -> Task:
    size = config.size or ("full" if evaluator.hardware.present else "small")
    if size == "full":
        return sketch
    return load_task(config.task, size, dict(config.overrides), config.precision)


async def _drive(task: Task, context: Context, log: _Log) -> State:
    graph = build_graph().compile(name="tritonsmith")
    last: State = {}
    async for namespace, mode, data in graph.astream(
        {"task": task},
        {"recursion_limit": step_limit(context.budget)},
        context=context,
        stream_mode=["custom", "values"],
        subgraphs=True,  # without it the branches' events are lost
    ):
        if mode == "custom":
            log(cast(Event, data))
        elif not namespace:
            last = cast(State, data)
    return last
