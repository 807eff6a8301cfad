"""The settings of a run on a LangGraph server: plain values with descriptions, of which Studio makes a form."""

import os
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo
from typing_extensions import TypedDict

from tritonsmith.evaluator.cards.cards import CARDS
from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.schema import SizeValue
from tritonsmith.graph.policies.presets import PRESETS
from tritonsmith.graph.runs.config import RunConfig
from tritonsmith.graph.state import Budget
from tritonsmith.nodes.chat.connect import Models


class ServedError(UsageError, ValueError):
    """Ends a run on a server with a sentence. A LangGraph server shows the text only of a ValueError and of its own errors."""


def _setting(name: str, **changes: Any) -> Any:
    """A form field with the default, the bounds and the description of a field of RunConfig."""
    return _field_like(RunConfig.model_fields[name], changes)


def _limit(name: str, description: str) -> Any:
    """A form field with the default and the bounds of a field of Budget."""
    return _field_like(Budget.model_fields[name], {"description": description})


def _field_like(field: FieldInfo, changes: dict[str, Any]) -> Any:
    bounds = {bound: getattr(part, bound) for part in field.metadata for bound in ("gt", "ge") if hasattr(part, bound)}
    return Field(**{"default": field.default, "description": field.description, **bounds, **changes})


class RunForm(BaseModel):
    """What an assistant may set, one form field each; a policy with a name makes an assistant for comparisons."""

    # names, defaults and descriptions are those of RunConfig; `policy_file` and the default of `out` are a server's own

    model_config = ConfigDict(frozen=True, extra="forbid", title="Settings")

    policy: str = _setting("policy", json_schema_extra={"enum": list(PRESETS)})
    policy_file: str | None = Field(
        default=None, description="Rules of your own, path/to/file.py:ClassName on the server; they stand in for `policy`."
    )
    model: str = _setting("model")
    analyst_model: str | None = _setting("analyst_model")
    repair_model: str | None = _setting("repair_model")
    base_url: str | None = _setting("base_url")
    key_env: str = _setting("key_env")
    model_timeout: float = _setting("model_timeout")
    prices: str | None = _setting("prices")
    tuning: Literal["search", "model", "both", "none"] | None = _setting("tuning")
    claims_from: float | None = _setting("claims_from")
    seeds: int = _setting("seeds", ge=1)
    seed_from: Literal["inductor"] | None = _setting("seed_from")
    target: str = _setting("target", json_schema_extra={"enum": ["auto", *CARDS]})
    allow: Literal["kernel", "hybrid", "library"] = _setting("allow", default="hybrid")
    sandbox: Literal["auto", "strict", "off"] = _setting("sandbox")
    baselines: Literal["four", "six"] = _setting("baselines")
    budget_candidates: int | None = _limit("candidates", "Kernels written in the whole run.")
    budget_repairs: int = _limit("repairs", "Repairs in a row of one failing kernel.")
    budget_rounds: int = _limit("rounds", "Analyses per branch.")
    budget_seconds: float | None = _limit("seconds", "Wall time of the run.")
    budget_tokens: int | None = _limit("tokens", "Tokens read and written by models.")
    budget_money: float | None = _limit("money", "US dollars, where the models' prices are known.")
    budget_configurations: int = _limit("configurations", "Configurations that tuning searches may try.")
    budget_tuning_seconds: float | None = _limit("tuning_seconds", "Seconds of compiling and racing in tuning searches.")
    spool: str | None = _setting("spool")
    memory: str | None = _setting("memory")
    replay: str | None = _setting("replay")
    out: str | None = Field(
        default=None, description="Folder on the server; each run of a thread gets one inside it. Empty: ~/.local/state/tritonsmith/server."
    )

    def __init__(self, **given: Any) -> None:
        """Check the settings; an empty field of a form is one that was not filled. Raises ServedError with one sentence."""
        try:
            super().__init__(**{name: value for name, value in given.items() if value != ""})
        except ValidationError as error:
            first = error.errors()[0]
            name = ".".join(map(str, first["loc"]))
            if first["type"] == "extra_forbidden":
                known = ", ".join(type(self).model_fields)
                raise ServedError(f"setting {name}: there is no such setting; the settings are {known}") from None
            raise ServedError(f"setting {name}: {first['msg']} (got {first['input']!r})") from None

    @property
    def results(self) -> Path:
        """The folder of all runs. By default no server watches it: one that watches its own folder restarts at every kernel there."""
        return Path(self.out) if self.out else Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local/state", "tritonsmith/server")

    @property
    def budget(self) -> Budget:
        """The limits as one record."""
        return Budget.model_validate({name: getattr(self, f"budget_{name}") for name in Budget.model_fields})

    @property
    def models(self) -> Models:
        """Who is asked."""
        return Models(self.model, self.analyst_model, self.repair_model, self.base_url, self.key_env, self.model_timeout, self.prices)


class TaskInput(TypedDict):
    """What a run on a server is started with; `{"task": Task}`, as scripts give it, works too."""

    task: Annotated[str, Field(description="Path of a task file on the server, such as benchmarks/tasks/39_gru.py.")]
    size: NotRequired[
        Annotated[
            Literal["auto", "full", "small"], Field(description="auto is full on a card; without one small, or what the evaluator chooses.")
        ]
    ]
    overrides: NotRequired[
        Annotated[dict[str, SizeValue], Field(description="Values for module-level names of the task file.")]
    ]
    precision: NotRequired[
        Annotated[
            Literal["auto", "ieee", "split", "tf32", "16-bit"],
            Field(description="How exact results must be, from strict to loose; auto: by the task's types."),
        ]
    ]
    mode: NotRequired[Annotated[Literal["eval", "train"], Field(description="What the module is put into; empty: the file's MODE.")]]
