"""Asks a process of its own what a task's reference is and costs, so that the caller never loads torch."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from tritonsmith.evaluator.errors import InfrastructureError, TaskError
from tritonsmith.evaluator.processes import lifeline
from tritonsmith.evaluator.processes.run_folder import life_line, run_folder
from tritonsmith.evaluator.processes.scrubbed import scrubbed_environment
from tritonsmith.evaluator.schema import OperatorCost, Task, TaskFacts

PROBE_SECONDS = 120.0

_Answer: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, Any])
_Trace = TypeAdapter(list[OperatorCost])


class TaskProcess:
    """A trusted process that answers one question about a task; started ahead, it has its imports behind it when the question comes."""

    def __init__(self, module: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="probe-", ignore_cleanup_errors=True, dir=run_folder())
        threads, life = str(os.cpu_count() or 1), life_line()
        self._process = subprocess.Popen(
            lifeline.command(life, module), pass_fds=[life],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=self._folder.name, start_new_session=True,
            env=scrubbed_environment(Path(self._folder.name), {"OMP_NUM_THREADS": threads}),
        )  # fmt: skip

    def ask(self, task: Task, timeout: float, late: str) -> tuple[bytes, bytes, int]:
        """Its stdout, stderr and exit code. Raises TaskError with `late` at a time-out."""
        try:
            out, log = self._process.communicate(task.model_dump_json().encode() + b"\n", timeout)
        except subprocess.TimeoutExpired:
            raise TaskError(f"{task.path}: {late}; use --size small or --set NAME=VALUE") from None
        finally:
            self.close()
        return out, log, self._process.returncode

    def close(self) -> None:
        """End it, asked or not."""
        with contextlib.suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(ValueError):  # its pipes are closed already
            self._process.communicate()
        self._folder.cleanup()


def start_probe() -> TaskProcess:
    """A probe that waits for its task."""
    return TaskProcess("tritonsmith.evaluator.reference")


def run_probe(task: Task, timeout: float = PROBE_SECONDS, started: TaskProcess | None = None) -> tuple[TaskFacts, list[OperatorCost]]:
    """Run and trace the reference once in a fresh process, which may have been started before.

    Raises:
        TaskError: the task file is at fault; one sentence for the user.
        InfrastructureError: the probe itself failed.
    """
    late = f"one forward of the reference took longer than {timeout:.0f} s"
    return _read_answer(*(started or start_probe()).ask(task, timeout, late))


def ask_process(module: str, task: Task, timeout: float, late: str) -> tuple[bytes, bytes, int]:
    """What a trusted process says about a task: its stdout, stderr and exit code. Raises TaskError with `late` at a time-out."""
    return TaskProcess(module).ask(task, timeout, late)


def _read_answer(out: bytes, log: bytes, code: int) -> tuple[TaskFacts, list[OperatorCost]]:
    try:
        answer = _Answer.validate_json(out)
        if answer.get("kind") == "task":
            raise TaskError(str(answer["error"]))
        return TaskFacts.model_validate(answer["facts"]), _Trace.validate_python(answer["trace"])
    except (ValidationError, KeyError):
        tail = log.decode(errors="replace").strip().splitlines()[-1:] or ["no message"]
        raise InfrastructureError(f"the probe of the task failed (exit code {code}): {tail[0][:300]}") from None
