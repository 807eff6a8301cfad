"""The oracle's side of a runner: start it, ring it, take its time by our clock, and end it. Imports torch through the wire."""

from __future__ import annotations

import pickle
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from tritonsmith.evaluator.sandbox import SandboxedProcess
from tritonsmith.evaluator.schema import Hardware, Status
from tritonsmith.evaluator.wire import Command, Doorbell, Layout, LineReader, SharedBlock, send_line

_POLL_SECONDS = 0.02
_LAST_BREATH_SECONDS = 0.5  # between the end of its output and the end of the process
IMPORT_SECONDS = 90.0
"""Import of torch, Triton and the candidate, and the building of its model."""


class RunnerFault(Exception):
    """The candidate failed in its runner; becomes one verdict."""

    def __init__(self, status: Status, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class RunnerSetup:
    """What every runner of one session is told; pickles and files go from the oracle to the runner only."""

    device: str
    layout: Layout
    init: Path
    arguments: Path
    weights: Path
    hardware: Hardware
    inputs: SharedBlock
    tf32: bool
    """Whether library calls may use TF32: the task's precision class is not `ieee`."""


class Runner:
    """One runner process with its own output slots.

    Args:
        setup: the session's part.
        role: `candidate` or `reference`.
        config: additions to the configuration line (`source`, `task`).
        environment: additions to the scrubbed environment.
    """

    def __init__(self, setup: RunnerSetup, role: str, config: dict[str, Any], environment: dict[str, str] | None = None) -> None:
        self.setup = setup
        self._doorbell = Doorbell()
        self._nonce = 0
        self.block = SharedBlock(setup.layout.output_bytes, setup.device)
        self.outputs = setup.layout.views(self.block.tensor, setup.layout.outputs)
        fds = [self._doorbell.fd, *(block.fd for block in (setup.inputs, self.block) if block.fd >= 0)]
        files = [setup.init, setup.arguments, setup.weights, *([Path(config["source"])] if "source" in config else [])]
        self._sandbox = SandboxedProcess(
            "tritonsmith.evaluator.runner", pass_fds=fds, environment=environment, confined=role == "candidate", read=files
        )
        process = self._sandbox.process
        assert process.stdin is not None and process.stdout is not None
        layout = pickle.dumps({"inputs": setup.layout.inputs, "outputs": setup.layout.outputs}).hex()
        message = {
            "role": role, "device": setup.device, "doorbell": self._doorbell.fd, "layout": layout, "init": str(setup.init),
            "arguments": str(setup.arguments), "weights": str(setup.weights), "l2_bytes": setup.hardware.l2_bytes,
            "inputs": setup.inputs.handle(), "outputs": self.block.handle(), "hardware": setup.hardware.model_dump(mode="json"),
            "tf32": setup.tf32,
        } | config  # fmt: skip
        self._lines = LineReader(process.stdout.fileno())
        try:
            send_line(process.stdin.fileno(), message)
        except OSError:
            pass  # it died at once; wait_ready says so

    def wait_ready(self, timeout: float = IMPORT_SECONDS) -> None:
        """Until the candidate is imported and built. Raises RunnerFault."""
        message = self._lines.read(timeout)
        if message is None:
            self._died("while it was imported", timeout)
        elif message.get("event") != "ready":
            raise self._fault(message)

    def _died(self, when: str, timeout: float) -> None:
        if self._sandbox.alive_after(_LAST_BREATH_SECONDS):
            raise RunnerFault(Status.TIMEOUT, f"no answer {when} within {timeout:.0f} s")
        self._sandbox.require_launched()
        code = self._sandbox.process.returncode
        tail = self._sandbox.stderr_tail().strip().splitlines()
        said = f": {tail[-1][:300]}" if tail and code not in (0, -9) else ""
        raise RunnerFault(Status.CRASHED, f"the process ended {when} ({_exit_words(code)}){said}")

    def _fault(self, message: dict[str, Any]) -> RunnerFault:
        try:
            status = Status(str(message.get("status")))
        except ValueError:
            status = Status.CRASHED
        if status is Status.OK:
            status = Status.CRASHED
        return RunnerFault(status, str(message.get("message", "")))

    def command(self, command: Command, argument: int = 0, *, timeout: float) -> float:
        """Ring, wait for the echo, and return the milliseconds in between by this process's clock. Raises RunnerFault."""
        answered, alive = self._doorbell.answered, self._sandbox
        start = time.perf_counter()
        nonce = self._doorbell.ring(command, argument)
        patience = start + _POLL_SECONDS
        while not answered(nonce):
            now = time.perf_counter()
            if now > patience:
                if now - start > timeout:
                    raise RunnerFault(Status.TIMEOUT, f"a call took longer than {timeout:.0f} s")
                if not alive.alive:
                    self._died("during a call", timeout)
                patience = now + _POLL_SECONDS
                if now - start > 1.0:
                    time.sleep(0.001)
        elapsed = (time.perf_counter() - start) * 1e3
        self._nonce = nonce
        if self._doorbell.failed:
            raise self._fault(self._answer(5.0) or {"message": "the call failed without a report"})
        return elapsed

    def _answer(self, timeout: float) -> dict[str, Any] | None:
        """The report that carries the nonce of the last command; lines written in advance do not and are dropped."""
        deadline = time.monotonic() + timeout
        while (message := self._lines.read(max(0.0, deadline - time.monotonic()))) is not None:
            if message.get("nonce") == self._nonce:
                return message
        return None

    def facts(self, timeout: float) -> dict[str, Any]:
        """The runner's own report of what one forward launches. Raises RunnerFault."""
        self.command(Command.FACTS, timeout=timeout)
        message = self._answer(10.0)
        if message is None or message.get("event") != "facts" or not isinstance(message.get("facts"), dict):
            raise RunnerFault(Status.CRASHED, "the runner sent no readable facts")
        facts: dict[str, Any] = message["facts"]
        return facts

    def poison(self) -> None:
        """Fill the output slots so that an element that is never written shows: NaN for floats, -1 for integers."""
        self.block.tensor.fill_(0xFF)

    def close(self) -> None:
        """Kill the process and give its slots back."""
        self._sandbox.kill()
        self.outputs = []
        self.block.close()

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _exit_words(code: int | None) -> str:
    return f"killed by signal {-code}" if code is not None and code < 0 else f"exit code {code}"
