"""Whatever a candidate does to itself or to the machine costs one verdict; the next honest one passes in the same evaluator."""

import contextlib
import errno
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from project import ROOT
from tritonsmith.evaluator.caller.local import LocalEvaluator, open_evaluator
from tritonsmith.evaluator.processes.run_folder import remove_tree, run_folder, sweep
from tritonsmith.evaluator.sandbox.layers import RUN_UID
from tritonsmith.evaluator.schema import Status, Task, Verdict
from tritonsmith.evaluator.tasks.files import load_task

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


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
_KERNEL = '''
import atexit, ctypes, faulthandler, os, resource, shutil, signal, subprocess, sys, threading, time
import torch
import triton
import triton.language as tl
from torch import nn

MARK = "{mark}"
{at_import}

@triton.jit
def relu_square(x, out, count, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    value = tl.load(x + place, mask=inside)
    {in_kernel}
    tl.store(out + place, tl.maximum(value, 0.0, propagate_nan=tl.PropagateNan.ALL) + value * value, mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        {in_forward}
        out = torch.empty_like(x)
        relu_square[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), BLOCK=64)
        return out
'''
MARK = "tritonsmith-fault-4d1f"
"""Part of the name of every file that a fault tries to write outside its scratch folder."""


@dataclass(frozen=True)
class Fault:
    """One fault: text at module level, first in forward, or in the kernel; and what the verdict may say."""

    name: str
    expect: str
    forward: str = "pass"
    module: str = ""
    kernel: str = "pass"

    @property
    def source(self) -> str:
        """The candidate's text."""
        parts = {"mark": MARK, "at_import": self.module.strip(), "in_kernel": self.kernel.strip()}
        return _KERNEL.format(in_forward=self.forward.strip().replace("\n", "\n        "), **parts)


HONEST = Fault("honest", "ok").source
_DEAD = "crashed"
_ENDED = "crashed runtime_error timeout"
_ANY = "ok crashed runtime_error timeout launch_error"

FAULTS = (
    Fault("segfault", _DEAD, "ctypes.string_at(0)"),
    Fault("exit", _DEAD, "os._exit(0)"),
    Fault("exit_while_imported", "crashed compile_error", module="os._exit(7)"),
    Fault("abort", _DEAD, "os.abort()"),
    # The first process of a pid namespace is spared by signals from inside it.
    Fault("kills_itself", "ok crashed", "os.kill(os.getpid(), signal.SIGKILL)"),
    Fault("stops_itself", "ok timeout", "os.kill(os.getpid(), signal.SIGSTOP)"),
    Fault("kills_everybody", _ANY, "try: os.kill(-1, signal.SIGKILL)\nexcept OSError: pass"),
    Fault("endless_loop", "timeout", "while True: pass"),
    Fault("endless_loop_that_ignores_signals", "timeout", "for n in range(1, 32):\n    try: signal.signal(n, signal.SIG_IGN)\n"
          "    except (OSError, ValueError): pass\nwhile True: time.sleep(1)"),
    Fault("endless_loop_in_the_kernel", "timeout launch_error", kernel="while tl.load(x) == tl.load(x): value += 1.0"),
    Fault("huge_allocation", _ENDED, "torch.ones(1 << 38)"),
    Fault("memory_until_the_end", _ENDED, "kept = []\nwhile True: kept.append(bytearray(1 << 28))"),
    Fault("fork_bomb", _ANY, "for _ in range(100000):\n    try: os.fork()\n    except OSError: time.sleep(0.01)\n"
          "    if time.process_time() > 2: os._exit(0)"),
    Fault("thread_bomb", _ANY, "for _ in range(10000):\n    try: threading.Thread(target=time.sleep, args=(600,)).start()\n"
          "    except RuntimeError: break"),
    Fault("flood_of_stdout", _ANY, "for _ in range(300): os.write(1, b'x' * (1 << 20))"),
    Fault("flood_of_stderr", _ANY, "while True: os.write(2, b'y' * (1 << 20))"),
    Fault("flood_of_prints_at_import", _ANY, module="for n in range(200000): print('z' * 200)"),
    Fault("deep_recursion", _ENDED, "sys.setrecursionlimit(10**9)\ndef down(n): return down(n + 1) + 1\ndown(0)"),
    Fault("c_stack_overflow", _ENDED, "sys.setrecursionlimit(10**9)\nclass A:\n    __getattr__ = lambda self, n: getattr(self, n)\nA().x"),
    Fault("deletes_what_it_can", _ANY, "for folder in (os.getcwd(), os.path.dirname(__file__), os.path.dirname(torch.__file__), "
          "os.path.dirname(os.path.dirname(os.getcwd()))):\n    shutil.rmtree(folder, ignore_errors=True)"),
    Fault("locks_its_scratch", _ANY, "os.makedirs('a/b/c', exist_ok=True)\nos.chmod('a/b', 0)\nos.chmod('.', 0)"),
    Fault("fills_the_disk", _ANY, "for n in range(64):\n    try: open(f'{MARK}-{n}', 'wb').write(bytes(1 << 26))\n"
          "    except OSError: break"),
    Fault("many_small_files", _ANY, "for n in range(100000):\n    try: open(f'f{n}', 'w').close()\n    except OSError: break"),
    Fault("writes_elsewhere", "ok", "for folder in ('/tmp', '/var/tmp', '/dev/shm', os.path.dirname(__file__), '/', "
          "os.path.dirname(torch.__file__), os.path.dirname(os.getcwd())):\n    try: open(f'{folder}/{MARK}', 'w').close()\n"
          "    except OSError: pass"),
    Fault("closes_every_descriptor", "timeout crashed runtime_error", "os.closerange(0, 4096)"),
    Fault("daemon", "ok", "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        while True: time.sleep(1)\n"
          "    os._exit(0)"),
    Fault("children_that_wait", "ok", "for _ in range(3): subprocess.Popen(['sleep', '600'], start_new_session=True)"),
    Fault("raises_when_deleted", "ok", "class A:\n    def __del__(self): raise RuntimeError('gone')\nA()"),
    Fault("raises_at_exit", "ok", "atexit.register(lambda: 1 / 0)\natexit.register(lambda: time.sleep(600))"),
    Fault("huge_message", "runtime_error", "raise ValueError('m' * (1 << 27))"),
    Fault("message_that_raises", _ENDED, "class Odd(Exception):\n    def __str__(self): raise RuntimeError('no words')\nraise Odd"),
    Fault("message_that_never_ends", "timeout crashed", "class Odd(Exception):\n    def __str__(self):\n"
          "        while True: pass\nraise Odd"),
    Fault("keyboard_interrupt", _ENDED, "raise KeyboardInterrupt"),
    Fault("system_exit", _ENDED, "raise SystemExit(0)"),
    Fault("system_exit_while_imported", "compile_error crashed", module="raise SystemExit(0)"),
    Fault("lowers_its_limits", _ANY, "resource.setrlimit(resource.RLIMIT_NOFILE, (4, 4))\n"
          "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))"),
    Fault("fault_handler_and_masks", _ANY, "faulthandler.enable()\nfaulthandler.dump_traceback_later(0.01, repeat=True)\n"
          "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))"),
    Fault("alarm", _ANY, "signal.setitimer(signal.ITIMER_REAL, 0.01)\ntime.sleep(0.05)"),
    Fault("changes_folder_and_mask", _ANY, "os.chdir('/')\nos.umask(0o777)\nos.environ.clear()"),
    Fault("null_bytes_in_the_source", "compile_error crashed runtime_error", module="exec(chr(0))"),
)  # fmt: skip
ENDLESS_IMPORT = Fault("endless_import", "timeout", module="while True: pass")

BY_NAME = {fault.name: fault for fault in FAULTS}
SAMPLE = ("segfault", "writes_elsewhere")
CALL_SECONDS = 20
"""Longer than any honest step here takes on a busy machine; every endless fault waits for it."""
OUTSIDE = ("/", "/tmp", "/var/tmp", "/dev/shm", str(Path.home()), str(ROOT))


def family(pid: int) -> dict[int, str]:
    """Every process below one, with what tells it from a later one with the same number."""
    found: dict[int, str] = {}
    pending = [pid]
    while pending:
        one = pending.pop()
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{one}/task").iterdir():
                pending += [int(word) for word in (task / "children").read_text().split() if int(word) not in found]
            found[one] = born(one)
    found.pop(pid, None)
    return found


def born(pid: int) -> str:
    """When a process started; empty when it has ended, though its parent may not have noticed."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return ""
    return "" if words[0] == "Z" else words[19]


def command_of(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    return ""


def name_of(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def wait_for(what: Callable[[], bool], seconds: float = 100) -> bool:
    deadline = time.monotonic() + seconds
    while not (done := what()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return done


def still_there(processes: dict[int, str]) -> list[str]:
    return [command_of(pid)[-200:] for pid, birth in processes.items() if birth and born(pid) == birth]


def strays() -> set[str]:
    return {str(path) for top in OUTSIDE for path in Path(top).glob(f"*{MARK}*")}


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Task:
    path = tmp_path_factory.mktemp("task") / "task.py"
    path.write_text(TASK)
    return load_task(path)


OTHERS: set[int] = set()
"""Processes of the evaluator that this worker's tests share."""


@pytest.fixture(scope="module")
def lone() -> Iterator[LocalEvaluator]:
    """One evaluator with one oracle for all faults; nothing of it may be left at the end."""
    OTHERS.update(family(os.getpid()))
    folders_before, shared_before = set(run_folder().iterdir()), set(os.listdir("/dev/shm"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "cpu_count", lambda: 1)
        opened = open_evaluator("h200", call_seconds=CALL_SECONDS)
    yield opened
    processes = {pid: birth for pid, birth in family(os.getpid()).items() if pid not in OTHERS}
    opened.close()
    janitors = {pid: birth for pid, birth in processes.items() if "rmtree" in command_of(pid)}
    processes = {pid: birth for pid, birth in processes.items() if pid not in janitors}
    assert wait_for(lambda: not still_there(processes)), still_there(processes)
    assert set(run_folder().iterdir()) == folders_before
    assert strays() == set()
    new = set(os.listdir("/dev/shm")) - shared_before
    assert {name for name in new if Path("/dev/shm", name).stat().st_uid >= RUN_UID} == set()


def oracle_of_this_process() -> int:
    found = [pid for pid in family(os.getpid()) if pid not in OTHERS and "tritonsmith.evaluator.oracle" in command_of(pid)]
    assert len(found) == 1
    return found[0]


def costs_one_verdict(lone: LocalEvaluator, task: Task, fault: Fault) -> None:
    oracle = oracle_of_this_process()
    verdict = lone.evaluate_now(task, fault.source)
    assert verdict.status.value in fault.expect.split(), f"{verdict.status}: {verdict.message}"
    assert len(verdict.message) < 10_000
    honest = lone.evaluate_now(task, HONEST)
    assert honest.status is Status.OK, honest.message
    assert oracle_of_this_process() == oracle, "the oracle died of it"
    assert strays() == set()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_sample_of_faults_costs_one_verdict_each(evaluator: LocalEvaluator, task: Task) -> None:
    for name in SAMPLE:
        verdict = evaluator.evaluate_now(task, BY_NAME[name].source)
        assert verdict.status.value in BY_NAME[name].expect.split(), verdict.message
    assert evaluator.evaluate_now(task, HONEST).status is Status.OK
    assert strays() == set()


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("fault", [*FAULTS, ENDLESS_IMPORT], ids=lambda fault: fault.name)
def test_a_fault_costs_one_verdict(lone: LocalEvaluator, task: Task, fault: Fault) -> None:
    costs_one_verdict(lone, task, fault)


def test_there_are_at_least_twenty_kinds() -> None:
    assert len(BY_NAME) == len(FAULTS) >= 20
    for fault in FAULTS:
        compile(fault.source, fault.name, "exec")
        assert {Status(word) for word in fault.expect.split()}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_an_oracle_that_is_killed_in_the_middle_is_replaced(lone: LocalEvaluator, task: Task) -> None:
    verdicts: list[Verdict] = []
    slow = Fault("slow", "ok", module="time.sleep(3)")
    asking = threading.Thread(target=lambda: verdicts.append(lone.evaluate_now(task, slow.source)))
    asking.start()
    oracle = oracle_of_this_process()
    assert wait_for(lambda: any(name_of(pid) == "compiler" for pid in family(oracle)))
    processes = family(oracle)
    os.kill(oracle, 9)
    asking.join()
    assert [verdict.status for verdict in verdicts] == [Status.OK], verdicts[0].message
    assert oracle_of_this_process() != oracle
    assert wait_for(lambda: not still_there(processes)), still_there(processes)


ORCHESTRATOR = """
import sys
from tritonsmith.evaluator.caller.local import open_evaluator
from tritonsmith.evaluator.tasks.files import load_task
with open_evaluator("h200", call_seconds=300) as evaluator:
    print("up", flush=True)
    evaluator.evaluate_now(load_task(sys.argv[1]), sys.argv[2])
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_an_orchestrator_that_is_killed_leaves_nothing(task: Task, tmp_path: Path) -> None:
    folder = tmp_path / "tmp"
    folder.mkdir()
    endless = BY_NAME["endless_loop"].source
    orchestrator = subprocess.Popen(
        [sys.executable, "-c", ORCHESTRATOR, task.path, endless], env=os.environ | {"TMPDIR": str(folder)}, stdout=subprocess.PIPE
    )
    assert orchestrator.stdout is not None and orchestrator.stdout.readline() == b"up\n"
    in_a_verdict = lambda: any(name_of(pid) == "compiler" for pid in family(orchestrator.pid))  # noqa: E731
    assert wait_for(in_a_verdict)
    processes = family(orchestrator.pid)
    assert len(processes) > 3 and list(folder.iterdir())
    orchestrator.kill()
    orchestrator.wait()
    orchestrator.stdout.close()
    assert wait_for(lambda: not still_there(processes)), still_there(processes)
    assert wait_for(lambda: not list(folder.iterdir())), list(folder.rglob("*"))


def test_the_next_start_removes_what_a_killed_janitor_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "from tritonsmith.evaluator.processes.run_folder import run_folder; print(run_folder(), flush=True); input()"
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    holder = subprocess.Popen([sys.executable, "-c", code], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdin is not None and holder.stdout is not None
    folder = Path(holder.stdout.readline().decode().strip())
    (folder / "closed").mkdir(mode=0)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    sweep()
    assert folder.is_dir()  # its process lives
    for janitor in family(holder.pid):
        os.kill(janitor, 9)
    holder.kill()
    holder.wait()
    sweep()
    assert list(tmp_path.iterdir()) == []
    holder.stdin.close()
    holder.stdout.close()


def test_a_folder_that_cannot_be_removed_harms_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that cannot be removed leaves its surroundings as they are."""
    # Another process may write into the folder while it goes; the temporary directory around it belongs to everybody.
    shared = tmp_path / "shared"
    outside = tmp_path / "outside"
    (shared / "run" / "inner").mkdir(parents=True)
    outside.mkdir(mode=0o755)
    (shared / "run" / "inner" / "link").symlink_to(outside)
    shared.chmod(0o1777)

    def busy(path: str, **_: object) -> None:
        raise OSError(errno.ENOTEMPTY, "busy", str(path))

    monkeypatch.setattr(os, "rmdir", busy)
    monkeypatch.setattr(os, "unlink", busy)
    remove_tree(shared / "run")
    monkeypatch.undo()
    assert (shared / "run" / "inner" / "link").is_symlink()
    assert stat.S_IMODE(shared.stat().st_mode) == 0o1777
    assert stat.S_IMODE(outside.stat().st_mode) == 0o755
    remove_tree(shared / "run")
    assert not (shared / "run").exists()
