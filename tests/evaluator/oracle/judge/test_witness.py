"""What the witness tells about a forward, and when it is not believed. Its process needs a card; here stands what answers like one."""

from pathlib import Path
from typing import Any, cast

import pytest
import torch

from tritonsmith.evaluator.cards.cards import named_card
from tritonsmith.evaluator.channel.doorbell import AS_CALLED, CUDA_GRAPH, Command
from tritonsmith.evaluator.errors import InfrastructureError
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.oracle.checks.loaded_task import LoadedTask
from tritonsmith.evaluator.oracle.handles.runner import RunnerFault
from tritonsmith.evaluator.oracle.judge.witness import Witness, has_room
from tritonsmith.evaluator.schema import Status
from tritonsmith.evaluator.tasks.files import load_task

TASK = """
import torch
from torch import nn

rows = 6


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(8) + 0.5)

    def forward(self, x):
        return x * self.scale


def get_inputs():
    return [torch.randn(rows, 8)]


def get_init_inputs():
    return []
"""
KERNEL = KernelText.of(TASK)
REPORT = {"kernels": [], "device": {"scaled": (1, 0.01)}, "busy_ms": 0.01}


class Process:
    """Answers as the witness's process does; `fault` is raised when the first call is collected."""

    def __init__(self, session: LoadedTask, setup: Any, factor: float, fault: Exception | None) -> None:
        self.session, self.inputs, self.factor, self.fault = session, setup.inputs, factor, fault
        self.results = [torch.empty(6, 8)]
        self.done: list[str] = []
        self.stale, self.problem, self.form = False, "", AS_CALLED
        self.captured = torch.empty(0)
        self.always = True
        """Whether every call errs by the factor, and not only the one that is profiled."""

    def begin(self, kernel: KernelText, code: Path | None) -> None:
        self.done.append("begin")

    def post(self, command: Command) -> None:
        self.done.append(command.name)

    def collect(self, timeout: float) -> None:
        if self.fault:
            raise self.fault

    def command(self, command: Command, *, timeout: float) -> None:
        self.done.append(command.name)
        if command is Command.DELIVER:
            (x,) = self.session.layout.views(self.inputs.tensor, self.session.layout.inputs)
            x = self.captured if self.form == CUDA_GRAPH else x
            factor = self.factor if "FACTS" in self.done[-3:] or self.always else 1.0
            self.results[0].copy_(x * self.session.model.get_parameter("scale").detach() * factor)

    def poison(self) -> None:
        self.results[0].fill_(float("nan"))
        self.done.append("poison")

    def capture(self, timeout: float) -> str:
        self.done.append("CAPTURE")
        (x,) = self.session.layout.views(self.inputs.tensor, self.session.layout.inputs)
        self.captured = x.clone() if self.stale else x
        return self.problem

    def facts(self, timeout: float, form: str = AS_CALLED) -> dict[str, Any]:
        self.done.append("FACTS")
        self.form = form
        return REPORT

    def close(self) -> None:
        self.done.append("close")


@pytest.fixture
def session(tmp_path: Path) -> LoadedTask:
    (tmp_path / "task.py").write_text(TASK)
    return LoadedTask(load_task(tmp_path / "task.py"), named_card("h200"), "cpu")


def witness(session: LoadedTask, *, factor: float = 1.0, fault: Exception | None = None) -> tuple[Witness, Process]:
    made: list[Process] = []

    def new_runner(role: str, setup: Any) -> Any:
        assert role == "witness" and setup.inputs is not session.setup.inputs  # what it changes is not what the runner reads
        made.append(Process(session, setup, factor, fault))
        return made[0]

    cast(Any, session).new_runner = new_runner
    return Witness(session), made[0]


def test_a_right_forward_is_believed(session: LoadedTask) -> None:
    asked, process = witness(session)
    asked.begin(KERNEL)
    session.new_weights()  # strict draws them again while it starts
    assert asked.report(1.0) == REPORT
    asked.close()
    assert process.done == ["begin", "CALL", "WEIGHTS", "CALL", "poison", "FACTS", "DELIVER", "close"]


@pytest.mark.parametrize(("always", "status"), [(False, Status.CHEATING), (True, Status.INACCURATE)])
def test_a_forward_that_is_wrong_where_it_is_profiled_is_cheating(session: LoadedTask, always: bool, status: Status) -> None:
    """One that is wrong on these inputs in any call is not."""
    asked, process = witness(session, factor=1.01)
    process.always = always
    asked.begin(KERNEL)
    with pytest.raises(RunnerFault, match="the forward that was profiled gave a wrong result") as refused:
        asked.report(1.0)
    assert refused.value.status is status


@pytest.mark.parametrize("fault", [RunnerFault(Status.CRASHED, "out of memory"), InfrastructureError("the profiler does not start here")])
def test_after_a_failed_process_the_runner_is_asked(session: LoadedTask, fault: Exception) -> None:
    """A process that fails says nothing, and the runner is asked."""
    asked, _ = witness(session, fault=fault)
    asked.begin(KERNEL)
    assert asked.report(1.0) is None


def test_a_replay_counts_with_the_same_kernels_and_right_results_on_other_inputs(session: LoadedTask) -> None:
    """A replay counts if it launches what a call launches, and if nothing in it was chosen by the inputs that it was captured on."""
    asked, process = witness(session)
    asked.begin(KERNEL)
    report = asked.report(1.0)
    assert report is not None and asked.look_at_graph(report, 1.0) == ("", {"device": REPORT["device"], "busy_ms": 0.01})
    assert process.done[-4:] == ["CAPTURE", "poison", "FACTS", "DELIVER"]
    assert "scaled 1 time, a call 2 times" in asked.look_at_graph({"device": {"scaled": (2, 0.01)}}, 1.0)[0]
    process.stale = True
    assert "on other inputs gives a wrong result" in asked.look_at_graph(report, 1.0)[0]
    process.problem = "cudaErrorStreamCaptureUnsupported"
    assert "cannot be captured (cudaErrorStreamCaptureUnsupported)" in asked.look_at_graph(report, 1.0)[0]


def test_a_small_card_has_no_room_for_a_second_process(session: LoadedTask) -> None:
    """A small card has no room for a second process of a large task."""
    assert has_room(session)
    session.hardware = session.hardware.model_copy(update={"memory_bytes": 1 << 12})
    assert not has_room(session)
