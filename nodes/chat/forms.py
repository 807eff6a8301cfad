"""How an analysis is asked for and read: by a JSON schema, in JSON mode, or in words, as the server can."""

import json
from enum import StrEnum
from typing import Any, Literal

from langchain_core.language_models import BaseChatModel
from pydantic import BaseModel, ConfigDict, ValidationError, field_validator, model_validator

from tritonsmith.nodes.chat.replies import strip_thoughts
from tritonsmith.prompts.analysis import Analysis, Category, Complexity, Promise

Form = Literal["schema", "json", "text"]
FORMS: tuple[Form, ...] = ("schema", "json", "text")
"""From the strictest to the one that every server can do."""

_MOST_FALSE_STARTS = 200
"""Braces that begin no object before a reply is given up."""
_LONGEST = 4000
"""Characters of one field; longer ones are cut, because later prompts repeat them."""

Metric = Literal[
    "launches_per_forward", "programs", "bytes_per_forward", "score", "percent_of_floor",
    "dram_throughput", "sm_throughput", "active_warps", "l2_hit_rate", "memory_stalls",
]  # fmt: skip


class PromiseReply(BaseModel):
    """The promise as a model writes it."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)

    metric: Metric
    before: float = 0.0
    bound: float
    at_most: bool = True


class AnalysisReply(BaseModel):
    """An analysis as a model writes it."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)

    returns: str = ""
    bottleneck: str = ""
    category: Category | None = None
    optimisation_method: str = ""
    modification_plan: str = ""
    expected_speedup: float = 1.0
    worth_optimizing: bool
    reason: str = ""
    implementation_complexity: Complexity = Complexity.MEDIUM
    kernel_type: str = ""
    fallback_strategy: str = ""
    promise: PromiseReply | None = None

    @field_validator("category", mode="before")
    @classmethod
    def _one_category(cls, given: Any) -> Any:
        if isinstance(given, list | tuple):
            if len(given) != 1:
                raise ValueError("propose exactly one change of one category, not several")
            return given[0]
        return given or None

    @field_validator("expected_speedup", mode="before")
    @classmethod
    def _a_factor(cls, given: Any) -> Any:
        return given.strip().rstrip("xX") if isinstance(given, str) else given

    @model_validator(mode="after")
    def _complete(self) -> "AnalysisReply":
        """A proposal names its change and promises something; a refusal gives its reason."""
        if not self.worth_optimizing:
            if not (self.reason.strip() or self.bottleneck.strip()):
                raise ValueError("worth_optimizing is false, so reason must say why no change is worth it")
            return self
        empty = [name for name in ("returns", "bottleneck", "optimisation_method", "modification_plan") if not getattr(self, name).strip()]
        if empty:
            raise ValueError(f"{', '.join(empty)} must not be empty")
        if self.category is None:
            raise ValueError("category must name the one kind of change that is proposed")
        if self.promise is None:
            raise ValueError("promise must name one measurable effect of the change")
        return self


def response_format(model: BaseChatModel, form: Form) -> dict[str, Any]:
    """What to bind to the model for a form; nothing for models that do not speak the OpenAI protocol.

    It travels as a part of the body: through LangChain's own argument a reply that is cut off would be lost with its tokens.
    """
    from langchain_openai.chat_models.base import BaseChatOpenAI  # noqa: PLC0415 - a second, and here there is a model anyway

    if form == "text" or not isinstance(model, BaseChatOpenAI):
        return {}
    if form == "json":
        wanted: dict[str, Any] = {"type": "json_object"}
    else:
        wanted = {"type": "json_schema", "json_schema": {"name": "analysis", "strict": True, "schema": analysis_schema()}}
    return {"extra_body": {**(model.extra_body or {}), "response_format": wanted}}


def analysis_schema() -> dict[str, Any]:
    """The JSON schema of an analysis in the strict manner: every key required, no other key, no defaults."""
    strict = _make_strict(AnalysisReply.model_json_schema())
    assert isinstance(strict, dict)  # a schema is an object
    return strict


def _make_strict(part: Any) -> Any:
    if isinstance(part, list):
        return [_make_strict(item) for item in part]
    if not isinstance(part, dict):
        return part
    properties = part.get("properties")
    left_out = ("default", "title", "description")
    made = {key: _make_strict(value) for key, value in part.items() if key not in left_out or value is properties}
    if isinstance(properties, dict):
        made["properties"] = {name: _make_strict(value) for name, value in properties.items()}
        made |= {"required": list(properties), "additionalProperties": False}
    return made


def analysis_in(reply: str) -> Analysis:
    """The analysis in a reply's JSON object, thoughts and fences aside. Raises ValueError that says what is wrong with it."""
    try:
        found = AnalysisReply.model_validate(_object_in(strip_thoughts(reply)))
    except ValidationError as error:
        raise ValueError("; ".join(_fault(dict(fault)) for fault in error.errors())) from error
    promise = Promise(**found.promise.model_dump()) if found.promise else None
    fields: dict[str, Any] = {
        name: value[:_LONGEST] if isinstance(value, str) and not isinstance(value, StrEnum) else value
        for name, value in found.model_dump(exclude={"promise", "category"}).items()
    }
    return Analysis(**fields, category=found.category or Category.ALGORITHM, promise=promise)


def _fault(fault: dict[str, Any]) -> str:
    where = ".".join(map(str, fault["loc"]))
    message = str(fault["msg"]).removeprefix("Value error, ")
    return f"{where}: {message}" if where else message


def _object_in(text: str) -> dict[str, Any]:
    """The last complete JSON object with the key `worth_optimizing`, else the first complete one."""
    decoder, start = json.JSONDecoder(strict=False), text.find("{")
    found: list[dict[str, Any]] = []
    problem, left = "there is no JSON object in the reply", _MOST_FALSE_STARTS
    while start >= 0:
        try:
            value, end = decoder.raw_decode(text, start)
        except (json.JSONDecodeError, RecursionError) as error:
            if not found and isinstance(error, json.JSONDecodeError):
                problem = f"the JSON is not complete or not valid ({error.msg} at character {error.pos - start})"
            end, left = start + 1, left - 1
        else:
            if isinstance(value, dict):
                found.append(value)
        start = text.find("{", end) if left else -1
    if not found:
        raise ValueError(problem)
    return next((known for known in reversed(found) if "worth_optimizing" in known), found[0])
