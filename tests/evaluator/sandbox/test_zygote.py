"""Zygotes: confined processes that are forked; the self-test attacks from them as it does from programs."""

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from confined_code import ESCAPE, closed_within
from tritonsmith.evaluator.errors import InfrastructureError
from tritonsmith.evaluator.sandbox import warm_start
from tritonsmith.evaluator.sandbox.oneself import guard_self
from tritonsmith.evaluator.sandbox.policy import SandboxPolicy, policy_in_force, sandbox_report, use_policy
from tritonsmith.evaluator.sandbox.process import SandboxedProcess
from tritonsmith.evaluator.sandbox.self_test import attack, establish
from tritonsmith.evaluator.sandbox.warm_start import Branch, begin_warm_start, end_warm_start, finish_warm_start
from tritonsmith.evaluator.sandbox.zygote import ForkedProcess, Zygote

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="zygotes need the layers, which are Linux's")
TELL = """
import json, os, sys, tempfile
import numpy
print(json.dumps({
    "modules": [name for name in ("fractions", "decimal", "torch") if name in sys.modules], "argv": sys.argv[1:],
    "names": sorted(os.environ), "files": sorted(int(name) for name in os.listdir("/proc/self/fd")),
    "threads": len(os.listdir("/proc/self/task")), "scratch": os.getcwd() == os.environ["TMPDIR"] == tempfile.gettempdir(),
    "draws": [__import__("random").random(), numpy.random.rand()], "pid": os.getpid(),
}), flush=True)
"""


class Forks:
    """Starts texts of Python from a branch that has imported decimal and numpy, of a zygote that has imported fractions."""

    def __init__(self, policy: SandboxPolicy, folder: Path) -> None:
        self.policy, self.folder = policy, folder
        self.names = {"PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)}
        self.first = Zygote(["fractions"], self.names | {"OPENBLAS_NUM_THREADS": "1"})
        self.zygote = self.first.branch(["decimal", "numpy"], {"KIND": "test"})
        self._count = 0

    def start(self, code: str, **options: Any) -> SandboxedProcess:
        self._count += 1
        file = self.folder / f"hostile{self._count}.py"
        file.write_text(code)
        options.setdefault("environment", self.names)
        read = [self.folder, file]
        return SandboxedProcess(file.stem, ["one", "two"], policy=self.policy, zygote=self.zygote, read=read, **options)

    def ask(self, code: str, **options: Any) -> Any:
        with self.start(code, **options) as process:
            assert isinstance(process.process, ForkedProcess)
            output = process.read_output(30, 1 << 20)
            assert output, process.stderr_tail()
            return json.loads(output)


@pytest.fixture(scope="module")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    guard_self()
    establish("auto", cuda=False)
    policy = policy_in_force()
    if policy is None or not policy.can_fork:
        pytest.skip("no zygote can start processes under the policy of this machine")
    made = Forks(policy, tmp_path_factory.mktemp("code"))
    yield made
    made.first.close()
    made.zygote.close()
    use_policy(None, {"mode": "off", "layers": {}, "actions": {}})


def test_the_self_test_finds_a_forked_process_as_confined_as_a_program(forks: Forks) -> None:
    """What is applied, and what is stopped, is the same; the attacks are on the zygote as well."""
    assert attack(forks.policy, forks.zygote) == attack(forks.policy)


def test_a_forked_process_has_the_imports_and_nothing_else_of_its_zygote(forks: Forks) -> None:
    reader, writer = os.pipe()
    told = [forks.ask(TELL, pass_fds=[writer]) for _ in range(2)]
    os.close(reader)
    os.close(writer)
    for one in told:
        assert one["modules"] == ["fractions", "decimal"] and one["argv"] == ["one", "two"] and one["scratch"] and one["threads"] == 1
        assert "KIND" not in one["names"] and "HOME" in one["names"]
        assert len([number for number in one["files"] if number not in (0, 1, 2, writer)]) <= 1  # the listing's own
    assert all(first != second for first, second in zip(told[0]["draws"], told[1]["draws"], strict=True))


@pytest.mark.parametrize(
    ("ending", "code"), [("os._exit(7)", 7), ("raise SystemExit(3)", 3), ("raise ValueError", 1), ("ctypes.string_at(0)", -11)]
)
def test_the_exit_of_a_forked_process_is_reported(forks: Forks, ending: str, code: int) -> None:
    with forks.start(f"import ctypes, os\n{ending}\n") as process:
        assert process.read_output(30, 1 << 10) == b""
        assert process.process.wait(10) == code
        process.require_launched()
        assert ("ValueError" in process.stderr_tail()) == ("ValueError" in ending)


def test_a_kill_ends_all_that_a_forked_process_started(forks: Forks) -> None:
    watch, held = os.pipe()
    with forks.start(ESCAPE + "print('up', flush=True)\ntime.sleep(100)\n", pass_fds=[held]) as process:
        os.close(held)
        assert process.process.stdout is not None and process.process.stdout.readline() == b"up\n", process.stderr_tail()
        assert not closed_within(watch, 0.2)
        process.kill()
        assert closed_within(watch, 10.0)
    os.close(watch)


def test_a_process_is_started_as_a_program_once_its_zygote_has_ended(forks: Forks) -> None:
    other = forks.first.branch([], {})
    other.wait_ready()
    os.kill(other.pid, signal.SIGKILL)
    with SandboxedProcess("tritonsmith.evaluator.errors", policy=forks.policy, zygote=other) as process:
        assert not isinstance(process.process, ForkedProcess) and process.process.wait(30) == 0
        process.require_launched()


def test_a_zygote_ends_with_the_process_that_asks_it(forks: Forks) -> None:
    zygote = Zygote()
    zygote.wait_ready()
    zygote._control.close()
    assert zygote._process is not None and zygote._process.wait(10) == 0
    zygote.close()


@pytest.mark.parametrize(("module", "words"), [("no_such_module", "No module named"), ("many_threads", "threads")])
def test_a_zygote_with_a_thread_too_many_or_without_its_imports_is_not_used(
    forks: Forks, module: str, words: str
) -> None:
    lines = ("import threading, time", "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()")
    (forks.folder / "many_threads.py").write_text("\n".join(lines))
    zygote = Zygote([module], forks.names)
    with pytest.raises(InfrastructureError, match=words):
        zygote.wait_ready()
    zygote.close()


def test_zygotes_that_stop_less_than_a_program_are_not_used(forks: Forks, monkeypatch: pytest.MonkeyPatch) -> None:
    """The report says so, and processes are started as programs."""
    kind = Branch({"KIND": "weak"}, ())
    monkeypatch.setattr(warm_start, "_COMMON", ())
    monkeypatch.setattr(warm_start, "attack", lambda policy, zygote: {"actions": {"trace_oracle": "allowed"}, "layers": {}})
    for weak in (True, False):
        begin_warm_start(kind)
        finish_warm_start()
        said = sandbox_report()["warm_start"]
        with SandboxedProcess("tritonsmith.evaluator.errors", confined=True, environment=dict(kind.environment)) as process:
            assert isinstance(process.process, ForkedProcess) is not weak and process.process.wait(30) == 0
        assert said == "applied" if not weak else said.startswith("not used: a child of the zygote lacks trace_oracle")
        end_warm_start()
        monkeypatch.undo()
        monkeypatch.setattr(warm_start, "_COMMON", ())
