"""A call of a drop-in that torch.compile traces: the operator where that is proven, else the original in the same graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from tritonsmith.modules.dropin.runtime.engine import Engine
from tritonsmith.modules.dropin.runtime.form import RefusedCall
from tritonsmith.modules.dropin.runtime.kernel import reach


def call_in_graph(module: nn.Module, engine: Engine, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """The result of a call under torch.compile. All of it is plain Python that a compiler can follow."""
    kernel = engine.kernel
    if (
        _is_exporting()
        or engine.guard.fault
        or engine.operator.skeleton is None
        or kernel.proof.updates
    ):
        return engine.original(module, *args, **kwargs)
    try:
        tensors = kernel.form.read_tensors(args, kwargs)
    except RefusedCall:
        return engine.original(module, *args, **kwargs)
    weights = [reach(module, path) if held.get(name) is None else held[name] for path, held, name in engine.guard.places]
    if not _is_proven(engine, tensors, weights):
        return engine.original(module, *args, **kwargs)
    return kernel.form.build_result(engine.operator.compute(tensors, weights))


def _is_exporting() -> bool:
    """As `torch.compiler.is_exporting`, for which torch.compile of some versions (2.11) reads True in any graph."""
    return torch.compiler._is_exporting_flag


def _is_proven(
    engine: Engine, tensors: Sequence[torch.Tensor], weights: Sequence[torch.Tensor]
) -> bool:
    """Whether a call is within what is proven. Reasons are not told here: a compiler cannot follow the text of a symbol."""
    proof = engine.kernel.proof
    device = tensors[0].device if tensors else weights[0].device
    if torch.is_autocast_enabled(device.type):
        return False
    if proof.by_mode and not engine.guard.is_in_proven_mode():
        return False
    devices = [tensor.device for tensor in tensors]
    return (
        proof.covers(tensors)
        and not engine.guard.refuse_device(devices)
        and not engine.guard.refuse_weights(weights, device)
    )
