"""What confined code can and cannot do: it is run, it tries, and it is killed with all that it started."""

import json
import mmap
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from confined_code import ESCAPE, closed_within
from tritonsmith.evaluator.caller.local import open_evaluator
from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.sandbox import self_test
from tritonsmith.evaluator.sandbox.policy import FILE_BYTES, SandboxPolicy, use_policy
from tritonsmith.evaluator.sandbox.process import SandboxedProcess
from tritonsmith.evaluator.sandbox.self_test import attack, establish, missing_protections
from tritonsmith.evaluator.schema import Status
from tritonsmith.evaluator.tasks.files import load_task

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the layers are Linux's")
NOTHING_ESTABLISHED = {"mode": "off", "layers": {}, "actions": {}}



@pytest.fixture(scope="module")
def report() -> Iterator[dict[str, Any]]:
    yield establish("auto", cuda=False)
    use_policy(None, NOTHING_ESTABLISHED)


@pytest.fixture
def confined(report: dict[str, Any], tmp_path: Path) -> Any:
    """Starts Python text as candidate code would be started."""
    if report["missing"]:
        pytest.skip(f"this machine lacks {report['missing']}")

    def start(code: str, **options: Any) -> SandboxedProcess:
        folder = tmp_path / "code"
        folder.mkdir(exist_ok=True)
        (folder / "hostile.py").write_text(code)
        options.setdefault("environment", {"PYTHONPATH": str(folder)})
        files = [folder, folder / "hostile.py"]
        return SandboxedProcess("runpy", ["hostile"], confined=True, read=files, **options)

    return start


def said(process: SandboxedProcess) -> Any:
    with process:
        output = process.read_output(30, 1 << 20)
        assert output, process.stderr_tail()
        return json.loads(output)


def test_with_its_layers_the_self_test_stops_every_attack(report: dict[str, Any]) -> None:
    if report["layers"]["landlock"] != "applied" or report["layers"]["seccomp"] != "applied":
        pytest.skip("this kernel lacks Landlock or seccomp")
    assert set(report["actions"].values()) == {"blocked"}
    assert report["missing"] == []


@pytest.mark.parametrize("around", [pytest.param(0o755, marks=pytest.mark.slow), 0o700])
def test_what_comes_into_a_folder_later_can_be_read_too(confined: Any, tmp_path: Path, around: int) -> None:
    """Runners wait before their task has a folder; on a card that folder lies below one that was named at their start."""
    sessions = tmp_path / "around" / "sessions"
    sessions.mkdir(parents=True)
    sessions.chmod(0o755)
    sessions.parent.chmod(around)
    code = "import json, sys\nwith open(sys.stdin.readline().strip()) as file:\n    print(json.dumps(file.read()), flush=True)\n"
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "hostile.py").write_text(code)
    environment = {"PYTHONPATH": str(folder)}
    process = SandboxedProcess("runpy", ["hostile"], confined=True, read=[folder, folder / "hostile.py", sessions], environment=environment)
    time.sleep(1.0)  # its layers are applied meanwhile
    task = sessions / "task"
    task.mkdir(mode=0o755)
    (task / "weights").write_text("drawn later")
    (task / "weights").chmod(0o644)
    assert process.process.stdin is not None
    process.process.stdin.write(f"{task / 'weights'}\n".encode())
    process.process.stdin.flush()
    assert said(process) == "drawn later"


def test_without_layers_the_self_test_says_what_it_could_do() -> None:
    bare = attack(SandboxPolicy(("limits",), {}, (), cuda=False))
    reached = {name for name, state in bare["actions"].items() if state == "allowed"}
    assert {"tcp_loopback", "udp_loopback", "abstract_socket", "read_foreign_file", "write_outside", "signal_oracle"} <= reached
    assert bare["actions"]["outlive_the_kill"] == "blocked"  # the keeper needs no layer for that
    assert "no network" in missing_protections(bare)


def test_strict_refuses_in_one_sentence_and_auto_goes_on(monkeypatch: pytest.MonkeyPatch, report: dict[str, Any]) -> None:
    monkeypatch.setattr(self_test, "LAYERS", ("limits", "no_new_privs"))
    with pytest.raises(UsageError, match="--sandbox strict.*no network.*writes stay") as refused:
        establish("strict", cuda=False)
    assert "\n" not in str(refused.value)
    monkeypatch.setattr(self_test, "use_policy", lambda policy, found: None)
    assert "no network" in establish("auto", cuda=False)["missing"]
    with pytest.raises(UsageError, match="--sandbox loose"):
        establish("loose", cuda=False)


CANARY = "canary-91c4e7"
LOOK_AROUND = """
import glob, json, os
found = [name for name, value in os.environ.items() if "canary-91c4e7" in value]
for path in [*glob.glob("/proc/*/environ"), *glob.glob("/proc/*/cmdline"), *glob.glob("/proc/*/task/*/environ"), RUN]:
    for one in [path, *glob.glob(path + "/**", recursive=True)] if path == RUN else [path]:
        try:
            with open(one, "rb") as file:
                if b"canary-91c4e7" in file.read():
                    found.append(one)
        except OSError:
            pass
try:
    found += os.listdir(RUN)
except OSError:
    pass
print(json.dumps(found))
"""


def test_a_key_of_ours_is_nowhere_in_reach(confined: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)
    run = tmp_path / "run"
    run.mkdir(mode=0o755)
    (run / "settings.json").write_text(CANARY)
    holder = subprocess.Popen(["sleep", "60"], env={"KEY": CANARY})  # a process that has it in its first environment
    try:
        assert said(confined(f"RUN = {str(run)!r}\n{LOOK_AROUND}")) == []
    finally:
        holder.kill()
        holder.wait()


def test_the_scratch_folder_is_writable_and_goes_at_the_end(confined: Any) -> None:
    """The scratch folder is there to write, and is removed at the end."""
    process = confined(
        "import json, os, tempfile\n"
        "with tempfile.NamedTemporaryFile(delete=False) as file: file.write(b'x')\n"
        "refused = []\n"
        "for path in ('/etc/x', '/usr/x', '/var/tmp/x', '/tmp/x', os.path.dirname(os.getcwd()) + '/x'):\n"
        "    try: open(path, 'w')\n"
        "    except OSError: refused.append(path)\n"
        "print(json.dumps([file.name.startswith(os.environ['HOME']), len(refused)]))\n"
    )
    folder = process.scratch.parent
    assert said(process) == [True, 5]
    assert not folder.exists()


@pytest.mark.parametrize("ending", ["time.sleep(100)", "os._exit(0)", "os.abort()"], ids=["killed", "exits", "aborts"])
def test_a_process_that_escaped_its_session_ends_too(confined: Any, ending: str) -> None:
    watch, held = os.pipe()
    with confined(ESCAPE + "os.write(2, b'escaped')\n" + ending, pass_fds=[held]) as process:
        os.close(held)
        if ending.startswith("time"):
            assert not closed_within(watch, 1.0)
            process.kill()
        assert closed_within(watch, 10.0)
    os.close(watch)


def test_a_swarm_of_processes_is_bounded_and_ends(confined: Any) -> None:
    watch, held = os.pipe()
    swarm = "import os, time\nwhile True:\n    try: os.fork()\n    except OSError: os.write(2, b'full'); time.sleep(0.05)\n"
    with confined(swarm, pass_fds=[held]) as process:
        os.close(held)
        assert not closed_within(watch, 2.0)
        assert "full" in process.stderr_tail()
        process.kill()
        assert closed_within(watch, 10.0)
    os.close(watch)


RESTLESS = """
import ctypes, fcntl, json, mmap, os, signal, time
refused = []
def attempt(name, action):
    try: action()
    except OSError: refused.append(name)
def timer():
    class Event(ctypes.Structure):
        _fields_ = [("value", ctypes.c_void_p), ("signal", ctypes.c_int), ("notify", ctypes.c_int), ("rest", ctypes.c_byte * 48)]
    libc, number = ctypes.CDLL(None, use_errno=True), ctypes.c_void_p()
    if libc.timer_create(1, ctypes.byref(Event(None, signal.SIGCONT, 0)), ctypes.byref(number)):
        raise OSError(ctypes.get_errno(), "timer_create")
    libc.timer_settime(number, 0, (ctypes.c_long * 4)(0, 200000, 0, 200000), None)
attempt("timer", timer)
attempt("processor", lambda: os.sched_setaffinity(0, os.sched_getaffinity(0)))
reader, writer = os.pipe()
attempt("descriptor", lambda: fcntl.fcntl(reader, 10, signal.SIGCONT))
words = memoryview(mmap.mmap(WORDS, 4096)).cast("Q")
if os.fork() == 0:  # an orphan in a session of its own
    os.setsid()
    if os.fork(): os._exit(0)
    while True: words[1] += 1
os.wait()
while not words[1]: time.sleep(0.001)
print(json.dumps(refused), flush=True)
while True: words[0] += 1
"""


def test_a_paused_process_and_its_children_stand_still(confined: Any) -> None:
    """A process that was paused stands still with its children, and nothing of its own wakes it."""
    shared = os.memfd_create("words")
    os.ftruncate(shared, 4096)
    words = memoryview(mmap.mmap(shared, 4096)).cast("Q")
    with confined(f"WORDS = {shared}\n{RESTLESS}", pass_fds=[shared]) as process:
        refused = json.loads(process.process.stdout.readline())
        if process.layer_states(5.0).get("seccomp") != "applied":
            pytest.skip("this kernel lacks seccomp: a timer may wake what was stopped")
        assert refused == ["timer", "processor", "descriptor"]
        deadline = time.monotonic() + 10.0
        while not all(words[:2]):
            assert time.monotonic() < deadline
        process.family.pause()
        time.sleep(0.01)  # a signal reaches another processor some microseconds later
        before = list(words[:2])
        time.sleep(0.2)
        assert list(words[:2]) == before
        process.family.resume()
        deadline = time.monotonic() + 10.0
        while not all(now > then for now, then in zip(words[:2], before, strict=True)):
            assert time.monotonic() < deadline
    os.close(shared)


@pytest.mark.parametrize(("ending", "code"), [("os._exit(7)", 7), ("import ctypes; ctypes.string_at(0)", -11)])
def test_the_exit_of_the_confined_process_is_reported(confined: Any, ending: str, code: int) -> None:
    with confined(f"import os\n{ending}\n") as process:
        assert process.read_output(30, 1 << 10) == b""
        assert process.process.wait(10) == code
        process.require_launched()  # the launcher did its part


def test_a_flood_of_output_is_bounded(confined: Any) -> None:
    with confined("import os\nwhile True: os.write(2, b'x' * (1 << 20))\n") as process:
        assert process.process.wait(60) != 0
        assert len(process.stderr_tail()) <= 4000
        assert (process.scratch.parent / "stderr.txt").stat().st_size <= FILE_BYTES


KEEPS_ONE = """
import sys, time
from pathlib import Path
from tritonsmith.evaluator.sandbox.process import SandboxedProcess
from tritonsmith.evaluator.sandbox.self_test import establish
establish("auto", cuda=False)
folder = Path(sys.argv[2])
process = SandboxedProcess("runpy", ["hostile"], confined=True, read=[folder, folder / "hostile.py"], pass_fds=[int(sys.argv[1])],
                           environment={"PYTHONPATH": str(folder)})
assert process.process.stdout.readline() == b"up\\n", process.stderr_tail()
print("started", flush=True)
time.sleep(100)
"""


def test_nothing_outlives_an_oracle_that_is_killed(report: dict[str, Any], tmp_path: Path) -> None:
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "hostile.py").write_text(ESCAPE + "print('up', flush=True)\ntime.sleep(100)\n")
    watch, held = os.pipe()
    command = [sys.executable, "-P", "-c", KEEPS_ONE, str(held), str(folder)]
    oracle = subprocess.Popen(command, stdout=subprocess.PIPE, pass_fds=[held])
    os.close(held)
    assert oracle.stdout is not None and oracle.stdout.readline() == b"started\n"
    assert not closed_within(watch, 0.2)
    oracle.kill()
    oracle.wait()
    assert closed_within(watch, 10.0)
    os.close(watch)
    oracle.stdout.close()


TASK = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) + x.square()


def get_inputs():
    return [torch.randn(4, 33)]


def get_init_inputs():
    return []
"""
HOSTILE = """
import os
import socket
import torch
from torch import nn

could = []
for name, action in {
    "socket": lambda: socket.socket(socket.AF_INET),
    "task file": lambda: open(TASK_FILE),
    "home": lambda: os.listdir(HOME),
    "write": lambda: open("/var/tmp/tritonsmith-escaped", "w"),
    "root": lambda: os.setuid(0) if os.getuid() else 1 / 0,
}.items():
    try:
        action()
    except (OSError, ArithmeticError):
        continue
    could.append(name)


class ModelNew(nn.Module):
    def forward(self, x):
        if could:
            raise RuntimeError("reached: " + ", ".join(could))
        return torch.relu(x) + x.square()
"""


@pytest.mark.slow
def test_a_candidate_is_judged_inside_and_its_verdict_says_how(report: dict[str, Any], tmp_path: Path) -> None:
    if report["missing"]:
        pytest.skip(f"this machine lacks {report['missing']}")
    path = tmp_path / "task.py"
    path.write_text(TASK)
    source = HOSTILE.replace("TASK_FILE", repr(str(path))).replace("HOME", repr(str(Path.home())))
    with open_evaluator("h200", call_seconds=60, sandbox="strict") as evaluator:
        verdict = evaluator.evaluate_now(load_task(path), source)
    assert verdict.status is Status.OK, verdict.message
    found = verdict.environment["sandbox"]
    assert found["mode"] == "strict" and found["missing"] == []
    assert found["layers"]["landlock"] == "applied" and set(found["actions"].values()) == {"blocked"}


@pytest.mark.slow
def test_an_unknown_mode_is_the_users_sentence() -> None:
    with pytest.raises(UsageError, match="--sandbox loose"):
        open_evaluator("h200", sandbox="loose")
