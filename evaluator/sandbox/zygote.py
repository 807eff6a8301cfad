"""Zygotes: trusted processes that have done the imports of confined ones and fork one of these per request. The caller's side.

A zygote runs no candidate code and learns nothing but the policy and the paths of what it starts. Confinement is applied after the fork.
"""

from __future__ import annotations

import contextlib
import marshal
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from tritonsmith.evaluator.errors import InfrastructureError
from tritonsmith.evaluator.processes.scrubbed import scrubbed_environment
from tritonsmith.evaluator.sandbox.zygote_process import MESSAGE_BYTES

_LOAD_SECONDS = 90.0
"""Longest wait for a zygote's imports, on a busy host."""
_POLL_SECONDS = 0.01
"""Time between two looks at a process that is waited for."""
_ANSWER_SECONDS = 30.0
"""Longest wait for a fork."""


class ForkedProcess:
    """A process that a zygote started and that is a child of this one: as much of `subprocess.Popen` as callers need.

    Args:
        pid: its number.
        stdin: the end of the pipe that it reads.
        stdout: the end of the pipe that it writes.
    """

    def __init__(self, pid: int, stdin: int, stdout: int) -> None:
        self.pid = pid
        self.stdin: BinaryIO = os.fdopen(stdin, "wb")
        self.stdout: BinaryIO = os.fdopen(stdout, "rb")
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while the process lives."""
        if self.returncode is None:
            try:
                pid, state = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                self.returncode = -signal.SIGKILL
            else:
                self.returncode = os.waitstatus_to_exitcode(state) if pid else None
        return self.returncode

    def wait(self, timeout: float) -> int:
        """The exit code. Raises subprocess.TimeoutExpired."""
        deadline = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            time.sleep(_POLL_SECONDS)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)


class Zygote:
    """A zygote, or a branch of one with further imports. Needs a caller that is a subreaper (`oneself.guard_self`).

    Args:
        modules: what it imports.
        environment: additions to the scrubbed environment.
    """

    def __init__(self, modules: Sequence[str] = (), environment: Mapping[str, str] | None = None) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = tempfile.TemporaryDirectory(prefix="tritonsmith-zygote-")
        self._log = Path(self._folder.name) / "stderr.txt"
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._ready = False
        program = [sys.executable, "-P", "-W", "ignore", "-m", "tritonsmith.evaluator.sandbox.zygote_process"]
        with theirs, self._log.open("wb") as log:
            self._process: subprocess.Popen[bytes] | None = subprocess.Popen(
                [*program, str(theirs.fileno()), *modules],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, pass_fds=[theirs.fileno()], cwd=self._folder.name,
                env=scrubbed_environment(Path(self._folder.name), dict(environment or {})), start_new_session=True,
            )  # fmt: skip
        for stream in (self._process.stdin, self._process.stdout):  # pipes, because Python remembers of which kind they are
            assert stream is not None
            stream.close()
        self.pid = self._process.pid

    def branch(self, modules: Sequence[str], environment: Mapping[str, str]) -> Zygote:
        """A zygote forked from this one, which imports more under a further environment; it may not be ready yet.

        Raises InfrastructureError.
        """
        self.wait_ready()
        other = Zygote.__new__(Zygote)
        other._folder, other._log, other._process, other._ready = None, self._log, None, False
        other._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            message = {"op": "branch", "modules": list(modules), "environment": dict(environment)}
            other.pid = self._ask(message, [theirs.fileno()])
        return other

    def wait_ready(self) -> None:
        """Until its imports are done. Raises InfrastructureError: they failed, or left more than one thread, of which a fork keeps one."""
        if not self._ready:
            threads = self._read(_LOAD_SECONDS)
            if threads != 1:
                raise InfrastructureError(f"the zygote has {threads} threads")
            self._ready = True

    def start(
        self, module: str, arguments: Sequence[str], *, launch: dict[str, Any], environment: Mapping[str, str], stderr: int,
        pass_fds: Sequence[int] = (),
    ) -> ForkedProcess:  # fmt: skip
        """Start a confined process that runs a module.

        Args:
            module: what it runs, as `python -m` would.
            arguments: its command line.
            launch: from `SandboxPolicy.describe_launch`.
            environment: all of its environment.
            stderr: where its errors go.
            pass_fds: descriptors that it gets under the same numbers.
        Raises:
            InfrastructureError: the zygote has ended or cannot fork.
        """
        self.wait_ready()
        their_stdin, stdin = os.pipe()
        stdout, their_stdout = os.pipe()
        numbers = [0, 1, 2, launch["status"], *pass_fds]
        message = {
            "op": "start", "module": module, "arguments": list(arguments), "environment": dict(environment), "policy": launch,
            "numbers": numbers,
        }  # fmt: skip
        try:
            pid = self._ask(message, [their_stdin, their_stdout, stderr, launch["status"], *pass_fds])
        except InfrastructureError:
            os.close(stdin)
            os.close(stdout)
            raise
        finally:
            os.close(their_stdin)
            os.close(their_stdout)
        return ForkedProcess(pid, stdin, stdout)

    def _ask(self, message: dict[str, Any], descriptors: list[int]) -> int:
        try:
            socket.send_fds(self._control, [marshal.dumps(message)], descriptors)
        except OSError as error:
            raise InfrastructureError(f"the zygote does not answer: {error.strerror}") from error
        return self._read(_ANSWER_SECONDS)

    def _read(self, seconds: float) -> int:
        data = b""
        if select.select([self._control], [], [], seconds)[0]:
            with contextlib.suppress(OSError):
                data = self._control.recv(MESSAGE_BYTES)
        if not data:
            raise InfrastructureError(f"the zygote gave no answer within {seconds:.0f} s or has ended: {self._read_log()}")
        number = int(marshal.loads(data))
        if number < 1:  # a process id or a number of threads; to kill process 0 would end the caller's own group
            raise InfrastructureError(f"the zygote could not fork: {self._read_log()}")
        return number

    def _read_log(self) -> str:
        with contextlib.suppress(OSError):
            return (self._log.read_text(errors="replace").strip().splitlines() or ["it said nothing"])[-1][-300:]
        return "it said nothing"

    def close(self) -> None:
        """End it; a branch after the zygote that it came from, whose child it is until then. What they started lives on."""
        self._control.close()
        with contextlib.suppress(OSError):
            os.kill(self.pid, signal.SIGKILL)
        if self._process is not None:
            self._process.wait()
        else:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.pid, 0)
        if self._folder is not None:
            self._folder.cleanup()


_in_use: dict[frozenset[tuple[str, str]], Zygote] = {}
"""By the additions to the scrubbed environment that its processes get."""


def use_zygote(zygote: Zygote, environment: Mapping[str, str]) -> None:
    """Start confined processes with these additions to their environment from this zygote."""
    _in_use[frozenset(environment.items())] = zygote


def find_zygote(environment: Mapping[str, str]) -> Zygote | None:
    """The zygote for confined processes with these additions to their environment; None where they are started as programs."""
    return _in_use.get(frozenset(environment.items()))


def forget_zygotes() -> None:
    """Start every confined process as a program."""
    _in_use.clear()
