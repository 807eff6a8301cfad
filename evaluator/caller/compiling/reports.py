"""Compilations that run while other candidates are measured: what the compilers read, and the reports that are kept."""

from __future__ import annotations

import shutil
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from contextlib import AbstractContextManager
from pathlib import Path

from tritonsmith.evaluator.caller.compiling.pool import CompilePool, CompileReport
from tritonsmith.evaluator.channel.compiled_code import locate_code
from tritonsmith.evaluator.errors import InfrastructureError
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.processes.server import ServerProcess
from tritonsmith.evaluator.schema import Task

_MOST_KEPT = 500
"""Texts whose compiled code is kept, up to some hundred kB each."""


class CompileRequests:
    """Files with a task's init arguments and shapes, which compilers read; each is written once.

    Args:
        folder: where copies of them lie.
        lease: leases an oracle.
        prepare: lets an oracle write the file of a task; only oracles run tasks.
    """

    def __init__(
        self, folder: Path, lease: Callable[[], AbstractContextManager[ServerProcess]], prepare: Callable[[ServerProcess, Task], Path]
    ) -> None:
        self._folder = folder
        self._lease = lease
        self._prepare = prepare
        self._files: dict[str, Path] = {}
        self._lock = threading.Lock()

    def path(self, task: Task) -> Path:
        """The file of a task; where there is none yet, an oracle is leased for it."""
        with self._lock:
            if task.sha in self._files:
                return self._files[task.sha]
            with self._lease() as oracle:
                return self.path_from(oracle, task)

    def path_from(self, oracle: ServerProcess, task: Task) -> Path:
        """The file of a task, for a caller that has leased an oracle.

        It takes no lock: who holds that may wait for this very oracle.
        """
        if task.sha not in self._files:
            copy = self._folder / f"{task.sha}.pkl"
            copy.write_bytes(self._prepare(oracle, task).read_bytes())
            copy.chmod(0o644)
            self._files[task.sha] = copy
        return self._files[task.sha]


class OwnCalls:
    """A file with one call of the task that was asked about last: its inputs, and weights, which may be large.

    Args:
        folder: where the copy lies.
        prepare: lets an oracle write the file of a task.
    """

    def __init__(self, folder: Path, prepare: Callable[[ServerProcess, Task], Path]) -> None:
        self._path = folder / "call.pt"
        self._prepare = prepare
        self._task = ""

    def path_from(self, oracle: ServerProcess, task: Task) -> Path:
        """The file of a task, for a caller that has leased an oracle; it stays until another task's is asked for."""
        if task.sha != self._task:
            self._task = ""
            shutil.copyfile(self._prepare(oracle, task), self._path)
            self._path.chmod(0o644)
            self._task = task.sha
        return self._path


class CompileReports:
    """Reports about candidates, kept by task and text: a confirmation asks about a text that was compiled before.

    Args:
        pool: the compilers.
        request_path: gives the file of a task that compilers read.
        seconds: the longest that one compilation may take.
        kept: folder for what texts compile to; None where nobody runs them.
    """

    def __init__(self, pool: CompilePool, request_path: Callable[[Task], Path], seconds: float, kept: Path | None = None) -> None:
        self._pool = pool
        self._request_path = request_path
        self._seconds = seconds
        self._kept = kept
        self._files: deque[Path] = deque()
        """Of the texts in `kept`, the oldest first."""
        self._reports: dict[tuple[str, str], Future[CompileReport]] = {}

    def start(self, task: Task, kernel: KernelText, *, again: bool = False) -> Future[CompileReport]:
        """The report of a candidate in the future: the one that is kept, or of a compilation that starts now.

        It starts also when the kept one failed or was called off, and `again` in any case.
        """
        key = (task.sha, kernel.sha)
        known = self._reports.get(key)
        if again or known is None or known.cancelled() or (known.done() and known.exception() is not None):
            code = locate_code(self._kept, task.sha, kernel.sha) if self._kept else None
            self._reports[key] = self._pool.submit(kernel, self._request_path(task), self._seconds, code)
            self._files += [code] if code else []
            if len(self._files) > _MOST_KEPT:
                self._files.popleft().unlink(missing_ok=True)
        return self._reports[key]

    def wait_for(self, task: Task, kernel: KernelText, *, again: bool) -> CompileReport:
        """The report of a candidate once it is there; `again`, of a new compilation. Raises InfrastructureError."""
        try:
            return self.start(task, kernel, again=again).result()
        except CancelledError as error:
            raise InfrastructureError("the compilation was called off") from error

    def close(self) -> None:
        """End the compilers."""
        self._pool.close()
