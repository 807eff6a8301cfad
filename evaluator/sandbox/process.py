"""Start and end the processes that execute candidate code, under the policy that `self_test.establish` found to work here.

A confined process is started through `launcher`, which applies the layers, or forked from a `zygote`, which calls the launcher.
`off` keeps a scrubbed environment and the kill only.
What no layer covers: the kernel's own interfaces, above all the driver's, stay within reach of the candidate (SECURITY.md).
"""

from __future__ import annotations

import contextlib
import marshal
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from tritonsmith.evaluator.errors import InfrastructureError
from tritonsmith.evaluator.processes.output import read_output
from tritonsmith.evaluator.processes.scrubbed import scrubbed_environment
from tritonsmith.evaluator.sandbox.family import ProcessFamily, reap
from tritonsmith.evaluator.sandbox.policy import SandboxPolicy, policy_in_force
from tritonsmith.evaluator.sandbox.zygote import ForkedProcess, Zygote, find_zygote

_STDERR_TAIL_BYTES = 4000
"""How much of the end of stderr is read."""
_GOODBYE_SECONDS = 10.0
"""Longest wait for a process that was asked to end, or was killed."""
_STATES_BYTES = 1 << 16
"""Most that the launcher writes about its layers."""
_LAUNCH = """
import sys, types
for name, path in (("tritonsmith", []), ("tritonsmith.evaluator", []), ("tritonsmith.evaluator.sandbox", [sys.argv[2]])):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = path
from tritonsmith.evaluator.sandbox.launcher import main
main()
"""
"""Text that starts the launcher without site-packages, which halves its start; its modules need the standard library only."""


def _program(run: list[str]) -> list[str]:
    return [sys.executable, "-P", "-W", "ignore", "-m", *run]


class SandboxedProcess:
    """One disposable Python process running `python -P -m MODULE`, with a scratch folder that is removed at the end.

    Args:
        module: dotted module that the process runs.
        arguments: its command line.
        pass_fds: file descriptors that stay open in the child under the same numbers.
        environment: additions to the scrubbed environment.
        confined: run under the policy in force; False for processes that run no candidate code.
        read: files of ours that it must read; a confined process sees no others.
        policy: another policy than the one in force.
        proc: let it see all of /proc, as a tool needs that watches a child; safe under a user id of its own only.
        zygote: forks it; where none is given, one that is in use for this environment does, and otherwise a program is started.
    """

    def __init__(
        self, module: str, arguments: Sequence[str] = (), *, pass_fds: Sequence[int] = (), environment: dict[str, str] | None = None,
        confined: bool = False, read: Sequence[Path] = (), policy: SandboxPolicy | None = None, proc: bool = False,
        zygote: Zygote | None = None,
    ) -> None:  # fmt: skip
        if confined and policy is None and not proc:
            zygote = find_zygote(environment or {})
        policy = policy or (policy_in_force() if confined else None)
        self._folder = tempfile.TemporaryDirectory(prefix="tritonsmith-", ignore_cleanup_errors=True)
        folder = Path(self._folder.name)
        folder.chmod(0o711)
        self.scratch = folder / "scratch"
        self.scratch.mkdir(mode=0o700)
        self._stderr = folder / "stderr.txt"
        self._layers: dict[str, str] = {}
        self._reader, status = os.pipe() if policy else (-1, -1)
        self._confined = policy is not None
        with self._stderr.open("wb") as log:
            self._stderr.chmod(0o600)
            run = [module, *arguments]
            extra = environment or {}
            if policy is None:
                self.process: subprocess.Popen[bytes] | ForkedProcess = self._start_program(_program(run), log, pass_fds, extra)
            else:
                for file in read:
                    mode = file.stat().st_mode
                    if mode != (readable := mode | (0o555 if file.is_dir() else 0o444)):
                        file.chmod(readable)  # our own files, under any umask; a tool's folder is readable
                launch = policy.describe_launch(self.scratch, read, status, command=_program(run), proc=proc)
                self.process = self._fork(zygote, launch, run, log, pass_fds, extra) or self._start_launcher(launch, log, pass_fds, extra)
                os.close(status)
        self.family = ProcessFamily(self.process.pid, has_keeper=self._confined)

    def _fork(
        self, zygote: Zygote | None, launch: dict[str, Any], run: list[str], log: BinaryIO, pass_fds: Sequence[int], extra: dict[str, str]
    ) -> ForkedProcess | None:
        """The process from a zygote; None where there is none or it has ended, as the system may do where memory is short."""
        if zygote is not None:
            with contextlib.suppress(InfrastructureError):
                scrubbed = scrubbed_environment(self.scratch, extra)
                return zygote.start(run[0], run[1:], launch=launch, environment=scrubbed, stderr=log.fileno(), pass_fds=pass_fds)
        return None

    def _start_launcher(
        self, launch: dict[str, Any], log: BinaryIO, pass_fds: Sequence[int], extra: dict[str, str]
    ) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-I", "-S", "-c", _LAUNCH, marshal.dumps(launch).hex(), str(Path(__file__).parent)]
        return self._start_program(command, log, [*pass_fds, launch["status"]], extra)

    def _start_program(
        self, command: list[str], log: BinaryIO, pass_fds: Sequence[int], extra: dict[str, str]
    ) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=scrubbed_environment(self.scratch, extra),
            cwd=self.scratch, pass_fds=pass_fds, start_new_session=True,
        )  # fmt: skip

    @property
    def alive(self) -> bool:
        """False once the process has ended."""
        return self.process.poll() is None

    def layer_states(self, timeout: float) -> dict[str, str]:
        """What became of each layer, by name; under the empty name why the command was not run. Empty when no report came in time."""
        if self._reader >= 0 and not self._layers and select.select([self._reader], [], [], timeout)[0]:
            lines = os.read(self._reader, _STATES_BYTES).decode(errors="replace").splitlines()
            self._layers = {name: state for name, _, state in (line.partition("\t") for line in lines)}
        return self._layers

    def require_launched(self) -> None:
        """For a process that ended: raises InfrastructureError when the launcher, not the candidate, was at fault."""
        if self._confined and (not (states := self.layer_states(0.0)) or states.get("", "")):
            why = states.get("") or self.stderr_tail().strip()[-300:] or "it said nothing"
            raise InfrastructureError(f"the sandbox did not start: {why}")

    def alive_after(self, seconds: float) -> bool:
        """False when the process has ended or does so within the time."""
        self._wait_for_end(seconds)
        return self.alive

    def _wait_for_end(self, seconds: float) -> None:
        """Wait for the end of the process. Popen's own wait sleeps in growing steps, and sees it tens of milliseconds late."""
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
            log.seek(max(0, log.seek(0, os.SEEK_END) - _STDERR_TAIL_BYTES))
            return log.read(_STDERR_TAIL_BYTES).decode(errors="replace")
        return ""

    def read_output(
        self, seconds: float, limit: int, is_paused: Callable[[], bool] | None = None, *, first_within: float | None = None
    ) -> bytes | None:
        """Close stdin and read all of stdout, as `processes.output.read_output` does."""
        assert self.process.stdin is not None and self.process.stdout is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        return read_output(self.process.stdout.fileno(), seconds, limit, is_paused, first_within=first_within)

    def kill(self) -> None:
        """End the process, its group and every descendant that left the group; then remove the scratch folder. Once is enough."""
        if self.family.ended:  # its number may be somebody else's by now
            return
        self.family.ended = True
        if self._confined and self.alive:  # the keeper kills and collects them all
            with contextlib.suppress(OSError):
                self.process.terminate()
            self._wait_for_end(_GOODBYE_SECONDS)
        orphans = self.family.kill(first_lives=self.alive)
        self._wait_for_end(_GOODBYE_SECONDS)
        for stream in (self.process.stdin, self.process.stdout):
            if stream:
                with contextlib.suppress(OSError):
                    stream.close()
        if self._reader >= 0:
            os.close(self._reader)
            self._reader = -1
        reap(orphans)
        self._folder.cleanup()

    def __enter__(self) -> SandboxedProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.kill()
