"""A trusted process that answers one question about a task."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from tritonsmith.evaluator.errors import InfrastructureError, TaskError
from tritonsmith.evaluator.processes import lifeline
from tritonsmith.evaluator.processes.crash import describe_end
from tritonsmith.evaluator.processes.run_folder import life_line, run_folder
from tritonsmith.evaluator.processes.scrubbed import scrubbed_environment
from tritonsmith.evaluator.schema import Hardware, Task

Answer = TypeVar("Answer")
_TAIL_CHARACTERS = 300
"""How much of the last line of stderr a message holds."""


class TaskProcess:
    """One process for one question; started ahead, it has its imports done when the question comes.

    Args:
        module: dotted module that reads a Task as one JSON line and writes one JSON object.
        name: what a sentence about its failure calls it.
        environment: variables that it gets besides.
    """

    def __init__(self, module: str, name: str, environment: Mapping[str, str] | None = None) -> None:
        self._name = name
        self._folder = tempfile.TemporaryDirectory(prefix="probe-", ignore_cleanup_errors=True, dir=run_folder())
        threads, life = str(os.cpu_count() or 1), life_line()
        self._process = subprocess.Popen(
            lifeline.command(life, module), pass_fds=[life],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=self._folder.name, start_new_session=True,
            env=scrubbed_environment(Path(self._folder.name), {"OMP_NUM_THREADS": threads, **(environment or {})}),
        )  # fmt: skip

    def ask(
        self, task: Task, timeout: float, late: str, read: Callable[[dict[str, Any]], Answer], hardware: Hardware | None = None
    ) -> Answer:
        """The process's answer, as `read` returns it.

        Args:
            task: what the question is about.
            timeout: seconds to wait for the answer.
            late: the user's sentence about a time-out, without its end.
            read: turns the JSON object into a record; a ValidationError or KeyError of it counts as a failure of the process.
            hardware: the card that the question is about; the process then reads an object with `task` and `hardware`.
        Raises:
            TaskError: the task file is at fault, also where it ends the process, or the time is over; one sentence for the user.
            InfrastructureError: the process itself failed.
        """
        try:
            asked = task.model_dump(mode="json")
            if hardware is not None:
                asked = {"task": asked, "hardware": hardware.model_dump(mode="json")}
            out, log = self._process.communicate(json.dumps(asked).encode() + b"\n", timeout)
        except subprocess.TimeoutExpired:
            raise TaskError(f"{task.path}: {late}; use --size small or --set NAME=VALUE") from None
        finally:
            self.close()
        try:
            answer = json.loads(out)
            if "error" in answer:
                raise TaskError(str(answer["error"]))
            return read(answer)
        except (ValueError, ValidationError, KeyError, TypeError):
            text = log.decode(errors="replace")
            if not out.strip() and (crashed := describe_end(task.path, self._process.returncode, text)):
                raise TaskError(crashed) from None
            tail = text.strip().splitlines()[-1:] or ["no message"]
            raise InfrastructureError(f"{self._name} failed (exit code {self._process.returncode}): {tail[0][:_TAIL_CHARACTERS]}") from None

    def close(self) -> None:
        """End the process, with an answer or without."""
        with contextlib.suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(ValueError):  # its pipes are closed already
            self._process.communicate()
        self._folder.cleanup()
