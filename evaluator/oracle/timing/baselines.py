"""The process that runs the baselines of a task: its start, weights, settings and results. Imports torch."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import torch

from tritonsmith.evaluator.channel.doorbell import BASELINES, Command, mode_number
from tritonsmith.evaluator.channel.slots import SharedBlock, fill_slots
from tritonsmith.evaluator.errors import BaselineError, CardMemoryError, InfrastructureError
from tritonsmith.evaluator.oracle.checks.loaded_task import LoadedTask
from tritonsmith.evaluator.oracle.handles.runner import RunnerFault, RunnerHandle
from tritonsmith.evaluator.schema import Status

BUILD_SECONDS = 300.0
"""Limit of a call that may build a baseline: torch.compile of a large network takes minutes."""
OUT_OF_MEMORY = "out of memory"
"""What torch and CUDA say."""
_CALLS_ALONE = 10
"""Calls that show whether a baseline fails by itself. One that reads its last call's memory fails from the third on."""
_NOTE_LENGTH = 200
"""Characters of a baseline's failure that are noted."""


class Blamed(RunnerFault):
    """A candidate disturbs the calls of others."""


class BaselineProcess:
    """Runs every baseline of one task in one process, which stays alive between candidates.

    Args:
        session: the task on the card.
        modes: settings of baselines that were chosen before.
    """

    def __init__(self, session: LoadedTask, modes: dict[str, int] | None = None) -> None:
        self.session = session
        self.modes = dict(modes or {})
        """The chosen setting of each baseline by its name."""
        self.notes: list[str] = []
        """A sentence about each baseline that could not be run."""
        self._left_out: dict[str, str] = {}
        """A sentence about each baseline that fails by itself, by its name."""
        self.undecided: tuple[str, ...] = ()
        """Baselines that were started and whose settings are still to be chosen."""
        self._runner: RunnerHandle | None = None
        self._block: SharedBlock | None = None
        self._slots: list[torch.Tensor] = []
        """The baselines' own inputs: the slots of a candidate get theirs when its call is due, and not before."""
        self._weights = 0
        """The number of the draw of weights that the baselines have."""
        self._weights_file: Path | None = None
        """A copy of its own: another process may start, and read its copy, while this one gets other weights."""

    def start(self, names: tuple[str, ...] = BASELINES) -> None:
        """Start the process, which builds these baselines while something else goes on; `wait_ready` waits for it."""
        if self._runner is not None:
            return
        self.close()  # what a start that failed has left
        session = self.session
        self._block = SharedBlock(session.layout.input_bytes, session.device)
        self._block.tensor.fill_(0xFF)  # as in the candidate's
        self._slots = session.layout.views(self._block.tensor, session.layout.inputs)
        fill_slots(self._slots, session.draw("own"))  # they are read while the baselines are built
        session.sync()
        self._runner = session.new_runner("reference", replace(session.setup, inputs=self._block))
        names = self.list_usable(names)
        modes = [mode for name in names for mode in self._settings(name)]
        self._weights_file = session.copy_weights()  # the candidate's may be drawn again while this process starts
        self._weights = session.weights_number
        self._runner.begin(
            task=session.task.model_dump(mode="json"), build=modes, weights=str(self._weights_file), frugal=not session.plan.together
        )
        self.undecided = names

    def wait_ready(self) -> None:
        """Wait until the baselines are built, and give them the weights of now. Raises InfrastructureError."""
        self.start()
        with self.own_faults("the baselines' process did not start"):
            self.runner.wait_ready(BUILD_SECONDS)
            if self._weights != self.session.weights_number:
                self._weights = self.session.weights_number
                self.session.copy_weights(self._weights_file)
                self.runner.command(Command.WEIGHTS, timeout=BUILD_SECONDS)

    def choose_modes(self, measure_ms: Callable[[int], float]) -> None:
        """Keep the faster setting of each undecided baseline; `measure_ms` times a setting by its number."""
        names, self.undecided = self.undecided, ()
        for name in names:
            self._choose_mode(name, measure_ms)

    def _choose_mode(self, name: str, measure_ms: Callable[[int], float]) -> None:
        best: tuple[float, int] | None = None
        for mode in self._settings(name):
            try:
                self.runner.command(Command.CALL, mode, timeout=BUILD_SECONDS)
                ms = measure_ms(mode)
            except Blamed:
                self.close()  # so that the next candidate finds all of them built and chosen again
                raise
            except RunnerFault as fault:
                if OUT_OF_MEMORY in str(fault) and self.session.plan.together:  # alone it may fit
                    self.close()
                    raise CardMemoryError(f"baseline {name} could not be had: {fault}") from fault
                self.notes.append(_describe_missing(name, fault))
                return
            if best is None or ms < best[0]:
                best = (ms, mode)
        if best:
            self.modes[name] = best[1]

    def _settings(self, name: str) -> list[int]:
        """Numbers of a baseline's settings that count.

        Where TF32 is allowed both do: a stricter setting is a fair bar as well. Once chosen, a setting stays.
        """
        settings = (False, True) if self.session.arithmetic.tf32 else (False,)
        return [self.modes[name]] if name in self.modes else [mode_number(name, tf32) for tf32 in settings]

    @contextlib.contextmanager
    def own_faults(self, message: str, name: str = "") -> Iterator[None]:
        """Turn faults inside into InfrastructureError: a baseline's failure is not the candidate's fault, unless it is blamed.

        Where the baseline of this name was called and its own code failed, it is a BaselineError.
        """
        try:
            yield
        except Blamed:
            raise
        except RunnerFault as fault:
            self.close()
            if name and fault.status is Status.RUNTIME_ERROR and OUT_OF_MEMORY not in str(fault):
                raise BaselineError(name, f"{message}: {fault}") from fault
            error = CardMemoryError if OUT_OF_MEMORY in str(fault) else InfrastructureError
            raise error(f"{message}: {fault}") from fault

    def leave_out(self, error: BaselineError) -> None:
        """Go on without a baseline that failed in a timed call and fails again with nobody beside it, in a process of its own.

        Raises the error where it does not fail again, and InfrastructureError where the process does not start.
        """
        self.close()
        self.start((error.name,))
        self.wait_ready()
        try:
            for mode in self._settings(error.name):
                for _ in range(_CALLS_ALONE):
                    self.runner.command(Command.CALL, mode, timeout=BUILD_SECONDS)
                    self.runner.command(Command.DELIVER, timeout=BUILD_SECONDS)
        except RunnerFault as fault:
            self._left_out[error.name] = _describe_missing(error.name, fault)
            self.modes.pop(error.name, None)
            self.forget_notes()
            return
        finally:
            self.close()
            self.undecided = ()
        raise error

    def list_usable(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Those that are not left out."""
        return tuple(name for name in names if name not in self._left_out)

    def forget_notes(self) -> None:
        """Forget which baselines could not be run; those that are left out stay noted."""
        self.notes[:] = self._left_out.values()

    @property
    def is_running(self) -> bool:
        """Whether the process was started and not closed."""
        return self._runner is not None

    @property
    def runner(self) -> RunnerHandle:
        """The handle of the process, once it is started."""
        assert self._runner is not None
        return self._runner

    def owns(self, runner: RunnerHandle) -> bool:
        """Whether a runner is the baselines' and not a candidate's."""
        return runner is self._runner

    @property
    def inputs(self) -> list[torch.Tensor]:
        """The slots from which the baselines read."""
        return self._slots

    @property
    def results(self) -> list[torch.Tensor]:
        """The results of the last call of a baseline, until its next one."""
        return self.runner.results

    def close(self) -> None:
        """End the process and give its slots back."""
        if self._runner:
            self._runner.close()
            self._runner = None
        if self._block:
            self._slots = []
            self._block.close()
            self._block = None
        if self._weights_file:
            self._weights_file.unlink(missing_ok=True)
            self._weights_file = None


def _describe_missing(name: str, fault: RunnerFault) -> str:
    return f"baseline {name} could not be had: {str(fault)[:_NOTE_LENGTH]}"
