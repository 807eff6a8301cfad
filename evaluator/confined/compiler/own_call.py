"""A candidate that is built and given weights and arguments as a caller would, to be called by itself. Imports torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from tritonsmith.evaluator.channel.own_call import read_call
from tritonsmith.evaluator.confined.runner.candidate import import_candidate
from tritonsmith.evaluator.confined.runner.gradients import bind_call
from tritonsmith.evaluator.confined.runner.weights import transfer_weights
from tritonsmith.evaluator.reference.gradients import GradientPlan
from tritonsmith.evaluator.reference.precision import set_tf32


def open_call(candidate: Path, call: Path, device: str) -> tuple[Any, list[Any]]:
    """The call of a candidate with the reference's weights, and its arguments, on a device.

    Without the weights index buffers would hold what memory held before. Raises CandidateFault, or what candidate code raises.
    """
    said = read_call(call)
    arguments = [value.to(device) if isinstance(value, torch.Tensor) else value for value in said.arguments]
    set_tf32(said.tf32)  # as where it is judged
    model = import_candidate(candidate).ModelNew(*said.init).to(device).train(said.train)
    transfer_weights(model, said.weights)
    return bind_call(model, GradientPlan.from_plain(said.gradients) if said.gradients else None), arguments
