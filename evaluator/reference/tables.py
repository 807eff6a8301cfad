"""Tensors that a model holds besides its state: buffers that are not persistent, plain attributes, and lists and dicts of these.

Imports torch.

No weights' file holds them, so a kernel has to make them as the constructor does. That works where they are the same for every seed.
"""

from __future__ import annotations

import torch
from torch import nn

from tritonsmith.evaluator.reference.module import Reference, list_held
from tritonsmith.evaluator.reference.nodes import list_specs
from tritonsmith.evaluator.schema import TensorSpec

_SEEDS = (0, 1)
_MOST_BYTES = 2e9
"""Of a model that is built twice to see what depends on the seed."""


def find_tables(reference: Reference, model: nn.Module) -> dict[str, TensorSpec]:
    """By dotted name the tensors besides the state that every seed gives alike; none for a model that is too large to build.

    Args:
        reference: the task.
        model: its model, real or fake.
    """
    state = sum(value.numel() * value.element_size() for value in (*model.parameters(), *model.buffers()))
    if not list_tables(model) or state > _MOST_BYTES:
        return {}
    first, second = (list_tables(reference.build(seed)) for seed in _SEEDS)
    return {name: list_specs(value)[0] for name, value in first.items() if name in second and _are_alike(value, second[name])}


def list_tables(model: nn.Module) -> dict[str, torch.Tensor]:
    """By dotted name every tensor besides the state."""
    state = model.state_dict(keep_vars=True)
    kept = {id(value) for value in state.values()}
    found: dict[str, torch.Tensor] = {}
    for prefix, module in model.named_modules():
        for name, value in list_held(module):
            path = f"{prefix}.{name}" if prefix else name
            if path not in state and id(value) not in kept:
                found[path] = value
    return found


def _are_alike(first: torch.Tensor, second: torch.Tensor) -> bool:
    same = first.shape == second.shape and first.dtype == second.dtype
    return same and bool(torch.equal(torch.nan_to_num(first), torch.nan_to_num(second)))
