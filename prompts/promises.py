"""What an analysis may promise, and how each metric is read from a verdict."""

from tritonsmith.evaluator.schema import Verdict
from tritonsmith.prompts.analysis import Analysis


def read_metric(metric: str, verdict: Verdict) -> float | None:
    """The metric as the evaluator found it; None where it does not know."""
    facts = verdict.facts
    if metric == "launches_per_forward":
        return float(facts.launches_per_forward)
    if metric == "programs":
        return float(max((x * y * z for x, y, z in (kernel.grid for kernel in facts.kernels)), default=0))
    if metric == "bytes_per_forward":
        counted = [kernel for kernel in facts.kernels if kernel.bytes_loaded is not None or kernel.bytes_stored is not None]
        moved = sum(kernel.launches * ((kernel.bytes_loaded or 0.0) + (kernel.bytes_stored or 0.0)) for kernel in counted)
        return moved if counted else None
    return verdict.score if metric == "score" else None


def compare_with_facts(analysis: Analysis, verdict: Verdict | None) -> Analysis:
    """The analysis with `before` as it was measured and the facts as evidence.

    Raises ValueError for a promise that holds already.
    """
    if verdict is None:
        return analysis
    known = {metric: read_metric(metric, verdict) for metric in ("launches_per_forward", "programs", "score")}
    evidence = {**{metric: value for metric, value in known.items() if value is not None}, **analysis.evidence}
    promise = analysis.promise
    if promise is None:
        return analysis.model_copy(update={"evidence": evidence})
    before = read_metric(promise.metric, verdict)
    if before is None:
        if analysis.worth_optimizing:
            raise ValueError(f"promise: {promise.metric} is not measured here; promise launches_per_forward, programs or score")
        return analysis.model_copy(update={"evidence": evidence})
    better = promise.bound < before if promise.at_most else promise.bound > before
    if analysis.worth_optimizing and not better:
        words = "at most" if promise.at_most else "at least"
        raise ValueError(f"promise: {promise.metric} is {before:g} now, so {words} {promise.bound:g} promises nothing")
    return analysis.model_copy(update={"promise": promise.model_copy(update={"before": before}), "evidence": evidence})
