"""Timed calls: what is void and taken again, who is blamed, when the card is asked for. The card and the runners are stand-ins."""

import math
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, repeat
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tritonsmith.evaluator import card_hold, card_timing, runner_client
from tritonsmith.evaluator.card_timing import Bench, Blamed
from tritonsmith.evaluator.card_turns import Pace
from tritonsmith.evaluator.doorbell import Command
from tritonsmith.evaluator.errors import InfrastructureError
from tritonsmith.evaluator.runner_client import Runner, RunnerFault
from tritonsmith.evaluator.schema import PrecisionClass, Status
from tritonsmith.evaluator.timing import Empty, excess

LATER = 0.02
"""Milliseconds by which the card is had later where it is asked for after the answer."""


class Hold:
    """Stands for the card being held; `lost` says whether somebody else had it meanwhile, time by time; `sleeps` whether this process slept
    when it was given away, turn by turn."""

    def __init__(self, lost: Iterable[bool] = ()) -> None:
        self.lost = iter(lost)
        self.sleeps: Iterator[bool] = iter(())
        self.interrupted = self.held = False
        self.given: TimedRunner | None = None

    @property
    def slept(self) -> bool:
        return next(self.sleeps, False)

    def begin(self, prepare: Callable[[], object] = lambda: None, milliseconds: float = 0.5, *, at_once: bool = False) -> float:
        self.interrupted, self.held = next(self.lost, False), True
        took = 0.0
        if at_once:
            assert self.given is not None
            took = self.given.milliseconds[self.given.asked.name.lower()] + (LATER if self.given.answered else 0.0)
            self.given.had()
        prepare()
        return took * 1e-3

    def ended(self) -> float:
        assert self.held
        self.held = False
        return 0.0


class TimedRunner:
    """Has the card for a fixed number of milliseconds. It is rung, and its slots are filled and read, while the card is held only."""

    def __init__(self, hold: Hold, *, early: int = 0, **milliseconds: float) -> None:
        self.hold, self.milliseconds = hold, milliseconds
        self.early, self.answered, self.lets_go = early, False, 0
        self.stopped = self.killed = False
        self.poisoned = 0
        self.asked = Command.EMPTY
        self.waited: list[Command] = []
        """Commands whose answer was waited for before the card was asked for."""

    def post(self, command: Command, argument: int = 0) -> None:
        assert self.hold.held
        self.asked, self.hold.given, self.answered = command, self, self.early > 0
        self.early -= self.answered

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
    assert made.empty(1.0) == (0.5, 0.5 + LATER)
    first, *others = [made.timed(cast(Any, baselines), list, 1.0) for _ in range(5)]
    assert first == (5.5 + LATER, 5.0, 0.0, False) and set(others) == {(5.5, 5.0, 0.0, True)}
    hold.lost = iter(lost)
    return made, TimedRunner(hold, empty=0.5, **about), baselines


def test_work_put_off_until_delivery_is_seen() -> None:
    made, runner, _ = bench(clocked=1.5, card=1.0, deliver=0.7)
    made.timed(runner, list, 1.0)
    assert made.timed(runner, list, 1.0)[:3] == (1.5, 1.0, 0.0)
    made, runner, _ = bench(clocked=1.5, card=1.0, deliver=3.7)
    late, early = (made.timed(runner, list, 1.0) for _ in range(2))
    assert abs(early.late - 3.0) < 1e-9 and abs(excess(early, Empty(0.5, 0.52)) - 3.0) < 1e-9
    assert abs(late.late - 3.0 - LATER) < 1e-9 and abs(excess(late, Empty(0.5, 0.52)) - 3.0 - LATER) < 1e-9  # its answer may hide that


def test_deliveries_are_compared_with_those_whose_answer_hides_nothing() -> None:
    made, runner, baselines = bench(clocked=1.5, card=1.0, deliver=0.9)
    baselines.milliseconds["deliver"] = 0.9 - LATER
    for _ in range(9):
        made.accompany(runner)
        made.timed(baselines, list, 1.0)  # the first of its pace: the answer is waited for
    made.timed(runner, list, 1.0)
    assert abs(made.timed(runner, list, 1.0).late - 0.2) < 1e-9


def test_empty_calls_cannot_be_made_longer() -> None:
    made, _, baselines = bench()
    baselines.milliseconds["empty"] = 0.502
    assert made.empty(1.0) == pytest.approx((0.502, 0.522))
    baselines.milliseconds["empty"] = 0.6
    assert made.empty(1.0) == pytest.approx((0.503, 0.523))
    baselines.milliseconds["empty"] = 0.4
    assert made.empty(1.0) == pytest.approx((0.4, 0.42))


def test_when_the_card_is_asked_for() -> None:
    pace = Pace()
    assert pace.wait_seconds(0.15) == math.inf  # nothing is known yet
    pace.note(1.0, kept=True)
    assert pace.wait_seconds(0.15) == pytest.approx((0.15 + 1.0 - 0.09) * 1e-3)
    pace.note(0.005, kept=True)
    assert pace.wait_seconds(0.05) == 40e-6  # the card is on its way, no sooner
    for number in range(5):
        pace.note(9.0, kept=number % 2 == 0)
    assert pace.wait_seconds(0.15) < 1e-3
    for _ in range(6):
        pace.note(9.0, kept=False)
    assert pace.wait_seconds(0.15) == math.inf


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
    assert abs(made.timed(runner, list, 1.0)[0] - 1.8 - LATER) < 1e-9
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
    made, runner, baselines = bench(early=1000, clocked=0.1, card=0.05, deliver=0.7)
    baselines.early = 1000
    with pytest.raises(InfrastructureError, match="do not take turns"):
        made.timed(runner, list, 1.0)


def test_baselines_that_die_while_somebody_is_to_be_blamed_are_nobodys_fault() -> None:
    made, runner, baselines = bench(early=1000, clocked=0.1, card=0.05, deliver=0.7)

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


@pytest.mark.parametrize("slept", [False, True])
def test_answers_that_come_too_soon_are_counted_unless_the_oracle_slept(slept: bool) -> None:
    made, runner, _ = bench(clocked=1.5, card=1.0, deliver=0.7)
    for _ in range(5):
        runner.early, runner.hold.sleeps = 1, iter([slept])
        assert made.timed(runner, list, 1.0).card == 1.0  # taken again
    runner.early, runner.hold.sleeps = 1, iter([slept])
    if slept:
        made.timed(runner, list, 1.0)
    else:
        with pytest.raises(Blamed):
            made.timed(runner, list, 1.0)
    assert runner.killed is not slept


def test_as_many_answers_may_come_too_soon_as_from_the_baselines_besides() -> None:
    made, runner, baselines = bench(clocked=1.5, card=1.0, deliver=0.7)
    made.accompany(runner)
    for _ in range(3):
        baselines.early = 1
        made.timed(baselines, list, 1.0)
    for number in range(9):
        runner.early = 1
        if number < 8:
            made.timed(runner, list, 1.0)
    with pytest.raises(Blamed):
        made.timed(runner, list, 1.0)


def test_a_clock_that_started_late_counts_for_nothing() -> None:
    made, runner, _ = bench(clocked=1.5, card=1.0, deliver=0.7)
    made.accompany(runner)
    runner.hold.sleeps = iter([True, False, False, True])  # when forward began; when the delivery of the second try began
    assert made.timed(runner, list, 1.0).card == 1.0
    assert made.lost == {"candidate's overslept": 2} and runner.poisoned == 3


def test_answers_in_a_time_slice_that_came_before_the_card_was_given_away_are_not_too_soon() -> None:
    made, runner, _ = bench(clocked=1.5, card=1.0, deliver=0.7)
    made.accompany(runner)
    for _ in range(9):
        runner.early, runner.hold.lost = 1, iter([True])  # forward was queued, and its turn came while the oracle's kernel still ran
        assert made.timed(runner, list, 1.0).card == 1.0
    assert not runner.killed and made.lost == {"candidate's interrupted": 9}


def test_calls_in_which_the_oracle_did_not_run_are_taken_again_far_more_often() -> None:
    made, runner, _ = bench(clocked=1.5, card=1.0, deliver=0.7)
    made.accompany(runner)
    runner.hold.sleeps = iter([True] * 2 * 90)  # forward and delivery
    assert made.timed(runner, list, 1.0).card == 1.0 and made.lost == {"candidate's overslept": 90}


@pytest.mark.parametrize(("still", "expected"), [(True, InfrastructureError), (False, Blamed)])
def test_an_oracle_that_never_runs_is_the_candidates_fault_only_if_it_runs_without_it(
    still: bool, expected: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(card_timing.time, "sleep", lambda seconds: None)
    made, runner, _ = bench(clocked=1.5, card=1.0, deliver=0.7)
    made.accompany(runner)
    runner.hold.sleeps = repeat(True)
    runner.kill = lambda: setattr(runner.hold, "sleeps", repeat(still))
    with pytest.raises(expected, match="processors" if still else "processor .*void calls: 100 candidate's overslept"):
        made.timed(runner, list, 1.0)


@pytest.mark.parametrize(("asleep", "expected"), [(9, Blamed), (10, InfrastructureError)])
def test_nobody_is_blamed_where_nothing_could_be_timed_without_it(
    asleep: int, expected: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(card_timing.time, "sleep", lambda seconds: None)
    made, runner, _ = bench(lost=[True] * 60, clocked=1.5, card=1.0, deliver=0.7)
    made.accompany(runner)

    def kill() -> None:
        runner.hold.lost, runner.hold.sleeps = iter(()), iter([True] * asleep)

    runner.kill = kill
    with pytest.raises(expected):
        made.timed(runner, list, 1.0)


def test_an_oracle_that_never_runs_beside_a_stopped_candidate_is_nobodys_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at(monkeypatch, always=False)
    made, runner, baselines = bench(clocked=1.5, card=1.0, deliver=0.7)
    made.accompany(runner)
    runner.hold.sleeps = chain([True] * 2 * 100)
    with pytest.raises(InfrastructureError, match="processors"):
        made.timed(baselines, list, 1.0)
    assert not runner.killed


class Clock:
    """Reads a microsecond more each time; `busy`: after which readings (below zero: looks) others have the processor for a millisecond."""

    def __init__(self, *busy: int) -> None:
        self.busy, self.readings, self.now = busy, 0, 5.0

    def __call__(self) -> float:
        self.now += 1e-6
        read = self.now
        self.readings += 1
        self.pause(self.readings)
        return read

    def pause(self, place: int) -> None:
        """Somebody else has the processor here."""
        self.now += 1e-3 if place in self.busy else 0.0


@pytest.mark.parametrize(
    ("busy", "slept"), [((), False), ((4,), False), ((-4,), False), ((5,), True), ((-5,), True), ((6,), True), ((-6,), True)]
)
def test_a_process_that_did_not_run_before_it_saw_something_knows_it(
    busy: tuple[int, ...], slept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, looks = Clock(*busy), 0
    monkeypatch.setattr(card_hold.time, "perf_counter", clock)

    def come() -> bool:  # what is looked for comes after five looks
        nonlocal looks
        looks += 1
        seen = looks > 5
        clock.pause(-looks)  # after the look, before the clock is read
        return seen

    seen, before = card_hold.awaited(come)
    assert (seen - before > 50e-6) is slept and seen == clock.now


def test_what_has_come_before_the_first_look_may_have_come_long_ago() -> None:
    assert card_hold.awaited(lambda: True)[1] == -math.inf


def test_void_calls_are_told_by_whose_they_are_and_why(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at(monkeypatch, always=False)
    made, runner, _ = bench(clocked=1.5, card=1.0, deliver=0.7)
    made.accompany(runner)
    once = made.baseline("eager", list, 1.0)
    made.timed(runner, list, 1.0)
    once()
    runner.lets_go, runner.hold.lost = 3, iter(())
    made.timed(runner, list, 1.0)
    runner.hold.lost = iter([True])
    once()
    assert made.lost == {"candidate's let go": 3, "baseline's interrupted": 1}
    runner.early = 1000
    with pytest.raises(Blamed, match=r"void calls: .*6 candidate's answered too soon, 3 candidate's let go"):
        made.timed(runner, list, 1.0)
    assert not made.lost  # the next candidate's


def test_somebody_elses_burst_of_work_is_waited_out(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(card_timing.time, "sleep", slept.append)
    made, runner, _ = bench(lost=[True] * 36, clocked=1.5, card=1.0, deliver=0.7)
    assert made.timed(runner, list, 1.0).card == 1.0
    assert sum(seconds >= 0.02 for seconds in slept) == 3  # before the eleventh try, the twelfth, and the one that is good


def test_a_call_in_which_somebody_else_had_the_card_is_taken_again() -> None:
    made, runner, _ = bench(lost=[True, False, False, False, True, False, False, False, True], clocked=1.5, card=1.0, deliver=0.7)
    assert made.timed(runner, list, 1.0).card == 1.0 and runner.poisoned == 4


def test_answers_before_the_card_was_given_back_are_cheating_and_a_shared_card_is_not() -> None:
    made, runner, _ = bench(early=1000, clocked=0.1, card=0.05, deliver=0.7)
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


@pytest.mark.parametrize(
    ("role", "device", "refused"), [("candidate", "cuda", True), ("reference", "cuda", False), ("candidate", "cpu", False)]
)
def test_calls_of_a_candidate_have_a_limit_in_all(role: str, device: str, refused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = object.__new__(Runner)
    runner._role, runner._nonce, runner._spent, runner._counted = role, 1, 0.0, 0
    runner.setup = cast(Any, SimpleNamespace(device=device))
    runner._doorbell = cast(Any, SimpleNamespace(answered=lambda nonce: True, failed=False))
    runner._sandbox = cast(Any, None)
    clock = iter(range(0, 10_000, 120))
    monkeypatch.setattr(runner_client, "time", SimpleNamespace(perf_counter=lambda: float(next(clock))))

    def call() -> None:
        runner._nonce += 1
        start = runner_client.time.perf_counter()
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
