"""On which processors the oracle and the processes that it times run."""

from __future__ import annotations

import contextlib
import os
import random

from tritonsmith.evaluator.oracle.handles.runner import RunnerHandle
from tritonsmith.evaluator.oracle.timing.baselines import BaselineProcess
from tritonsmith.evaluator.oracle.timing.processors import CoreLocks, HostLoad

_MIN_PROCESSORS = 4
"""With fewer no processor is chosen: the oracle and the timed processes want one each, and some must be left to choose from."""


class Placement:
    """Places this thread, a candidate's runner and the baselines' process.

    Args:
        candidate: the candidate's runner.
        baselines: the process that the candidate is compared with.
        load: how busy the processors are; those of this host when None.
        locks: what other evaluators of this host have; of this host when None.
    """

    def __init__(
        self, candidate: RunnerHandle, baselines: BaselineProcess, load: HostLoad | None = None, locks: CoreLocks | None = None
    ) -> None:
        self._candidate = candidate
        self._baselines = baselines
        self._load = load or HostLoad()
        self._locks = locks or CoreLocks()
        self._chosen: tuple[int, int] | None = None
        """The processors of this thread and of the timed processes."""

    def choose(self, processors: set[int]) -> bool:
        """Move both processes to one random processor and this thread to another, so that neither side has the better one.

        They lie on two cores, quiet ones that no other evaluator of this host uses, where there are such.

        Returns:
            Whether anything was moved.
        """
        if len(processors) < _MIN_PROCESSORS or not self._baselines.is_running:
            return False
        cores = self._locks.choose(self._load.rank(processors), 2)
        own, timed = [random.choice(core) for core in cores] if len(cores) == 2 else random.sample(sorted(processors), 2)
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
        self._locks.release()
        _move_thread(processors)  # what it starts has the same ones
        self._candidate.process.run_on(processors)
        if self._baselines.is_running:
            self._baselines.runner.process.run_on(processors)


def _move_thread(processors: set[int]) -> None:
    """Let this thread have these processors; where that is not allowed it stays as it is."""
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, processors)
