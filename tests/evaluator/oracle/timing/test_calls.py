"""Timed calls: what they take, what is void and taken again, when the card is asked for. The card and the runners are stand-ins."""

import math
from types import SimpleNamespace
from typing import Any, cast

import pytest

import card_stand_ins as stands
from tritonsmith.evaluator.channel.doorbell import Command
from tritonsmith.evaluator.oracle.handles import runner as handle
from tritonsmith.evaluator.oracle.handles.runner import RunnerFault, RunnerHandle
from tritonsmith.evaluator.oracle.timing import calls
from tritonsmith.evaluator.oracle.timing.paired import Empty, excess
from tritonsmith.evaluator.oracle.timing.turns import Pace
from tritonsmith.evaluator.schema import Status

make_timer, LATER = stands.make_timer, stands.LATER


def test_work_put_off_until_delivery_is_seen() -> None:
    made, runner, _ = make_timer(clocked=1.5, card=1.0, deliver=0.7)
    made.time_call(runner, list, 1.0)
    assert made.time_call(runner, list, 1.0)[:3] == (1.5, 1.0, 0.0)
    made, runner, _ = make_timer(clocked=1.5, card=1.0, deliver=3.7)
    late, early = (made.time_call(runner, list, 1.0) for _ in range(2))
    assert abs(early.late - 3.0) < 1e-9 and abs(excess(early, Empty(0.5, 0.52)) - 3.0) < 1e-9
    assert abs(late.late - 3.0 - LATER) < 1e-9 and abs(excess(late, Empty(0.5, 0.52)) - 3.0 - LATER) < 1e-9  # its answer may hide that


def test_deliveries_are_compared_with_answers_hiding_nothing() -> None:
    """Deliveries are compared with those whose answer hides nothing."""
    made, runner, baselines = make_timer(clocked=1.5, card=1.0, deliver=0.9)
    baselines.milliseconds["deliver"] = 0.9 - LATER
    for _ in range(9):
        made.set_candidate(runner)
        made.time_call(baselines, list, 1.0)  # the first of its pace: the answer is waited for
    made.time_call(runner, list, 1.0)
    assert abs(made.time_call(runner, list, 1.0).late - 0.2) < 1e-9


def test_empty_calls_cannot_be_made_longer() -> None:
    made, _, baselines = make_timer()
    baselines.milliseconds["empty"] = 0.502
    assert made.measure_empty(1.0) == pytest.approx((0.502, 0.522))
    baselines.milliseconds["empty"] = 0.6
    assert made.measure_empty(1.0) == pytest.approx((0.503, 0.523))
    baselines.milliseconds["empty"] = 0.4
    assert made.measure_empty(1.0) == pytest.approx((0.4, 0.42))


def test_when_the_card_is_asked_for() -> None:
    pace = Pace()
    assert pace.wait_seconds(0.15) == math.inf  # nothing is known yet
    pace.note(1.0, answered=True)
    assert pace.wait_seconds(0.15) == pytest.approx((0.15 + 1.0 - 0.09) * 1e-3)
    pace.note(0.005, answered=True)
    assert pace.wait_seconds(0.05) == 40e-6  # the card is on its way, no sooner
    for number in range(5):
        pace.note(9.0, answered=number % 2 == 0)
    assert pace.wait_seconds(0.15) < 1e-3
    for _ in range(6):
        pace.note(9.0, answered=False)
    assert pace.wait_seconds(0.15) == math.inf


def test_the_card_is_asked_for_before_a_known_answer() -> None:
    """The card is asked for before the answer, once it is known when that comes."""
    made, runner, _ = make_timer(clocked=1.5, card=1.0, deliver=0.7)
    samples = [made.time_call(runner, list, 1.0) for _ in range(4)]
    assert [one.early for one in samples] == [False, True, True, True]
    assert runner.waited == [Command.CLOCKED, Command.DELIVER]
    made.set_candidate(runner)  # the next candidate
    assert not made.time_call(runner, list, 1.0).early


def test_results_are_copied_while_the_card_is_held() -> None:
    made, runner, _ = make_timer(clocked=1.5, card=1.0, deliver=0.7)
    held: list[bool] = []
    made.time_call(runner, list, 1.0, delivered=lambda: held.append(runner.hold.held and runner.asked is Command.DELIVER))
    assert held == [True]


def test_slowly_queued_calls_are_taken_again_then_asked_later() -> None:
    """A call whose kernels are queued too slowly is taken again, and then asked for later."""
    made, runner, _ = make_timer(clocked=1.5, card=1.0, deliver=0.7)
    made.time_call(runner, list, 1.0)  # waits for the answer
    runner.lets_go = 3
    assert made.time_call(runner, list, 1.0).early and runner.poisoned == 5
    runner.lets_go = 10
    assert not made.time_call(runner, list, 1.0).early and runner.poisoned == 9  # three more that were lost, and from then on
    runner.waited.clear()
    made.time_call(runner, list, 1.0)
    assert runner.waited == [Command.CLOCKED] and runner.poisoned == 10


def test_a_call_without_the_others_takes_its_own_time() -> None:
    made, runner, _ = make_timer(clocked=1.8, card=1.0, deliver=0.7)
    made.set_candidate(runner)
    assert abs(made.time_call(runner, list, 1.0)[0] - 1.8 - LATER) < 1e-9


@pytest.mark.parametrize("candidate_waits", [True, False], ids=["the candidate", "the baselines"])
def test_who_is_not_timed_stands_still(candidate_waits: bool) -> None:
    made, runner, baselines = make_timer(clocked=1.8, card=1.0, deliver=0.7)
    made.set_candidate(runner)
    waits, timed = (runner, baselines) if candidate_waits else (baselines, runner)
    stops: list[bool] = []
    timed.echo = lambda start, timeout: stops.append(waits.stopped) or 0.0
    made.time_call(timed, list, 1.0)
    assert set(stops) == {True} and not waits.stopped
    timed.echo = lambda start, timeout: 1 / 0
    with pytest.raises(ZeroDivisionError):
        made.time_call(timed, list, 1.0)
    assert not waits.stopped


def test_a_clock_that_started_late_counts_for_nothing() -> None:
    made, runner, _ = make_timer(clocked=1.5, card=1.0, deliver=0.7)
    made.set_candidate(runner)
    runner.hold.sleeps = iter([True, False, False, True])  # when forward began; when the delivery of the second try began
    assert made.time_call(runner, list, 1.0).card == 1.0
    assert made.void_calls == {"candidate's overslept": 2} and runner.poisoned == 3


def test_calls_without_the_oracle_are_taken_again_often() -> None:
    """Calls in which the oracle did not run are taken again far more often."""
    made, runner, _ = make_timer(clocked=1.5, card=1.0, deliver=0.7)
    made.set_candidate(runner)
    runner.hold.sleeps = iter([True] * 2 * 90)  # forward and delivery
    assert made.time_call(runner, list, 1.0).card == 1.0 and made.void_calls == {"candidate's overslept": 90}


def test_somebody_elses_burst_of_work_is_waited_out(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(calls.time, "sleep", slept.append)
    made, runner, _ = make_timer(lost=[True] * 36, clocked=1.5, card=1.0, deliver=0.7)
    assert made.time_call(runner, list, 1.0).card == 1.0
    assert sum(seconds >= 0.02 for seconds in slept) == 3  # before the eleventh try, the twelfth, and the one that is good


def test_a_call_on_a_shared_card_is_taken_again() -> None:
    """A call in which somebody else had the card is taken again."""
    made, runner, _ = make_timer(lost=[True, False, False, False, True, False, False, False, True], clocked=1.5, card=1.0, deliver=0.7)
    assert made.time_call(runner, list, 1.0).card == 1.0 and runner.poisoned == 4


@pytest.mark.parametrize("card", [float("nan"), float("inf"), float("-inf"), -1e-6])
def test_a_clock_that_reads_no_time_is_cheating(card: float) -> None:
    made, runner, _ = make_timer(clocked=1.5, card=card, deliver=0.7)
    with pytest.raises(RunnerFault, match="is no time") as caught:
        made.time_call(runner, list, 1.0)
    assert caught.value.status is Status.CHEATING


@pytest.mark.parametrize(
    ("role", "device", "refused"), [("candidate", "cuda", True), ("reference", "cuda", False), ("candidate", "cpu", False)]
)
def test_calls_of_a_candidate_have_a_limit_in_all(role: str, device: str, refused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = object.__new__(RunnerHandle)
    runner._role, runner._nonce, runner._spent, runner._counted = role, 1, 0.0, 0
    runner.setup = cast(Any, SimpleNamespace(device=device))
    runner._doorbell = cast(Any, SimpleNamespace(answered=lambda nonce: True, failed=False))
    runner._sandbox = cast(Any, None)
    clock = iter(range(0, 10_000, 120))
    monkeypatch.setattr(handle, "time", SimpleNamespace(perf_counter=lambda: float(next(clock))))

    def call() -> None:
        runner._nonce += 1
        start = handle.time.perf_counter()
        for _ in range(2):  # a timed call's answer is waited for twice, and its time counts once
            runner.echo(start, 150.0)

    for _ in range(4):
        call()
    if refused:
        with pytest.raises(RunnerFault, match="500 s in all") as caught:
            call()
        assert caught.value.status is Status.TIMEOUT
    else:
        call()
