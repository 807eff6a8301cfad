"""Runner processes that wait for a candidate: taken once, replaced when they died, ended with all that they held."""

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tritonsmith.evaluator.cards.cards import named_card
from tritonsmith.evaluator.channel.doorbell import Command
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.oracle.checks.loaded_task import LoadedTask
from tritonsmith.evaluator.oracle.checks.trials import run_and_deliver, snapshot
from tritonsmith.evaluator.oracle.handles import process as handles
from tritonsmith.evaluator.oracle.handles.pool import RunnerPool
from tritonsmith.evaluator.oracle.handles.process import RunnerProcess
from tritonsmith.evaluator.sandbox.policy import use_policy
from tritonsmith.evaluator.sandbox.self_test import establish
from tritonsmith.evaluator.tasks.files import load_task

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
TASK = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) + x


def get_inputs():
    return [torch.randn(4, 33)]


def get_init_inputs():
    return []
"""
CANDIDATE = """
import time
import torch
from torch import nn

time.sleep(0.3)


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.relu(x) + x
"""


@pytest.fixture(scope="module", autouse=True)
def established() -> Iterator[None]:
    establish("auto", cuda=False)
    yield
    use_policy(None, {"mode": "off", "layers": {}, "actions": {}})


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def stands_still(process: RunnerProcess, wanted: bool) -> bool:
    """Whether it comes to that within a few seconds: a signal takes its time."""
    for _ in range(100):
        states = [Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] for pid in process.sandbox.family.members()]
        if states and (set(states) == {"T"}) is wanted:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.slow
def test_a_pool_gives_each_process_once_and_none_that_died(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handles, "_READY_WORDS", {"candidate": (), "witness": ()})  # what they do there needs a card
    before = descriptors()
    pool = RunnerPool(tmp_path)
    pool.fill(candidate=2, witness=0)
    first = pool.take("candidate")
    first.wait_warm()
    pool.fill(candidate=2)
    dead, alive = pool._waiting["candidate"]
    alive.wait_warm()
    pool.pause()
    assert stands_still(alive, True) and stands_still(first, False)
    pool.resume()
    assert stands_still(alive, False)
    os.kill(dead.sandbox.process.pid, signal.SIGKILL)
    dead.sandbox.process.wait(10)
    assert pool.take("candidate") is alive
    new = pool.take("witness")
    new.wait_warm()
    for process in (first, alive, new):
        process.close()
    pool.fill(candidate=2)
    last, more = pool._waiting["candidate"]
    pool.trim(candidate=1)
    assert not more.sandbox.alive and pool._waiting["candidate"] == [last], "the one that has waited longest stays"
    pool.close()
    assert not last.sandbox.alive and not last.source.parent.exists()
    del first, dead, alive, new, process, last, more
    assert descriptors() == before


@pytest.mark.slow
def test_an_early_call_is_answered_when_the_candidate_is_there(tmp_path: Path) -> None:
    """A call that was rung before the candidate is there is answered once it is."""
    (tmp_path / "task.py").write_text(TASK)
    session = LoadedTask(load_task(tmp_path / "task.py"), named_card("h200"), "cpu")
    before = descriptors()
    tensors = session.draw("own")
    session.place(tensors)
    with session.runner(KernelText.of(CANDIDATE), {"TRITON_INTERPRET": "1"}) as runner:
        runner.poison()
        runner.post(Command.CALL)
        runner.collect(30.0)
        runner.command(Command.DELIVER, timeout=30.0)
        (early,) = snapshot(runner)
        assert early.allclose(session.oracle(tensors)[0].float())
        run_and_deliver(runner, 0, 30.0)
        assert snapshot(runner)[0].equal(early)
    del runner
    assert descriptors() == before  # a run judges hundreds of candidates in one process
    session.close()
