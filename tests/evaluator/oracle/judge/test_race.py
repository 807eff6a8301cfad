"""A race on a card that is stood in for: who is checked, who stands still, who leaves, and what a lie or a failure does."""

import contextlib
from collections import Counter
from types import SimpleNamespace

import pytest

from tritonsmith.evaluator.errors import InfrastructureError
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.oracle.handles.runner import RunnerFault
from tritonsmith.evaluator.oracle.judge import race
from tritonsmith.evaluator.oracle.timing.paired import Empty, Sample
from tritonsmith.evaluator.protocol import Fate
from tritonsmith.evaluator.schema import Status

MILLISECONDS = {"best": 0.1, "fast": 0.08, "faster": 0.07, "slow": 0.4, "wrong": 0.05, "dies": 0.05, "lies": 0.3, "waits": 0.08}
PLACED = []
CAPTURED: list[str] = []
RUNNING: set[str] = set()
ALIVE: set[str] = set()


class Process:
    def __init__(self, name):
        self.name = name

    def pause(self):
        RUNNING.discard(self.name)

    def resume(self):
        RUNNING.add(self.name)

    def kill(self):
        RUNNING.discard(self.name)


class Runner:
    """A candidate's process, whose text is its name."""

    def __init__(self, kernel):
        self.name, self.process = kernel.text, Process(kernel.text)
        ALIVE.add(self.name)
        RUNNING.add(self.name)

    def post(self, command):
        assert PLACED, "its first call reads what lies in the inputs' place"

    def collect(self, limit):
        if self.name == "broken":
            raise RunnerFault(Status.COMPILE_ERROR, "line 3: it does not compile")

    def capture(self, limit):
        assert self.name in RUNNING
        CAPTURED.append(self.name)
        return "cudaErrorStreamCaptureUnsupported" if self.name == "waits" else ""

    def close(self):
        ALIVE.discard(self.name)
        RUNNING.discard(self.name)


class Session:
    hardware = SimpleNamespace(memory_bytes=140e9)

    def __init__(self):
        self.awaited = []
        self.trimmed = []
        self.pool = SimpleNamespace(
            fill=lambda candidate: self.awaited.append(candidate), trim=lambda candidate: self.trimmed.append(candidate)
        )

    def runner(self, kernel):
        return Runner(kernel)

    def use_weights(self, number):
        assert number == 1  # as for a quick verdict

    def draw(self, kind):
        return [kind]

    def place(self, tensors):
        PLACED.extend(tensors)

    def measuring(self):
        return contextlib.nullcontext()


class Timer:
    """Times by the table; `lies` says that it takes a tenth, and the oracle's clock sees the rest."""

    def __init__(self):
        self.calls = Counter()
        self.modes = {}
        self.candidate = None

    def set_candidate(self, runner):
        self.candidate = runner

    def open_baselines(self):
        pass

    def measure_empty(self, limit):
        return Empty(0.02, 0.02)

    def time_call(self, runner, draw, limit, mode):
        self.modes.setdefault(runner.name, set()).add(mode)
        assert RUNNING == {runner.name} and self.candidate is runner, "nobody else runs meanwhile"
        draw()
        self.calls[runner.name] += 1
        if runner.name == "dies" and self.calls["dies"] > 4:
            raise RunnerFault(Status.CRASHED, "the process ended during a call")
        ms = MILLISECONDS[runner.name] * (1.0 + 0.001 * (self.calls[runner.name] % 3))
        return Sample(ms + 0.02, ms / 10 if runner.name == "lies" else ms)


@pytest.fixture
def raced(monkeypatch):
    def check(log, runner, kind, mode, limit):
        if runner.name == "wrong":
            raise RunnerFault(Status.INACCURATE, "output 0 is off")

    monkeypatch.setattr(race, "checked_call", check)
    monkeypatch.setattr(race, "TrialLog", lambda session: SimpleNamespace(require_accurate=lambda: None))
    monkeypatch.setattr(race, "Inputs", lambda session: SimpleNamespace(next=list))
    monkeypatch.setattr(race, "has_room", lambda session: True)

    def run(names, incumbent="best", keep=2, seconds=60.0, needed=132e9, graphs=False):
        session = Session()
        session.plan = SimpleNamespace(together=True, room=140e9, needed=needed)
        timer, baselines = Timer(), SimpleNamespace(session=session, start=lambda: None)
        entrants = [KernelText(name, name) for name in names]
        known = KernelText(incumbent, incumbent)
        rows = race.run_card_race(baselines, timer, known, entrants, keep=keep, limit=9.0, seconds=seconds, graphs=graphs)
        timer.awaited = session.awaited
        assert session.trimmed in ([], [3]), "what waits behind a race is what its verdicts need"
        PLACED.clear()
        assert not ALIVE and not RUNNING and timer.candidate is None, "every process has ended"
        return {row.sha: row for row in rows}, timer

    return run


def test_the_faster_ones_stay_and_each_other_one_has_a_reason(raced):
    rows, timer = raced(["slow", "fast", "wrong", "dies", "broken", "faster", "lies"])
    assert {name: row.fate for name, row in rows.items()} == {
        "slow": Fate.SLOWER, "fast": Fate.KEPT, "wrong": Fate.FAILED, "dies": Fate.FAILED, "broken": Fate.FAILED,
        "faster": Fate.KEPT, "lies": Fate.SLOWER,
    }  # fmt: skip
    assert rows["faster"].ratio == pytest.approx(0.1 / 0.07, rel=0.01) and rows["faster"].interval[0] > 1.3 and rows["faster"].pairs >= 4
    assert rows["wrong"].reason.startswith("wrong: output 0") and "ended during a call" in rows["dies"].reason
    assert "line 3" in rows["broken"].reason and timer.calls["wrong"] == timer.calls["broken"] == 0
    assert rows["lies"].ratio < 0.4 and timer.calls["slow"] < 10, "the oracle's clock counts where it saw more"


def test_of_all_heats_the_best_are_left_over_and_time_is_kept(raced):
    assert [row.fate for row in raced(["fast", "faster"], keep=1)[0].values()] == [Fate.SLOWER, Fate.KEPT]
    rows, timer = raced(["faster", "slow", "wrong", "broken", "fast"])
    assert timer.awaited == [4, 1, 3], "processes of the next heat, or for what comes behind, start beside the one before"
    assert rows["fast"].fate is Fate.SLOWER and rows["fast"].pairs == 4, "a later heat need not show what an earlier one has beaten"
    assert {row.fate for row in raced(["fast"], seconds=-1.0)[0].values()} == {Fate.UNTIMED}


def test_all_entrants_import_at_once_where_the_card_and_the_processors_allow_it(raced, monkeypatch):
    names = ["fast", "faster", "slow", "wrong", "lies", "broken", "dies"]
    monkeypatch.setattr(race.os, "sched_getaffinity", lambda pid: range(16))
    assert raced(names, needed=20e9)[1].awaited == [7, 3, 3]
    assert raced(names, needed=130e9)[1].awaited == [5, 3, 3], "half of what is free, a gigabyte each"
    monkeypatch.setattr(race.os, "sched_getaffinity", lambda pid: range(6))
    assert raced(names, needed=20e9)[1].awaited == [6, 3, 3]
    monkeypatch.setattr(race, "has_room", lambda session: False)
    assert raced(["fast", "slow", "faster", "wrong", "lies"])[1].awaited == [3, 3, 3, 2, 1, 3], "one at a time, the next ones beside it"


def test_without_an_incumbent_that_runs_there_is_no_race(raced):
    with pytest.raises(InfrastructureError, match="best so far does not run"):
        raced(["fast"], incumbent="wrong")


def test_an_incumbent_in_a_graph_meets_entrants_in_graphs(raced):
    """One that cannot be captured runs as called, in a process that knows nothing of the attempt."""
    CAPTURED.clear()
    rows, timer = raced(["fast", "waits", "wrong"], graphs=True)
    assert {name: row.fate for name, row in rows.items()} == {"fast": Fate.KEPT, "waits": Fate.KEPT, "wrong": Fate.FAILED}
    assert CAPTURED == ["best", "fast", "waits"] and timer.modes == {"best": {1}, "fast": {1}, "waits": {0}}
    with pytest.raises(InfrastructureError, match="cannot be here: cudaError"):
        raced(["fast"], incumbent="waits", graphs=True)
    assert raced(["fast"])[1].modes == {"best": {0}, "fast": {0}}
