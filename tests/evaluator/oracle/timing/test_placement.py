"""On which processors the processes of a timed call are put."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tritonsmith.evaluator.oracle.timing import placement as module
from tritonsmith.evaluator.oracle.timing.placement import Placement
from tritonsmith.evaluator.oracle.timing.processors import CoreLocks, HostLoad

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


def make_host(tmp_path: Path, busy: dict[int, int]) -> HostLoad:
    """Eight processors, two of each core: 0 and 4, 1 and 5, and so on; afterwards some were busy for so many of 100 ticks."""
    for number in range(8):
        folder = tmp_path / f"cpu{number}" / "topology"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "thread_siblings_list").write_text(f"{number % 4},{number % 4 + 4}\n")
    stat = tmp_path / "stat"
    stat.write_text("cpu 1 2\n" + "".join(f"cpu{number} 50 0 0 50 0\n" for number in range(8)))
    load = HostLoad(stat, tmp_path)
    stat.write_text("".join(f"cpu{n} {50 + busy.get(n, 0)} 0 0 {150 - busy.get(n, 0)} 0\n" for n in range(8)))
    return load


def test_evaluators_of_one_host_take_quiet_cores_and_not_the_same(own: list[set[int]], tmp_path: Path) -> None:
    """Two evaluators share no core, and take none that something else keeps busy, not even on its other thread."""
    everything, taken = set(range(8)), []
    placements = []
    for _ in range(2):
        candidate, baseline = Runner(), Runner()
        load, locks = make_host(tmp_path, {} if placements else {4: 90, 3: 80}), CoreLocks(tmp_path)
        placements.append(Placement(cast(Any, candidate), cast(Any, SimpleNamespace(is_running=True, runner=baseline)), load, locks))
        assert placements[-1].choose(everything)
        taken.append({number % 4 for number in (*candidate.processors, *own[-1])})
    assert taken == [{1, 2}, {0, 3}]
    for placement in placements:
        placement.release(everything)
    assert CoreLocks(tmp_path).choose([(0, 4), (1, 5), (2, 6)], 2) == [(0, 4), (1, 5)]  # they are free again


def test_where_every_core_is_taken_the_quietest_are_shared(tmp_path: Path) -> None:
    first, second = CoreLocks(tmp_path), CoreLocks(tmp_path)
    assert first.choose([(0,), (1,)], 2) == second.choose([(0,), (1,)], 2) == [(0,), (1,)]
    assert make_host(tmp_path, {1: 60, 6: 40}).rank({0, 1, 2, 3})[2:] == [(2,), (1,)]


def test_on_a_small_machine_everything_stays_where_it_is(own: list[set[int]]) -> None:
    candidate, baseline = Runner(), Runner()
    placement = Placement(cast(Any, candidate), cast(Any, SimpleNamespace(is_running=True, runner=baseline)))
    assert not placement.choose({0, 1, 2})
    placement.choose_again()
    assert candidate.processors == baseline.processors == ALL and own == []
