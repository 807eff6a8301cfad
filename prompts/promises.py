"""What an analysis may promise, and how each metric is read from a verdict."""

from tritonsmith.evaluator.schema import Verdict
from tritonsmith.prompts.analysis import Analysis

PERCENTAGES = ("dram_throughput", "sm_throughput", "active_warps", "l2_hit_rate", "memory_stalls")
"""Metrics that are counters, in percent."""
_ALWAYS = ("launches_per_forward", "programs", "score")
"""Metrics that every working kernel has."""


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
    if metric == "score":
        return verdict.score
    return _read_percentage(metric, verdict)


def _read_percentage(metric: str, verdict: Verdict) -> float | None:
    """A counter of Nsight Compute; the achieved share of the same limit where nobody could count."""
    if metric == "percent_of_floor":
        return 100.0 * verdict.timing.floor.share if verdict.timing and verdict.timing.floor else None
    counters = verdict.facts.counters
    if counters is None or metric not in PERCENTAGES:
        return None
    shares = {"dram_throughput": counters.bandwidth_share, "sm_throughput": counters.operations_share}
    counted = counters.mean(metric)
    return counted if counted is not None else shares.get(metric)


def name_source(metric: str, verdict: Verdict) -> str:
    """Where a percentage is from, for the end of a sentence; empty for any other metric."""
    counters = verdict.facts.counters
    if metric not in PERCENTAGES or counters is None:
        return ""
    if counters.mean(metric) is None:
        return "an achieved share, not counted"
    return "counted by Nsight Compute" if counters.source == "ncu" else "from the compiled kernels, not counted"


def compare_with_facts(analysis: Analysis, verdict: Verdict | None) -> Analysis:
    """The analysis with `before` as it was measured and the facts as evidence.

    Raises ValueError for a promise that holds already.
    """
    if verdict is None:
        return analysis
    known = {metric: read_metric(metric, verdict) for metric in (*_ALWAYS, "percent_of_floor")}
    evidence = {**{metric: value for metric, value in known.items() if value is not None}, **analysis.evidence}
    promise = analysis.promise
    if promise is None:
        return analysis.model_copy(update={"evidence": evidence})
    before = read_metric(promise.metric, verdict)
    if before is None:
        if analysis.worth_optimizing:
            known_here = [metric for metric in (*_ALWAYS, "percent_of_floor", *PERCENTAGES) if read_metric(metric, verdict) is not None]
            raise ValueError(f"promise: {promise.metric} is not measured here; promise {', '.join(known_here[:-1])} or {known_here[-1]}")
        return analysis.model_copy(update={"evidence": evidence})
    better = promise.bound < before if promise.at_most else promise.bound > before
    if analysis.worth_optimizing and not better:
        words = "at most" if promise.at_most else "at least"
        raise ValueError(f"promise: {promise.metric} is {before:g} now, so {words} {promise.bound:g} promises nothing")
    return analysis.model_copy(update={"promise": promise.model_copy(update={"before": before}), "evidence": evidence})
