"""On which processors the oracle and the processes that it times run."""

from __future__ import annotations

import contextlib
import os
import random

from tritonsmith.evaluator.oracle.handles.runner import RunnerHandle
from tritonsmith.evaluator.oracle.timing.baselines import BaselineProcess

_MIN_PROCESSORS = 4
"""With fewer no processor is chosen: the oracle and the timed processes want one each, and some must be left to choose from."""


class Placement:
    """Places this thread, a candidate's runner and the baselines' process.

    Args:
        candidate: the candidate's runner.
        baselines: the process that the candidate is compared with.
    """

    def __init__(self, candidate: RunnerHandle, baselines: BaselineProcess) -> None:
        self._candidate = candidate
        self._baselines = baselines
        self._chosen: tuple[int, int] | None = None
        """The processors of this thread and of the timed processes."""

    def choose(self, processors: set[int]) -> bool:
        """Move both processes to one random processor and this thread to another, so that neither side has the better one.

        Returns whether anything was moved.
        """
        if len(processors) < _MIN_PROCESSORS or not self._baselines.is_running:
            return False
        own, timed = random.sample(sorted(processors), 2)
        self._chosen = own, timed
        self.choose_again()
        self._candidate.process.run_on({timed})
        return True

    def choose_again(self) -> None:
        """Move the baselines' process and this thread to where `choose` put them last."""
        if self._chosen is not None and self._baselines.is_running:
            own, timed = self._chosen
            _move_thread({own})
            self._baselines.runner.process.run_on({timed})

    def release(self, processors: set[int]) -> None:
        """Let this thread and both processes have all of these processors again."""
        _move_thread(processors)  # what it starts has the same ones
        self._candidate.process.run_on(processors)
        if self._baselines.is_running:
            self._baselines.runner.process.run_on(processors)


def _move_thread(processors: set[int]) -> None:
    """Let this thread have these processors; where that is not allowed it stays as it is."""
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, processors)
