"""A server process that dies is told from one that is late, and has the environment that it is given."""

import time
from pathlib import Path

import pytest

from tritonsmith.evaluator.errors import InfrastructureError, UsageError
from tritonsmith.evaluator.processes.requests import Prepare
from tritonsmith.evaluator.processes.server import ServerProcess
from tritonsmith.evaluator.schema import Task


def test_a_death_is_no_timeout() -> None:
    server = ServerProcess("h200", module="this")  # writes lines that are no JSON, and ends
    started = time.monotonic()
    try:
        with pytest.raises(InfrastructureError, match=r"exit code 0"):
            server.hello()
    finally:
        server.remove()
    assert time.monotonic() - started < 30


TELLER = """
import json, os, sys
sys.stdin.readline()
print(json.dumps({"error": " ".join(os.environ), "kind": "usage"}), flush=True)
"""


def test_it_has_the_names_that_it_is_given_and_none_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "teller_of_names.py").write_text(TELLER)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("OUR_SECRET", "hidden")
    server = ServerProcess("h200", module="teller_of_names", environment={"A_MARK": "seen"})
    try:
        with pytest.raises(UsageError) as raised:
            server.hello()
    finally:
        server.remove()
    names = str(raised.value).split()
    assert "A_MARK" in names and "PATH" in names and "OUR_SECRET" not in names


SLEEPER = """
import json, sys, time
from tritonsmith.evaluator.cards.cards import named_card
from tritonsmith.evaluator.processes.steps import STEPS
sys.stdin.readline()
print(json.dumps({"hardware": named_card("h200").model_dump(mode="json")}), flush=True)
sys.stdin.readline()
STEPS.start()
STEPS.note("load the task")
STEPS.note("check")
time.sleep(60)
"""


def test_a_late_answer_is_told_with_the_step_that_it_waits_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sleeper.py").write_text(SLEEPER)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    server = ServerProcess("h200", module="sleeper")
    try:
        server.hello()
        with pytest.raises(InfrastructureError, match=r"no answer within 1 s\): its last step is 'check', begun after 0 s"):
            server.ask(Prepare(task=Task(name="task", path="task.py", source="")), 1.0)
    finally:
        server.remove()
