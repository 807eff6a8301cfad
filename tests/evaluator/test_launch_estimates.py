"""Estimates without a card, from compiled kernels: other kernels and other cards get other figures, and near ones are not ranked."""

import pytest

from tritonsmith.evaluator.caller.compiling.racing import race
from tritonsmith.evaluator.cards.cards import CARDS
from tritonsmith.evaluator.cards.estimate import LatencyEstimate, estimate_candidate, tell_apart
from tritonsmith.evaluator.channel.ir_counts import TensorBytes, count_work
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.protocol import Fate
from tritonsmith.evaluator.records.work import KernelWork
from tritonsmith.evaluator.schema import Allow, Candidate, KernelFacts, LaunchFacts, Stage, Task, TimingKind, Verdict
from tritonsmith.graph.pool import describe_choice, rank_working
from tritonsmith.nodes.evaluators.scripted import scripted_verdict

MB = 1e6


def kernel(name: str, programs: int, loaded: float, **changes: float | str | bool | int) -> KernelFacts:
    """A kernel that requests so many megabytes and writes as many; `work` fields and facts as they are given."""
    counts = {"bytes_loaded": loaded * MB, "bytes_stored": loaded * MB, "unique_bytes": 2 * loaded * MB, "load_rounds": 1.0}
    counts |= {key: value for key, value in changes.items() if key in KernelWork.model_fields}
    facts = {"name": name, "launches": 1, "grid": (programs, 1, 1), "num_warps": 4, "num_stages": 3, "resident": 132 * 16}
    facts |= {key: value for key, value in changes.items() if key not in counts}
    return KernelFacts.model_validate(facts | {"work": counts})


SOFTMAX = kernel("softmax", 4096, 268, special=67e6, operations=5e8, reductions=2)
NORM = kernel("norm", 8192, 134, operations=4e8, reductions=2)
PRODUCT = kernel(
    "product", 1024, 2000, unique_bytes=100 * MB, bytes_stored=33 * MB, product_flops=1e12, product="fp16", tensor_cores=True,
    load_rounds=64, resident=264,
)  # fmt: skip


def estimate(facts: KernelFacts, card: str = "h200") -> LatencyEstimate:
    return estimate_candidate(CARDS[card], [facts], {}, 0.0, 0.0)


LOOP = """
tt.func public @k(%a: !tt.ptr<f32>) attributes {noinline = false} {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %c32 = arith.constant 32 : i32
  %p = tt.splat %a : !tt.ptr<f32> -> tensor<64x!tt.ptr<f32>>
  %pid = tt.get_program_id x : i32
  %blocks = arith.remsi %pid, %c32 : i32
  scf.for %i = %c0 to %blocks step %c1  : i32 {
    %x = tt.load %p : tensor<64x!tt.ptr<f32>>
  }
  tt.return
}
"""


@pytest.mark.parametrize(("programs", "trips"), [(1024, 15.5), (32, 15.5), (16, 7.5)])
def test_a_loop_that_goes_by_a_remainder_makes_the_middle_of_its_trips(programs: int, trips: float) -> None:
    """As causal attention does, whose blocks of keys follow from the program's place in its head."""
    work = count_work(LOOP, {"a": TensorBytes(1e12)}, (programs, 1, 1))
    assert work.bytes_loaded == programs * trips * 64 * 4


def test_other_kernels_and_other_cards_have_other_estimates() -> None:
    found = {(one.name, card): estimate(one, card).ms for one in (SOFTMAX, NORM, PRODUCT) for card in ("h200", "a100")}
    assert len({f"{ms:.3g}" for ms in found.values()}) == 6
    assert all(found[name, "a100"] > 1.5 * found[name, "h200"] for name in ("softmax", "norm", "product"))


@pytest.mark.parametrize(
    "worse",
    [
        {"unique_bytes": 1072 * MB}, {"repeated_bytes": 268 * MB}, {"load_rounds": 64.0}, {"operations": 1e11}, {"special": 1e10},
        {"waits": 1000.0}, {"resident": 132}, {"spills": 4096}, {"programs": 40}, {"product_flops": 1e12},
    ],
    ids=lambda change: next(iter(change)),
)  # fmt: skip
def test_every_count_costs_time(worse: dict[str, float]) -> None:
    plain, more = {"programs": 4096, "load_rounds": 4.0, "operations": 1e8}, {"load_rounds": 4.0, "operations": 1e8} | worse
    programs = int(more.pop("programs", 4096))
    assert estimate(kernel("k", programs, 268, **more)).ms > 1.02 * estimate(kernel("k", plain.pop("programs"), 268, **plain)).ms


def test_a_launch_that_did_more_where_it_ran_is_not_estimated_by_its_text() -> None:
    """A candidate may pass a loop other trips where launches are only counted; the interpreter saw the true ones."""
    told = kernel("k", 16, 1, product_flops=1e9, product="ieee")
    ran = told.model_copy(update={"flops": 1.6e10})
    assert estimate(ran).ms > 10 * estimate(told).ms
    masked = told.model_copy(update={"flops": 0.9e9, "bytes_loaded": 0.5 * MB})  # the text counts masked lanes too
    assert estimate(masked).ms == estimate(told).ms


def estimated(facts: KernelFacts, launches: int = 1) -> Verdict:
    """A verdict with this kernel's estimate, against a baseline of one millisecond."""
    found = estimate(facts)
    verdict = scripted_verdict(1.0 / found.ms, launches=launches)
    assert verdict.timing is not None
    timing = verdict.timing.model_copy(update={"apart": found.apart, "band": (1 / found.high_ms, 1 / found.low_ms)})
    return verdict.model_copy(update={"timing": timing})


def rank(verdicts: dict[str, Verdict]) -> tuple[list[str], str]:
    """Ids in their order, and the sentence about the first one."""
    candidates = {name: Candidate(id=name, sha=name, stage=Stage.SEED) for name in verdicts}
    ranked = rank_working(candidates, verdicts, Allow.HYBRID)
    return [one.id for one in ranked], describe_choice(candidates, verdicts, Allow.HYBRID)


def test_what_the_estimate_cannot_tell_apart_is_not_ranked() -> None:
    """The first one made stays first though its estimate is a little higher; fewer launches go before it."""
    near, far = kernel("near", 4096, 260, special=67e6, operations=5e8), kernel("far", 4096, 2680)
    verdicts = {"far": estimated(far), "first": estimated(SOFTMAX), "near": estimated(near)}
    order, said = rank(verdicts)
    assert order == ["first", "near", "far"]
    assert said.startswith("the estimate cannot tell first and near apart: first goes first")
    order, said = rank({"two": estimated(near, launches=2), "one": estimated(SOFTMAX, launches=1)})
    assert order == ["one", "two"] and "one goes first" in said


def test_a_clear_difference_is_ranked_and_a_measurement_goes_before_any_estimate() -> None:
    fast, slow = estimated(SOFTMAX), estimated(kernel("slow", 4096, 2680))
    assert rank({"slow": slow, "fast": fast}) == (["fast", "slow"], "")
    measured = scripted_verdict(0.2, kind=TimingKind.MEASURED)
    assert rank({"guess": fast, "measured": measured}) == (["measured", "guess"], "")


def test_a_search_without_a_card_keeps_only_what_it_can_tell_from_the_best() -> None:
    texts = {"best": SOFTMAX, "alike": kernel("a", 4096, 262), "faster": kernel("b", 4096, 100), "slower": kernel("c", 4096, 2680)}

    class Reports:
        """Compilers whose answers are known."""

        def start(self, task: Task, text: KernelText) -> None:
            pass

        def wait_for(self, task: Task, text: KernelText, *, again: bool) -> dict[str, object]:
            return {"status": "ok", "kernels": [texts[text.text].model_dump(mode="json")], "torch_ops": {}}

    entrants = [KernelText.of(name) for name in texts]
    task = Task(name="t", source="x", path="t.py")
    report = race(Reports(), None, CARDS["h200"], task, entrants[0], entrants[1:], LaunchFacts(), 3)  # type: ignore[arg-type]
    assert [row.fate for row in report.rows] == [Fate.ALIKE, Fate.KEPT, Fate.SLOWER]


def test_equal_estimates_are_never_told_apart() -> None:
    one = estimate(NORM)
    assert not tell_apart(one.ms, one.apart, one.ms, one.apart)
