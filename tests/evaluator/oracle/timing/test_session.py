"""When a session of timing is taken again, and what is said of a kernel whose clocks stay apart."""

import contextlib
import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tritonsmith.evaluator.channel.doorbell import Command
from tritonsmith.evaluator.oracle.judge.suspicion import find_contradiction
from tritonsmith.evaluator.oracle.timing.paired import Empty, Sample
from tritonsmith.evaluator.oracle.timing.session import TimingSession
from tritonsmith.evaluator.schema import LaunchFacts

BASELINE_MS = 0.1
HOST_MS = {Command.CALL: 0.5, Command.DELIVER: 0.1, Command.EMPTY: 0.11}


class Timer:
    """Whoever is timed takes what a test says; the oracle sees no more of a baseline than the card's clock."""

    def __init__(self, in_a_row_ms: float) -> None:
        self.in_a_row_ms = in_a_row_ms
        self.session = SimpleNamespace(measuring=contextlib.nullcontext)
        self.baselines = SimpleNamespace(is_running=False)
        self.calls = 0
        self.looks, self.void_calls = [0, 0], {"candidate's overslept": 1}

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: None

    def measure_empty(self, limit: float) -> Empty:
        return Empty(0.0, 0.0)

    def time_baseline(self, name: str, draw: Any, limit: float) -> Sample:
        self.calls += 1
        ms = {"far off": 5 * BASELINE_MS}.get(name, self.in_a_row_ms) * (1.0 + 0.01 * (self.calls % 3))
        return Sample(ms, ms)


@pytest.fixture
def session_of(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes a session of a candidate of so many milliseconds, of which the oracle sees so much more in each take.

    In a row, without the other side's calls in between, baselines and the candidate may take less.
    """

    def made(
        card_ms: float, *beyond_ms: float, names: tuple[str, ...] = ("eager",), in_a_row_ms: tuple[float, Sample] | None = None
    ) -> TimingSession:
        def pairs(self: TimingSession, name: str, count: int) -> None:
            mine, theirs = self._samples[name]
            mine += [Sample(card_ms + beyond_ms[len(self.takes)], card_ms)] * count
            theirs += [Sample(BASELINE_MS, BASELINE_MS)] * count

        monkeypatch.setattr(TimingSession, "_take_pairs", pairs)
        baseline_ms, own = in_a_row_ms or (BASELINE_MS, Sample(card_ms, card_ms))
        monkeypatch.setattr(TimingSession, "_call", lambda self, draw: (own, [], []))
        monkeypatch.setattr(TimingSession, "_judge", lambda self, *call: None)
        monkeypatch.setattr("tritonsmith.evaluator.oracle.timing.session.Inputs", lambda session: SimpleNamespace(next=list))
        process = SimpleNamespace(run_on=lambda processors: None, kill=lambda: None)
        runner = SimpleNamespace(results=[], process=process, command=lambda command, timeout: HOST_MS[command])
        return TimingSession(cast(Any, Timer(baseline_ms)), cast(Any, runner), "strict", 1.0, names)

    return made


@pytest.mark.parametrize("card_ms", [BASELINE_MS, 3 * BASELINE_MS], ids=["as fast", "far slower"])
def test_a_take_that_the_host_disturbs_is_taken_again_and_kept(session_of: Any, card_ms: float) -> None:
    session = session_of(card_ms, 0.116, 0.117, 0.0)
    assert len(session.takes) == 3 and session.takes[-1] == 1.0 and session.notes
    assert find_contradiction(session.clocks, LaunchFacts(), slower=session.far_slower) == ""
    assert session.measurement.ratio == pytest.approx(BASELINE_MS / card_ms)
    first, second = json.loads(json.dumps(session.raw()))["discarded_takes"]
    assert first["baseline"] == "eager" and set(first["candidate_card_ms"]) == {card_ms} == set(second["candidate_card_ms"])
    assert [max(one["candidate_wall_ms"]) for one in (first, second)] == [card_ms + 0.116, card_ms + 0.117]


def test_a_good_take_is_the_only_one(session_of: Any) -> None:
    assert session_of(BASELINE_MS, 0.0).raw()["discarded_takes"] == []
    assert len(session_of(3 * BASELINE_MS, 0.02).takes) == 1  # it gains nothing, and its time is right within a tenth


def test_clocks_that_stay_apart_count_against_the_candidate(session_of: Any) -> None:
    """Clocks that stay apart count against what could gain by it."""
    session = session_of(BASELINE_MS, *[0.116] * 3)
    assert "two clocks disagree" in find_contradiction(session.clocks, LaunchFacts(), slower=session.far_slower)
    slow = session_of(3 * BASELINE_MS, *[0.116] * 3)
    assert find_contradiction(slow.clocks, LaunchFacts(), slower=slow.far_slower) == ""
    assert slow.measurement.ratio == pytest.approx(BASELINE_MS / (3 * BASELINE_MS + 0.116), rel=0.02)  # the oracle's clock counts


def test_launches_on_a_busy_host_explain_a_difference_of_the_clocks() -> None:
    """0.556 and 0.406 ms for a block of 40 launches is a host's doing; of one launch, or of a replay, it is not."""
    block = LaunchFacts(launches_per_forward=40)
    assert find_contradiction((0.556, 0.406), block) == ""
    assert "two clocks disagree" in find_contradiction((0.556, 0.406), block, form="cuda_graph")
    assert "two clocks disagree" in find_contradiction((0.556, 0.406), LaunchFacts(launches_per_forward=1))
    assert "two clocks disagree" in find_contradiction((2.6, 0.406), block)


def test_pairs_go_to_the_strongest_baseline_and_to_candidates_that_may_win(session_of: Any) -> None:
    def count(card_ms: float) -> list[int]:
        samples = session_of(card_ms, 0.0, names=("eager", "far off"))._samples
        return [len(samples[name][0]) for name in ("eager", "far off")]

    (near, far_off), (slow, of_slow) = count(BASELINE_MS), count(3 * BASELINE_MS)
    assert far_off == of_slow == 6
    assert 30 == slow < near


@pytest.mark.parametrize(
    ("own", "score"),
    [
        (Sample(0.8, 0.8), 1.0),  # the host's caches: both sides gain alike
        (Sample(1.0, 1.0), 0.8),  # the baselines alone were held back
        (Sample(0.5, 0.5), 1.0),  # a candidate that gains more is given no more than what the pairs say
        (Sample(1.0, 0.8), 0.8),  # its own word does not count
        (Sample(0.8, 0.8, late=0.2), 0.8),  # nor does work that it puts off
    ],
)
def test_calls_in_a_row_are_compared_with_calls_in_a_row(session_of: Any, own: Sample, score: float) -> None:
    scaled = own._replace(wall=own.wall * BASELINE_MS, card=own.card * BASELINE_MS, late=own.late * BASELINE_MS)
    session = session_of(BASELINE_MS, 0.0, in_a_row_ms=(0.79 * BASELINE_MS, scaled))
    session.compare_alone()
    assert session.measurement.ratio == pytest.approx(score, abs=0.011)
    assert len(session.raw()["candidate_in_a_row_wall_ms"]) == 12


def test_no_calls_in_a_row_where_their_oracles_take_too_long(session_of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tritonsmith.evaluator.oracle.timing.paired._SECONDS_IN_A_ROW", 0.004)
    gains = {"in_a_row_ms": (0.79 * BASELINE_MS, Sample(0.8 * BASELINE_MS, 0.8 * BASELINE_MS))}
    session = session_of(BASELINE_MS, 0.0, **gains)
    session.compare_alone()
    assert session.raw()["candidate_in_a_row_wall_ms"] == [] and session.measurement.ratio == pytest.approx(0.8, abs=0.011)


def test_a_candidate_is_not_called_in_a_row_where_the_baselines_gain_nothing(session_of: Any) -> None:
    session = session_of(BASELINE_MS, 0.0)
    session.compare_alone()
    assert session.raw()["candidate_in_a_row_wall_ms"] == [] and session.measurement.ratio == pytest.approx(1.0)


def test_a_baseline_that_is_held_back_in_turns_counts_once_it_is_alone(session_of: Any) -> None:
    """Further sessions are against that one too."""
    session = session_of(BASELINE_MS, 0.0, names=("eager", "far off"))
    session.timer.time_baseline = lambda name, draw, limit: Sample(*[(0.5 if name == "far off" else 1.0) * BASELINE_MS] * 2)
    session.compare_alone()
    assert session.strongest == "far off" and session.measurement.ratio == pytest.approx(0.5)
    assert session.raw()["baselines_alone_ms"]["far off"] == [0.5 * BASELINE_MS] * 40
