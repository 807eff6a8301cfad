"""Timed calls that are lost: whose fault it is, and when nobody is to blame. The card and the runners are stand-ins."""

from itertools import chain, repeat
from typing import Any

import pytest

import card_stand_ins as stands
from tritonsmith.evaluator.errors import InfrastructureError
from tritonsmith.evaluator.oracle.handles.runner import RunnerFault
from tritonsmith.evaluator.oracle.timing import calls
from tritonsmith.evaluator.oracle.timing.baselines import Blamed
from tritonsmith.evaluator.oracle.timing.calls import CallTimer
from tritonsmith.evaluator.schema import Status

make_timer, looked_at = stands.make_timer, stands.looked_at


def calls_beside(lost: list[bool], calls: int) -> tuple[CallTimer, Any]:
    made, runner, _ = make_timer(clocked=1.5, card=1.0, deliver=0.7, lost=lost)
    made.set_candidate(runner)
    for _ in range(calls):
        assert made.time_baseline("eager", list, 1.0).card == 5.0
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
def test_a_candidate_that_stops_the_baselines_is_cheating(
    without: list[bool], expected: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A candidate next to which no baseline can be timed is cheating."""
    looked_at(monkeypatch, always=False)
    with pytest.raises(expected):
        calls_beside([True] * 60 + without, 1)


def test_a_card_that_others_use_is_nobodys_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """A card that somebody else uses now and then is nobody's fault."""
    looked_at(monkeypatch)
    made, runner = calls_beside(([True] + [False] * 15) * 4, 16)
    made.require_idle(1.0)
    assert not runner.killed
    made, runner = calls_beside(LEFT, 4)
    made.set_candidate(runner)  # the next candidate: what the one before did is forgotten
    made.require_idle(1.0)
    assert not runner.killed


def test_a_card_without_turns_is_nobodys_fault() -> None:
    """Processes that do not take turns on the card are nobody's fault."""
    made, runner, baselines = make_timer(early=1000, clocked=0.1, card=0.05, deliver=0.7)
    baselines.early = 1000
    with pytest.raises(InfrastructureError, match="do not take turns"):
        made.time_call(runner, list, 1.0)


def test_baselines_that_die_during_blame_are_nobodys_fault() -> None:
    """Baselines that die while somebody is to be blamed are nobody's fault."""
    made, runner, baselines = make_timer(early=1000, clocked=0.1, card=0.05, deliver=0.7)

    def died(start: float, timeout: float) -> float:
        raise RunnerFault(Status.CRASHED, "the process ended")

    baselines.echo, baselines.close = died, lambda: None
    with pytest.raises(InfrastructureError, match="the baselines' process failed"):
        made.time_call(runner, list, 1.0)


def test_a_blamed_candidate_leaves_the_baselines_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """A candidate that is blamed while baselines are chosen leaves them to the next one."""
    looked_at(monkeypatch, always=False)
    made, runner, baselines = make_timer(clocked=1.5, card=1.0, deliver=0.7, lost=[True] * 60 + QUIET)
    made.set_candidate(runner)
    closed: list[bool] = []
    baselines.close = lambda: closed.append(True)
    baselines.command = lambda *given, **named: 0.1
    with pytest.raises(Blamed):
        made.baselines._choose_mode("eager", lambda mode: made.time_call(baselines, list, 1.0, mode).card)
    assert closed and made.baselines.notes == []


@pytest.mark.parametrize("slept", [False, True])
def test_early_answers_count_unless_the_oracle_slept(slept: bool) -> None:
    """Answers that come too soon are counted, unless the oracle slept."""
    made, runner, _ = make_timer(clocked=1.5, card=1.0, deliver=0.7)
    for _ in range(5):
        runner.early, runner.hold.sleeps = 1, iter([slept])
        assert made.time_call(runner, list, 1.0).card == 1.0  # taken again
    runner.early, runner.hold.sleeps = 1, iter([slept])
    if slept:
        made.time_call(runner, list, 1.0)
    else:
        with pytest.raises(Blamed):
            made.time_call(runner, list, 1.0)
    assert runner.killed is not slept


def test_as_many_early_answers_as_the_baselines_have_are_fine() -> None:
    """As many answers may come too soon as come from the baselines."""
    made, runner, baselines = make_timer(clocked=1.5, card=1.0, deliver=0.7)
    made.set_candidate(runner)
    for _ in range(3):
        baselines.early = 1
        made.time_call(baselines, list, 1.0)
    for number in range(9):
        runner.early = 1
        if number < 8:
            made.time_call(runner, list, 1.0)
    with pytest.raises(Blamed):
        made.time_call(runner, list, 1.0)


def test_answers_in_the_same_time_slice_are_not_too_soon() -> None:
    """Answers in a time slice that came before the card was given away are not too soon."""
    made, runner, _ = make_timer(clocked=1.5, card=1.0, deliver=0.7)
    made.set_candidate(runner)
    for _ in range(9):
        runner.early, runner.hold.lost = 1, iter([True])  # forward was queued, and its turn came while the oracle's kernel still ran
        assert made.time_call(runner, list, 1.0).card == 1.0
    assert not runner.killed and made.void_calls == {"candidate's interrupted": 9}


@pytest.mark.parametrize(("still", "expected"), [(True, InfrastructureError), (False, Blamed)])
def test_a_starved_oracle_is_blamed_only_if_it_runs_alone(
    still: bool, expected: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An oracle that never runs is the candidate's fault only if it runs without the candidate."""
    monkeypatch.setattr(calls.time, "sleep", lambda seconds: None)
    made, runner, _ = make_timer(clocked=1.5, card=1.0, deliver=0.7)
    made.set_candidate(runner)
    runner.hold.sleeps = repeat(True)
    runner.kill = lambda: setattr(runner.hold, "sleeps", repeat(still))
    with pytest.raises(expected, match="processors" if still else "processor .*void calls: 100 candidate's overslept"):
        made.time_call(runner, list, 1.0)


@pytest.mark.parametrize(("asleep", "expected"), [(9, Blamed), (10, InfrastructureError)])
def test_nobody_is_blamed_where_nothing_could_be_timed(
    asleep: int, expected: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is blamed where nothing could be timed without the candidate either."""
    monkeypatch.setattr(calls.time, "sleep", lambda seconds: None)
    made, runner, _ = make_timer(lost=[True] * 60, clocked=1.5, card=1.0, deliver=0.7)
    made.set_candidate(runner)

    def kill() -> None:
        runner.hold.lost, runner.hold.sleeps = iter(()), iter([True] * asleep)

    runner.kill = kill
    with pytest.raises(expected):
        made.time_call(runner, list, 1.0)


def test_starving_beside_a_stopped_candidate_is_nobodys_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """An oracle that never runs next to a stopped candidate is nobody's fault."""
    looked_at(monkeypatch, always=False)
    made, runner, baselines = make_timer(clocked=1.5, card=1.0, deliver=0.7)
    made.set_candidate(runner)
    runner.hold.sleeps = chain([True] * 2 * 100)
    with pytest.raises(InfrastructureError, match="processors"):
        made.time_call(baselines, list, 1.0)
    assert not runner.killed


def test_void_calls_are_told_by_whose_they_are_and_why(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at(monkeypatch, always=False)
    made, runner, _ = make_timer(clocked=1.5, card=1.0, deliver=0.7)
    made.set_candidate(runner)
    made.time_call(runner, list, 1.0)
    made.time_baseline("eager", list, 1.0)
    runner.lets_go, runner.hold.lost = 3, iter(())
    made.time_call(runner, list, 1.0)
    runner.hold.lost = iter([True])
    made.time_baseline("eager", list, 1.0)
    assert made.void_calls == {"candidate's let go": 3, "baseline's interrupted": 1}
    runner.early = 1000
    with pytest.raises(Blamed, match=r"void calls: .*6 candidate's answered too soon, 3 candidate's let go"):
        made.time_call(runner, list, 1.0)
    assert not made.void_calls  # the next candidate's


def test_answers_before_the_card_was_given_back_are_cheating() -> None:
    """Answers before the card was given back are cheating, and a shared card is not."""
    made, runner, _ = make_timer(early=1000, clocked=0.1, card=0.05, deliver=0.7)
    with pytest.raises(RunnerFault, match="belongs to another process") as caught:
        made.time_call(runner, list, 1.0)
    assert caught.value.status is Status.CHEATING
    made, runner, _ = make_timer(lost=[True] * 300, clocked=1.5, card=1.0, deliver=0.7)
    with pytest.raises(InfrastructureError, match="something else uses this card"):
        made.time_call(runner, list, 1.0)
