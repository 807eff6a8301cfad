"""The baselines' process: when it gets which weights, how settings are chosen, and whose faults its failures are."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tritonsmith.evaluator.channel.doorbell import BASELINES, QUICK_BASELINES, Command, mode_number
from tritonsmith.evaluator.errors import BaselineError, CardMemoryError, InfrastructureError
from tritonsmith.evaluator.oracle.checks.arithmetic import Arithmetic
from tritonsmith.evaluator.oracle.checks.memory import ROOMY
from tritonsmith.evaluator.oracle.handles.runner import RunnerFault
from tritonsmith.evaluator.oracle.timing import baselines as module
from tritonsmith.evaluator.oracle.timing.baselines import AUTOTUNE_SECONDS, BaselineProcess, Blamed
from tritonsmith.evaluator.schema import PrecisionClass, Status


class Process:
    """Stands for the process; notes what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.fault: RunnerFault | None = None
        self.results = ["result"]
        self.slow: set[int] = set()
        """Settings that take longer than anybody waits."""
        self.broken: dict[int, str] = {}
        """What is wrong with settings that fail."""

    def begin(self, **config: Any) -> None:
        self.asked.append(("begin", config["build"]))

    def wait_ready(self, timeout: float) -> None:
        if self.fault:
            raise self.fault

    def command(self, command: Command, argument: int = 0, *, timeout: float) -> float:
        self.asked.append((command, argument))
        if command is Command.CALL and argument in self.slow:
            assert 0.0 < timeout <= AUTOTUNE_SECONDS
            raise RunnerFault(Status.TIMEOUT, f"a call took longer than {timeout:.0f} s")
        if command is Command.CALL and argument in self.broken:
            raise RunnerFault(Status.RUNTIME_ERROR, self.broken[argument])
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
        task=SimpleNamespace(model_dump=lambda mode: {}, precision=PrecisionClass.TF32), arithmetic=SimpleNamespace(tf32=True),
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
    assert baselines.known.list_usable(names) == names and baselines.notes == []

    def command(command: Command, argument: int = 0, *, timeout: float) -> float:
        raise RunnerFault(Status.RUNTIME_ERROR, "its output has been overwritten")

    monkeypatch.setattr(process, "command", command)
    baselines.leave_out(raised.value)
    note = "baseline compile could not be had: its output has been overwritten"
    assert baselines.known.list_usable(names) == ("eager",) and baselines.notes == [note]
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


SETTINGS = {name: [mode_number(name, tf32) for tf32 in (False, True)] for name in BASELINES}
QUICK = [mode for name in QUICK_BASELINES for mode in SETTINGS[name]]
AUTOTUNE, NO_GRAPHS = BASELINES[len(QUICK_BASELINES) :]


def test_autotuned_baselines_are_built_behind_the_others_and_once(started: tuple[BaselineProcess, Process, Any]) -> None:
    """A process that runs is asked for what it does not have yet; one that knows the setting builds it with the others."""
    baselines, process, session = started
    baselines.start()
    baselines.wait_ready()
    assert process.asked == [("begin", QUICK)] and baselines.unbuilt == ()
    baselines.choose_modes(float)
    baselines.start(BASELINES)
    assert baselines.undecided == baselines.unbuilt == (AUTOTUNE, NO_GRAPHS)
    process.asked.clear()
    baselines.wait_ready()
    baselines.wait_ready()
    assert process.asked == [(Command.CALL, mode) for name in (AUTOTUNE, NO_GRAPHS) for mode in SETTINGS[name]] and baselines.unbuilt == ()
    baselines.choose_modes(float)
    assert set(baselines.modes) == set(BASELINES) and baselines.notes == []
    baselines.start()
    assert baselines.undecided == ()
    process.asked.clear()
    further = BaselineProcess(session, baselines.known)
    further.start((AUTOTUNE,))
    further.wait_ready()
    assert process.asked == [("begin", SETTINGS[AUTOTUNE][:1])] and further.unbuilt == ()


def test_an_autotuner_that_takes_too_long_costs_its_baseline_alone(started: tuple[BaselineProcess, Process, Any]) -> None:
    """Its process ends; the next one has all others, and the verdict's note says why one is missing."""
    baselines, process, _ = started
    process.slow = {SETTINGS[AUTOTUNE][1]}
    baselines.start(BASELINES)
    baselines.wait_ready()
    assert [entry for entry in process.asked if entry[0] != Command.CALL] == [("begin", QUICK), "close", "block closed", ("begin", QUICK)]
    assert baselines.is_running and baselines.undecided == (*QUICK_BASELINES, NO_GRAPHS)
    baselines.choose_modes(float)
    assert list(baselines.modes) == [*QUICK_BASELINES, NO_GRAPHS]
    assert baselines.notes == [f"baseline {AUTOTUNE} left out: torch.compile took longer than 180 s"]
    process.asked.clear()
    baselines.start(BASELINES)
    assert baselines.undecided == () and process.asked == []


@pytest.mark.parametrize("together", [True, False])
def test_an_autotuner_that_fails_is_noted(started: tuple[BaselineProcess, Process, Any], together: bool) -> None:
    """Where its memory ran out beside other baselines, a leaner plan is tried, as for every other baseline."""
    baselines, process, session = started
    session.plan = replace(ROOMY, together=together)
    process.broken = {SETTINGS[NO_GRAPHS][0]: "CUDA out of memory"}
    baselines.start((NO_GRAPHS,))
    if together:
        with pytest.raises(CardMemoryError, match=f"{NO_GRAPHS} could not be had"):
            baselines.wait_ready()
        assert not baselines.is_running and baselines.notes == []
    else:
        baselines.wait_ready()
        assert baselines.notes == [f"baseline {NO_GRAPHS} could not be had: CUDA out of memory"] and baselines.undecided == ()


def test_a_baseline_whose_result_is_wrong_does_not_count(started: tuple[BaselineProcess, Process, Any]) -> None:
    """Each setting is looked at once for each draw of weights. Eager execution is the module itself."""
    baselines, _, session = started
    wrong = {mode: "maximum error 3" for mode in (*SETTINGS["eager"], *SETTINGS["compile"], SETTINGS["cuda_graph"][0])}
    looked: list[int] = []

    def find_wrong(mode: int) -> str:
        looked.append(mode)
        return wrong.get(mode, "")

    baselines.start()
    baselines.wait_ready()
    baselines.leave_out_wrong(find_wrong)
    baselines.choose_modes(float)
    assert baselines.modes == {
        "eager": SETTINGS["eager"][0], "cuda_graph": SETTINGS["cuda_graph"][1],
        "compile_reduce_overhead": SETTINGS["compile_reduce_overhead"][0],
    }  # fmt: skip
    note = "baseline compile left out: its result breaks the rule of class tf32 (maximum error 3)"
    assert baselines.notes == [note] and baselines.known.explain("compile") == note
    assert looked == [mode for name in QUICK_BASELINES[1:] for mode in SETTINGS[name]]
    looked.clear()
    baselines.leave_out_wrong(find_wrong)
    assert looked == []
    session.weights_number = 2
    baselines.wait_ready()
    wrong[SETTINGS["compile_reduce_overhead"][0]] = "maximum error 4"
    baselines.leave_out_wrong(find_wrong)
    assert looked == [SETTINGS["cuda_graph"][1], SETTINGS["compile_reduce_overhead"][0]]
    assert list(baselines.modes) == ["eager", "cuda_graph"] and "maximum error 4" in baselines.notes[1]
    session.new_runner = None
    baselines.leave_out(BaselineError("compile", "found in another process"))  # nothing is tried again


def test_what_cannot_run_is_not_called_wrong(started: tuple[BaselineProcess, Process, Any]) -> None:
    baselines, _, session = started

    def find_wrong(mode: int) -> str:
        raise RunnerFault(Status.RUNTIME_ERROR, "no compiler")

    baselines.start(("eager", "compile"))
    baselines.leave_out_wrong(find_wrong)
    assert baselines.notes == [] and baselines.undecided == ("eager", "compile")
