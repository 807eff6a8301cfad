"""A candidate inside its runner: import, weights by name, calls on the card or in the interpreter."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import torch
from torch import nn

from tritonsmith.evaluator.channel.doorbell import CUDA_GRAPH, FORMS, read_schedule
from tritonsmith.evaluator.channel.report import ForwardReport, fold_launches
from tritonsmith.evaluator.channel.slots import open_block
from tritonsmith.evaluator.confined.runner.captured import CapturedForward
from tritonsmith.evaluator.confined.runner.faults import CandidateFault
from tritonsmith.evaluator.confined.runner.gradients import bind_call
from tritonsmith.evaluator.confined.runner.weights import transfer_weights
from tritonsmith.evaluator.confined.stand_ins.operators import TorchOpCounter
from tritonsmith.evaluator.reference.gradients import GradientPlan
from tritonsmith.evaluator.reference.module import flatten
from tritonsmith.evaluator.reference.updates import UpdatedBuffers
from tritonsmith.evaluator.schema import Hardware, Status

MODULE_NAME = "candidate"
"""Name under which a candidate is imported."""
_ROUND_ROBIN = 0
"""Mode of a call in which programs run in turn."""
_REPLAYED = FORMS.index(CUDA_GRAPH)
"""Mode of a call on a card that replays what was captured."""
_REPORTED_KINDS = 100
"""Kinds of torch operators that a report names."""


class Subject(Protocol):
    """What a runner serves: one call, new weights, and the facts of one forward."""

    returned: Any
    """What the last forward returned, as it is; None once it is delivered."""

    def call(self, arguments: list[Any], mode: int) -> Any:
        """What one forward returns."""
        ...

    def load_weights(self, path: Path) -> None:
        """Copy the state_dict in the file into the model in place."""
        ...

    def set_back(self) -> None:
        """Undo what the last call left in buffers that forward updates."""
        ...

    def facts(self, arguments: list[Any], mode: int) -> tuple[dict[str, Any], Any]:
        """What one forward launches, and what it returned where it was run for that."""
        ...


def choose_candidate_class(*, cuda: bool) -> type[Subject]:
    """The class of candidates on the card, or in the interpreter."""
    return CardCandidate if cuda else InterpretedCandidate


def open_candidate(
    source: Path, init: list[Any], weights: Path, hardware: Hardware, *, cuda: bool, trace: dict[str, Any] | None = None,
    state: StateOfCalls | None = None,
) -> Subject:  # fmt: skip
    """Import the candidate and give it the reference's weights. Raises CandidateFault or what candidate code raises.

    Without a card, `trace` is the handle of the block where each call is written down for the replay.
    """
    state = state or StateOfCalls()
    if cuda:
        return CardCandidate(source, init, weights, hardware, state)
    return InterpretedCandidate(source, init, weights, hardware, state, trace)


@dataclass(frozen=True)
class StateOfCalls:
    """The mode of a module, the buffers that its forward updates, and what else a call gives."""

    train: bool = False
    updates: tuple[str, ...] = ()
    """The reference's names."""
    gradients: GradientPlan | None = None
    """The gradients that a call gives too."""


class _Candidate:
    def __init__(self, source: Path, init: list[Any], weights: Path, state: StateOfCalls) -> None:
        self.module = import_candidate(source)
        if not isinstance(getattr(self.module, "ModelNew", None), type):
            raise CandidateFault(Status.INVALID_FILE, "the module defines no class ModelNew")
        model = self.module.ModelNew(*init)
        if not isinstance(model, nn.Module):
            raise CandidateFault(Status.INVALID_FILE, "ModelNew is not a torch.nn.Module")
        self.model = self._to_device(model.train(state.train))
        self._state = state
        self._buffers: UpdatedBuffers | None = None
        self.returned: Any = None
        self._forward: Callable[..., Any] = self.model
        self._called = False
        """Whether a call has left something in the buffers."""
        self.load_weights(weights)

    def _to_device(self, model: nn.Module) -> nn.Module:
        return model

    def load_weights(self, path: Path) -> None:
        names = transfer_weights(self.model, torch.load(path, weights_only=True, map_location="cpu"))
        self._forward = bind_call(self.model, self._state.gradients)
        if self._state.updates:
            self._buffers = UpdatedBuffers(self.model, [names[name] for name in self._state.updates])

    def _run(self, arguments: list[Any]) -> list[torch.Tensor]:
        """What forward returns, taken apart, then the buffers as it leaves them."""
        self.returned = None  # else the card would hold two results during the call
        if self._buffers is None:
            self.returned = result = self._forward(*arguments)
            return flatten(result)
        self.set_back()
        self._called = True
        self.returned = result = self._forward(*arguments)
        return [*flatten(result), *self._buffers.read()]

    def set_back(self) -> None:
        """Give the buffers the values that each call starts from; nothing to do where no call has changed them."""
        if self._buffers is not None and self._called:
            self._buffers.set_back()
            self._called = False


class CardCandidate(_Candidate):
    """The candidate on the card."""

    def __init__(self, source: Path, init: list[Any], weights: Path, hardware: Hardware, state: StateOfCalls) -> None:
        super().__init__(source, init, weights, state)
        self._hardware = hardware

    def _to_device(self, model: nn.Module) -> nn.Module:
        return model.cuda()

    def load_weights(self, path: Path) -> None:
        """Copy the state_dict in the file into the model; what was captured before may hold what was made of other weights."""
        super().load_weights(path)
        self._captured: CapturedForward | None = None

    def call(self, arguments: list[Any], mode: int) -> Any:
        """One forward in the form with that number, taken apart within the call."""
        if mode != _REPLAYED:
            return self._run(arguments)
        if self._captured is None:
            raise CandidateFault(Status.RUNTIME_ERROR, "forward was not captured in a CUDA graph")
        self.set_back()
        self._called = self._buffers is not None
        return self._captured.replay()

    def capture(self, arguments: list[Any]) -> None:
        """Capture forward on these arguments in a CUDA graph. Raises what capturing raises: this process is broken then."""
        self._captured = None
        self._captured = CapturedForward(lambda: self._run(arguments), self.set_back, self.model)
        self.returned = None

    def facts(self, arguments: list[Any], mode: int) -> tuple[dict[str, Any], Any]:
        """Launches, resources and device time of one forward, as the profiler and Triton report them."""
        # imports Triton, which must see the interpreter switch
        from tritonsmith.evaluator.confined.runner.launches import profile_forward  # noqa: PLC0415

        return profile_forward(lambda: self.call(arguments, mode), self._hardware, self.set_back)


class InterpretedCandidate(_Candidate):
    """The candidate in Triton's interpreter, every program a coroutine that the schedule may switch."""

    def __init__(
        self, source: Path, init: list[Any], weights: Path, hardware: Hardware, state: StateOfCalls, trace: dict[str, Any] | None = None
    ) -> None:
        # these import Triton, which must see the interpreter switch
        from tritonsmith.evaluator.confined.interpreter import autotuning, launch, patches, schedule  # noqa: PLC0415
        from tritonsmith.evaluator.confined.runner import recorder  # noqa: PLC0415
        from tritonsmith.evaluator.confined.stand_ins import cuda  # noqa: PLC0415

        patches.install(hardware)
        self._schedule, self._tuning = schedule, autotuning.tuning
        self._inside_kernel = lambda: launch.running.launch is not None
        self._fake = lambda: cuda.FakeCuda(hardware)
        self._counted: list[Any] = []
        self._torch = TorchOpCounter()
        self._trace = open_block(trace).numpy().data if trace else None
        self._record = recorder.ForwardRecorder
        self._recorder: recorder.ForwardRecorder | None = None
        with self._fake():
            super().__init__(source, init, weights, state)

    def call(self, arguments: list[Any], mode: int) -> Any:
        """One forward under the schedule: order 0 runs programs in turn, any other number seeds a shuffled order."""
        mode, self._tuning.number = read_schedule(mode)
        order: Literal["round_robin", "shuffled"] = "round_robin" if mode == _ROUND_ROBIN else "shuffled"
        self.set_back()
        counter = TorchOpCounter(spare=False, inside_kernel=self._inside_kernel)
        recorder = self._record(next((argument for argument in arguments if isinstance(argument, torch.Tensor)), None), self._inside_kernel)
        with self._schedule.session(order=order, seed=mode, before_launch=recorder.record_launch) as run, self._fake(), counter, recorder:
            result = self._run(arguments)  # taking apart what it returns may run its code: that counts
        recorder.finish(result)
        if run.faults:  # also those that candidate code caught and hid
            raise run.faults[0]
        self._counted, self._torch, self._recorder = list(run.launches), counter, recorder
        return result

    def load_weights(self, path: Path) -> None:
        """Copy the state_dict in the file into the model, under the stand-in for CUDA."""
        with self._fake():
            super().load_weights(path)

    def facts(self, arguments: list[Any], mode: int) -> tuple[dict[str, Any], Any]:
        """Counts of the last call."""
        races = sorted({race for launch in self._counted for race in launch.races})
        if self._trace is not None and self._recorder is not None:
            self._recorder.write(self._trace, [self.model, vars(self.module)])
        return {
            "unreplayable": self._recorder.problem if self._recorder else "",
            "launches": fold_launches(self._counted), "races": races[:5], "configurations": self._tuning.most,
            **ForwardReport.from_counter(self._torch, _REPORTED_KINDS).as_dict(),
        }, None  # fmt: skip


def import_candidate(source: Path) -> Any:
    """Import the file under a fixed name; Triton needs the source on disk."""
    spec = importlib.util.spec_from_file_location(MODULE_NAME, source)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[MODULE_NAME] = module
    spec.loader.exec_module(module)
    return module
