"""Paired timing: drift cancels, equal kernels come out equal, and the count of pairs does not depend on the candidate."""

import random
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tritonsmith.evaluator import card_timing
from tritonsmith.evaluator.card_timing import Bench, Blamed
from tritonsmith.evaluator.errors import InfrastructureError
from tritonsmith.evaluator.runner_client import RunnerFault
from tritonsmith.evaluator.schema import Comparison, PrecisionClass, Status
from tritonsmith.evaluator.timing import (
    ENOUGH,
    UNSEEN_MS,
    Empty,
    Sample,
    Weighed,
    abba,
    alone_factor,
    compare,
    excess,
    pair_count,
    rounds_of,
    strongest,
    suffices,
    weigh,
)
from tritonsmith.evaluator.wire import Command


def clock(base: float, state: dict[str, float], rng: random.Random):  # type: ignore[no-untyped-def]
    def once() -> float:
        state["drift"] *= 1.004  # the card warms up
        return base * state["drift"] * rng.uniform(0.995, 1.005)

    return once


def test_drift_does_not_make_equal_kernels_differ() -> None:
    state, rng = {"drift": 1.0}, random.Random(1)
    paired = abba(clock(1.0, state, rng), clock(1.0, state, rng), 40)
    assert state["drift"] > 1.3  # it drifted by a third during the run
    assert abs(paired.ratio - 1) < 0.01
    low, high = paired.interval()
    assert low <= paired.ratio <= high


def test_a_true_gain_is_seen_through_drift() -> None:
    state, rng = {"drift": 1.0}, random.Random(2)
    paired = abba(clock(1.0, state, rng), clock(1.1, state, rng), 40)
    assert paired.interval()[0] > 1.05


def test_samples_belong_to_the_side_that_made_them() -> None:
    paired = abba(lambda: 1.0, lambda: 3.0, 12)
    assert set(paired.candidate) == {1.0} and set(paired.baseline) == {3.0}
    assert strongest({"slow": paired, "fast": abba(lambda: 1.0, lambda: 2.0, 12)}) == "fast"


def test_pairs_are_even_and_bounded() -> None:
    counts = [pair_count(ms, 0.5) for ms in (0.001, 1.0, 25.0, 4000.0)]
    assert all(count % 2 == 0 and 12 <= count <= 60 for count in counts)
    assert counts == sorted(counts, reverse=True)


def test_rounds_share_the_pairs_out_evenly() -> None:
    assert rounds_of(40, 3) == [14, 14, 12]
    for pairs in (2, 12, 58, 200):
        parts = rounds_of(pairs, 5)
        assert sum(parts) == pairs and all(part % 2 == 0 for part in parts) and max(parts) - min(parts) <= 2


class Hold:
    """Stands for the card being held; `lost` says whether somebody else had it meanwhile, time by time."""

    def __init__(self, lost: Iterable[bool] = ()) -> None:
        self.lost = iter(lost)
        self.interrupted = self.held = False
        self.given: TimedRunner | None = None

    def begin(self, prepare: Callable[[], object] = lambda: None, milliseconds: float = 0.5, *, at_once: bool = False) -> float:
        self.interrupted, self.held = next(self.lost, False), True
        took = 0.0
        if at_once:
            assert self.given is not None
            self.given.had()
            took = self.given.milliseconds[self.given.asked.name.lower()]
        prepare()
        return took * 1e-3

    def ended(self) -> float:
        assert self.held
        self.held = False
        return 0.0


class TimedRunner:
    """Has the card for a fixed number of milliseconds. It is rung, and its slots are filled and read, while the card is held only."""

    def __init__(self, hold: Hold, *, early: bool = False, **milliseconds: float) -> None:
        self.hold, self.milliseconds = hold, milliseconds
        self.early, self.answered, self.lets_go = early, False, 0
        self.stopped = self.killed = False
        self.poisoned = 0
        self.asked = Command.EMPTY
        self.waited: list[Command] = []
        """Commands whose answer was waited for before the card was asked for."""

    def post(self, command: Command, argument: int = 0) -> None:
        assert self.hold.held
        self.asked, self.hold.given, self.answered = command, self, self.early

    def had(self) -> None:
        """The oracle has the card again."""
        if not self.answered and self.asked is Command.CLOCKED and self.lets_go:
            self.lets_go -= 1
        else:
            self.answered = True

    def poison(self) -> None:
        assert self.hold.held
        self.poisoned += 1

    def command(self, command: Command, argument: int = 0, *, timeout: float) -> float:
        return 0.1

    def echo(self, start: float, timeout: float) -> float:
        assert not self.stopped
        if not self.answered:
            self.waited.append(self.asked)
        self.answered = True
        return 0.0

    @property
    def device_ms(self) -> float:
        return self.milliseconds["card"]

    def pause(self) -> None:
        self.stopped = True

    def resume(self) -> None:
        self.stopped = False

    def kill(self) -> None:
        self.killed = True


def bench(lost: Iterable[bool] = (), **about: Any) -> tuple[Bench, Any, Any]:
    """A bench, a candidate's runner and the baselines'."""
    hold = Hold()
    session = SimpleNamespace(slots=[], task=SimpleNamespace(precision=PrecisionClass.IEEE))
    made, baselines = Bench(cast(Any, session), hold=cast(Any, hold)), TimedRunner(hold, clocked=5.5, card=5.0, deliver=0.7, empty=0.5)
    made._baselines, made.modes["eager"] = cast(Any, baselines), 0
    assert made.empty(1.0) == (0.5, 0.5)
    for _ in range(5):
        assert made.timed(cast(Any, baselines), list, 1.0)[:3] == (5.5, 5.0, 0.0)
    hold.lost = iter(lost)
    return made, TimedRunner(hold, empty=0.5, **about), baselines


def test_work_put_off_until_delivery_is_seen() -> None:
    made, runner, _ = bench(clocked=1.5, card=1.0, deliver=0.7)
    assert made.timed(runner, list, 1.0)[:3] == (1.5, 1.0, 0.0)
    made, runner, _ = bench(clocked=1.5, card=1.0, deliver=3.7)
    sample = made.timed(runner, list, 1.0)
    assert abs(sample.late - 3.0) < 1e-9 and abs(excess(sample, Empty(0.4, 0.5)) - 3.0) < 1e-9


def test_the_card_is_asked_for_before_the_answer_once_it_is_known_when_that_comes() -> None:
    made, runner, _ = bench(clocked=1.5, card=1.0, deliver=0.7)
    samples = [made.timed(runner, list, 1.0) for _ in range(4)]
    assert [one.early for one in samples] == [False, True, True, True]
    assert runner.waited == [Command.CLOCKED, Command.DELIVER]
    made.accompany(runner)  # the next candidate
    assert not made.timed(runner, list, 1.0).early


def test_results_are_copied_while_the_card_is_held() -> None:
    made, runner, _ = bench(clocked=1.5, card=1.0, deliver=0.7)
    held: list[bool] = []
    made.timed(runner, list, 1.0, delivered=lambda: held.append(runner.hold.held and runner.asked is Command.DELIVER))
    assert held == [True]


def test_a_call_whose_kernels_are_queued_too_slowly_is_taken_again_and_then_asked_for_later() -> None:
    made, runner, _ = bench(clocked=1.5, card=1.0, deliver=0.7)
    made.timed(runner, list, 1.0)  # waits for the answer
    runner.lets_go = 3
    assert made.timed(runner, list, 1.0).early and runner.poisoned == 5
    runner.lets_go = 10
    assert not made.timed(runner, list, 1.0).early and runner.poisoned == 9  # three more that were lost, and from then on
    runner.waited.clear()
    made.timed(runner, list, 1.0)
    assert runner.waited == [Command.CLOCKED] and runner.poisoned == 10


def test_a_candidate_stands_still_while_the_baselines_are_timed() -> None:
    made, runner, baselines = bench(clocked=1.8, card=1.0, deliver=0.7)
    made.accompany(runner)
    assert abs(made.timed(runner, list, 1.0)[0] - 1.8) < 1e-9
    stops: list[bool] = []
    baselines.echo = lambda start, timeout: stops.append(runner.stopped) or 0.0
    made.timed(baselines, list, 1.0)
    assert set(stops) == {True} and not runner.stopped
    baselines.echo = lambda start, timeout: 1 / 0
    with pytest.raises(ZeroDivisionError):
        made.timed(baselines, list, 1.0)
    assert not runner.stopped


def looked_at(monkeypatch: pytest.MonkeyPatch, always: bool = True) -> None:
    """Let the card be looked at in every call of the baselines, or in none, with no time spent on it."""
    monkeypatch.setattr(card_timing.secrets, "randbelow", lambda part: 0 if always else 1)
    monkeypatch.setattr(card_timing.time, "sleep", lambda seconds: None)


def calls_beside(lost: list[bool], calls: int) -> tuple[Bench, Any]:
    made, runner, _ = bench(clocked=1.5, card=1.0, deliver=0.7, lost=lost)
    made.accompany(runner)
    once = made.baseline("eager", list, 1.0)
    for _ in range(calls):
        assert once().card == 5.0
    return made, runner


LEFT = [True, False, False, False] * 4  # a look before each call, and every one met something
QUIET = [False] * 8  # looks in a row


@pytest.mark.parametrize(
    ("then", "expected", "killed"),
    [
        ([True] * 8 + QUIET, Blamed, True),
        ([True] * 8 + [True], InfrastructureError, True),  # it goes on without the candidate
        (QUIET, InfrastructureError, False),  # somebody who has stopped meanwhile
    ],
)
def test_work_that_a_candidate_leaves_on_the_card_is_cheating(
    then: list[bool], expected: type[Exception], killed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at(monkeypatch)
    made, runner = calls_beside(LEFT + then, 4)
    with pytest.raises(expected):
        made.require_idle(1.0)
    assert runner.killed is killed and not runner.stopped


@pytest.mark.parametrize(("without", "expected"), [(QUIET, Blamed), ([True], InfrastructureError)])
def test_a_candidate_beside_which_no_baseline_can_be_timed_is_cheating(
    without: list[bool], expected: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_at(monkeypatch, always=False)
    with pytest.raises(expected):
        calls_beside([True] * 60 + without, 1)


def test_a_card_that_somebody_else_uses_now_and_then_is_nobodys_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at(monkeypatch)
    made, runner = calls_beside(([True] + [False] * 15) * 4, 16)
    made.require_idle(1.0)
    assert not runner.killed
    made, runner = calls_beside(LEFT, 4)
    made.accompany(runner)  # the next candidate: what the one before did is forgotten
    made.require_idle(1.0)
    assert not runner.killed


def test_processes_that_do_not_take_turns_on_the_card_are_nobodys_fault() -> None:
    made, runner, baselines = bench(early=True, clocked=0.1, card=0.05, deliver=0.7)
    baselines.early = True
    with pytest.raises(InfrastructureError, match="do not take turns"):
        made.timed(runner, list, 1.0)


def test_baselines_that_die_while_somebody_is_to_be_blamed_are_nobodys_fault() -> None:
    made, runner, baselines = bench(early=True, clocked=0.1, card=0.05, deliver=0.7)

    def died(start: float, timeout: float) -> float:
        raise RunnerFault(Status.CRASHED, "the process ended")

    baselines.echo, baselines.close = died, lambda: None
    with pytest.raises(InfrastructureError, match="the baselines' process failed"):
        made.timed(runner, list, 1.0)


def test_a_candidate_that_is_blamed_while_baselines_are_chosen_leaves_them_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at(monkeypatch, always=False)
    made, runner, baselines = bench(clocked=1.5, card=1.0, deliver=0.7, lost=[True] * 60 + QUIET)
    made.accompany(runner)
    closed: list[bool] = []
    baselines.close = lambda: closed.append(True)
    baselines.command = lambda *given, **named: 0.1
    with pytest.raises(Blamed):
        made._choose_mode(baselines, "eager", cast(Any, SimpleNamespace(next=list)))
    assert closed and made.notes == []


def test_a_baseline_that_is_faster_once_the_candidate_is_gone_counts() -> None:
    assert alone_factor(10.0, 10.05) == 1.0 and alone_factor(10.0, 9.95) == 1.0
    assert alone_factor(10.0, 5.0) == 0.5 and abs(alone_factor(10.0, 9.8) - 0.98) < 1e-9
    assert alone_factor(0.006, 0.0059) == 1.0  # some ticks of the card's clock
    weighed = judged()
    low, high = weighed.measurement.interval
    halved = weighed.scaled(0.5)
    assert abs(halved.paired.ratio - 0.5 * weighed.paired.ratio) < 1e-9 and halved.paired.candidate == weighed.paired.candidate
    assert halved.measurement.interval == pytest.approx((0.5 * low, 0.5 * high))


def test_a_call_in_which_somebody_else_had_the_card_is_taken_again() -> None:
    made, runner, _ = bench(lost=[True, False, False, False, True, False, False, False, True], clocked=1.5, card=1.0, deliver=0.7)
    assert made.timed(runner, list, 1.0).card == 1.0 and runner.poisoned == 4


def test_answers_before_the_card_was_given_back_are_cheating_and_a_shared_card_is_not() -> None:
    made, runner, _ = bench(early=True, clocked=0.1, card=0.05, deliver=0.7)
    with pytest.raises(RunnerFault, match="belongs to another process") as caught:
        made.timed(runner, list, 1.0)
    assert caught.value.status is Status.CHEATING
    made, runner, _ = bench(lost=[True] * 300, clocked=1.5, card=1.0, deliver=0.7)
    with pytest.raises(InfrastructureError, match="something else uses this card"):
        made.timed(runner, list, 1.0)


@pytest.mark.parametrize("card", [float("nan"), float("inf"), float("-inf"), -1e-6])
def test_a_clock_that_reads_no_time_is_cheating(card: float) -> None:
    made, runner, _ = bench(clocked=1.5, card=card, deliver=0.7)
    with pytest.raises(RunnerFault, match="is no time") as caught:
        made.timed(runner, list, 1.0)
    assert caught.value.status is Status.CHEATING


EMPTY = Empty(0.287, 0.307)


def honest(rng: random.Random, card: float = 0.07) -> Sample:
    """A call as an H200 gave them, 2026-11-22."""
    wall = EMPTY.early + card + rng.gauss(0.0011, 0.0007) + (rng.expovariate(1 / 0.005) if rng.random() < 0.05 else 0.0)
    return Sample(wall, card * rng.gauss(1.0, 0.01), max(0.0, rng.gauss(0.0, 0.001)))


def judged(change: Callable[[Sample], Sample] = lambda one: one, card: float = 0.07, seed: int = 4, calls: int = 80) -> Weighed:
    rng = random.Random(seed)
    mine = [change(honest(rng, card)) for _ in range(calls)]
    return weigh(mine, [honest(rng, card) for _ in range(calls)], EMPTY)


def test_honest_calls_are_neither_faster_nor_slower() -> None:
    assert 0.99 < judged().paired.ratio < 1.01
    for seed in range(20):
        weighed = judged(seed=seed)
        low, high = weighed.measurement.interval
        assert 0.97 < weighed.paired.ratio < 1.01 and weighed.share > 0.7 and low <= weighed.paired.ratio <= high
        assert compare([(low, high)], 0.07) is Comparison.SAME


def test_a_take_on_whose_calls_the_clocks_disagree_stands_only_for_what_is_far_slower() -> None:
    agreed, disturbed = judged(), judged(lambda one: one._replace(wall=one.wall + 0.02))
    slow = judged(lambda one: one._replace(wall=one.wall + 0.2, card=one.card + 0.1))
    assert (agreed.share >= ENOUGH, disturbed.share >= ENOUGH, slow.share >= ENOUGH) == (True, False, False)
    assert (suffices(agreed, 1.0), suffices(disturbed, 1.0), suffices(slow, 1.0)) == (True, False, True)
    assert not suffices(agreed, 1.02) and not suffices(slow, 1.02)


@pytest.mark.parametrize("part", [0.2, 0.5, 0.85, 1.0])
@pytest.mark.parametrize("lie", [0.004, 0.035])
def test_a_clock_that_lies_in_part_of_the_calls_gains_nothing(part: float, lie: float) -> None:
    rng = random.Random(3)
    weighed = judged(lambda one: one._replace(card=one.card - lie) if rng.random() < part else one)
    assert weighed.paired.ratio < (1.025 if lie < 0.01 else 1.01)
    assert lie < 0.01 or (part < 0.7) is (weighed.share >= ENOUGH)


@pytest.mark.parametrize("lie", [0.002, 0.004, 0.006, 0.008, 0.02, 0.04])
def test_a_clock_that_always_lies_gains_no_more_than_two_microseconds(lie: float) -> None:
    weighed = judged(lambda one: one._replace(card=one.card - lie))
    assert weighed.paired.ratio < 0.07 / 0.068 and (lie <= UNSEEN_MS or weighed.paired.ratio < 1.01)
    oracle, card = weighed.clocks
    assert oracle - card > lie - 0.0035 and card < 0.071 - lie


def asked_late(ms: float = 0.0) -> Callable[[Sample], Sample]:
    """Asked for after an answer that comes while forward has so many milliseconds left; the card's clock lies by as much."""
    return lambda one: one._replace(wall=one.wall + max(0.0, EMPTY.hidden - ms), card=one.card - ms, early=False)


@pytest.mark.parametrize("part", [0.2, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("ms", [0.01, 0.02, 0.04])
def test_what_an_answer_hides_where_the_card_is_asked_for_after_it_is_counted(part: float, ms: float) -> None:
    rng = random.Random(5)
    change = asked_late(ms)
    weighed = judged(lambda one: change(one) if rng.random() < part else one, card=0.4)
    assert weighed.paired.ratio < 1.006
    assert part > 0.3 or ms > 0.01 or 0.99 < weighed.paired.ratio  # the other calls are enough


def test_an_honest_call_that_is_asked_for_late_counts_as_longer_by_what_it_may_hide() -> None:
    weighed = judged(asked_late(), card=0.4)
    assert abs(weighed.paired.candidate_ms - 0.42) < 0.003 and abs(weighed.bare.candidate_ms - 0.4) < 0.003
    low, high = weighed.measurement.interval
    assert low < 0.96 and high > 0.99 and weighed.share > 0.8


def test_a_noisy_host_does_not_move_the_score_of_the_calls_that_stand() -> None:
    rng = random.Random(6)
    weighed = judged(lambda one: one._replace(wall=one.wall + rng.choice([0.0, 0.0, 0.03, 0.1])), calls=120)
    assert 0.99 < weighed.paired.ratio < 1.01 and weighed.share < 0.6


def test_where_the_clocks_never_agree_the_oracles_counts_and_slower_is_not_said() -> None:
    weighed = judged(lambda one: one._replace(wall=one.wall + 0.02))
    low, high = weighed.measurement.interval
    assert weighed.share == 0.0 and weighed.paired.ratio < 0.8 and low < 0.8 and high > 0.99
    assert compare([(low, high)], 0.07) is Comparison.AMBIGUOUS  # a host that is slow for one side, or a lie


def test_what_is_usual_for_the_baselines_is_no_excess_but_not_without_limit() -> None:
    noisy = [Sample(EMPTY.early + 0.0715, 0.07)] * 40
    assert weigh(noisy, noisy, EMPTY).paired.ratio == 1.0
    very = [Sample(EMPTY.early + 0.09, 0.07)] * 40
    lying = [Sample(EMPTY.early + 0.07, 0.06)] * 40
    assert weigh(lying, very, EMPTY).paired.ratio < 1.05  # who slows the baselines' host down may not lie for it


def test_the_words_for_a_measurement() -> None:
    assert compare([(1.02, 1.05), (1.011, 1.03)], 1.0) is Comparison.FASTER
    assert compare([(1.02, 1.05), (1.005, 1.03)], 1.0) is Comparison.AMBIGUOUS  # one session does not see it
    assert compare([(0.995, 1.005)], 1.0) is Comparison.SAME
    assert compare([(0.90, 0.95)], 1.0) is Comparison.SLOWER
    assert compare([(0.9, 1.1)], 1.0) is Comparison.AMBIGUOUS
    assert compare([(1.02, 1.05)], 1.0, control=1.03) is Comparison.AMBIGUOUS  # a card on which equal is not equal says nothing
    assert compare([], 1.0) is Comparison.AMBIGUOUS


def test_two_microseconds_of_a_short_call_are_nothing() -> None:
    assert compare([(1.03, 1.05)], 0.05) is Comparison.SAME
    assert compare([(1.05, 1.08)], 0.05) is Comparison.FASTER
    assert compare([(0.94, 0.955)], 0.05) is Comparison.SLOWER
