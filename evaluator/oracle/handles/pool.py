"""Runner processes that wait on a card for the candidates to come."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.oracle.handles.process import RunnerProcess
from tritonsmith.evaluator.oracle.handles.sanitizer import SanitizerProcess, say_why_not


class RunnerPool:
    """Processes that wait on the card for a candidate of any task, so that no verdict waits for imports.

    Args:
        sessions: folder below which every task keeps the files that its runners read.
    """

    def __init__(self, sessions: Path) -> None:
        self.sessions = sessions
        self._waiting: dict[str, list[RunnerProcess]] = {}
        self._sanitizer: SanitizerProcess | None = None
        """One that waits under compute-sanitizer."""
        self._compiled = tempfile.TemporaryDirectory(prefix="tritonsmith-compiled-", ignore_cleanup_errors=True)
        """What torch.compile makes of references, for every process of baselines and for no candidate: only this user may read it."""

    @classmethod
    def start(cls) -> RunnerPool:
        """A pool in which the first verdict's processes start, before its task is known."""
        sessions = Path(tempfile.mkdtemp(prefix="tritonsmith-sessions-"))  # goes with the folder that this process was given
        sessions.chmod(0o755)
        pool = cls(sessions)
        try:
            pool.fill(reference=1, candidate=1, witness=1)
        except BaseException:
            pool.close()
            raise
        return pool

    def take(self, role: str) -> RunnerProcess:
        """The process that has waited longest and still lives, otherwise a new one."""
        waiting = self._waiting.get(role, [])
        while waiting:
            process = waiting.pop(0)
            if process.sandbox.alive:
                return process
            process.close()
        return self._start(role, waits=False)

    def fill(self, **counts: int) -> None:
        """Start processes until so many of each role wait."""
        for role, count in counts.items():
            waiting = self._waiting.setdefault(role, [])
            while len(waiting) < count:
                waiting.append(self._start(role, waits=True))

    def trim(self, **counts: int) -> None:
        """End processes until no more than so many of each role wait."""
        for role, count in counts.items():
            waiting = self._waiting.get(role, [])
            while len(waiting) > count:
                waiting.pop().close()

    def await_sanitizer(self) -> None:
        """Have a process wait under compute-sanitizer, where one can be had."""
        if self._sanitizer is None and not say_why_not():
            self._sanitizer = SanitizerProcess()

    def sanitize(self, kernel: KernelText, request: Path, code: Path, seconds: float) -> tuple[bool, str]:
        """Whether memory errors were found in a candidate, and what was found or why nothing can be said."""
        if reason := say_why_not():
            return False, reason
        waiting, self._sanitizer = self._sanitizer, None
        if waiting is not None and not waiting.sandbox.alive:
            waiting.close()
            waiting = None
        with contextlib.closing(waiting or SanitizerProcess()) as process:
            return process.examine(kernel, request, code, seconds)

    def _start(self, role: str, *, waits: bool) -> RunnerProcess:
        folder = Path(self._compiled.name)
        shared = {"TORCHINDUCTOR_CACHE_DIR": str(folder), "TRITON_CACHE_DIR": str(folder / "triton")} if role == "reference" else None
        return RunnerProcess(role, cuda=True, read=[self.sessions], environment=shared, waits=waits)

    def pause(self) -> None:
        """Let those that wait stand still."""
        for process in self._list_all():
            process.pause()

    def resume(self) -> None:
        """Let them go on."""
        for process in self._list_all():
            process.resume()

    def _list_all(self) -> list[RunnerProcess | SanitizerProcess]:
        runners = [process for waiting in self._waiting.values() for process in waiting]
        return [*runners, self._sanitizer] if self._sanitizer else [*runners]

    def close(self) -> None:
        """End them, all at the same time: giving a context on the card back takes a moment."""
        for process in self._list_all():
            with contextlib.suppress(OSError):
                process.sandbox.process.terminate()
        for process in self._list_all():
            process.close()
        self._waiting.clear()
        self._sanitizer = None
        self._compiled.cleanup()
