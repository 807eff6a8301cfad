"""On which processors the processes of a timed call are put."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tritonsmith.evaluator.oracle.timing import placement as module
from tritonsmith.evaluator.oracle.timing.placement import Placement

ALL = {0, 1, 2, 3}


class Runner:
    """Keeps the processors that it has; it is its own process."""

    def __init__(self) -> None:
        self.processors = ALL
        self.process = self

    def run_on(self, processors: set[int]) -> None:
        self.processors = processors


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> list[set[int]]:
    """The processors of this thread, one set after the other."""
    moves: list[set[int]] = []
    monkeypatch.setattr(module, "_move_thread", moves.append)
    return moves


def test_both_sides_share_a_processor_of_their_own(own: list[set[int]]) -> None:
    """Both sides share a processor that this thread does not have."""
    candidate, baseline = Runner(), Runner()
    placement = Placement(cast(Any, candidate), cast(Any, SimpleNamespace(is_running=True, runner=baseline)))
    assert placement.choose(ALL)
    assert candidate.processors == baseline.processors != own[-1] and len(candidate.processors) == len(own[-1]) == 1
    chosen = baseline.processors, own[-1]
    placement.release(ALL)
    assert candidate.processors == baseline.processors == own[-1] == ALL
    placement.choose_again()
    assert (baseline.processors, own[-1]) == chosen and candidate.processors == ALL  # its processes are gone by then


def test_on_a_small_machine_everything_stays_where_it_is(own: list[set[int]]) -> None:
    candidate, baseline = Runner(), Runner()
    placement = Placement(cast(Any, candidate), cast(Any, SimpleNamespace(is_running=True, runner=baseline)))
    assert not placement.choose({0, 1, 2})
    placement.choose_again()
    assert candidate.processors == baseline.processors == ALL and own == []
