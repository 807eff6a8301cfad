"""A candidate inside its runner: import, weights by name, calls on the card or in the interpreter, and the report of what went wrong."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, Protocol

import torch
from torch import nn
from torch.nn.modules.module import _IncompatibleKeys

from tritonsmith.evaluator.channel.slots import open_block
from tritonsmith.evaluator.reference.module import flatten
from tritonsmith.evaluator.schema import Hardware, Status
from tritonsmith.evaluator.torch_ops import TorchOpCounter

MODULE_NAME = "candidate"
_ROUND_ROBIN = 0


class CandidateFault(Exception):
    """The candidate breaks its contract; carries the status of the verdict."""

    def __init__(self, status: Status, message: str) -> None:
        super().__init__(message)
        self.status = status


class Subject(Protocol):
    """What a runner serves: one call, new weights, and the facts of one forward."""

    def call(self, arguments: list[Any], mode: int) -> Any:
        """What one forward returns."""
        ...

    def load_weights(self, path: Path) -> None:
        """Copy the state_dict in the file into the model in place."""
        ...

    def facts(self, arguments: list[Any]) -> tuple[dict[str, Any], Any]:
        """What one forward launches, and what it returned where it was run for that."""
        ...


def kind_of(*, cuda: bool) -> type[Subject]:
    """The class of candidates on the card, or in the interpreter."""
    return CardCandidate if cuda else InterpretedCandidate


def open_candidate(
    source: Path, init: list[Any], weights: Path, hardware: Hardware, *, cuda: bool, trace: dict[str, Any] | None = None
) -> Subject:
    """Import the candidate and give it the reference's weights. Raises CandidateFault or whatever candidate code raises.

    Without a card, `trace` is the handle of the block where each call is written down for the replay.
    """
    if cuda:
        return CardCandidate(source, init, weights, hardware)
    return InterpretedCandidate(source, init, weights, hardware, trace)


class _Candidate:
    def __init__(self, source: Path, init: list[Any], weights: Path) -> None:
        self.module = import_candidate(source)
        if not isinstance(getattr(self.module, "ModelNew", None), type):
            raise CandidateFault(Status.COMPILE_ERROR, "the module defines no class ModelNew")
        model = self.module.ModelNew(*init)
        if not isinstance(model, nn.Module):
            raise CandidateFault(Status.COMPILE_ERROR, "ModelNew is not a torch.nn.Module")
        self.model = self._to_device(model.eval())
        self.load_weights(weights)

    def _to_device(self, model: nn.Module) -> nn.Module:
        return model

    def load_weights(self, path: Path) -> None:
        transfer_weights(self.model, torch.load(path, weights_only=True, map_location="cpu"))


class CardCandidate(_Candidate):
    """The candidate on the card."""

    def __init__(self, source: Path, init: list[Any], weights: Path, hardware: Hardware) -> None:
        super().__init__(source, init, weights)
        self._hardware = hardware

    def _to_device(self, model: nn.Module) -> nn.Module:
        return model.cuda()

    def call(self, arguments: list[Any], mode: int) -> Any:
        """One forward, taken apart within the call; `mode` has no meaning on the card."""
        return flatten(self.model(*arguments))

    def facts(self, arguments: list[Any]) -> tuple[dict[str, Any], Any]:
        """Launches, resources and device time of one forward, as the profiler and Triton report them."""
        from tritonsmith.evaluator.launches import profile_forward  # noqa: PLC0415 - imports Triton, which must see the interpreter switch

        return profile_forward(lambda: flatten(self.model(*arguments)), self._hardware)


class InterpretedCandidate(_Candidate):
    """The candidate in Triton's interpreter, every program a coroutine that the schedule may switch."""

    def __init__(self, source: Path, init: list[Any], weights: Path, hardware: Hardware, trace: dict[str, Any] | None = None) -> None:
        from tritonsmith.evaluator import fake_cuda, interp_launch, interp_patches, interp_schedule, replay_record  # noqa: PLC0415 - as above

        interp_patches.install(hardware)
        self._schedule = interp_schedule
        self._inside_kernel = lambda: interp_launch.running.launch is not None
        self._fake = lambda: fake_cuda.FakeCuda(hardware)
        self._counted: list[Any] = []
        self._torch = TorchOpCounter()
        self._trace = open_block(trace).numpy().data if trace else None
        self._record = replay_record.Recorder
        self._recorder: replay_record.Recorder | None = None
        with self._fake():
            super().__init__(source, init, weights)

    def call(self, arguments: list[Any], mode: int) -> Any:
        """One forward under the schedule: 0 runs programs in turn, any other number seeds a shuffled order."""
        order: Literal["round_robin", "shuffled"] = "round_robin" if mode == _ROUND_ROBIN else "shuffled"
        counter = TorchOpCounter(spare=False, inside_kernel=self._inside_kernel)
        recorder = self._record(next((one for one in arguments if isinstance(one, torch.Tensor)), None), self._inside_kernel)
        with self._schedule.session(order=order, seed=mode, told=recorder.launch) as session, self._fake(), counter, recorder:
            result = flatten(self.model(*arguments))  # taking apart what it returns may run its code: that counts
        recorder.finish(result)
        if session.faults:  # also those that candidate code caught and hid
            raise session.faults[0]
        self._counted, self._torch, self._recorder = list(session.launches), counter, recorder
        return result

    def load_weights(self, path: Path) -> None:
        """As for every candidate, under the stand-in for CUDA."""
        with self._fake():
            super().load_weights(path)

    def facts(self, arguments: list[Any]) -> tuple[dict[str, Any], Any]:
        """Counts of the last call."""
        races = sorted({race for launch in self._counted for race in launch.races})
        library = self._torch
        if self._trace is not None and self._recorder is not None:
            self._recorder.write(self._trace, [self.model, vars(self.module)])
        return {
            "unreplayable": self._recorder.problem if self._recorder else "",
            "launches": fold_launches(self._counted), "races": races[:5], "torch_ops": dict(library.ops.most_common(100)),
            "torch_launches": library.launches, "torch_flops": library.flops, "torch_bytes": library.bytes,
        }, None  # fmt: skip


def fold_launches(launches: list[Any]) -> list[dict[str, Any]]:
    """One representative of equal launches (kernel, grid, constants): thousands of per-step launches must fit into one report."""
    folded: dict[str, dict[str, Any]] = {}
    for launch in launches:
        key = repr((launch.name, launch.grid, sorted(launch.constexprs.items(), key=str)))
        if key in folded:
            folded[key]["count"] += 1
        else:
            folded[key] = launch.as_dict() | {"races": ()}
    return list(folded.values())[:100]


def import_candidate(source: Path) -> Any:
    """Import the file under a fixed name; Triton needs the source on disk."""
    spec = importlib.util.spec_from_file_location(MODULE_NAME, source)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[MODULE_NAME] = module
    spec.loader.exec_module(module)
    return module


def transfer_weights(model: nn.Module, reference: dict[str, torch.Tensor]) -> None:
    """Copy the reference's parameters and persistent buffers by name, or by the candidate's WEIGHT_MAP {its name: reference's name}.

    Raises CandidateFault(wrong_weights) for an entry without counterpart, a shape that differs, or a parameter that the reference lacks.
    """
    mapping = getattr(model, "WEIGHT_MAP", None)
    mapping = dict(mapping) if isinstance(mapping, dict) else {}
    parameters = dict(model.named_parameters(remove_duplicate=False))
    own = {**parameters, **dict(model.named_buffers(remove_duplicate=False))}
    used: set[str] = set()
    with torch.no_grad():
        for name, tensor in own.items():
            origin = mapping.get(name, name)
            if origin not in reference:
                if name in parameters:
                    raise CandidateFault(Status.WRONG_WEIGHTS, f"parameter {name} of the candidate has no counterpart in the reference")
                continue
            if tensor.shape != reference[origin].shape:
                raise CandidateFault(
                    Status.WRONG_WEIGHTS,
                    f"{name} has shape {list(tensor.shape)}, {origin} of the reference has {list(reference[origin].shape)}",
                )
            tensor.copy_(reference[origin])
            used.add(origin)
    missing = sorted(set(reference) - used)
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise CandidateFault(
            Status.WRONG_WEIGHTS,
            f"parameter {missing[0]} of the reference{more} has no counterpart in the candidate: "
            "use the reference's names or declare WEIGHT_MAP = {own name: reference name}",
        )
    _tell_of_weights(model)


def _tell_of_weights(model: nn.Module) -> None:
    """What a user's load_state_dict would call: modules that pack their weights may do so there."""
    for module in list(model.modules()):
        for hook in list(module._load_state_dict_post_hooks.values()):
            hook(module, _IncompatibleKeys([], []))


_COMPILE_ERRORS = {"CompilationError", "UnsupportedLanguageConstruct", "CompileTimeAssertionFailure", "PTXASError", "SyntaxError"}
_LAUNCH_PATTERNS = ("out of resource", "too many resources", "cooperative", "invalid configuration", "CUDA]: invalid argument")


def _mro_names(error: BaseException) -> Iterator[str]:
    cause: BaseException | None = error
    while cause is not None:
        yield from (kind.__name__ for kind in type(cause).__mro__)
        cause = cause.__cause__ or cause.__context__


def classify(error: BaseException, source: str) -> dict[str, Any]:
    """Status and message for whatever candidate code raised; the line is that of the innermost frame in the candidate's file."""
    names = set(_mro_names(error))
    text = str(error).strip() or type(error).__name__
    if isinstance(error, CandidateFault):
        return {"status": error.status.value, "message": text}
    status = Status.RUNTIME_ERROR
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == source]
    if isinstance(error, SystemExit):
        status, text = Status.CRASHED, "the candidate asked the process to exit"
    elif "DeadlockError" in names:
        status = Status.TIMEOUT
    elif "KernelFault" in names:
        status = Status.RUNTIME_ERROR
    elif "OutOfResources" in names or any(pattern in text for pattern in _LAUNCH_PATTERNS):
        status = Status.LAUNCH_ERROR
    elif names & _COMPILE_ERRORS or (frames and frames[-1].name == "<module>"):
        status = Status.COMPILE_ERROR
    text = _with_reason(error, text)
    line = frames[-1].lineno if frames else getattr(error, "lineno", None)
    where = f"line {line}: " if line else ""
    name = type(error).__name__
    with contextlib.suppress(ValueError):
        text = text[: text.index("\n\nThe above exception")]
    return {"status": status.value, "message": f"{where}{name}: {_keep_ends(text)}"}


def _with_reason(error: BaseException, text: str) -> str:
    """Triton hangs the reason of an error in a helper below the call in the kernel, whose own text ends with a caret."""
    cause = error.__cause__
    while cause is not None and text.rstrip().endswith("^"):
        text, cause = f"{text.rstrip()}\n{getattr(cause, 'error_message', None) or cause}", cause.__cause__
    return text


def _keep_ends(text: str, limit: int = 3500) -> str:
    """Compilers print the whole program: what matters stands at the start and at the end."""
    return text if len(text) <= limit else f"{text[: limit // 2]}\n...\n{text[-limit // 2 :]}"
