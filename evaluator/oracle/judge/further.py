"""The baselines of a strict verdict's further sessions: processes of their own, kept for the next candidates. Imports torch.

Each session of a strict verdict has other processes, because where a process happens to lie in the card's memory moves its times. A
candidate's process is new each time. The baselines' need not be: candidates never touch them, and building them takes longer than timing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tritonsmith.evaluator.oracle.checks.loaded_task import LoadedTask
from tritonsmith.evaluator.oracle.handles.pool import RunnerPool
from tritonsmith.evaluator.oracle.timing.baselines import BaselineProcess

_MOST_KEPT = 0.05
"""Share of the card's memory that kept processes may take, of which the memory plan knows one only."""
_CONTEXT_BYTES = 1e9
"""What one process takes on the card before it has any tensor."""


class FurtherBaselines:
    """Processes that run the strongest baseline in further sessions.

    Args:
        session: the task on the card.
        first: the process of the first session; what is known of the baselines counts here too.
        count: further sessions of a verdict.
    """

    def __init__(self, session: LoadedTask, first: BaselineProcess, count: int) -> None:
        self._first = first
        self._session = session
        self._count = count
        self._processes: list[BaselineProcess] = []
        self._built: dict[BaselineProcess, str] = {}
        """What each process builds or has built."""
        self.strongest: dict[str, str] = {}
        """By profile: the strongest baseline in the last verdict."""
        if session.plan.together and count * _count_bytes(session) <= _MOST_KEPT * session.hardware.memory_bytes:
            self._processes = [BaselineProcess(session, first.known) for _ in range(count)]

    def start(self, profile: str, pool: RunnerPool) -> None:
        """Let the kept processes build what will most likely be the strongest baseline again; where none is known yet they import only."""
        name = self.strongest.get(profile) or self.strongest.get("quick", "")
        if not name or not self._processes:
            pool.fill(reference=self._count)
        for process in self._processes if name else ():
            self._open(process, name)

    def count_missing(self) -> int:
        """Kept processes that are still to be started."""
        return sum(not process.is_running for process in self._processes)

    def wait_ready(self) -> None:
        """Wait until those that were started have built it: nothing is timed beside that. Raises InfrastructureError."""
        for process in self._processes:
            if process.is_running:
                process.wait_ready()

    @contextlib.contextmanager
    def lend(self, number: int, name: str) -> Iterator[BaselineProcess]:
        """The started process of a further session (from 0), with this baseline alone; one that is not kept ends behind it."""
        process = self._processes[number] if self._processes else BaselineProcess(self._session, self._first.known)
        try:
            self._open(process, name)
            yield process
        except BaseException:
            process.close()
            raise
        finally:
            if not self._processes:
                process.close()

    def _open(self, process: BaselineProcess, name: str) -> None:
        if process.is_running and self._built.get(process) != name:
            process.close()
        if not process.is_running:
            process.start((name,))
            self._built[process] = name

    def close(self) -> None:
        """End them."""
        for process in self._processes:
            process.close()


def _count_bytes(session: LoadedTask) -> float:
    """What one such process takes of the card's memory, at the most."""
    layout = session.layout
    return 2.0 * layout.input_bytes + layout.output_bytes + session.weight_bytes + 2.0 * session.plan.peak + _CONTEXT_BYTES
