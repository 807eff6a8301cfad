"""The baselines' process: when it gets which weights, how settings are chosen, and whose faults its failures are."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tritonsmith.evaluator.channel.doorbell import Command, mode_number
from tritonsmith.evaluator.errors import BaselineError, InfrastructureError
from tritonsmith.evaluator.oracle.checks.arithmetic import Arithmetic
from tritonsmith.evaluator.oracle.checks.memory import ROOMY
from tritonsmith.evaluator.oracle.handles.runner import RunnerFault
from tritonsmith.evaluator.oracle.timing import baselines as module
from tritonsmith.evaluator.oracle.timing.baselines import BaselineProcess, Blamed
from tritonsmith.evaluator.schema import PrecisionClass, Status


class Process:
    """Stands for the process; notes what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.fault: RunnerFault | None = None
        self.results = ["result"]

    def begin(self, **config: Any) -> None:
        self.asked.append(("begin", config["build"]))

    def wait_ready(self, timeout: float) -> None:
        if self.fault:
            raise self.fault

    def command(self, command: Command, argument: int = 0, *, timeout: float) -> float:
        self.asked.append((command, argument))
        return 0.0

    def close(self) -> None:
        self.asked.append("close")


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> tuple[BaselineProcess, Process, Any]:
    """Baselines of a task that allows TF32, with the process and the session."""
    process = Process()
    block = SimpleNamespace(tensor=SimpleNamespace(fill_=lambda value: None), close=lambda: process.asked.append("block closed"))
    monkeypatch.setattr(module, "SharedBlock", lambda size, device: block)
    monkeypatch.setattr(module, "fill_slots", lambda slots, tensors: None)
    monkeypatch.setattr(module, "replace", lambda setup, **changes: changes)
    session = SimpleNamespace(
        layout=SimpleNamespace(input_bytes=4, inputs=(), views=lambda tensor, specs: ["slot"]), device="cuda", setup=None,
        task=SimpleNamespace(model_dump=lambda mode: {}), arithmetic=SimpleNamespace(tf32=True),
        weights_number=1, plan=ROOMY, draw=lambda kind: [],
        sync=lambda: None, copy_weights=lambda path=None: Path("baselines.pt"), new_runner=lambda role, setup: process,
    )  # fmt: skip
    return BaselineProcess(cast(Any, session)), process, session


def test_the_faster_setting_of_each_baseline_is_kept(started: tuple[BaselineProcess, Process, Any]) -> None:
    baselines, process, _ = started
    baselines.start(("eager", "compile"))
    baselines.start()  # it runs already
    baselines.wait_ready()
    settings = [mode_number(name, tf32) for name in ("eager", "compile") for tf32 in (False, True)]
    assert process.asked == [("begin", settings)] and baselines.undecided == ("eager", "compile")
    baselines.choose_modes(lambda mode: float(mode != mode_number("eager", True)))
    assert baselines.modes == {"eager": mode_number("eager", True), "compile": mode_number("compile", False)}
    assert process.asked[1:] == [(Command.CALL, mode) for mode in settings] and baselines.undecided == ()
    assert baselines.owns(cast(Any, process)) and baselines.inputs == ["slot"] and baselines.results == ["result"]
    baselines.close()
    assert not baselines.is_running and process.asked[-2:] == ["close", "block closed"] and baselines.inputs == []


@pytest.mark.parametrize("precision", [PrecisionClass.IEEE, PrecisionClass.SPLIT])
def test_without_tf32_each_baseline_has_one_setting(started: tuple[BaselineProcess, Process, Any], precision: PrecisionClass) -> None:
    baselines, process, session = started
    session.arithmetic = Arithmetic(precision, half=False, half_step=0.0)
    baselines.start(("eager", "compile"))
    assert process.asked == [("begin", [mode_number(name, False) for name in ("eager", "compile")])]


def test_weights_that_were_drawn_meanwhile_are_read_again(started: tuple[BaselineProcess, Process, Any]) -> None:
    baselines, process, session = started
    baselines.start(("eager",))
    session.weights_number = 2
    baselines.wait_ready()
    baselines.wait_ready()
    assert [command for command, _ in process.asked] == ["begin", Command.WEIGHTS]


def test_a_baseline_that_cannot_be_had_is_noted_and_left_out(started: tuple[BaselineProcess, Process, Any]) -> None:
    baselines, _, _ = started
    baselines.start(("eager", "compile"))

    def measure_ms(mode: int) -> float:
        if mode >= mode_number("compile", False):
            raise RunnerFault(Status.RUNTIME_ERROR, "no compiler")
        return 1.0

    baselines.choose_modes(measure_ms)
    assert list(baselines.modes) == ["eager"] and baselines.notes == ["baseline compile could not be had: no compiler"]


def test_a_process_that_does_not_start_is_started_again(started: tuple[BaselineProcess, Process, Any]) -> None:
    """A process that does not start is nobody's fault and is started again."""
    baselines, process, _ = started
    process.fault = RunnerFault(Status.CRASHED, "out of memory")
    with pytest.raises(InfrastructureError, match="did not start: out of memory"):
        baselines.wait_ready()
    assert not baselines.is_running
    process.fault = None
    baselines.wait_ready()
    assert baselines.is_running


def test_blame_passes_where_a_baselines_own_faults_are_expected(started: tuple[BaselineProcess, Process, Any]) -> None:
    baselines, _, _ = started
    baselines.start()
    with pytest.raises(Blamed), baselines.own_faults("failed"):
        raise Blamed(Status.CHEATING, "it keeps the card")
    assert baselines.is_running


def test_a_baseline_that_fails_by_itself_is_left_out(
    started: tuple[BaselineProcess, Process, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that fails in a timed call is asked again alone; the others go on without it, and a note says why."""
    baselines, process, _ = started
    names = ("eager", "compile")
    baselines.start(names)
    with pytest.raises(BaselineError, match="compile failed") as raised, baselines.own_faults("the baseline compile failed", "compile"):
        raise RunnerFault(Status.RUNTIME_ERROR, "its output has been overwritten")
    with pytest.raises(BaselineError):  # alone it runs: something else disturbed it
        baselines.leave_out(raised.value)
    assert baselines.list_usable(names) == names and baselines.notes == []

    def command(command: Command, argument: int = 0, *, timeout: float) -> float:
        raise RunnerFault(Status.RUNTIME_ERROR, "its output has been overwritten")

    monkeypatch.setattr(process, "command", command)
    baselines.leave_out(raised.value)
    note = "baseline compile could not be had: its output has been overwritten"
    assert baselines.list_usable(names) == ("eager",) and baselines.notes == [note]
    process.asked.clear()
    baselines.start(names)
    assert process.asked == [("begin", [mode_number("eager", tf32) for tf32 in (False, True)])]


@pytest.mark.parametrize(("status", "message"), [(Status.CRASHED, "it died"), (Status.RUNTIME_ERROR, "CUDA out of memory")])
def test_other_failures_of_a_baseline_are_the_machinerys(
    started: tuple[BaselineProcess, Process, Any], status: Status, message: str
) -> None:
    baselines, _, _ = started
    baselines.start()
    with pytest.raises(InfrastructureError) as raised, baselines.own_faults("failed", "eager"):
        raise RunnerFault(status, message)
    assert not isinstance(raised.value, BaselineError)
