"""The process that runs the baselines of a task: its start, weights, settings and results. Imports torch."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import torch

from tritonsmith.evaluator.channel.doorbell import QUICK_BASELINES, Command
from tritonsmith.evaluator.channel.slots import SharedBlock, fill_slots
from tritonsmith.evaluator.errors import BaselineError, CardMemoryError, InfrastructureError
from tritonsmith.evaluator.oracle.checks.loaded_task import LoadedTask
from tritonsmith.evaluator.oracle.handles.runner import RunnerFault, RunnerHandle
from tritonsmith.evaluator.oracle.timing.known_baselines import KnownBaselines, describe_missing
from tritonsmith.evaluator.schema import Status

BUILD_SECONDS = 300.0
"""Limit of a call that may build a baseline: torch.compile of a large network takes minutes."""
AUTOTUNE_SECONDS = 180.0
"""Limit of what it takes to build an autotuned baseline, in all its settings together."""
OUT_OF_MEMORY = "out of memory"
"""What torch and CUDA say."""
_CALLS_ALONE = 10
"""Calls that show whether a baseline fails by itself. One that reads its last call's memory fails from the third on."""


class Blamed(RunnerFault):
    """A candidate disturbs the calls of others."""


class BaselineProcess:
    """Runs every baseline of one task in one process, which stays alive between candidates.

    Args:
        session: the task on the card.
        known: what other processes of the task have found out; this one adds to it.
        build_seconds: limit of what it takes to start, with what is built ahead.
    """

    def __init__(
        self, session: LoadedTask, known: KnownBaselines | None = None, build_seconds: float = BUILD_SECONDS
    ) -> None:
        self.session = session
        self._build_seconds = build_seconds
        self.known = known or KnownBaselines()
        self.modes, self.notes = self.known.modes, self.known.notes
        self._names: tuple[str, ...] = QUICK_BASELINES
        """Baselines that the process was started for, or is to be."""
        self._autotuned: set[str] = set()  # autotuned baselines that this process has built
        self.undecided: tuple[str, ...] = ()
        """Baselines that were started and whose settings are still to be chosen."""
        self._runner: RunnerHandle | None = None
        self._block: SharedBlock | None = None
        self._slots: list[torch.Tensor] = []
        """The baselines' own inputs: the slots of a candidate get theirs when its call is due, and not before."""
        self._weights = 0  # the number of the draw of weights that the baselines have
        self._weights_file: Path | None = None
        """A copy of its own: another process may start, and read its copy, while this one gets other weights."""

    def start(self, names: tuple[str, ...] = ()) -> None:
        """Start the process, which builds these baselines while something else goes on; `wait_ready` waits for it.

        No names are those of the last start. A process that runs goes on, and is asked for what it does not have yet.
        """
        names = self.known.list_usable(names or self._names)
        if self._runner is not None:
            more = tuple(name for name in names if name not in self._names)
            self._names, self.undecided = self._names + more, self.undecided + more
            return
        self.close()  # what a start that failed has left
        session = self.session
        self._block = SharedBlock(session.layout.input_bytes, session.device)
        self._block.tensor.fill_(0xFF)  # as in the candidate's
        self._slots = session.layout.views(self._block.tensor, session.layout.inputs)
        fill_slots(self._slots, session.draw("own"))  # they are read while the baselines are built
        session.sync()
        self._runner = session.new_runner("reference", replace(session.setup, inputs=self._block))
        self._weights_file = session.copy_weights()  # the candidate's may be drawn again while this process starts
        self._weights = session.weights_number
        modes = [mode for name in names if not self.known.must_autotune(name) for mode in self.list_settings(name)]
        self._runner.begin(
            task=session.task.model_dump(mode="json"), build=modes, weights=str(self._weights_file), frugal=not session.plan.together
        )
        self._names = self.undecided = names

    def wait_ready(self) -> None:
        """Wait until the baselines are built, and give them the weights of now. Raises InfrastructureError.

        An autotuned one that fails, or is not built in time, ends this process: another one starts without it.
        """
        self._wait_started()
        while names := self.unbuilt:
            try:
                self._autotune(names[0])
            except RunnerFault as fault:
                self._require_memory(names[0], fault)
                self.close()
                self.known.leave_out(names[0], _describe_unbuilt(names[0], fault))
                self.known.forget_notes()  # the next process tries the others again
                self._wait_started()

    @property
    def unbuilt(self) -> tuple[str, ...]:
        """Autotuned baselines that were asked for and are not built yet: `wait_ready` does so, within a limit."""
        return tuple(name for name in self.undecided if self.known.must_autotune(name) and name not in self._autotuned)

    def _autotune(self, name: str) -> None:
        """Build an autotuned baseline in all its settings. Raises RunnerFault."""
        end = time.monotonic() + AUTOTUNE_SECONDS
        for mode in self.list_settings(name):
            self.runner.command(Command.CALL, mode, timeout=max(0.0, end - time.monotonic()))
        self._autotuned.add(name)

    def _wait_started(self) -> None:
        """Wait until what is built ahead is built, and give it the weights of now. Raises InfrastructureError."""
        self.start()
        with self.own_faults("the baselines' process did not start"):
            self.runner.wait_ready(self._build_seconds)
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
        for mode in self.list_settings(name):
            try:
                self.runner.command(Command.CALL, mode, timeout=BUILD_SECONDS)
                ms = measure_ms(mode)
            except (Blamed, InfrastructureError):
                self.close()  # so that the next candidate finds all of them built and chosen again
                raise
            except RunnerFault as fault:
                self._require_memory(name, fault)
                self.known.miss(name, fault)
                return
            if best is None or ms < best[0]:
                best = (ms, mode)
        if best:
            self.modes[name] = best[1]

    def _require_memory(self, name: str, fault: RunnerFault) -> None:
        """Raises CardMemoryError where memory ran out beside other baselines: alone it may fit."""
        if OUT_OF_MEMORY in str(fault) and self.session.plan.together:
            self.close()
            raise CardMemoryError(f"baseline {name} could not be had: {fault}") from fault

    def list_settings(self, name: str) -> list[int]:
        """Numbers of a baseline's settings that count."""
        return self.known.list_settings(name, self._weights, tf32=self.session.arithmetic.tf32)

    def leave_out_wrong(self, find_wrong: Callable[[int], str]) -> None:
        """Leave baselines out whose results are wrong with the weights of now, as `find_wrong` says of a setting; eager execution stays."""
        asked = self.session.task.precision.value
        for name in self.known.list_usable(self._names):
            if name in self.undecided or name in self.modes:
                self.known.check(name, self.list_settings(name), self._weights, asked, find_wrong)
        self.undecided = self.known.list_usable(self.undecided)

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
        """Go on without a baseline that failed in a timed call and fails again alone, or that is left out already.

        Raises the error where it does not fail again, and InfrastructureError where its process does not start.
        """
        if self.known.explain(error.name):
            return
        self.close()
        why = _call_alone(BaselineProcess(self.session, self.known), error.name)
        if not why:
            raise error
        self.known.leave_out(error.name, why)
        self.known.forget_notes()

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
        self._autotuned.clear()
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


def _call_alone(process: BaselineProcess, name: str) -> str:
    """How a baseline fails in a process that runs nothing else; empty where it does not. Raises InfrastructureError."""
    with contextlib.closing(process):
        process.start((name,))
        process.wait_ready()
        try:
            for mode in process.list_settings(name):
                for _ in range(_CALLS_ALONE):
                    process.runner.command(Command.CALL, mode, timeout=BUILD_SECONDS)
                    process.runner.command(Command.DELIVER, timeout=BUILD_SECONDS)
        except RunnerFault as fault:
            return describe_missing(name, fault)
    return ""


def _describe_unbuilt(name: str, fault: RunnerFault) -> str:
    if fault.status is Status.TIMEOUT:
        return f"baseline {name} left out: torch.compile took longer than {AUTOTUNE_SECONDS:.0f} s"
    return describe_missing(name, fault)
