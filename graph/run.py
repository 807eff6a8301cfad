"""Running the graph on a task file: from settings to a folder with the winner and everything that led to it."""

import asyncio
import time
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
from tritonsmith.graph.folder import Event, EventLog, OnEvent, drop_if_fruitless, kept_settings, prepare_folder
from tritonsmith.graph.players import Players, open_players
from tritonsmith.graph.policies import load_policy
from tritonsmith.graph.state import Budget, State
from tritonsmith.graph.store import Store
from tritonsmith.graph.summary import Summary, summarize, write_best
from tritonsmith.graph.view import Policy
from tritonsmith.nodes.chat import Waiting
from tritonsmith.nodes.chat_connect import KEY, Models
from tritonsmith.nodes.chat_model import REQUEST_SECONDS, Source
from tritonsmith.prompts.author import Author
from tritonsmith.prompts.library import VERSION, digest


class RunConfig(Record):
    """The settings of a run, all plain values."""

    task: str
    """Path of the task file."""
    size: str | None = None
    """`full`, `small`, or None: full with a card in this machine, else small."""
    overrides: dict[str, int | float | bool | str] = Field(default_factory=dict)
    precision: PrecisionClass = PrecisionClass.IEEE
    model: str = "offline"
    """`offline` (the built-in recipes), `openai:NAME`, or `handoff:DIR` (a person or another program answers in files)."""
    analyst_model: str | None = None
    """Who analyses; None: `model`."""
    repair_model: str | None = None
    """Who repairs; None: `model`."""
    base_url: str | None = None
    key_env: str = KEY
    """Name of the environment variable with the key."""
    model_timeout: float = Field(default=REQUEST_SECONDS, gt=0)
    """The longest that one request to a model may take, in seconds."""
    prices: str | None = None
    """A price table (TOML or JSON) beside the built-in one."""
    record: str | None = None
    """File to write every request, reply and verdict to."""
    replay: str | None = None
    """A recording to play the run from, without a model and without an evaluator."""
    spool: str | None = None
    """A folder with jobs for `tritonsmith worker`, which judges them elsewhere; None judges here."""
    memory: str | None = None
    """A folder with what earlier runs have learned; this one's winner and failures are added. None: no memory."""
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
    model: str | Source = "offline",
    analyst_model: str | Source | None = None,
    repair_model: str | Source | None = None,
    base_url: str | None = None,
    key_env: str = KEY,
    model_timeout: float = REQUEST_SECONDS,
    prices: str | Path | None = None,
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

    A model is a name as on the command line, a LangChain chat model, or a function that makes one. Without `out` the kernels lie
    in a temporary folder that goes with the context. Raises UsageError.
    """
    if allow not in list(Allow):
        raise UsageError(f"--allow {allow}: choose one of {', '.join(Allow)}")
    models = Models(model, analyst_model, repair_model, base_url, key_env, model_timeout, prices)
    players = open_players(models, author=author, budget=budget)
    chosen = load_policy(policy) if isinstance(policy, str) else policy
    store = Store(Path(out) if out is not None else None)
    judge = players.evaluator(store.root, target, lambda: evaluator or open_evaluator(target, store.root / "raw", sandbox=sandbox))
    limits, may_win = budget or Budget(), Allow(allow)
    return Context(author=players.author, evaluator=judge, policy=chosen, store=store, budget=limits, seeds=seeds, allow=may_win)


async def optimize_async(
    config: RunConfig,
    *,
    evaluator: Evaluator | None = None,
    author: Author | None = None,
    models: Models | None = None,
    on_event: OnEvent | None = None,
) -> Summary:
    """Run one task to its end and write the results; every event goes to `on_event` as it happens.

    `models` stands for the settings of `config` where models are objects. An evaluator that is passed in stays open. Raises
    UsageError (AuthorError and TaskError among them) with a sentence for the user, and InfrastructureError when not even the
    reference could be run.
    """
    policy = load_policy(config.policy)  # a wrong name or file must not leave an empty folder behind
    sketch = load_task(config.task, "full", dict(config.overrides), config.precision)
    players = open_players(
        models or _models(config), author=author, record=config.record, replay=config.replay, spool=config.spool,
        memory=config.memory, budget=config.budget,
    )  # fmt: skip
    started = time.monotonic()
    out = prepare_folder(config.out, sketch.name, _settings(config) if players.may_wait else None)
    try:
        context = await asyncio.to_thread(_context, config, players, policy, out, evaluator)  # opening waits for processes
        try:
            state = await _drive(_sized(config, sketch, context.evaluator), context, EventLog(out / "events.jsonl", on_event))
        finally:
            if evaluator is None:
                await context.evaluator.aclose()
    except UsageError:
        if not players.may_wait:
            drop_if_fruitless(out)  # the same command, corrected, may then name the same folder
        raise
    summary = summarize(
        state, policy=policy.name, model=players.author.name, target=context.evaluator.hardware.name,
        seconds=time.monotonic() - started, out=str(out),
    )  # fmt: skip
    if summary.usage.calls or summary.usage.retries:
        summary = summary.model_copy(update={"prompts": {"version": VERSION, "digest": digest()}})
    if state.get("winner") is None and players.waits_for:
        summary = summary.model_copy(update={"waits_for": players.waits_for})
    if players.memory is not None:
        await asyncio.to_thread(players.memory.remember, state, context.store.get, context.evaluator.hardware)
    write_best(summary, context.store)
    summary.write(out)
    return summary


def optimize(
    task: str | Path,
    *,
    evaluator: Evaluator | None = None,
    author: Author | None = None,
    models: Models | None = None,
    on_event: OnEvent | None = None,
    **options: Any,
) -> Summary:
    """`optimize_async` for callers that are not asynchronous; `options` are the fields of RunConfig.

    `model`, `analyst_model` and `repair_model` may be LangChain chat models, or functions that make one. Raises UsageError.
    """
    unknown = sorted(set(options) - set(RunConfig.model_fields))
    if unknown:
        raise UsageError(f"optimize() knows no option {', '.join(unknown)}; the options are {', '.join(RunConfig.model_fields)}")
    objects = {name: options.pop(name) for name in _ROLES if not isinstance(options.get(name), str | None)}
    try:
        config = RunConfig(task=str(task), **options)
    except ValidationError as error:
        first = error.errors()[0]
        raise UsageError(f"option {'.'.join(map(str, first['loc']))}: {first['msg']} (got {first['input']!r})") from error
    if objects:
        models = _models(config, objects)
    work = optimize_async(config, evaluator=evaluator, author=author, models=models, on_event=on_event)
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    return run_blocking(work)  # a notebook: its own loop is busy calling us


def resume(folder: str | Path, *, evaluator: Evaluator | None = None, on_event: OnEvent | None = None) -> Summary:
    """Go on with a run that waited for replies in files: its steps are taken again from what is there. Raises UsageError."""
    settings = kept_settings(Path(folder))
    try:
        config = RunConfig.model_validate({**settings, "out": str(folder)})
    except ValidationError as error:
        raise UsageError(f"{folder}: the settings of this run cannot be read ({error.errors()[0]['msg']})") from error
    return optimize(evaluator=evaluator, on_event=on_event, **config.model_dump())


_ROLES = ("model", "analyst_model", "repair_model")


def _models(config: RunConfig, objects: dict[str, Any] | None = None) -> Models:
    named = {name: getattr(config, name) for name in _ROLES} | (objects or {})
    return Models(
        named["model"], named["analyst_model"], named["repair_model"], config.base_url, config.key_env, config.model_timeout, config.prices
    )


def _settings(config: RunConfig) -> dict[str, Any]:
    """What has to be the same for a run to go on in its folder."""
    settings = {**config.model_dump(mode="json", exclude={"out"}), "task": str(Path(config.task).resolve())}
    for name in _ROLES:  # so that it can go on from another working directory
        provider, colon, folder = str(settings[name]).partition(":")
        if provider == "handoff" and colon:
            settings[name] = f"handoff:{Path(folder).resolve()}"
    for name in ("spool", "memory"):
        if settings[name] is not None:
            settings[name] = str(Path(settings[name]).resolve())
    return settings


def _context(config: RunConfig, players: Players, policy: Policy, out: Path, evaluator: Evaluator | None) -> Context:
    judge = players.evaluator(out, config.target, lambda: evaluator or open_evaluator(config.target, out / "raw", sandbox=config.sandbox))
    return Context(
        author=players.author, evaluator=judge, policy=policy, store=Store(out), budget=config.budget, seeds=config.seeds,
        allow=config.allow, memory=players.recall(),
    )  # fmt: skip


def _sized(config: RunConfig, sketch: Task, evaluator: Evaluator) -> Task:
    size = config.size or ("full" if evaluator.hardware.present else "small")
    if size == "full":
        return sketch
    return load_task(config.task, size, dict(config.overrides), config.precision)


async def _drive(task: Task, context: Context, log: EventLog) -> State:
    graph = build_graph().compile(name="tritonsmith")
    last: State = {"task": task}
    steps = graph.astream(
        {"task": task},
        {"recursion_limit": step_limit(context.budget)},
        context=context,
        stream_mode=["custom", "values"],
        subgraphs=True,  # without it the branches' events are lost
    )
    try:
        async for namespace, mode, data in steps:
            if mode == "custom":
                log(cast(Event, data))
            elif not namespace:
                last = cast(State, data)
    except Waiting as wait:
        last = {**last, "stopped_because": str(wait)}
    return last
