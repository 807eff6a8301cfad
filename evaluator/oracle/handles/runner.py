"""The oracle's side of a runner: start it, ring it, take its time by our clock, and end it. Imports torch."""

from __future__ import annotations

import contextlib
import pickle
import secrets
import time
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from tritonsmith.evaluator.channel.doorbell import AS_CALLED, FORMS, Command
from tritonsmith.evaluator.channel.slots import Layout, SharedBlock, list_results
from tritonsmith.evaluator.channel.trace import TRACE_BYTES
from tritonsmith.evaluator.errors import StatusFault
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.oracle.handles.process import IMPORT_SECONDS, LAST_BREATH_SECONDS, RunnerProcess
from tritonsmith.evaluator.processes.lines import send_line
from tritonsmith.evaluator.reference.gradients import GradientPlan
from tritonsmith.evaluator.schema import Hardware, Status

_POLL_SECONDS = 0.02
"""A waiting oracle looks this often whether the process still lives."""
ALL_CALLS_SECONDS = 500.0
"""The longest that all calls of one candidate's process may take on a card, where a verdict needs some hundred."""


class RunnerFault(StatusFault):
    """The candidate failed in its runner; becomes one verdict."""


@dataclass(frozen=True)
class RunnerSetup:
    """What every runner of one task needs; pickles and files go from the oracle to the runner only."""

    device: str
    layout: Layout
    init: Path
    arguments: Path
    weights: Path
    hardware: Hardware
    inputs: SharedBlock
    tf32: bool
    """Whether library calls in fp32 may use TF32: the task's precision class allows it."""
    memory: float = 0.0
    """Bytes of the card that a candidate's process may take beside its slots; 0 where nobody limits it."""
    train: bool = False
    """Whether modules are in training mode."""
    updates: tuple[str, ...] = ()
    """The reference's names of buffers whose values after a call are its last outputs."""
    written: tuple[int, ...] = ()
    """Numbers of the inputs that the reference writes to."""
    orders: tuple[list[int] | None, ...] = ()
    """How each output of the reference lies in memory, as `read_order` says it."""
    gradients: GradientPlan | None = None
    """The gradients that a call gives too; None where it is forward alone."""


class RunnerHandle:
    """One runner process with its own output slots; it starts at once and waits for `begin`.

    Args:
        setup: the task's part.
        role: `candidate`, `witness` or `reference` (see `RunnerProcess`).
        environment: additions to the scrubbed environment.
        process: one that has waited, on a card; its role is this one.
    """

    def __init__(
        self, setup: RunnerSetup, role: str, environment: dict[str, str] | None = None, process: RunnerProcess | None = None
    ) -> None:
        self.setup = setup
        self._role = role
        self._nonce = 0
        self._spent, self._counted = 0.0, 0
        self._ready = False
        self.block = SharedBlock(setup.layout.output_bytes, setup.device)
        self.outputs = setup.layout.views(self.block.tensor, setup.layout.outputs)
        self.results = list_results(self.outputs, setup.layout.views(setup.inputs.tensor, setup.layout.inputs), setup.written)
        """The output slots, then the slots of inputs that the reference writes to."""
        # without a card, what forward did is written here to be done again by another process
        self.trace = SharedBlock(TRACE_BYTES, "cpu") if setup.device == "cpu" and role == "candidate" else None
        if process is None:
            blocks = [setup.inputs, self.block, *([self.trace] if self.trace else [])]
            files = [setup.init, setup.arguments, setup.weights]
            fds = [block.fd for block in blocks if block.fd >= 0]
            process = RunnerProcess(role, cuda=setup.device == "cuda", fds=fds, read=files, environment=environment)
        self.process = process
        self._doorbell, self._sandbox, self._lines = process.doorbell, process.sandbox, process.lines

    def begin(self, kernel: KernelText | None = None, code: Path | None = None, **config: Any) -> None:
        """Tell the process what to run: the candidate's text, or additions to the configuration line (`task`).

        `code`: a file with what the text compiles to, which a card's runner begins with; it may be missing.
        """
        setup, process, bell = self.setup, self.process, self._doorbell
        process.source.write_text(kernel.text if kernel else "")
        process.source.chmod(0o444)
        layout = pickle.dumps({"inputs": setup.layout.inputs, "outputs": setup.layout.outputs}).hex()
        message = {
            "role": self._role, "device": setup.device, "doorbell": (bell.fd, bell.wake), "layout": layout,
            "init": str(setup.init), "arguments": str(setup.arguments), "weights": str(setup.weights), "source": str(process.source),
            "inputs": setup.inputs.handle(), "outputs": self.block.handle(), "hardware": setup.hardware.model_dump(mode="json"),
            "tf32": setup.tf32, "train": setup.train, "updates": setup.updates, "memory": setup.memory,
            "gradients": setup.gradients.as_plain() if setup.gradients else None, "orders": setup.orders,
            "code": process.hand_over_code(code) if code else "",
            "trace": self.trace.handle() if self.trace else None,
        } | config  # fmt: skip
        with contextlib.suppress(OSError):  # it died at once; wait_ready says so
            send_line(process.stdin, message)

    def wait_ready(self, timeout: float = IMPORT_SECONDS) -> None:
        """Until the candidate is imported and built; at once where that was so before. Raises RunnerFault."""
        if self._ready:
            return
        self.process.wait_warm(timeout)
        message = self._lines.read(timeout)
        if message is None:
            self._raise_death("while it was imported", timeout)
        elif message.get("event") != "ready":
            raise self._read_fault(message)
        self._ready = True

    def _raise_death(self, when: str, timeout: float) -> None:
        if self._sandbox.alive_after(LAST_BREATH_SECONDS):
            raise RunnerFault(Status.TIMEOUT, f"no answer {when} within {timeout:.0f} s")
        self._sandbox.require_launched()
        code = self._sandbox.process.returncode
        tail = self._sandbox.stderr_tail().strip().splitlines()
        said = f": {tail[-1][:300]}" if tail and code not in (0, -9) else ""
        raise RunnerFault(Status.CRASHED, f"the process ended {when} ({_describe_exit(code)}){said}")

    def _read_fault(self, message: dict[str, Any]) -> RunnerFault:
        try:
            status = Status(str(message.get("status")))
        except ValueError:
            status = Status.CRASHED
        if status is Status.OK:
            status = Status.CRASHED
        return RunnerFault(status, str(message.get("message", "")))

    def command(self, command: Command, argument: int = 0, *, timeout: float) -> float:
        """Ring, wait for the echo, and return the milliseconds in between by this process's clock. Raises RunnerFault."""
        start = time.perf_counter()
        self.post(command, argument)
        return self.echo(start, timeout)

    def post(self, command: Command, argument: int = 0) -> None:
        """Ring without waiting; a process that is still being readied answers when it is ready."""
        self._nonce = self._doorbell.ring(command, argument)

    def collect(self, timeout: float) -> None:
        """Wait for the answer to what was posted. Raises RunnerFault."""
        self.wait_ready()
        self.echo(time.perf_counter(), timeout)

    @property
    def answered(self) -> bool:
        """Whether what was posted has been answered."""
        return self._doorbell.answered(self._nonce)

    def echo(self, start: float, timeout: float) -> float:
        """Wait for the answer to what was posted; milliseconds from `start` until then. Raises RunnerFault."""
        answered, alive, nonce = self._doorbell.answered, self._sandbox, self._nonce
        patience = start + _POLL_SECONDS
        while not answered(nonce):
            now = time.perf_counter()
            if now > patience:
                if now - start > timeout:
                    raise RunnerFault(Status.TIMEOUT, f"a call took longer than {timeout:.0f} s")
                if not alive.alive:
                    self._raise_death("during a call", timeout)
                patience = now + _POLL_SECONDS
                if now - start > 1.0:
                    time.sleep(0.001)
        elapsed = (time.perf_counter() - start) * 1e3
        if nonce != self._counted:  # the answer of a timed call is waited for a second time, when it is there
            self._counted, self._spent = nonce, self._spent + elapsed * 1e-3
        if self._spent > ALL_CALLS_SECONDS and self._role != "reference" and self.setup.device == "cuda":
            raise RunnerFault(Status.TIMEOUT, f"its calls take more than {ALL_CALLS_SECONDS:.0f} s in all: too slow to be judged")
        if self._doorbell.failed:
            raise self._read_fault(self._read_answer(5.0) or {"message": "the call failed without a report"})
        return elapsed

    @property
    def device_ms(self) -> float:
        """What the runner says about the card's clock in the last CLOCKED call whose result was delivered."""
        return self._doorbell.device_ms

    def _read_answer(self, timeout: float) -> dict[str, Any] | None:
        """The report that carries the nonce of the last command; lines written in advance do not and are dropped."""
        deadline = time.monotonic() + timeout
        while (message := self._lines.read(max(0.0, deadline - time.monotonic()))) is not None:
            if message.get("nonce") == self._nonce:
                return message
        return None

    def facts(self, timeout: float, form: str = AS_CALLED) -> dict[str, Any]:
        """The runner's own report of what one forward launches. Raises RunnerFault."""
        facts: dict[str, Any] = self._ask(Command.FACTS, "facts", dict, timeout, FORMS.index(form))
        return facts

    def capture(self, timeout: float) -> str:
        """Have forward captured in a CUDA graph; why that fails, else empty. A runner in which it failed must not be used any more.

        Raises RunnerFault.
        """
        return str(self._ask(Command.CAPTURE, "captured", dict, timeout).get("problem", "it is not said why"))

    def describe_result(self, timeout: float) -> tuple[Any, list[Any]]:
        """How what the last call returned is nested, and numbers of its tensors that lie in an argument, as the runner says it.

        Ahead of the delivery. Raises RunnerFault.
        """
        described: dict[str, Any] = self._ask(Command.STRUCTURE, "structure", dict, timeout)
        numbers = described.get("in_arguments")
        return described.get("nested"), numbers if isinstance(numbers, list) else []

    def _ask(self, command: Command, name: str, kind: type, timeout: float, argument: int = 0) -> Any:
        self.command(command, argument, timeout=timeout)
        message = self._read_answer(10.0)
        if message is None or message.get("event") != name or not isinstance(message.get(name), kind):
            raise RunnerFault(Status.CRASHED, f"the runner sent no readable {name}")
        return message[name]

    def poison(self) -> None:
        """Fill the output slots so that an element that is never written shows: NaN for floats, -1 for integers."""
        self.block.tensor.fill_(0xFF)

    def poison_secretly(self) -> None:
        """The same, and whole numbers with bytes that nobody can foresee, and that no boolean has: -1 may be right there."""
        self.poison()
        for slot in self.outputs:
            if not slot.is_floating_point():
                slot.view(-1).view(torch.uint8).fill_(2 + secrets.randbelow(254))

    def close(self) -> None:
        """Kill the process and give its slots back."""
        self.process.close()
        self.outputs, self.results = [], []
        self.block.close()
        if self.trace:
            self.trace.close()

    def __enter__(self) -> RunnerHandle:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _describe_exit(code: int | None) -> str:
    return f"killed by signal {-code}" if code is not None and code < 0 else f"exit code {code}"
