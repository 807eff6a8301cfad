"""A second process of a candidate that reports what one forward launches. Imports torch.

The start of CUPTI takes 3 to 5 s in a process (H200, torch 2.11, 2026-11-21), more than all the rest of a verdict. So it happens in a
process of the pool before the candidate is known, and never in the one that is timed. The witness compiles during the checks, on inputs of
its own; it is asked when they are done, its result is judged like that of every other call, and it is gone before anything is timed.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import Any

import torch

from tritonsmith.evaluator.channel.doorbell import CUDA_GRAPH, Command
from tritonsmith.evaluator.channel.slots import SharedBlock, fill_slots
from tritonsmith.evaluator.errors import InfrastructureError
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.oracle.checks.loaded_task import LoadedTask
from tritonsmith.evaluator.oracle.checks.trials import compute_expected, snapshot
from tritonsmith.evaluator.oracle.handles.runner import RunnerFault
from tritonsmith.evaluator.oracle.judge.forms import find_other_work, read_card_work
from tritonsmith.evaluator.oracle.timing.wrong_again import explain_wrong

_LONGEST = 200
"""Characters of a reason."""
_ROOM = 24
"""Inputs, outputs and weights fit so often into the card's memory, else a second process might leave too little for the first one."""


def has_room(session: LoadedTask) -> bool:
    """Whether the card holds a second process of any candidate in addition to the first."""
    return _ROOM * (session.layout.input_bytes + session.layout.output_bytes + session.weight_bytes) < session.hardware.memory_bytes


class Witness:
    """The process, with its inputs.

    Args:
        session: the task on the card.
    """

    def __init__(self, session: LoadedTask) -> None:
        self._session = session
        self._inputs = SharedBlock(session.layout.input_bytes, session.device)
        self._inputs.tensor.fill_(0xFF)
        self._tensors = session.draw("own")
        slots = session.layout.views(self._inputs.tensor, session.layout.inputs)
        fill_slots(slots, self._tensors)
        session.sync()
        self._runner = session.new_runner("witness", replace(session.setup, inputs=self._inputs))

    def begin(self, kernel: KernelText) -> None:
        """Let it import the candidate and do a first call, in which kernels are compiled; does not wait."""
        self._runner.begin(kernel, self._session.code(kernel.sha))
        self._runner.post(Command.CALL)

    def report(self, limit: float) -> dict[str, Any] | None:
        """What a forward launches; None where this process failed for any reason, and the candidate's own runner is to be asked.

        Raises RunnerFault where the forward that was profiled gave a wrong result.
        """
        runner = self._runner
        try:
            runner.collect(limit)
            runner.command(Command.WEIGHTS, timeout=limit)  # they may have been drawn again since it started
            runner.command(Command.CALL, timeout=limit)  # what is done once for new weights, such as packing them, is no part of a forward
            runner.poison()
            self._session.sync()
            report = runner.facts(limit)
            runner.command(Command.DELIVER, timeout=limit)
        except (RunnerFault, InfrastructureError):
            return None
        if not self._session.written:  # else its inputs are what several forwards made of them
            got, asked = snapshot(runner), self._session.task.precision
            expected = compute_expected(self._session, self._tensors)
            if not expected.trial(got).meets(asked):
                profiled, plain = (lambda: self._call_again(Command.FACTS, limit)), (lambda: self._call_again(Command.CALL, limit))
                raise explain_wrong("the forward that was profiled", expected, got, asked, profiled, plain)
        return report

    def _call_again(self, command: Command, limit: float) -> list[torch.Tensor]:
        """The results of one more forward on the same inputs, profiled or not. Raises RunnerFault."""
        runner = self._runner
        runner.poison()
        self._session.sync()
        if command is Command.FACTS:
            runner.facts(limit)
        else:
            runner.command(command, timeout=limit)
        runner.command(Command.DELIVER, timeout=limit)
        return snapshot(runner)

    def look_at_graph(self, called: dict[str, Any], limit: float) -> tuple[str, dict[str, Any]]:
        """Why a replay of the candidate's forward in a CUDA graph must not be timed, else empty; and the card's work of one.

        Its inputs are others than those that it is captured on: values that the host chose while it was captured are wrong for them.
        Last of all: a process in which capturing fails is broken.

        Args:
            called: the report of the forward as called.
            limit: seconds that a call may take.
        """
        runner, session = self._runner, self._session
        try:
            if problem := runner.capture(limit):
                return f"it cannot be captured ({problem})", {}
            tensors = session.draw("own")
            fill_slots(session.layout.views(self._inputs.tensor, session.layout.inputs), tensors)
            runner.poison()
            session.sync()
            report = runner.facts(limit, CUDA_GRAPH)
            runner.command(Command.DELIVER, timeout=limit)
        except (RunnerFault, InfrastructureError) as fault:
            return f"its replay fails ({str(fault)[:_LONGEST]})", {}
        if not session.written:  # else several forwards have changed its inputs
            if not compute_expected(session, tensors).trial(snapshot(runner)).meets(session.task.precision):
                return "its replay on other inputs gives a wrong result", {}
        return find_other_work(called, report), read_card_work(report)

    def close(self) -> None:
        """End the process and give its memory back."""
        self._runner.close()
        self._inputs.close()


def open_witness(session: LoadedTask, *, roomy: bool) -> contextlib.AbstractContextManager[Witness | None]:
    """The process whose launches are profiled, where the card has room for it; ended before anything is timed."""
    return contextlib.closing(Witness(session)) if roomy else contextlib.nullcontext()
