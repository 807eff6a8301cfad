"""Kernels whose counters an oracle had read: each is asked about once."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

from tritonsmith.evaluator.caller.compiling.reports import OwnCalls
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.processes.requests import Count, ServerRequest
from tritonsmith.evaluator.processes.server import ServerProcess
from tritonsmith.evaluator.records.limits import Counters
from tritonsmith.evaluator.schema import Record, Task

A = TypeVar("A", bound=Record)
"""What answers a request."""
_SECONDS = 90.0
"""Longest time under Nsight Compute, which runs each kernel several times."""


class Leasing(Protocol):
    """Oracles that are leased one by one."""

    def lease(self) -> AbstractContextManager[ServerProcess]:
        """An oracle for one caller alone."""

    def ask(self, server: ServerProcess, request: ServerRequest[A]) -> A:
        """Its answer. Raises InfrastructureError."""


class CountedKernels:
    """What Nsight Compute counted, or why it did not, by task and text.

    Args:
        oracles: those of the card; while one is leased, nothing is timed.
        calls: the files with a call of a task.
        seconds: the longest that one call of a candidate may take.
    """

    def __init__(self, oracles: Leasing, calls: OwnCalls, seconds: float) -> None:
        self._oracles, self._calls, self._seconds = oracles, calls, min(_SECONDS, seconds)
        self._known: dict[tuple[str, str], Counters] = {}
        self._refused: Counters | None = None
        """Why no kernel can be counted here, once that is clear."""

    def count(self, task: Task, kernel: KernelText) -> Counters:
        """The counters of a working kernel. Raises InfrastructureError."""
        if self._refused is not None:
            return self._refused
        key = (task.sha, kernel.sha)
        if key not in self._known:
            with self._oracles.lease() as oracle:
                path = self._calls.path_from(oracle, task)
                answer = self._oracles.ask(oracle, Count(kernel=kernel, request=path, seconds=self._seconds))
            self._known[key] = answer.counters
            self._refused = answer.counters if answer.final else None
        return self._known[key]
