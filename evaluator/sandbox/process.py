"""Start and end the processes that execute candidate code, under the policy that `sandbox_check.establish` found to work here.

A confined process is started through `sandbox_launch`, which applies the layers; `off` keeps a scrubbed environment and the kill only.
What no layer covers: the kernel's own interfaces, above all the driver's, stay within reach of the candidate (SECURITY.md).
"""

from __future__ import annotations

import contextlib
import ctypes
import marshal
import os
import resource
import select
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from tritonsmith.evaluator.errors import InfrastructureError
from tritonsmith.evaluator.processes.scrubbed import scrubbed_environment

LAYERS = (
    "bubblewrap", "user_ns", "mount_ns", "net_ns", "ipc_ns", "pid_ns", "uid", "limits", "capabilities", "no_new_privs", "own_proc",
    "landlock", "seccomp",
)  # fmt: skip
"""Layers of the launcher in the order in which they are applied; `bubblewrap` supplies the five namespaces where it is used, `own_proc`
narrows what Landlock lets through."""

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER = 1, 4, 36
_STDERR_TAIL = 4000
_GOODBYE_SECONDS = 10.0
_PAUSE_POLL_SECONDS = 0.01
_PAUSE_ROUNDS = 20  # for processes that start others while they are being stopped
FILE_BYTES = 1 << 28
SCRATCH_BYTES = 1 << 30
_PROCESSES = {False: 256, True: 1024}
"""Processes and threads of one candidate without and with a card (compilers of torch start many)."""
_CPU_SECONDS_PER_CORE = 1800
_SYSTEM_FOLDERS = ("/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/opt", "/sys")
_PATHS_IN_ENVIRONMENT = ("PYTHONPATH", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "TRITON_PTXAS_PATH", "TRITON_LIBCUDA_PATH")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_OTHERS_READ = 0o004


def _prctl(option: int, value: int) -> bool:
    return bool(ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) == 0)


def confine_self(*, file_bytes: int = 1 << 30) -> None:
    """Called first thing in a process that will run candidate code: die with the parent, no core files, bounded files."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    bound = file_bytes if hard == resource.RLIM_INFINITY else min(file_bytes, hard)
    resource.setrlimit(resource.RLIMIT_FSIZE, (bound, bound))


def guard_self() -> None:
    """Called in a trusted process: children of the same user cannot read its memory or environment, orphans come back to it."""
    _prctl(_PR_SET_DUMPABLE, 0)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


# The launcher without site-packages, which halves its start; its modules need the standard library only.
_LAUNCH = """
import sys, types
for name, path in (("tritonsmith", []), ("tritonsmith.evaluator", []), ("tritonsmith.evaluator.sandbox", [sys.argv[2]])):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = path
from tritonsmith.evaluator.sandbox.launcher import main
main()
"""


@dataclass(frozen=True)
class Policy:
    """Which layers confined processes get, and what is known about them here."""

    layers: tuple[str, ...]
    left_out: dict[str, str]
    """Layers that are not tried, with the reason."""
    required: tuple[str, ...]
    """Layers without which a process is not started; those that the self-test found applied."""
    cuda: bool
    bubblewrap: str = ""
    """Path of bwrap, for policies with that layer."""

    def text(self, command: list[str], scratch: Path, read: Sequence[Path], status: int, *, proc: bool = False) -> str:
        """The launcher's argument for one process."""
        address = None if self.cuda else max(8 << 30, _memory_bytes() // 2)
        limits = {
            "processes": _PROCESSES[self.cuda], "file_bytes": FILE_BYTES, "open_files": 4096, "address_bytes": address,
            "cpu_seconds": _CPU_SECONDS_PER_CORE * (os.cpu_count() or 1),
        }  # fmt: skip
        write = [str(scratch), *_DEVICES, "/proc/self/task", "/dev/shm"]  # noqa: S108 - /dev/shm is private where mounts are
        if "mount_ns" not in self.required:
            write.remove("/dev/shm")
        if self.cuda:
            write += [str(node) for node in Path("/dev").glob("nvidia*")] + ["/dev/dxg"]
        if proc:
            read, write = [*read, Path("/proc")], [*write, "/proc"]
        return marshal.dumps({
            "command": command, "scratch": str(scratch), "scratch_bytes": SCRATCH_BYTES, "status": status, "parent": os.getpid(),
            "layers": self.layers, "left_out": self.left_out, "required": self.required, "cuda": self.cuda, "limits": limits,
            "bubblewrap": self.bubblewrap, "inside": False, "user": None,
            "read": [*readable_paths(), *map(str, read)], "write": write,
        }).hex()  # fmt: skip


@dataclass
class _Settled:
    """What this process decided at its start; None as policy: confined processes run as plain children (`off`)."""

    policy: Policy | None = None
    report: dict[str, Any] | None = None


_settled = _Settled()


def settle(policy: Policy | None, report: dict[str, Any]) -> None:
    """Use this policy for every confined process from now on, and show this report with every verdict."""
    _settled.policy, _settled.report = policy, report


def sandbox_report() -> dict[str, Any]:
    """What the self-test of this process found: mode, layers with their states, actions that were tried with what became of them."""
    return _settled.report or {"mode": "not established", "layers": {}, "actions": {}}


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def readable_paths() -> list[str]:
    """What confined processes may read: the system, the interpreter, this package, and nothing of the user's."""
    mine = [sys.prefix, sys.base_prefix, sys.exec_prefix, *sysconfig.get_paths().values(), *(one for one in sys.path if one)]
    mine += [str(Path(__file__).parents[1]), *_links_to(sys.executable)]  # all of `evaluator`
    for name in _PATHS_IN_ENVIRONMENT:
        mine += [one for one in os.environ.get(name, "").split(os.pathsep) if one]
    found = [*_SYSTEM_FOLDERS, *(path for one in mine for path in (os.path.abspath(one), os.path.realpath(one)))]
    for folder in ("/etc", "/run"):  # not what only some may read, and of /run only what belongs to the card
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            found += [one.path for one in entries if (folder == "/etc" or one.name.startswith("nvidia")) and _for_everybody(one)]
    return [path for path in dict.fromkeys(found) if path != "/" and os.path.exists(path)]


def _for_everybody(entry: os.DirEntry[str]) -> bool:
    with contextlib.suppress(OSError):
        return bool(entry.stat().st_mode & _OTHERS_READ)
    return False


def _links_to(program: str) -> list[str]:
    """The folders that a chain of links to a program passes through."""
    folders = []
    while os.path.islink(program):
        program = os.path.join(os.path.dirname(program), os.readlink(program))
        folders.append(os.path.dirname(os.path.abspath(program)))
    return folders


def _signal(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(OSError):
            os.kill(pid, number)


def threads_of(pid: int) -> list[int]:
    """Numbers of a process's threads; none when it is gone."""
    with contextlib.suppress(OSError):
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    return []


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for thread in threads_of(pid):  # twice for every timed call of a baseline, hence no Path
        with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{thread}/children", "rb", buffering=0) as file:
            found += [int(word) for word in file.read().split()]
    return found


class SandboxedProcess:
    """One disposable Python process running `python -P -m MODULE`, with a scratch folder that is removed at the end.

    Args:
        module: dotted module that the process runs.
        arguments: its command line.
        pass_fds: file descriptors that stay open in the child under the same numbers.
        environment: additions to the scrubbed environment.
        confined: run under the settled policy; False for processes that run no candidate code.
        read: files of ours that it must read; a confined process sees no others.
        policy: another policy than the settled one.
        proc: let it see all of /proc, as a tool needs that watches a child; safe under a user id of its own only.
    """

    def __init__(
        self, module: str, arguments: Sequence[str] = (), *, pass_fds: Sequence[int] = (), environment: dict[str, str] | None = None,
        confined: bool = False, read: Sequence[Path] = (), policy: Policy | None = None, proc: bool = False,
    ) -> None:  # fmt: skip
        policy = policy or (_settled.policy if confined else None)
        if confined and policy is None and _settled.report is None:
            raise InfrastructureError("candidate code was to run before the sandbox was established")
        self._folder = tempfile.TemporaryDirectory(prefix="tritonsmith-", ignore_cleanup_errors=True)
        folder = Path(self._folder.name)
        folder.chmod(0o711)
        self.scratch = folder / "scratch"
        self.scratch.mkdir(mode=0o700)
        self._stderr = folder / "stderr.txt"
        self._status: dict[str, str] = {}
        self._paused: list[int] = []
        self._killed = False
        command = [sys.executable, "-P", "-W", "ignore", "-m", module, *arguments]
        self._reader, status = os.pipe() if policy else (-1, -1)
        if policy:
            for file in read:
                file.chmod(file.stat().st_mode | (0o555 if file.is_dir() else 0o444))  # our own files, whatever the umask was
            text = policy.text(command, self.scratch, read, status, proc=proc)
            command = [sys.executable, "-I", "-S", "-c", _LAUNCH, text, str(Path(__file__).parent)]
        self._confined = policy is not None
        with self._stderr.open("wb") as log:
            self._stderr.chmod(0o600)
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                env=scrubbed_environment(self.scratch, environment), cwd=self.scratch,
                pass_fds=[*pass_fds, *([status] if policy else [])], start_new_session=True,
            )  # fmt: skip
        if status >= 0:
            os.close(status)

    @property
    def alive(self) -> bool:
        """False once the process has ended."""
        return self.process.poll() is None

    def inside(self) -> list[int]:
        """Every process of the run but the keeper, which stays outside."""
        if self._killed:
            return []
        if not self._confined:
            return [self.process.pid]
        found: list[int] = []
        pending = _children(self.process.pid)
        while pending:
            pid = pending.pop()
            if pid not in found:
                found.append(pid)
                pending += _children(pid)
        return found

    def pause(self) -> None:
        """Let every process of the run but the keeper stand still; those that start meanwhile too, as far as they can be followed."""
        self._paused = []
        for _ in range(_PAUSE_ROUNDS):
            fresh = [pid for pid in self.inside() if pid not in self._paused]
            if not fresh:
                return
            self._paused += fresh
            _signal(fresh, signal.SIGSTOP)

    def resume(self) -> None:
        """Let those go on that `pause` stopped. They are not looked for again: with many of them that takes a millisecond."""
        _signal(self._paused, signal.SIGCONT)
        self._paused = []

    def launched(self, timeout: float) -> dict[str, str]:
        """What became of each layer, by name; under the empty name why the command was not run. Empty when nothing was said in time."""
        if self._reader >= 0 and not self._status and select.select([self._reader], [], [], timeout)[0]:
            lines = os.read(self._reader, 1 << 16).decode(errors="replace").splitlines()
            self._status = {name: state for name, _, state in (line.partition("\t") for line in lines)}
        return self._status

    def require_launched(self) -> None:
        """For a process that ended: raises InfrastructureError when the launcher, not the candidate, was at fault."""
        if self._confined and (not (said := self.launched(0.0)) or said.get("", "")):
            why = said.get("") or self.stderr_tail().strip()[-300:] or "it said nothing"
            raise InfrastructureError(f"the sandbox did not start: {why}")

    def alive_after(self, seconds: float) -> bool:
        """False when the process has ended or does so within the time."""
        self._ends_within(seconds)
        return self.alive

    def _ends_within(self, seconds: float) -> None:
        """Wait for the end of the process; Popen's own wait sleeps longer and longer, and would see it tens of milliseconds late."""
        if not self.alive:
            return
        try:
            descriptor = os.pidfd_open(self.process.pid)
        except (OSError, AttributeError):  # before Linux 5.3
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=seconds)
            return
        ended = select.poll()
        ended.register(descriptor, select.POLLIN)
        ended.poll(seconds * 1000)
        os.close(descriptor)
        self.process.poll()

    def stderr_tail(self) -> str:
        """The end of what the process wrote to stderr."""
        with contextlib.suppress(OSError), self._stderr.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - _STDERR_TAIL))
            return log.read(_STDERR_TAIL).decode(errors="replace")
        return ""

    def read_output(
        self, seconds: float, limit: int, paused: Callable[[], bool] | None = None, *, first_within: float | None = None
    ) -> bytes | None:
        """All of stdout until it is closed, at most `limit` bytes. Returns None at the deadline; while `paused` says so, time stands.

        `first_within`: `seconds` count from the first byte on, which says that imports are done. Raises InfrastructureError if none comes.
        """
        assert self.process.stdin is not None and self.process.stdout is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        left, data, fd = seconds if first_within is None else first_within, b"", self.process.stdout.fileno()
        before = time.monotonic()
        while len(data) < limit:
            ready = select.select([fd], [], [], max(0.0, left if paused is None else min(left, _PAUSE_POLL_SECONDS)))[0]
            now = time.monotonic()
            if paused is None or not paused():
                left -= now - before
            before = now
            if not ready:
                if left > 0:
                    continue
                if first_within is not None and not data:
                    raise InfrastructureError(f"a process in the sandbox was not ready after {first_within:.0f} s")
                return None
            chunk = os.read(fd, 1 << 16)
            if not chunk:
                break
            if first_within is not None and not data:
                left = seconds
            data += chunk
        return data

    def kill(self) -> None:
        """End the process, its group and every descendant that left the group; then remove the scratch folder. Once is enough."""
        if self._killed:  # its number may be somebody else's by now
            return
        self._killed = True
        if self._confined and self.alive:  # the keeper kills and collects them all
            with contextlib.suppress(OSError):
                self.process.terminate()
            self._ends_within(_GOODBYE_SECONDS)
        pending = [self.process.pid] if self.alive else []
        family: set[int] = set()
        while pending:  # collect before killing: an orphan's parent link is gone afterwards
            pid = pending.pop()
            if pid not in family:
                family.add(pid)
                pending += _children(pid)
        with contextlib.suppress(OSError):
            os.killpg(self.process.pid, signal.SIGKILL)
        _signal(family, signal.SIGKILL)
        self._ends_within(_GOODBYE_SECONDS)
        for stream in (self.process.stdin, self.process.stdout):
            if stream:
                with contextlib.suppress(OSError):
                    stream.close()
        if self._reader >= 0:
            os.close(self._reader)
            self._reader = -1
        self._reap(family - {self.process.pid})
        self._folder.cleanup()

    @staticmethod
    def _reap(orphans: set[int]) -> None:
        """Wait for orphans that came back to us as their subreaper; other children are left alone."""
        deadline = time.monotonic() + 2
        for pid in orphans:
            while time.monotonic() < deadline:
                with contextlib.suppress(ChildProcessError):
                    if os.waitpid(pid, os.WNOHANG)[0] == 0:
                        time.sleep(0.01)
                        continue
                break

    def __enter__(self) -> SandboxedProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.kill()
