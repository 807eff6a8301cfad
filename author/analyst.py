"""The built-in analyst: what a kernel's measured facts say about why it is slow, and which recipe removes that."""

from __future__ import annotations

from tritonsmith.author.book import BOOK, Match
from tritonsmith.author.measured import Measured, measure
from tritonsmith.author.plan import KernelPlan
from tritonsmith.author.race import propose_cut, tell_races
from tritonsmith.author.recipe import Recipe
from tritonsmith.evaluator.records.limits import Limit
from tritonsmith.prompts.analysis import Analysis, Category, Complexity
from tritonsmith.prompts.author import Brief

Evidence = dict[str, float | int | str]
WORTH = 1.10
"""A gain below 10 % is not worth a new kernel."""


def analyze(brief: Brief, match: Match) -> Analysis:
    """Name the bottleneck of `brief.current` and the one recipe, of those not tried, that should be fastest."""
    attempt = brief.current
    verdict = attempt.verdict if attempt else None
    chain = match.plan.shortest_chain(brief.facts)
    found = measure(verdict, brief.facts, brief.hardware, brief.task.precision, chain) if verdict else None
    if attempt is None or found is None:
        return _propose_nothing(brief, "there is no timing of this kernel", "nothing is known about its speed", {})
    evidence = _collect_evidence(found, brief)
    if found.median_ms <= WORTH * found.floor_ms:
        text = f"{found.median_ms:.3g} ms is within 10 % of the card's limit, {found.floor_ms:.3g} ms by {found.limit}"
        return _propose_nothing(brief, text, text, evidence)
    if (cut := propose_cut(brief, match, found, evidence)) is not None and cut.expected_speedup >= WORTH:
        return cut
    tried = {attempt.candidate.recipe, *(earlier.candidate.recipe for earlier in brief.history)}
    level = BOOK[attempt.candidate.recipe].level if attempt.candidate.recipe in BOOK else -1
    left = [recipe for recipe in match.recipes if recipe.level > level and recipe.name not in tried]
    if not left:
        bound = f"{found.median_ms:.3g} ms against a floor of {found.floor_ms:.3g} ms by {found.limit}"
        own = BOOK.get(attempt.candidate.recipe)
        if own is not None and (advice := own.advise(match.plan, brief)):
            bound = f"{bound}; {advice}"
        races = tell_races(brief, match)
        reason = f"no other algorithm is in the recipe book{f', {races}' if races else ''}; what remains is tuning ({bound})"
        return _propose_nothing(brief, bound, reason, evidence)
    predicted = {recipe.name: recipe.predict(match.plan, found, brief) for recipe in left}
    evidence |= {f"predicted_ms_{name}": round(value, 4) for name, value in predicted.items()}
    target = min(left, key=lambda recipe: predicted[recipe.name])
    return _propose(target, match.plan, found, brief, found.median_ms / predicted[target.name], evidence)


def _collect_evidence(found: Measured, brief: Brief) -> Evidence:
    return {
        "median_ms": round(found.median_ms, 4),
        "launches_per_forward": found.launches,
        "launch_ms": round(found.launch_ms, 4),
        "launch_share": round(found.launch_ms / found.median_ms, 3),
        "programs": found.programs,
        "processors": brief.hardware.processors,
        "flops": brief.facts.flops,
        "min_bytes": brief.facts.min_bytes,
        "compute_ms": round(found.compute_ms, 4),
        "memory_ms": round(found.memory_ms, 4),
        "serial_steps": brief.facts.serial_steps,
        "shortest_chain": found.chain,
        "chain_ms": round(found.chain_ms, 4),
        "floor_ms": round(found.floor_ms, 4),
        "floor_share": round(found.floor_ms / found.median_ms, 4),
        "limit": found.limit,
    }


def _propose(target: Recipe, plan: KernelPlan, found: Measured, brief: Brief, expected: float, evidence: Evidence) -> Analysis:
    worth = expected >= WORTH
    reason = f"{expected:.2f}x expected; the floor is {found.floor_ms:.3g} ms by {found.limit}"
    return target.propose(plan, found, brief).model_copy(
        update={
            "expected_speedup": round(expected, 2),
            "worth_optimizing": worth,
            "reason": reason if worth else f"{reason}: less than 10 %",
            "kernel_type": target.name,
            "fallback_strategy": "keep the current kernel",
            "returns": brief.facts.returns,
            "evidence": evidence,
        }
    )


def _propose_nothing(brief: Brief, bottleneck: str, reason: str, evidence: Evidence) -> Analysis:
    limit = str(evidence.get("limit", ""))
    return Analysis(
        bottleneck=bottleneck,
        optimisation_method="none",
        modification_plan="keep the kernel",
        category=Category.MEMORY if limit == Limit.BYTES.value else Category.ALGORITHM,
        expected_speedup=1.0,
        worth_optimizing=False,
        reason=reason,
        implementation_complexity=Complexity.LOW,
        kernel_type=brief.current.candidate.recipe if brief.current else "",
        returns=brief.facts.returns,
        evidence=evidence,
    )
