"""Start and end the processes that execute candidate code: a scrubbed environment, limits, and a kill that reaches every child.

What this does not cover yet: the file system and the network stay visible to the candidate's process (namespaces, Landlock and
seccomp are layers of their own), and no user-space layer protects the kernel driver's own interface.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

# What a process that runs candidate code may know of our environment; keys and tokens are not among it.
ALLOWED_ENVIRONMENT = (
    "PATH", "LANG", "LC_ALL", "PYTHONPATH", "LD_LIBRARY_PATH", "CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES",
    "TRITON_PTXAS_PATH", "TRITON_LIBCUDA_PATH", "CC",
)  # fmt: skip
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER = 1, 4, 36
_STDERR_TAIL = 4000


def _prctl(option: int, value: int) -> bool:
    return bool(ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) == 0)


def scrubbed_environment(scratch: Path, extra: dict[str, str] | None = None) -> dict[str, str]:
    """An environment with the allow-listed names only, a private home and a private Triton cache."""
    env = {name: os.environ[name] for name in ALLOWED_ENVIRONMENT if name in os.environ}
    env |= {"HOME": str(scratch), "TMPDIR": str(scratch), "TRITON_CACHE_DIR": str(scratch / "triton"), "PYTHONDONTWRITEBYTECODE": "1"}
    return env | (extra or {})


def confine_self(*, file_bytes: int = 1 << 30) -> None:
    """Called first thing in a process that will run candidate code: die with the parent, no core files, bounded files."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes, file_bytes))


def guard_self() -> None:
    """Called in a trusted process: children of the same user cannot read its memory or environment, orphans come back to it."""
    _prctl(_PR_SET_DUMPABLE, 0)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def probe_layers() -> dict[str, str]:
    """State of each layer on this machine: `applied`, `unavailable` or `not built yet`."""
    linux = sys.platform.startswith("linux")
    return {
        "separate process": "applied",
        "scrubbed environment": "applied",
        "limits on files and core dumps": "applied",
        "kill of every child": "applied" if linux else "unavailable",
        "parent memory unreadable": "applied" if linux else "unavailable",
        "file system view": "not built yet",
        "no network": "not built yet",
    }


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                found += [int(word) for word in (task / "children").read_text().split()]
    return found


class SandboxedProcess:
    """One disposable Python process running `python -P -m MODULE`, with a scratch folder that is removed at the end.

    Args:
        module: dotted module that the process runs.
        arguments: its command line.
        pass_fds: file descriptors that stay open in the child under the same numbers.
        environment: additions to the scrubbed environment.
    """

    def __init__(
        self, module: str, arguments: Sequence[str] = (), *, pass_fds: Sequence[int] = (), environment: dict[str, str] | None = None
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="tritonsmith-", ignore_cleanup_errors=True)
        self.scratch = Path(self._folder.name)
        self._stderr = self.scratch / "stderr.txt"
        with self._stderr.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-W", "ignore", "-m", module, *arguments],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                env=scrubbed_environment(self.scratch, environment), cwd=self.scratch, pass_fds=pass_fds, start_new_session=True,
            )  # fmt: skip
        self._descendants: set[int] = set()

    @property
    def alive(self) -> bool:
        """False once the process has ended."""
        return self.process.poll() is None

    def stderr_tail(self) -> str:
        """The end of what the process wrote to stderr."""
        with contextlib.suppress(OSError):
            return self._stderr.read_bytes()[-_STDERR_TAIL:].decode(errors="replace")
        return ""

    def kill(self) -> None:
        """End the process, its group and every descendant that left the group; then remove the scratch folder."""
        pending = [self.process.pid] if self.alive else []
        family: set[int] = set()
        while pending:  # collect before killing: an orphan's parent link is gone afterwards
            pid = pending.pop()
            if pid not in family:
                family.add(pid)
                pending += _children(pid)
        with contextlib.suppress(OSError):
            os.killpg(self.process.pid, signal.SIGKILL)
        for pid in family:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=10)
        for stream in (self.process.stdin, self.process.stdout):
            if stream:
                with contextlib.suppress(OSError):
                    stream.close()
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
