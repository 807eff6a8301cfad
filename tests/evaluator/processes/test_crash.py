"""A task's file that ends the process which runs it is told from a fault of ours, by what the process wrote last."""

from pathlib import Path

import pytest

from tritonsmith.evaluator.caller.questions.process import TaskProcess
from tritonsmith.evaluator.errors import InfrastructureError, TaskError
from tritonsmith.evaluator.processes.requests import Prepare
from tritonsmith.evaluator.processes.server import ServerProcess
from tritonsmith.evaluator.schema import Task

ASKED = """
import json, sys
from tritonsmith.evaluator.processes.steps import STEPS
task = json.loads(sys.stdin.readline())
STEPS.note("run the task")
exec(compile(task["source"], task["path"], "exec"))
"""
ORACLE = """
import json, sys
from tritonsmith.evaluator.cards.cards import named_card
sys.stdin.readline()
print(json.dumps({"hardware": named_card("h200").model_dump(mode="json")}), flush=True)
task = json.loads(sys.stdin.readline())["task"]
exec(compile(task["source"], task["path"], "exec"))
"""
CRASHES = "import ctypes\ndef forward():\n    ctypes.string_at(0)\nforward()\n"
ENDS = {
    CRASHES: r"^häuser/task\.py, line 3: forward crashed the process that ran it \(SIGSEGV\); run the file by itself",
    "import os\nos._exit(0)\n": r"^häuser/task\.py: the process that ran the file ended in the middle of it \(exit code 0\)",
    "import os\nos.kill(os.getpid(), 15)\n": r"ended in the middle of it \(SIGTERM\)",
    "import os\nos.kill(os.getpid(), 9)\n": r"was killed, as happens where memory runs out; use --size small or --set NAME=VALUE$",
}


def task_of(source: str) -> Task:
    return Task(path="häuser/task.py", source=source, name="task")


@pytest.fixture(autouse=True)
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "asked_module.py").write_text(ASKED)
    (tmp_path / "oracle_module.py").write_text(ORACLE)
    (tmp_path / "our_fault.py").write_text("import ctypes\nctypes.string_at(0)\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))


@pytest.mark.parametrize("source", ENDS)
def test_a_file_that_ends_its_process_is_at_fault(source: str) -> None:
    with pytest.raises(TaskError, match=ENDS[source]):
        TaskProcess("asked_module", "the probe").ask(task_of(source), 20.0, "late", dict)


@pytest.mark.parametrize(("module", "source"), [("our_fault", ""), ("asked_module", "raise RuntimeError('ours')"), ("asked_module", "1 +")])
def test_an_end_that_is_ours_stays_ours(module: str, source: str) -> None:
    """A crash outside the file, and an exception: those of the file's own have a sentence already."""
    with pytest.raises(InfrastructureError, match="the probe failed"):
        TaskProcess(module, "the probe").ask(task_of(source), 20.0, "late", dict)


def test_an_oracle_that_a_file_crashed_is_not_at_fault() -> None:
    server = ServerProcess("h200", module="oracle_module")
    try:
        with pytest.raises(TaskError, match=r"task\.py, line 3: forward crashed"):
            server.ask(Prepare(task=task_of(CRASHES)), 20.0)
        with pytest.raises(InfrastructureError, match="exit code 7"):
            server.ask(Prepare(task=task_of("import os; os._exit(7)")), 20.0)
    finally:
        server.remove()
