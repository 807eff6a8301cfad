"""The oracle's side of a replay: keep one process for it, hand over copies of traces, take back results and counts. Imports torch."""

from __future__ import annotations

import contextlib
import pickle
import time
from typing import Any, NoReturn

import torch

from tritonsmith.evaluator.channel.doorbell import LineReader
from tritonsmith.evaluator.channel.slots import SharedBlock, fill_slots, list_results
from tritonsmith.evaluator.channel.trace import TRACE_BYTES, copy_trace
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.oracle.handles.process import IMPORT_SECONDS
from tritonsmith.evaluator.oracle.handles.runner import RunnerFault, RunnerHandle, RunnerSetup
from tritonsmith.evaluator.processes.lines import send_line
from tritonsmith.evaluator.sandbox.process import SandboxedProcess
from tritonsmith.evaluator.schema import Status

_LEAST_SECONDS = 1.0
"""Longest wait for the answer of a call whose time was over while something else was waited for."""
Traces = tuple[bytes, bytes]
"""Of an earlier call, and of the one to be done again."""


def copy_last_trace(runner: RunnerHandle, *, blobs: bool) -> bytes:
    """A copy of what the runner wrote about its last call, once it was asked for facts."""
    assert runner.trace is not None
    return copy_trace(runner.trace.tensor.numpy().data, blobs=blobs)


class Replayer:
    """One process that does forwards again from their traces; it survives from candidate to candidate unless a replay fails.

    Args:
        setup: the task's part.
        environment: additions to the scrubbed environment.
    """

    def __init__(self, setup: RunnerSetup, environment: dict[str, str]) -> None:
        self._setup = setup
        self._environment = environment
        self._inputs = SharedBlock(setup.layout.input_bytes, "cpu")
        self._outputs = SharedBlock(setup.layout.output_bytes, "cpu")
        self._traces = [SharedBlock(TRACE_BYTES, "cpu") for _ in range(2)]
        self._process: SandboxedProcess | None = None
        self._ready = False
        self._begun = 0.0

    def start(self) -> None:
        """Start the process unless it runs; it does its imports meanwhile."""
        if self._process is not None and self._process.alive:
            return
        self._stop()
        blocks = [self._inputs, self._outputs, *self._traces]
        self._process = process = SandboxedProcess(
            "tritonsmith.evaluator.confined.replay", pass_fds=[block.fd for block in blocks], environment=self._environment,
            confined=True,
        )
        assert process.process.stdout is not None
        self._lines = LineReader(process.process.stdout.fileno())
        layout = pickle.dumps({"inputs": self._setup.layout.inputs, "outputs": self._setup.layout.outputs}).hex()
        self._send({
            "layout": layout, "inputs": self._inputs.handle(), "outputs": self._outputs.handle(),
            "traces": [block.handle() for block in self._traces], "hardware": self._setup.hardware.model_dump(mode="json"),
        })  # fmt: skip

    def begin(
        self, kernel: KernelText, traces: Traces, tensors: list[torch.Tensor], order: str, seed: int, patience: int
    ) -> None:
        """Let a call be done again on these inputs; `finish` waits for it. Raises RunnerFault where the process does not start.

        Args:
            kernel: the candidate's text.
            traces: what the runner wrote down.
            tensors: the inputs.
            order: of the programs, as `interpreter.schedule.session` takes it; so are `seed` and `patience`.
            seed: of the order.
            patience: of the order.
        """
        self.start()
        for block, data in zip(self._traces, traces, strict=True):
            block.tensor[: len(data)] = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        fill_slots(self._setup.layout.views(self._inputs.tensor, self._setup.layout.inputs), tensors)
        self._outputs.tensor.fill_(0xFF)
        if not self._ready and self._lines.read(IMPORT_SECONDS) is None:
            self._raise_lost("when it was started", IMPORT_SECONDS)
        self._ready = True
        self._send({"source": kernel.text, "order": order, "seed": seed, "patience": patience})
        self._begun = time.monotonic()

    def finish(self, seconds: float) -> tuple[list[torch.Tensor], dict[str, Any]]:
        """Results and report of the call that was begun, within so many seconds of that.

        Raises RunnerFault where it is not possible or refused.
        """
        report = self._lines.read(max(_LEAST_SECONDS, self._begun + seconds - time.monotonic()))
        if report is None:
            self._raise_lost("while it did a call again", seconds)
        self._require_ok(report)
        layout = self._setup.layout
        outputs, inputs = layout.views(self._outputs.tensor, layout.outputs), layout.views(self._inputs.tensor, layout.inputs)
        return [view.clone() for view in list_results(outputs, inputs, self._setup.written)], report

    def abandon(self) -> None:
        """End the process in the middle of a call that nobody will ask for."""
        self._stop()

    def _require_ok(self, report: dict[str, Any]) -> None:
        try:
            status = Status(str(report.get("status")))
        except ValueError:
            status = Status.CRASHED
        if status is not Status.OK:
            raise RunnerFault(status, str(report.get("message", ""))[:4000])

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process is not None and self._process.process.stdin is not None
        with contextlib.suppress(OSError):  # it died; the reader of its answer says so
            send_line(self._process.process.stdin.fileno(), message)

    def _raise_lost(self, when: str, seconds: float) -> NoReturn:
        assert self._process is not None
        alive = self._process.alive_after(0.5)
        if not alive:
            self._process.require_launched()
        self._stop()
        if alive:
            raise RunnerFault(Status.TIMEOUT, f"the process that replays launches gave no answer {when} within {seconds:.0f} s")
        raise RunnerFault(Status.CRASHED, f"the process that replays launches ended {when}")

    def _stop(self) -> None:
        if self._process is not None:
            self._process.kill()
        self._process, self._ready = None, False

    def close(self) -> None:
        """End the process and give the blocks back."""
        self._stop()
        for block in (self._inputs, self._outputs, *self._traces):
            block.close()
