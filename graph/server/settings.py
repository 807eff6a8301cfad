"""The settings of a run on a LangGraph server: plain values with descriptions, so that Studio can make a form of them."""

from typing import Annotated, Any, Literal, NotRequired

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from typing_extensions import TypedDict

from tritonsmith.evaluator.cards import CARDS
from tritonsmith.evaluator.errors import UsageError
from tritonsmith.graph.policies.presets import PRESETS
from tritonsmith.graph.state import Budget
from tritonsmith.nodes.chat.connect import KEY, Models
from tritonsmith.nodes.chat.model import REQUEST_SECONDS

_LIMITS = Budget()


class ServedError(UsageError, ValueError):
    """What a run on a server ends with: a LangGraph server shows the sentence of a ValueError, and of errors of its own, alone."""


class Settings(BaseModel):
    """What an assistant may set, one form field each; a policy with a name makes an assistant for comparisons."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    policy: str = Field(
        default="default", description="The rules that answer every gate of the graph.", json_schema_extra={"enum": list(PRESETS)}
    )
    policy_file: str | None = Field(
        default=None, description="Rules of your own, path/to/file.py:ClassName on the server; they stand in for `policy`."
    )
    model: str = Field(
        default="offline",
        description="Who writes kernels: offline (the built-in recipes), openai:NAME, or handoff:DIR (you answer requests in files).",
    )
    analyst_model: str | None = Field(default=None, description="Who says why a kernel is slow; empty: `model`.")
    repair_model: str | None = Field(default=None, description="Who mends failing kernels; empty: `model`.")
    base_url: str | None = Field(default=None, description="Address of an OpenAI-compatible server; empty: OpenAI's own.")
    key_env: str = Field(
        default=KEY, description="Name of the environment variable of this server that holds the key; never the key itself."
    )
    model_timeout: float = Field(default=REQUEST_SECONDS, gt=0, description="Seconds that one request to a model may take.")
    prices: str | None = Field(default=None, description="File with prices of models (TOML or JSON); they go before the built-in ones.")
    seeds: int = Field(default=2, ge=1, description="First kernels, each followed in a branch of its own.")
    target: str = Field(
        default="auto",
        description="The card that figures are for; one that is not in this machine gives estimates.",
        json_schema_extra={"enum": ["auto", *CARDS]},
    )
    allow: Literal["kernel", "hybrid", "library"] = Field(
        default="hybrid", description="Which labels may win: kernel; hybrid (kernels too); library (all)."
    )
    sandbox: Literal["auto", "strict", "off"] = Field(
        default="auto", description="auto: every layer that works here; strict: refuse where a needed one is missing; off: none."
    )
    budget_candidates: int | None = Field(default=_LIMITS.candidates, ge=1, description="Kernels written in the whole run.")
    budget_repairs: int = Field(default=_LIMITS.repairs, ge=0, description="Repairs in a row of one failing kernel.")
    budget_rounds: int = Field(default=_LIMITS.rounds, ge=0, description="Analyses per branch.")
    budget_seconds: float | None = Field(default=_LIMITS.seconds, gt=0, description="Wall time of the run.")
    budget_tokens: int | None = Field(default=_LIMITS.tokens, ge=1, description="Tokens read and written by models.")
    budget_money: float | None = Field(default=_LIMITS.money, gt=0, description="US dollars, where the models' prices are known.")
    spool: str | None = Field(
        default=None, description="A folder with jobs for `tritonsmith worker`, which judges them elsewhere; empty: judged by the server."
    )
    memory: str | None = Field(default=None, description="A folder with kernels of earlier runs, shown as examples; this run's is added.")
    replay: str | None = Field(default=None, description="A recording on the server to play the run from: no model, no key, no evaluator.")
    out: str = Field(default="runs/server", description="Folder on the server; each run of a thread gets one inside it.")

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
    size: NotRequired[Annotated[Literal["auto", "full", "small"], Field(description="auto is full on a card and small without one.")]]
    overrides: NotRequired[
        Annotated[dict[str, int | float | bool | str], Field(description="Values for module-level names of the task file.")]
    ]
    precision: NotRequired[Annotated[Literal["ieee", "tf32", "16-bit"], Field(description="The arithmetic that the task allows.")]]
