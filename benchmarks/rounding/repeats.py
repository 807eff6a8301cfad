"""Verdicts on correctness alone, in a row: the kernel's process and the task stay, inputs are fresh each time. Imports torch."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType

from tritonsmith.evaluator.cards.cards import named_card
from tritonsmith.evaluator.cards.machine import present_card
from tritonsmith.evaluator.channel.doorbell import Command
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.oracle.checks.loaded_task import LoadedTask
from tritonsmith.evaluator.oracle.checks.planning import load_on_card
from tritonsmith.evaluator.oracle.checks.trials import TrialLog, checked_call
from tritonsmith.evaluator.oracle.handles.process import INTERPRETER
from tritonsmith.evaluator.oracle.handles.runner import RunnerFault, RunnerHandle
from tritonsmith.evaluator.sandbox.self_test import establish
from tritonsmith.evaluator.schema import Status, Task

KINDS = ("own", "signed")
"""Inputs of each verdict, as `quick` has them first."""
_WEIGHTS = 4
"""Draws of weights that verdicts take in turn."""
_FIRST_SECONDS, _SECONDS = 120.0, 60.0
"""Longest first call, which compiles, and longest further call."""


class Repeater:
    """One task on the card that is here, else on the processor for a named one; kernels run in the evaluator's sandbox.

    Args:
        task: what to judge against.
        target: the card's name where none is here.
    """

    def __init__(self, task: Task, target: str) -> None:
        hardware = (present_card() if target == "auto" else None) or named_card("h200" if target == "auto" else target)
        establish("auto", cuda=hardware.present)
        self._environment = None if hardware.present else INTERPRETER
        self._loaded = load_on_card(task, hardware, timed=False) if hardware.present else LoadedTask(task, hardware, "cpu")

    def judge(self, source: str, count: int) -> Iterator[tuple[Status, str]]:
        """Status and message of so many verdicts on a kernel; of one where it cannot be loaded."""
        with self._loaded.runner(KernelText.of(source), self._environment) as runner:
            try:
                runner.wait_ready()
            except RunnerFault as fault:
                yield fault.status, str(fault)
                return
            for number in range(count):
                yield self._judge_once(runner, number)

    def _judge_once(self, runner: RunnerHandle, number: int) -> tuple[Status, str]:
        seconds = _SECONDS if number else _FIRST_SECONDS
        log = TrialLog(self._loaded)
        try:
            self._loaded.use_weights(number % _WEIGHTS)
            runner.command(Command.WEIGHTS, timeout=seconds)
            for kind in KINDS:
                checked_call(log, runner, kind, 0, seconds)
                log.require_accurate()
        except RunnerFault as fault:
            return fault.status, str(fault)
        return Status.OK, ""

    def close(self) -> None:
        """Give the task back."""
        self._loaded.close()

    def __enter__(self) -> Repeater:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
