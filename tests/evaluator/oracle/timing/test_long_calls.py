"""Calls whose inputs or kernels take longer than a time slice: what is measured, what is void, and who is blamed."""

import math
import random
from typing import Any

import pytest

from cards.sliced_card import SLICE_US, draw_large, share_card, share_with_other
from tritonsmith.evaluator.errors import InfrastructureError
from tritonsmith.evaluator.oracle.timing import hold
from tritonsmith.evaluator.oracle.timing.baselines import Blamed
from tritonsmith.evaluator.oracle.timing.calls import CallTimer
from tritonsmith.evaluator.oracle.timing.paired import Sample

LARGE_MS = 4.1
"""8.6 GB are placed in that time on an H200: two slices."""
MIDDLE_MS = 1.2
"""More than half a slice, and less than one with all of the hold."""


def kernel_of(timer: CallTimer) -> Any:
    return timer._hold._kernel


def time_both(timer: CallTimer, candidate: Any, calls: int) -> list[Sample]:
    """Calls of the candidate and of a baseline in turn."""
    draw = draw_large(timer)
    return [one for _ in range(calls) for one in (timer.time_call(candidate, draw, 10.0), timer.time_baseline("eager", draw, 10.0))]


def test_large_inputs_make_no_call_void(monkeypatch: pytest.MonkeyPatch) -> None:
    timer, candidate, _ = share_card(monkeypatch, LARGE_MS, 1.0)
    samples = time_both(timer, candidate, 5)
    assert timer.void_calls == {} and kernel_of(timer).launched_again == 10
    assert all(abs(sample.card - 1.0) < 0.02 for sample in samples) and all(sample.early for sample in samples[2:])


@pytest.mark.parametrize("placing_ms", [0.01, 0.9])
def test_small_inputs_are_placed_in_one_hold(monkeypatch: pytest.MonkeyPatch, placing_ms: float) -> None:
    timer, candidate, _ = share_card(monkeypatch, placing_ms, 0.1)
    time_both(timer, candidate, 3)
    assert timer.void_calls == {} and kernel_of(timer).launched_again == 0


@pytest.mark.parametrize("forward_ms", [2.05, 50.0])
def test_forwards_longer_than_a_slice_are_measured(monkeypatch: pytest.MonkeyPatch, forward_ms: float) -> None:
    """Forwards that lose the card when it is asked for early are measured after six void calls of each side, and agree with the card."""
    timer, candidate, _ = share_card(monkeypatch, LARGE_MS, forward_ms)
    samples = time_both(timer, candidate, 4)
    assert timer.void_calls == {"candidate's let go": 6, "baseline's let go": 6}
    empty = timer._exchange.empty
    assert empty is not None and all(abs(sample.card - forward_ms) < 0.02 for sample in samples)
    assert all(abs(sample.wall - empty.late - sample.card) < 0.02 for sample in samples)


def test_large_outputs_are_delivered_and_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Outputs that take longer than a slice to deliver, and again to copy while the card is held."""
    timer, candidate, _ = share_card(monkeypatch, LARGE_MS, 1.0, deliver_ms=3.0)
    draw, card = draw_large(timer), candidate.card

    def copy() -> None:
        card.oracle.beside_us += 3000.0

    for _ in range(4):
        timer.time_call(candidate, draw, 10.0, delivered=copy)
        timer.time_baseline("eager", draw, 10.0)
    assert timer.void_calls == {"candidate's let go": 6, "baseline's let go": 6}


@pytest.mark.parametrize("of_baseline", [True, False], ids=["baseline's", "candidate's"])
def test_inputs_too_large_for_the_card_are_nobodys_fault(monkeypatch: pytest.MonkeyPatch, of_baseline: bool) -> None:
    """Where the card cannot be taken a second time, the same call is void without the candidate as well."""
    monkeypatch.setattr(hold, "LONG_MS", math.inf)
    timer, candidate, baselines = share_card(monkeypatch, LARGE_MS, 1.0)
    with pytest.raises(InfrastructureError) as caught:
        timer.time_call(baselines if of_baseline else candidate, draw_large(timer), 10.0)
    assert candidate.killed
    said = str(caught.value)
    assert all(words in said for words in ("not even without a candidate", "8.6 GB", "4.1 ms", "20 interrupted", "smaller inputs"))


def test_without_a_candidate_large_inputs_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hold, "LONG_MS", math.inf)
    timer, _, _ = share_card(monkeypatch, LARGE_MS, 1.0)
    timer.set_candidate(None)
    with pytest.raises(InfrastructureError, match=r"baseline's call void 20 times \(20 interrupted, .*8\.6 GB"):
        timer.time_baseline("eager", draw_large(timer), 10.0)


# ---- others who use the card


@pytest.mark.parametrize("of_baseline", [True, False], ids=["baseline's", "candidate's"])
def test_somebody_who_always_works_is_not_the_candidate(monkeypatch: pytest.MonkeyPatch, of_baseline: bool) -> None:
    timer, candidate, baselines = share_card(monkeypatch, LARGE_MS, 1.0)
    share_with_other(candidate.card, 300.0, lambda: True)
    with pytest.raises(InfrastructureError, match="something else uses this card"):
        timer.time_call(baselines if of_baseline else candidate, draw_large(timer), 10.0)


@pytest.mark.parametrize("seed", range(4))
def test_a_busy_neighbour_never_makes_a_candidate_guilty(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Whatever somebody else's bursts of work are like, calls are measured or nobody is blamed."""
    rng = random.Random(seed)
    timer, candidate, _ = share_card(monkeypatch, LARGE_MS, rng.choice([1.0, 8.0]))
    monkeypatch.setattr("random.random", rng.random)
    share, works = rng.choice([0.02, 0.1, 0.4]), [False]

    def toggle() -> None:  # bursts of some milliseconds
        works[0] = not works[0]
        candidate.card.after(rng.expovariate(1 / (12_000.0 * (share if works[0] else 1.0 - share))), toggle)

    toggle()
    share_with_other(candidate.card, 200.0, lambda: works[0])
    try:
        assert len(time_both(timer, candidate, 3)) == 6
    except InfrastructureError:
        assert timer.void_calls or candidate.killed


# ---- candidates that read early


def test_an_interruption_of_the_first_hold_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody who had the card while inputs were placed makes the call void, though the second hold is undisturbed."""
    timer, candidate, _ = share_card(monkeypatch, LARGE_MS, 1.0)
    start, ran = candidate.card.now, [False]

    def once() -> bool:
        due = not ran[0] and candidate.card.now > start + 1.2 * SLICE_US
        ran[0] |= due
        return due

    candidate.leave_work(30.0, once)
    timer.time_call(candidate, draw_large(timer), 10.0)
    assert ran[0] and timer.void_calls == {"candidate's interrupted": 1}


def test_whoever_reads_inputs_early_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that waits for the inputs to lie ready runs between the holds at the latest, and is noticed each time."""
    timer, candidate, _ = share_card(monkeypatch, LARGE_MS, 1.0)
    candidate.leave_work(30.0, lambda: not candidate.card.rung)
    with pytest.raises(Blamed, match="20 candidate's interrupted"):
        timer.time_call(candidate, draw_large(timer), 10.0)
    assert candidate.seen_early > 0


@pytest.mark.parametrize("placing_ms", [MIDDLE_MS, LARGE_MS])
def test_no_call_counts_in_which_inputs_were_read_early(monkeypatch: pytest.MonkeyPatch, placing_ms: float) -> None:
    """Kernels at random moments, in half of the calls."""
    rng = random.Random(7)
    timer, candidate, _ = share_card(monkeypatch, placing_ms, 0.3)
    moment = [0.0]
    seen: list[int] = []

    def due() -> bool:
        return not candidate.card.rung and candidate.card.now > moment[0]

    def draw() -> list[Any]:
        moment[0] = candidate.card.now + rng.uniform(0.0, 2.0) * (SLICE_US + placing_ms * 1e3)
        seen.append(candidate.seen_early)
        return list(timer.session.slots)

    candidate.leave_work(30.0, due)
    for _ in range(12):
        timer.time_call(candidate, draw, 10.0)
        assert candidate.seen_early == seen[-1]  # not in the try that counts
    assert candidate.seen_early > 0 and timer.void_calls["candidate's interrupted"] > 0


def test_work_left_on_the_card_during_large_calls_is_the_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Next to it no baseline can be timed, and without it the same call is good."""
    timer, candidate, _ = share_card(monkeypatch, LARGE_MS, 5.0)
    candidate.leave_work(100.0, lambda: candidate.stopped)
    with pytest.raises(Blamed, match="baseline's interrupted"):
        timer.time_baseline("eager", draw_large(timer), 10.0)


# ---- a process that is too slow between two holds


def test_a_hold_that_comes_too_late_is_void_but_no_interruption(monkeypatch: pytest.MonkeyPatch) -> None:
    timer, candidate, _ = share_card(monkeypatch, MIDDLE_MS, 0.3)
    kernel_of(timer).slow_us = 150.0
    timer.time_call(candidate, draw_large(timer), 10.0)
    assert timer.void_calls == {"candidate's retaken late": 2}  # the third try was made with one hold


@pytest.mark.parametrize(("still", "expected"), [(True, InfrastructureError), (False, Blamed)])
def test_a_slow_oracle_is_blamed_only_if_it_is_quick_alone(
    monkeypatch: pytest.MonkeyPatch, still: bool, expected: type[Exception]
) -> None:
    timer, candidate, _ = share_card(monkeypatch, MIDDLE_MS, 0.3)
    kernel = kernel_of(timer)
    monkeypatch.setattr("tritonsmith.evaluator.oracle.timing.calls._ONCE_IN", 1000)  # no try with one hold
    kernel.slow_us = 150.0
    candidate.kill = lambda: setattr(kernel, "slow_us", 150.0 if still else 0.0)
    with pytest.raises(expected, match="processor.*100 .*retaken late"):
        timer.time_call(candidate, draw_large(timer), 10.0)
