"""One runner process before it has a candidate: in the sandbox, importing, waiting."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tritonsmith.evaluator.channel.doorbell import Doorbell, LineReader
from tritonsmith.evaluator.errors import InfrastructureError
from tritonsmith.evaluator.sandbox.family import threads_of
from tritonsmith.evaluator.sandbox.process import SandboxedProcess
from tritonsmith.evaluator.sandbox.warm_start import ONE_THREAD, Branch

IMPORT_SECONDS = 90.0
"""Import of torch, Triton and the candidate, and the building of its model."""
LAST_BREATH_SECONDS = 0.5
"""Between the end of a process's output and the end of the process."""
INTERPRETER = {"TRITON_INTERPRET": "1"} | ONE_THREAD
"""Environment of processes that interpret kernels."""
INTERPRETING = Branch(
    INTERPRETER, ("torch._dynamo", "tritonsmith.evaluator.confined.runner.serve", "tritonsmith.evaluator.confined.replay.forward")
)
"""How these processes are started ahead."""
_ON_A_CARD = ONE_THREAD | {
    "TORCHINDUCTOR_COMPILE_THREADS": "1",  # torch.compile in a candidate would start processes that import torch for seconds
}
"""Timed calls have one processor, which a candidate's other threads and processes would share with forward."""
_READY_WORDS = {"candidate": ("card",), "witness": ("card", "profiler"), "reference": ("card",)}
"""What a process of each role does on the card before it knows what to run (`confined/runner/warm.py`)."""
_READY_WORDS_WITH_TIME = {"reference": ("compile",)}
"""What a process of each role also does where it has time."""


class RunnerProcess:
    """One process that will run a candidate (or the baselines), and its doorbell.

    Args:
        role: `candidate`, `witness` (a candidate whose launches are profiled) or `reference`, which runs no candidate code.
        cuda: whether it works on a card.
        fds: descriptors of shared memory that it inherits.
        read: files and folders of ours that it must see.
        environment: additions to the scrubbed environment.
        waits: whether it has time to do what a later task may need.
    """

    def __init__(
        self, role: str, *, cuda: bool, fds: Sequence[int] = (), read: Sequence[Path] = (), environment: dict[str, str] | None = None,
        waits: bool = False,
    ) -> None:  # fmt: skip
        self.doorbell = Doorbell()
        self._folder = tempfile.TemporaryDirectory(prefix="tritonsmith-inbox-", ignore_cleanup_errors=True)
        inbox = Path(self._folder.name)
        inbox.chmod(0o755)
        self.source = inbox / "candidate.py"
        self._warm = False
        confined = role != "reference"
        if confined and cuda:  # none that wake up during a timed call
            environment = _ON_A_CARD | (environment or {})
        words = (*_READY_WORDS[role], *(_READY_WORDS_WITH_TIME.get(role, ()) if waits else ())) if cuda else ()
        self.sandbox = SandboxedProcess(
            "tritonsmith.evaluator.confined.runner", words, pass_fds=[self.doorbell.fd, self.doorbell.wake, *fds],
            environment=environment, confined=confined, read=[*read, inbox],
        )  # fmt: skip
        process = self.sandbox.process
        assert process.stdin is not None and process.stdout is not None
        self.stdin = process.stdin.fileno()
        self.lines = LineReader(process.stdout.fileno())

    def wait_warm(self, timeout: float = IMPORT_SECONDS) -> None:
        """Until the process has done its own imports. Raises InfrastructureError: no candidate code runs before that."""
        if self._warm:
            return
        message = self.lines.read(timeout)
        if message is None or message.get("event") != "warm":
            self.sandbox.alive_after(LAST_BREATH_SECONDS)
            self.sandbox.require_launched()
            raise InfrastructureError(f"a runner did not start within {timeout:.0f} s: {self.sandbox.stderr_tail().strip()[-300:]}")
        self._warm = True

    def hand_over_code(self, code: Path) -> str:
        """What a text compiles to in a file that the process can read; empty where it is not compiled yet, or did not compile."""
        if not code.exists():
            return ""
        place = self.source.with_name("code.json")
        place.write_bytes(code.read_bytes())
        place.chmod(0o444)
        return str(place)

    def run_on(self, processors: set[int]) -> None:
        """Let every thread of the run have these processors only; where that is not allowed it stays as it is."""
        for _ in range(2):  # what starts meanwhile has the processors of what started it
            for pid in self.sandbox.family.members():
                for thread in threads_of(pid):
                    with contextlib.suppress(OSError):
                        os.sched_setaffinity(thread, processors)

    def pause(self) -> None:
        """Stop every process of the run: nothing of it happens until `resume`."""
        self.sandbox.family.pause()

    def resume(self) -> None:
        """Let them run again."""
        self.sandbox.family.resume()

    def kill(self) -> None:
        """End every process of the run."""
        self.sandbox.kill()

    def close(self) -> None:
        """Kill the process and give its doorbell and its folder back."""
        self.sandbox.kill()
        self.doorbell.close()
        self._folder.cleanup()
