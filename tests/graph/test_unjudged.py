"""Without a card, variants that cannot get a lower estimate than the best kernel are not judged, and the stage says so."""

import math
from collections.abc import Sequence

import pytest

from tritonsmith.evaluator.cards.cards import named_card
from tritonsmith.evaluator.cards.estimate import estimate_candidate, estimate_launches
from tritonsmith.evaluator.schema import Comparison, Hardware, KernelFacts, LaunchFacts, Stage, TimingKind, Verdict
from tritonsmith.nodes.evaluators.scripted import scripted_verdict

CARD: Hardware = named_card("h200")
BASE = """
import triton
BLOCK, WARPS, STEPS = 64, 4, 12

@triton.jit
def kernel(x, BLOCK):
    pass

def run(x):
    for _ in range(STEPS):
        kernel[(1000 // BLOCK,)](x, BLOCK, num_warps=WARPS)
"""
WARPS, BLOCK, STEPS = BASE.replace("64, 4, 12", "64, 8, 12"), BASE.replace("64, 4, 12", "32, 4, 12"), BASE.replace("64, 4, 12", "64, 4, 6")


def estimated(launches: int, moved: float = 0.0, spills: int = 0, library: int = 0) -> Verdict:
    """A verdict with the estimate of so many launches, each of which moves `moved` bytes, and of operators of one launch each."""
    kernel = KernelFacts(name="kernel", launches=launches, grid=(1000, 1, 1), bytes_loaded=moved, num_warps=4, spills=spills)
    operators = {"aten::mm": library} if library else {}
    facts = LaunchFacts(
        launches_per_forward=launches + library, triton_launches=launches, kernels=(kernel,), library_calls=operators, own_time_share=0.9
    )
    verdict = scripted_verdict(0.5)
    assert verdict.timing is not None
    whole = estimate_candidate(CARD, [kernel], operators, 0.0, 0.0, torch_launches=library)
    timing = verdict.timing.model_copy(update={"median_ms": whole.ms, "apart": whole.apart})
    return verdict.model_copy(update={"facts": facts, "timing": timing})


def run_stages(script, base: Verdict, variants: Sequence[str]):  # type: ignore[no-untyped-def]
    """A run that tunes BASE with these variants in the first stage, and the decision after it."""
    worse = scripted_verdict(0.1, comparison=Comparison.SLOWER if base.timing and base.timing.kind is TimingKind.MEASURED else None)
    tuned = {(Stage.TUNE_GRID, BASE): tuple(variants)}
    run = script({BASE: base, **dict.fromkeys(variants, worse)}, seeds=(BASE,), variants=tuned, policy="tune-model")
    run.run()
    assert run.path("main") == [
        ("after_select", "detect"), ("after_detect", "tune"), *[("after_stage", "next")] * 3, ("after_confirm", "accept")
    ]  # fmt: skip
    assert run.text(run.result["winner"]) == BASE
    return run, next(one for one in run.result["decisions"].values() if one.gate == "after_grid")


def judged(run) -> set[str]:  # type: ignore[no-untyped-def]
    return {source for source, _ in run.evaluator.calls} - {BASE}


def test_nothing_is_asked_for_where_no_estimate_can_be_lower(script) -> None:  # type: ignore[no-untyped-def]
    run, decision = run_stages(script, estimated(1), [WARPS, BLOCK, STEPS])
    assert not judged(run) and not any(run.asked(stage) for stage in ("tune_grid", "tune_block", "tune_memory"))
    why = "no variants are asked for: the estimate of seed0-01 cannot be told from the cost of one launch"
    assert decision.reason.endswith(f"; {why}") and decision.evidence["unjudged"] == why
    others = [one for one in run.result["decisions"].values() if one.site != "after_stage"]
    assert others and not any("unjudged" in one.evidence for one in others)


@pytest.mark.parametrize("library", [0, 2])
def test_as_many_launches_are_not_judged_where_they_are_all_it_costs(script, library: int) -> None:  # type: ignore[no-untyped-def]
    run, decision = run_stages(script, estimated(12, library=library), [BLOCK, STEPS])
    assert judged(run) == {STEPS}
    count = 12 + library
    why = f"1 of 2 variants not judged: the estimate of seed0-01 cannot be told from the cost of its {count} launches"
    assert why in decision.reason
    assert set(run.result["candidates"]) == {"seed0-01", "grid-01"}
    later = [one for one in run.result["decisions"].values() if one.gate == "after_block"]
    assert later and not any("unjudged" in one.evidence for one in later)


@pytest.mark.parametrize(
    "base",
    [
        estimated(12, moved=1e9),  # other warps, other programs at once: the estimate sees it
        estimated(12).model_copy(update={"timing": scripted_verdict(1.5).timing}),
    ],
    ids=["bytes", "measured"],
)
def test_what_may_tell_something_is_judged(script, base: Verdict) -> None:  # type: ignore[no-untyped-def]
    run, decision = run_stages(script, base, [WARPS])
    assert judged(run) == {WARPS}
    assert "unjudged" not in decision.evidence and "not judged" not in decision.reason


def test_the_least_estimate_is_that_of_one_launch() -> None:
    timing = estimated(1).timing
    assert timing is not None and math.isclose(timing.median_ms, estimate_launches(LaunchFacts(launches_per_forward=1, triton_launches=1)))
