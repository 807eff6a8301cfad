"""The oracle's side of a runner: start it, ring it, take its time by our clock, and end it. Imports torch through the wire."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from tritonsmith.evaluator.errors import InfrastructureError
from tritonsmith.evaluator.replay_format import TRACE_BYTES
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
    """One runner process with its own output slots; it starts at once and waits for `begin`.

    Args:
        setup: the session's part.
        role: `candidate` or `reference`.
        environment: additions to the scrubbed environment.
    """

    def __init__(self, setup: RunnerSetup, role: str, environment: dict[str, str] | None = None) -> None:
        self.setup = setup
        self._role = role
        self._doorbell = Doorbell()
        self._nonce = 0
        self._warm = self._ready = False
        self._own_threads = 0
        self._folder = tempfile.TemporaryDirectory(prefix="tritonsmith-inbox-", ignore_cleanup_errors=True)
        inbox = Path(self._folder.name)
        inbox.chmod(0o755)
        self._source = inbox / "candidate.py"
        self.block = SharedBlock(setup.layout.output_bytes, setup.device)
        self.outputs = setup.layout.views(self.block.tensor, setup.layout.outputs)
        # without a card, what forward did is written here to be done again by another process
        self.trace = SharedBlock(TRACE_BYTES, "cpu") if setup.device == "cpu" and role == "candidate" else None
        blocks = [setup.inputs, self.block, *([self.trace] if self.trace else [])]
        fds = [self._doorbell.fd, self._doorbell.wake, *(block.fd for block in blocks if block.fd >= 0)]
        files = [setup.init, setup.arguments, setup.weights, inbox]
        if role == "candidate" and setup.device == "cuda":  # a pool of threads for work on the host would look like hidden workers
            environment = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"} | (environment or {})
        self._sandbox = SandboxedProcess(
            "tritonsmith.evaluator.runner", pass_fds=fds, environment=environment, confined=role == "candidate", read=files
        )
        process = self._sandbox.process
        assert process.stdin is not None and process.stdout is not None
        self._lines = LineReader(process.stdout.fileno())

    def begin(self, source: str = "", **config: Any) -> None:
        """Tell the process what to run: the candidate's text, or additions to the configuration line (`task`)."""
        setup, process = self.setup, self._sandbox.process
        self._source.write_text(source)
        self._source.chmod(0o444)
        layout = pickle.dumps({"inputs": setup.layout.inputs, "outputs": setup.layout.outputs}).hex()
        message = {
            "role": self._role, "device": setup.device, "doorbell": (self._doorbell.fd, self._doorbell.wake), "layout": layout,
            "init": str(setup.init), "arguments": str(setup.arguments), "weights": str(setup.weights), "source": str(self._source),
            "inputs": setup.inputs.handle(), "outputs": self.block.handle(), "hardware": setup.hardware.model_dump(mode="json"),
            "tf32": setup.tf32, "l2_bytes": setup.hardware.l2_bytes, "trace": self.trace.handle() if self.trace else None,
        } | config  # fmt: skip
        assert process.stdin is not None
        with contextlib.suppress(OSError):  # it died at once; wait_ready says so
            send_line(process.stdin.fileno(), message)

    def wait_warm(self, timeout: float = IMPORT_SECONDS) -> None:
        """Until the process has done its own imports. Raises InfrastructureError: no candidate code runs before that."""
        if not self._warm:
            message = self._lines.read(timeout)
            if message is None or message.get("event") != "warm":
                self._sandbox.alive_after(_LAST_BREATH_SECONDS)
                self._sandbox.require_launched()
                raise InfrastructureError(f"a runner did not start within {timeout:.0f} s: {self._sandbox.stderr_tail().strip()[-300:]}")
            self._warm = True

    def wait_ready(self, timeout: float = IMPORT_SECONDS) -> None:
        """Until the candidate is imported and built; at once where that was so before. Raises RunnerFault."""
        if self._ready:
            return
        self.wait_warm(timeout)
        message = self._lines.read(timeout)
        if message is not None and message.get("event") == "open":
            self._own_threads = self._thread_count()
            message = self._lines.read(timeout)
        if message is None:
            self._died("while it was imported", timeout)
        elif message.get("event") != "ready":
            raise self._fault(message)
        self._ready = True

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

    def command(self, command: Command, argument: int = 0, *, timeout: float, stopped: bool = False) -> float:
        """Ring, wait for the echo, and return the milliseconds in between by this process's clock. Raises RunnerFault.

        With `stopped`, the runner is paused and goes on when the bell rings: waking it counts.
        """
        answered, alive = self._doorbell.answered, self._sandbox
        start = time.perf_counter()
        nonce = self._doorbell.ring(command, argument)
        if stopped:
            self.resume()
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

    @property
    def device_ms(self) -> float:
        """What the runner says about the card's clock in the last CLOCKED call."""
        return self._doorbell.device_ms

    def has_more_threads(self) -> bool:
        """Whether the run has more threads than before candidate code was imported, counted from outside."""
        return self._thread_count() > self._own_threads

    def _thread_count(self) -> int:
        count = 0
        for pid in self._sandbox.inside():
            with contextlib.suppress(OSError):
                count += len(os.listdir(f"/proc/{pid}/task"))
        return count

    def run_on(self, processors: set[int]) -> None:
        """Let every thread of the run have these processors only; where that is not allowed it stays as it is."""
        for pid in self._sandbox.inside():
            with contextlib.suppress(OSError):
                for thread in os.listdir(f"/proc/{pid}/task"):
                    os.sched_setaffinity(int(thread), processors)

    def pause(self) -> None:
        """Stop every process of the runner: nothing of the candidate runs until `resume`."""
        self._sandbox.signal_inside(signal.SIGSTOP)

    def resume(self) -> None:
        """Let them run again."""
        self._sandbox.signal_inside(signal.SIGCONT)

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
        if self.trace:
            self.trace.close()
        self._folder.cleanup()

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _exit_words(code: int | None) -> str:
    return f"killed by signal {-code}" if code is not None and code < 0 else f"exit code {code}"
