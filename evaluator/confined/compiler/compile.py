"""Compiles what one forward would launch, for a named card, without running it. Imports torch and Triton.

Torch's heavy operators are not computed either, so values that a candidate's Python looks at are meaningless.
"""

from __future__ import annotations

import math
import traceback
from pathlib import Path
from typing import Any

import torch

from tritonsmith.evaluator.cards.cards import named_card
from tritonsmith.evaluator.channel.report import ForwardReport
from tritonsmith.evaluator.channel.slots import fill_slots, spec_bytes, tensor_at
from tritonsmith.evaluator.confined.compiler.launches import LaunchRecorder, LaunchRefused
from tritonsmith.evaluator.confined.runner.candidate import import_candidate
from tritonsmith.evaluator.confined.runner.faults import keep_ends
from tritonsmith.evaluator.confined.runner.gradients import bind_call
from tritonsmith.evaluator.confined.stand_ins.cuda import FakeCuda
from tritonsmith.evaluator.confined.stand_ins.operators import ClearUnwritten, TorchOpCounter, clear, make_zeros
from tritonsmith.evaluator.confined.stand_ins.untyped import driver
from tritonsmith.evaluator.reference.gradients import GradientPlan
from tritonsmith.evaluator.schema import Status, TensorSpec

_LONGEST_MESSAGE = 4000
"""Characters of a report's message."""
_DRAWN = 1 << 20
"""Random values that are drawn; larger tensors begin with them and are zero otherwise."""


def make_argument(spec: Any) -> Any:
    """A tensor for (shape, dtype name) or for a TensorSpec with its strides and offset, anything else as it is."""
    if isinstance(spec, tuple) and len(spec) == 2 and isinstance(spec[0], tuple) and isinstance(spec[1], str):
        dtype = getattr(torch, spec[1].removeprefix("torch."))
        made = make_zeros(math.prod(spec[0]), dtype)
        if dtype.is_floating_point:
            made[:_DRAWN] = torch.rand(min(made.numel(), _DRAWN))
        return made.view(spec[0])
    if isinstance(spec, TensorSpec):
        laid_out = tensor_at(make_zeros(spec_bytes(spec), torch.uint8), spec)
        fill_slots([laid_out], [make_argument((spec.shape, spec.dtype))])
        return laid_out
    return spec


def _describe(error: BaseException, source: str) -> str:
    """Type, text and the innermost line of the candidate's file."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == source]
    line = frames[-1].lineno if frames else getattr(error, "lineno", None)
    where = f"line {line}: " if line else ""
    return f"{where}{type(error).__name__}: {error}"


def _run_forward(module: Any, request: dict[str, Any], recorder: LaunchRecorder, counter: TorchOpCounter) -> None:
    for name, value in request["overrides"].items():
        if hasattr(module, name):
            setattr(module, name, value)
    with ClearUnwritten():  # an index buffer that nothing has loaded must not lead outside a tensor
        model = module.ModelNew(*request["init"]).cuda().train(request.get("train", False))
    for parameter in model.parameters():  # which nothing has loaded
        clear(parameter)
    forward = bind_call(model, GradientPlan.from_plain(asked) if (asked := request.get("gradients")) else None)
    first, second = ([make_argument(spec) for spec in request["inputs"]] for _ in range(2))
    with recorder.recording():
        with TorchOpCounter():
            forward(*first)
        recorder.forget_launches()  # work done once, such as packing weights, is no part of a forward
        with counter:
            forward(*second)


def examine(candidate: Path, target: str, request: dict[str, Any]) -> dict[str, Any]:
    """Import the candidate, run its forward with launches only compiled, and report; raises nothing that the candidate raised."""
    hardware = named_card(target)
    recorder, counter = LaunchRecorder(hardware), TorchOpCounter()
    driver.set_active(recorder.driver)
    status, message = Status.OK, ""
    with FakeCuda(hardware), torch.no_grad():
        try:
            module = import_candidate(candidate)
        except BaseException as error:  # noqa: BLE001 - the boundary to candidate code
            status, message = Status.COMPILE_ERROR, f"the module does not import: {_describe(error, str(candidate))}"
        else:
            try:
                _run_forward(module, request, recorder, counter)
            except LaunchRefused as refusal:
                status, message = refusal.status, str(refusal)
            except BaseException as error:  # noqa: BLE001 - as above
                status, message = Status.RUNTIME_ERROR, _describe(error, str(candidate))
    if recorder.refused:  # the candidate may have caught it and gone another way
        status, message = recorder.refused[0].status, str(recorder.refused[0])
    return {
        "status": status.value,
        "message": keep_ends(message, _LONGEST_MESSAGE, _LONGEST_MESSAGE // 2 - 3),
        "kernels": [kernel.model_dump(mode="json") for kernel in recorder.list_kernels()],
        **ForwardReport.from_counter(counter).as_dict(),
    }
