"""When a session of timing is taken again, and what is said of a kernel whose clocks stay apart."""

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tritonsmith.evaluator.card_judge import contradiction
from tritonsmith.evaluator.card_session import Session
from tritonsmith.evaluator.schema import LaunchFacts
from tritonsmith.evaluator.timing import Empty, Paired, Sample, Weighed, weigh

BASELINE_MS = 0.1
EVEN = Paired((1.0,) * 12, (1.0,) * 12)


def take(card_ms: float, beyond_ms: float) -> Weighed:
    """Calls of a candidate of which the oracle sees so much more than the card's clock says."""
    mine = [Sample(card_ms + beyond_ms, card_ms + 1e-5 * number) for number in range(20)]
    theirs = [Sample(BASELINE_MS, BASELINE_MS + 1e-5 * number) for number in range(20)]
    return weigh(mine, theirs, Empty(0.0, 0.0))


class StillBench:
    """Times nothing."""

    def __init__(self) -> None:
        self.session = SimpleNamespace(measuring=contextlib.nullcontext)
        self.looks, self.lost = [0, 0], {}

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: None


@pytest.fixture
def session_of(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Makes a session whose takes come out like these."""

    def made(*takes: Weighed) -> Session:
        coming = iter(takes)

        def taken(self: Session, pairs: dict[str, int], control: int) -> None:
            self._weighed, self.strongest, self.control = {"eager": next(coming)}, "eager", EVEN
            self.takes.append(self._weighed["eager"].share)

        monkeypatch.setattr(Session, "_take", taken)
        monkeypatch.setattr(Session, "_call", lambda self, draw: ())
        monkeypatch.setattr(Session, "_judge", lambda self: None)
        monkeypatch.setattr(Session, "_rough", lambda self, name: BASELINE_MS)
        monkeypatch.setattr("tritonsmith.evaluator.card_session.Inputs", lambda session: SimpleNamespace(next=list))
        return Session(cast(Any, StillBench()), cast(Any, SimpleNamespace(outputs=[])), "strict", 1.0, ("eager",))

    yield made


def test_a_take_that_the_host_disturbs_is_taken_again(session_of: Any) -> None:
    for card in (BASELINE_MS, 3 * BASELINE_MS):  # as fast as the baseline, and far slower
        session = session_of(take(card, 0.116), take(card, 0.116), take(card, 0.0))
        assert len(session.takes) == 3 and session.takes[-1] == 1.0 and session.notes
        assert contradiction(session.clocks, LaunchFacts(), slower=session.far_slower) == ""
        assert session.measurement.ratio == pytest.approx(BASELINE_MS / card, rel=0.01)


def test_a_good_take_is_the_only_one(session_of: Any) -> None:
    assert len(session_of(take(BASELINE_MS, 0.0)).takes) == 1
    assert len(session_of(take(3 * BASELINE_MS, 0.02)).takes) == 1  # it gains nothing, and its time is right within a tenth


def test_clocks_that_stay_apart_count_against_what_could_gain_by_it(session_of: Any) -> None:
    session = session_of(*[take(BASELINE_MS, 0.116)] * 3)
    assert "two clocks disagree" in contradiction(session.clocks, LaunchFacts(), slower=session.far_slower)
    slow = session_of(*[take(3 * BASELINE_MS, 0.116)] * 3)
    assert contradiction(slow.clocks, LaunchFacts(), slower=slow.far_slower) == ""
    assert slow.measurement.ratio == pytest.approx(BASELINE_MS / (3 * BASELINE_MS + 0.116), rel=0.02)  # the oracle's clock counts
