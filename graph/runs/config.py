"""The settings of a run, all plain values, as they are kept in its folder."""

import os
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit, urlunsplit

from pydantic import Field

from tritonsmith.evaluator.caller.questions.compiler_seed import Compiler
from tritonsmith.evaluator.caller.sharing.open import JudgeSettings
from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.protocol import Evaluator
from tritonsmith.evaluator.schema import Allow, PrecisionClass, SizeValue
from tritonsmith.graph.searches import Tuning
from tritonsmith.graph.state import Budget
from tritonsmith.nodes.chat.connect import IN_TURN, Models
from tritonsmith.nodes.chat.defaults import KEY, REQUEST_SECONDS
from tritonsmith.prompts.author import Author

ROLES = ("model", "analyst_model", "repair_model")
"""Settings that name a model, and may be objects where a run is started from Python."""


class RunConfig(JudgeSettings):
    """The settings of a run, all plain values. The descriptions are also those of a server's form."""

    task: str
    """Path of the task file."""
    size: str | None = None
    """`full`, `small`, or None: full with a card in this machine, else small."""
    overrides: dict[str, SizeValue] = Field(default_factory=dict)
    """Values for module-level names of the task file."""
    precision: PrecisionClass | None = None
    """The arithmetic that the task allows; None: 16-bit where the task's own types are, else ieee."""
    mode: Literal["eval", "train"] | None = None
    """What the module is put into; None: the file's MODE, else evaluation."""
    backward: bool | None = None
    """Whether gradients are judged and timed too; None: the file's BACKWARD."""
    model: str = "offline"
    """Who writes kernels: offline (the built-in recipes), openai:NAME, or handoff:DIR (you answer requests in files).
    Several with commas work side by side; after `turns:` they take turns."""
    analyst_model: str | None = None
    """Who says why a kernel is slow; empty: `model`."""
    repair_model: str | None = None
    """Who fixes failing kernels; empty: `model`."""
    base_url: str | None = None
    """Address of an OpenAI-compatible server; empty: OpenAI's own."""
    key_env: str = KEY
    """Name of the environment variable that holds the key; never the key itself."""
    model_timeout: float = Field(default=REQUEST_SECONDS, gt=0)
    """Seconds that one request to a model may take."""
    prices: str | None = None
    """File with prices of models (TOML or JSON); they go before the built-in ones."""
    record: str | None = None
    """File to write every request, reply and verdict to."""
    replay: str | None = None
    """A recording to play the run from: no model, no key, no evaluator."""
    spool: str | None = None
    """A folder with jobs for `tritonsmith worker`, which judges them elsewhere; empty: judged by this machine."""
    memory: str | None = None
    """A folder with kernels of earlier runs, shown as examples; this run's is added."""
    remember: bool = True
    """Whether what this run finds is added to `memory`; runs that are compared with each other only read it."""
    policy: str = "default"
    """The rules that answer every gate of the graph."""
    tuning: Tuning | None = None
    """Who finds the variants of tuning: search, model (the author), both or none; empty: as the policy says."""
    claims_from: float | None = Field(default=None, ge=0)
    """The measured score from which on a kernel is the result; below it the module is best kept. Empty: as the policy says; 0: any."""
    seeds: int = 2
    """First kernels, each followed in a branch of its own."""
    seed_from: Compiler | None = None
    """A compiler whose own kernels are one of the seeds: inductor, which torch.compile uses; empty: none."""
    allow: Allow = Allow.HYBRID
    """Which labels may win: kernel; hybrid (kernels too); library (all)."""
    budget: Budget = Field(default_factory=Budget)
    """Limits of the run; a spent one ends it with the best so far."""
    checkpoints: str = "sqlite"
    """Where states are kept: `sqlite` (in the run's folder), `postgres:NAME` (that variable holds the connection string), or `none`."""
    out: str | None = None
    """Folder for the results; None: `runs/<task>-<utc time>`."""


PLACES = frozenset({"devices", "fresh", "ray"})
"""Settings that say where and not what is judged: processes that share an experiment may differ in them."""


def models_of(config: RunConfig, objects: dict[str, Any] | None = None) -> Models:
    """The models that the settings name; `objects` stand for some of the three roles."""
    named = {name: getattr(config, name) for name in ROLES} | (objects or {})
    return Models(
        named["model"], named["analyst_model"], named["repair_model"], config.base_url, config.key_env, config.model_timeout, config.prices
    )


def name_models(config: RunConfig, models: Models) -> RunConfig:
    """The settings, with everything in `models` that is a plain value."""
    roles = dict(zip(ROLES, (models.author, models.analyst, models.repair), strict=True))
    named = {name: value for name, value in roles.items() if isinstance(value, str)}
    prices = None if models.prices is None else str(models.prices)
    rest = {"base_url": models.base_url, "key_env": models.key_env, "model_timeout": models.seconds, "prices": prices}
    return config.model_copy(update={**named, **rest})


def passed_objects(evaluator: Evaluator | None, author: Author | None, models: Models) -> tuple[str, ...]:
    """Names of the settings that were passed from Python as objects."""
    given: dict[str, object] = {"evaluator": evaluator, "author": author}
    given |= dict(zip(ROLES, (models.author, models.analyst, models.repair), strict=True))
    return tuple(name for name, value in given.items() if value is not None and not isinstance(value, str))


def censor_address(address: str) -> str:
    """An address without the password or the query that it may have: those are not kept."""
    parts = urlsplit(address)
    place = parts.netloc.replace(f":{parts.password}@", ":***@") if parts.password else parts.netloc
    return urlunsplit(parts._replace(netloc=place, query="***" if parts.query else ""))


def restore_address(censored: str) -> str:
    """The address of which a run keeps this. Raises UsageError where it had a secret, and OPENAI_BASE_URL does not have it."""
    known = os.environ.get("OPENAI_BASE_URL", "")
    if "***" not in censored:
        return censored
    if known and censor_address(known) == censored:
        return known
    raise UsageError(f"--base-url {censored}: its secret is not kept with the run; set OPENAI_BASE_URL to the whole address, and resume")


def _make_absolute(model: str) -> str:
    """The name of an author, or of several, with absolute folders of answers."""
    turns = IN_TURN if model.startswith(IN_TURN) else ""
    names = []
    for name in model.removeprefix(turns).split(","):
        provider, colon, folder = name.strip().partition(":")
        names.append(f"handoff:{Path(folder).resolve()}" if provider == "handoff" and colon else name.strip())
    return turns + ",".join(names)


def settings_to_keep(config: RunConfig) -> dict[str, Any]:
    """The settings that a resumed run must share. Paths are absolute, so that any working directory will do."""
    settings = config.model_dump(mode="json", exclude={"out"})
    for name in ("task", "prices", "record", "replay", "spool", "memory"):
        if settings[name] is not None:
            settings[name] = str(Path(settings[name]).resolve())
    if config.base_url is not None:
        settings["base_url"] = censor_address(config.base_url)
    for name in ROLES:
        if settings[name] is not None:
            settings[name] = _make_absolute(str(settings[name]))
    path, colon, attribute = config.policy.rpartition(":")
    if colon and path.endswith(".py"):
        settings["policy"] = f"{Path(path).resolve()}:{attribute}"
    return settings
