"""A trusted server process behind pipes: started at the first request, asked line by line, started again after it died.

It ends with its caller, also in the middle of a verdict. Its folder lies in the caller's `run_folder`.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any, TypeVar

from tritonsmith.evaluator.errors import InfrastructureError, TaskError, UsageError
from tritonsmith.evaluator.processes import lifeline
from tritonsmith.evaluator.processes.crash import describe_crash
from tritonsmith.evaluator.processes.following import find_last_step, is_followed, tell_step
from tritonsmith.evaluator.processes.lines import read_line
from tritonsmith.evaluator.processes.requests import Hello, ServerRequest
from tritonsmith.evaluator.processes.run_folder import life_line, remove_tree, run_folder
from tritonsmith.evaluator.processes.scrubbed import scrubbed_environment
from tritonsmith.evaluator.schema import Hardware, Record

A = TypeVar("A", bound=Record)
"""What answers a request."""

HELLO_SECONDS = 120.0
"""Longest time until the first answer, which comes after the imports."""
_GOODBYE_SECONDS = 3.0
"""Longest wait for a process whose input has ended; it is killed then."""
_KILL_SECONDS = 10
"""Longest wait for a process that was killed."""
_REAP_SECONDS = 0.2
"""Longest wait for the end of a process whose output ended: without it a death would be told as a time-out."""
_LOG = "oracle.log"
"""File in the server's folder that holds its stderr."""
_TAIL_CHARACTERS = 300
"""How much of the log's last line a message holds."""


class ServerProcess:
    """One oracle, or another server that speaks as it does.

    Args:
        target: what it judges for: `auto` or a card's name.
        use_card: whether it may use the card of this machine.
        sandbox: mode of the sandbox.
        module: dotted module that the process runs.
        environment: names that the process has besides the allow-listed ones.
    """

    def __init__(
        self, target: str, *, use_card: bool = True, sandbox: str = "auto", module: str = "tritonsmith.evaluator.oracle",
        environment: dict[str, str] | None = None,
    ) -> None:  # fmt: skip
        self._module, self._environment = module, environment
        self._hello = Hello(target=target, use_card=use_card, sandbox=sandbox)
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="home-", ignore_cleanup_errors=True, dir=run_folder())
        Path(self._folder.name).chmod(0o711)  # candidates run as another user and have their files below it
        self.hardware: Hardware | None = None
        self._log_begins = 0  # where in the log the present process begins

    def _start(self) -> subprocess.Popen[bytes]:
        """The process, which is started where none lives."""
        if self._process is None or self._process.poll() is not None:
            folder, life = Path(self._folder.name), life_line()
            self._clear()
            with (folder / _LOG).open("ab") as log:
                self._log_begins = log.tell()
                self._process = subprocess.Popen(
                    lifeline.command(life, self._module), pass_fds=[life], stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE, stderr=log, cwd=folder, start_new_session=True,
                    env=scrubbed_environment(folder, self._environment),
                )  # fmt: skip
            try:
                self.hardware = self._exchange(self._process, self._hello, HELLO_SECONDS).hardware
            except UsageError:
                self.close()
                raise
        return self._process

    def _clear(self) -> None:
        """Remove what a killed process left in its folder; the log stays."""
        for path in Path(self._folder.name).iterdir():
            if path.name != _LOG:
                remove_tree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)

    def _exchange(self, process: subprocess.Popen[bytes], request: ServerRequest[A], timeout: float) -> A:
        assert process.stdin is not None and process.stdout is not None
        message = request.write()
        try:
            process.stdin.write(json.dumps(message).encode() + b"\n")
            process.stdin.flush()
            answer = read_line(process.stdout.fileno(), timeout, self._tell_step if is_followed() else None)
        except OSError as error:
            answer = None
            reason = str(error)
        else:
            if answer is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_REAP_SECONDS)
            reason = f"no answer within {timeout:.0f} s" if process.poll() is None else f"exit code {process.returncode}"
        if answer is None:
            self.close()
            if crashed := describe_crash(str((message.get("task") or {}).get("path")), process.returncode, self._read_log()):
                raise TaskError(crashed)
            raise InfrastructureError(f"the oracle process failed ({reason}){self._log_tail()}")
        return request.read_answer(_raise_error(answer))

    def _tell_step(self) -> None:
        """Say to whoever follows what the process is at."""
        tell_step(find_last_step(self._read_log()))

    def _log_tail(self) -> str:
        lines = self._read_log().strip().splitlines()
        return f": {lines[-1][:_TAIL_CHARACTERS]}" if lines else ""

    def _read_log(self) -> str:
        """What the process has written to stderr."""
        with contextlib.suppress(OSError):
            return (Path(self._folder.name) / _LOG).read_bytes()[self._log_begins :].decode(errors="replace")
        return ""

    def ask(self, request: ServerRequest[A], timeout: float) -> A:
        """The answer to one request. Raises TaskError or UsageError, InfrastructureError when the oracle died, hung or is at fault."""
        return self._exchange(self._start(), request, timeout)

    def hello(self) -> Hardware:
        """The card that this server judges for."""
        self._start()
        assert self.hardware is not None
        return self.hardware

    def close(self) -> None:
        """End the process: it gives its memory back when its input ends. Runners die with it in any case."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(timeout=_GOODBYE_SECONDS)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(timeout=_KILL_SECONDS)
        process.stdout.close()

    def remove(self) -> None:
        """End the process and remove its folder."""
        self.close()
        self._folder.cleanup()


def _raise_error(answer: dict[str, Any]) -> dict[str, Any]:
    """The answer, unless it reports an error, which is raised here."""
    if "error" in answer:
        raise {"task": TaskError, "usage": UsageError}.get(answer["kind"], InfrastructureError)(answer["error"])
    return answer
