"""What a trace shows of a state or of a node's update: small plain records instead of everything."""

from collections.abc import Mapping
from typing import Any

from tritonsmith.evaluator.schema import Candidate, Task, TaskFacts, Verdict
from tritonsmith.graph.searches import Search
from tritonsmith.graph.state import Decision, Findings, Usage, total
from tritonsmith.prompts.analysis import Analysis

_FEW = 4
"""So many records of a kind are shown one by one; of more, the number and the last one."""
_AS_THEY_ARE = (
    "branch", "index", "current", "analysis", "choice", "queue", "repairs", "rounds", "improvements", "returns", "optimized", "exhausted",
    "widenings", "opening", "twins",
)  # fmt: skip
"""Fields of a state that are small already."""
_THE_SAME = ("facts", "run", "allow", "elapsed")
"""Fields that are the same for every step."""
_AT_THE_END = ("winner", "stopped_because", "seeds", "elapsed", "searched")
"""Small fields that only a run's end has."""


def summarize_state(value: Any) -> Any:
    """A state, an update or another value as a trace shows it."""
    if isinstance(value, Mapping):
        return {name: summary for name, field in value.items() if (summary := _summarize_field(str(name), field)) is not None}
    return _summarize_record(value)


def summarize_inputs(inputs: Any) -> Any:
    """What a step is given; what is the same for all of them, and what is empty, is left out."""
    summary = summarize_state(inputs)
    if not isinstance(summary, dict):
        return summary
    return {name: field for name, field in summary.items() if name not in _THE_SAME and field not in ("", {}, [])}


def summarize_decision(update: Any) -> Any:
    """A gate's update: the choice with its reason and what it rests on come first."""
    decisions = update.get("decisions") if isinstance(update, Mapping) else None
    if not isinstance(decisions, Mapping) or not decisions:  # none, or summarized already
        return summarize_state(update)
    answers = [_summarize_record(decision) for decision in decisions.values()]
    last = answers[-1] if isinstance(answers[-1], dict) else {}
    first = {"choice": update.get("choice"), "reason": last.get("reason"), "evidence": last.get("evidence")}
    return {**first, "decisions": answers} if len(answers) > 1 else {**first, "site": last.get("site"), "policy": last.get("policy")}


def summarize_answer(outputs: Any) -> Any:
    """What a whole run answers: the winner, how good it is and why the run ended come first."""
    if not isinstance(outputs, Mapping) or "winner" not in outputs:
        return summarize_state(outputs)
    verdict = (outputs.get("verdicts") or {}).get(outputs["winner"])
    first = {"winner": outputs["winner"], "verdict": _summarize_record(verdict), "stopped_because": outputs.get("stopped_because")}
    return {**first, **summarize_state(outputs)}


def line_of_work(inputs: Any) -> str:
    """`seed0`, `improve1`, ... where these are the inputs of a branch; else empty."""
    return str(inputs["branch"]) if isinstance(inputs, Mapping) and isinstance(inputs.get("branch"), str) else ""


def _summarize_field(name: str, value: Any) -> Any:
    if name in _AS_THEY_ARE or name in _AT_THE_END:
        return value
    if name == "usage" and isinstance(value, Mapping):
        return _summarize_usage(value) if value else None
    if isinstance(value, Mapping) and value and name in ("candidates", "verdicts", "analyses", "findings", "checks", "decisions"):
        records = {key: _summarize_record(record) for key, record in list(value.items())[-(_FEW if len(value) <= _FEW else 1) :]}
        return records if len(records) == len(value) else {"number": len(value), "last": records}
    if isinstance(value, Mapping) and value and name == "searches":
        return {"number": len(value), "last": _summarize_record(list(value.values())[-1])}
    if isinstance(value, Mapping | list | tuple | set):
        return _summarize_record(value) if value else None
    return _summarize_record(value)


def _summarize_usage(usage: Mapping[str, Any]) -> dict[str, Any]:
    used = total({key: request for key, request in usage.items() if isinstance(request, Usage)})
    return {"requests": len(usage), **used.model_dump(include={"calls", "input_tokens", "output_tokens", "money"})}


def _summarize_record(value: Any) -> Any:
    if isinstance(value, Task):
        return f"{value.name} ({value.size}, {value.precision.value})"
    if isinstance(value, TaskFacts):
        facts = value.model_dump(mode="json", include={"returns", "flops", "min_bytes", "reference_launches", "serial_steps", "modules"})
        return {**facts, "operators": len(value.ops) + value.ops_left_out, "traced_by": value.traced_by}
    if isinstance(value, Candidate):
        return _leave_out_empty(value.model_dump(mode="json", include={"stage", "parent", "sha", "rationale", "recipe", "settings"}))
    if isinstance(value, Verdict):
        return summarize_verdict(value)
    if isinstance(value, Decision):
        return value.model_dump(mode="json", include={"site", "choice", "reason", "evidence", "policy", "candidate"})
    if isinstance(value, Findings):
        return [finding.name if finding.line is None else f"{finding.name} (line {finding.line})" for finding in value.labels]
    if isinstance(value, Analysis):
        return _leave_out_empty(value.model_dump(mode="json"))
    if isinstance(value, Search):
        return value.sentence()
    if isinstance(value, Mapping):
        return {str(key): _summarize_record(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_summarize_record(item) for item in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    dump = getattr(value, "model_dump", None)
    return dump(mode="json") if callable(dump) else type(value).__name__


def _leave_out_empty(record: Mapping[str, Any]) -> dict[str, Any]:
    return {name: field for name, field in record.items() if field not in (None, "", {}, [])}


def summarize_verdict(verdict: Verdict) -> dict[str, Any]:
    """What a trace tells of a verdict."""
    timing = verdict.timing
    return {
        "status": verdict.status.value,
        "score": verdict.score,
        "profile": verdict.profile,
        "baseline": timing.baseline if timing else None,
        "median_ms": timing.median_ms if timing else None,
        "kind": timing.kind.value if timing else None,
        "label": verdict.label.value if verdict.label else None,
        "message": verdict.message,
    }
