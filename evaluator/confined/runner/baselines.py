"""The reference as it would be run without us: eager, in a CUDA graph, torch.compile in four modes. Runs in its own runner process."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tritonsmith.evaluator.channel.doorbell import AUTOTUNED_BASELINES, BASELINES, find_compile_mode
from tritonsmith.evaluator.confined.runner.captured import list_tensor_attributes
from tritonsmith.evaluator.confined.runner.tuning import settle_tuning
from tritonsmith.evaluator.reference.gradients import GradientPlan, allow_backward, run_with_gradients
from tritonsmith.evaluator.reference.module import flatten, load_reference
from tritonsmith.evaluator.reference.precision import set_tf32
from tritonsmith.evaluator.reference.updates import UpdatedBuffers
from tritonsmith.evaluator.schema import Task

_WARMUP = 3
"""Forwards before a CUDA graph is captured."""

_MOST_COMPILED = 16
"""Compiled forms of one forward. Four modes with and without TF32 are eight, torch's own limit, beyond which it silently runs eagerly."""

Forward = Callable[..., Any]
Widening = Callable[[Forward], Forward]


class TensorAttributes:
    """Tensors that a module keeps as plain attributes, such as the state of its last call; each baseline has its own.

    One that torch.compile's CUDA graphs leave there cannot be read by another baseline: its memory belongs to the next replay.

    Args:
        model: the module, as it is built.
    """

    def __init__(self, model: nn.Module) -> None:
        self._places = list_tensor_attributes(model)
        self._first = [place[name].clone() for place, name in self._places]
        self._kept: dict[int, list[Any]] = {}
        self._mode = -1

    def switch(self, mode: int) -> None:
        """Keep what the last baseline has left, and give back what the one with this number left; at first, what the module had."""
        if not self._places or mode == self._mode:
            return
        self._kept[self._mode] = [place.get(name) for place, name in self._places]
        values = self._kept.get(mode) or [value.clone() for value in self._first]
        for (place, name), value in zip(self._places, values, strict=True):
            place[name] = value
        self._mode = mode


class Baselines:
    """The baselines over one model, each built at its first call.

    Args:
        task: the task whose reference is run.
        weights: file with the state_dict that the oracle drew.
        arguments: forward's arguments; tensors are the input slots, whose addresses never change.
        build: numbers of the modes to build at once; one that cannot be built says so at its first call.
        updates: buffers whose values after a call are its last outputs.
        frugal: whether memory that building took is given back to the card.
        gradients: what a call gives besides: it is forward and backward then.
    """

    def __init__(
        self, task: Task, weights: str, arguments: list[Any], build: Sequence[int] = (), updates: Sequence[str] = (), *,
        frugal: bool = False, gradients: GradientPlan | None = None,
    ) -> None:  # fmt: skip
        self._model = load_reference(task).build(0).cuda()
        self._widen = _bind_widening(self._model, gradients)
        self._arguments = arguments
        self._forwards: dict[int, Forward] = {}
        self._mode = -1
        self._forward: Forward = self._widen(self._model)
        self._failed: dict[int, Exception] = {}
        self._buffers = UpdatedBuffers(self._model, updates)
        self._attributes = TensorAttributes(self._model)
        self._called = False
        self._frugal = frugal
        self.returned: Any = None
        """Nobody asks how the reference's result is nested here."""
        self.load_weights(Path(weights))
        for mode in build:
            try:
                with torch.no_grad():
                    self.call(arguments, mode)
            except Exception as error:  # noqa: BLE001 - torch.compile may raise anything; reported when the mode is asked for
                self._failed[mode] = error
        if frugal:  # also what building one that failed took
            torch.cuda.empty_cache()

    def load_weights(self, path: Path) -> None:
        """Copy a state_dict into the model in place."""
        self._model.load_state_dict(torch.load(path, weights_only=True, map_location="cuda"))
        self._buffers.keep()
        self._called = False

    def set_back(self) -> None:
        """Give the buffers the values that each call starts from; nothing to do where no call has changed them."""
        if self._called:
            self._buffers.set_back()
            self._called = False

    def call(self, arguments: list[Any], mode: int) -> Any:
        """What one forward of the baseline with that number returns."""
        if mode in self._failed:
            raise self._failed[mode]
        is_new = False
        if mode != self._mode:  # a repeated call does no more than a candidate's, else the baseline would look slower
            self._mode = -1
            set_tf32(bool(mode % 2))
            self._attributes.switch(mode)
            if is_new := mode not in self._forwards:
                self._called = True  # a graph is captured after some forwards
                self._forwards[mode] = _BUILDERS[BASELINES[mode // 2]](self._model, self._arguments, self._widen)
            self._mode, self._forward = mode, self._forwards[mode]
        self.set_back()
        self._called = True
        results = [*flatten(self._forward(*arguments)), *self._buffers.read()]
        if is_new:
            self._give_back(mode)
        return results

    def _give_back(self, mode: int) -> None:
        """Give the card's memory back that building took: kernels that an autotuner timed had operands of their own."""
        autotuned = BASELINES[mode // 2] in AUTOTUNED_BASELINES
        if autotuned:
            gc.collect()  # nothing else collects once a process is ready
        if autotuned or self._frugal:
            torch.cuda.empty_cache()

    def facts(self, arguments: list[Any], mode: int) -> tuple[dict[str, Any], Any]:
        """The reference's launches are counted from its operator trace, not here."""
        return {}, None


def _bind_widening(model: nn.Module, gradients: GradientPlan | None) -> Widening:
    """What makes forward and backward of a form of the model's forward; the forward itself where no gradients are asked for."""
    if gradients is None:
        return lambda forward: forward
    allow_backward(model)
    held = dict(model.named_parameters())
    parameters = [[held[names[0]]] for names in gradients.parameters]
    return lambda forward: lambda *arguments: run_with_gradients(forward, arguments, gradients, parameters)


def _run_eagerly(model: nn.Module, arguments: list[Any], widen: Widening) -> Forward:
    return widen(model)


def _capture_graph(model: nn.Module, arguments: list[Any], widen: Widening) -> Forward:
    call = widen(model)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(_WARMUP):
            call(*arguments)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    # A forward that writes an attribute in place and then puts another tensor there: replays write to the first one, so it must live on.
    state = [place[name] for place, name in list_tensor_attributes(model)]
    with torch.cuda.graph(graph):
        result = call(*arguments)

    def replay(*_: Any, _state: Any = state) -> Any:
        graph.replay()
        return result

    return replay


def _compile(model: nn.Module, arguments: list[Any], widen: Widening, mode: str) -> Forward:
    settle_tuning()
    compiled: Forward = torch.compile(model, mode=mode)
    torch._dynamo.config.recompile_limit = _MOST_COMPILED
    return widen(compiled)


_BUILDERS: dict[str, Callable[[nn.Module, list[Any], Widening], Forward]] = {
    name: partial(_compile, mode=mode) for name in BASELINES if (mode := find_compile_mode(name))
} | {"eager": _run_eagerly, "cuda_graph": _capture_graph}
"""How the forward of each baseline is made from the model and the arguments that stay in their slots."""
