"""The reference's weights in a candidate's model, by name. Imports torch."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.modules.module import _IncompatibleKeys

from tritonsmith.evaluator.confined.runner.faults import CandidateFault
from tritonsmith.evaluator.schema import Status


def transfer_weights(model: nn.Module, reference: dict[str, torch.Tensor]) -> dict[str, str]:
    """Copy the reference's parameters and persistent buffers by name, or by the candidate's WEIGHT_MAP {its name: reference's name}.

    Returns the candidate's name for each of the reference's; the first, where it has several.
    Raises CandidateFault(wrong_weights) for an entry without counterpart, a shape that differs, or a parameter that the reference lacks.
    """
    mapping = getattr(model, "WEIGHT_MAP", None)
    mapping = dict(mapping) if isinstance(mapping, dict) else {}
    parameters = dict(model.named_parameters(remove_duplicate=False))
    own = {**parameters, **dict(model.named_buffers(remove_duplicate=False))}
    used: dict[str, str] = {}
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
            used.setdefault(origin, name)
    missing = sorted(set(reference) - set(used))
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise CandidateFault(
            Status.WRONG_WEIGHTS,
            f"parameter {missing[0]} of the reference{more} has no counterpart in the candidate: "
            "use the reference's names or declare WEIGHT_MAP = {own name: reference name}",
        )
    _run_load_hooks(model)
    return used


def _run_load_hooks(model: nn.Module) -> None:
    """What a user's load_state_dict would call: modules that pack their weights may do so there."""
    for module in list(model.modules()):
        for hook in list(module._load_state_dict_post_hooks.values()):
            hook(module, _IncompatibleKeys([], []))
