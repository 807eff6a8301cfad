"""Arguments that the reference writes to: a cache, a state or an `out` buffer. What forward leaves in them is a result. Imports torch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from tritonsmith.evaluator.oracle.checks.measure import cut_boxes, equal_bits
from tritonsmith.evaluator.reference.gradients import GradientPlan, name_arguments

_ROUNDINGS = 4.0
"""An element that the reference leaves as it is may come out so many units of its type's rounding away: honest code may compute it."""


def find_written(tensors: Sequence[torch.Tensor], before: Sequence[torch.Tensor], versions: Sequence[int]) -> tuple[int, ...]:
    """Numbers of the tensors that a forward wrote to since there were copies of them with these versions.

    An operator in place that happens to change no value (a ReLU of what is positive) raises the version all the same.
    """
    pairs = enumerate(zip(tensors, before, versions, strict=True))
    return tuple(number for number, (tensor, old, version) in pairs if tensor._version != version or not equal_bits(tensor, old))


def name_inputs(model: nn.Module, is_tensor: Sequence[bool], gradients: GradientPlan | None = None) -> tuple[str, ...]:
    """How messages name each tensor that a call gets: its number among them, and its name in forward; cotangents come last."""
    names = name_arguments(model, gradients.arguments if gradients else len(is_tensor))
    names += [f"the gradient of output {number}" for number in gradients.outputs] if gradients else []
    given = [name for name, tensor in zip(names, is_tensor, strict=False) if tensor]
    return tuple(f"input {number} ({name})" for number, name in enumerate(given))


def as_real(tensor: torch.Tensor) -> torch.Tensor:
    """A complex tensor as pairs of real numbers, as results are compared; any other as it is."""
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def find_disturbed(before: torch.Tensor, want: torch.Tensor, got: torch.Tensor, own: torch.Tensor | None = None) -> tuple[int, ...] | None:
    """An element that the oracle leaves as it was and a candidate does not; None where there is none.

    Args:
        before: the argument ahead of the call.
        want: what the oracle leaves in it.
        got: what the candidate leaves in it.
        own: what the reference leaves in it in its own type; an element that it changes there may change.
    """
    slack = _ROUNDINGS * torch.finfo(got.dtype).eps if got.is_floating_point() else 0.0
    for box in cut_boxes(got.shape):
        old, right, new = (tensor[box].to(got.device) for tensor in (before, want, got))
        kept = _are_kept(old, right) & (_are_kept(old, own[box].to(got.device)) if own is not None else True)
        if got.is_floating_point():
            wide, known = new.double(), old.double()
            near = torch.isfinite(known) & ((wide - known).abs() <= slack * known.abs())
            same = near | (new == old) | ((new != new) & (old != old))
        else:
            same = new == old
        wrong = kept & ~same
        if bool(wrong.any()):
            first = [piece.start for piece in box] + [0] * (got.ndim - len(box))
            return tuple(int(part) + start for part, start in zip(wrong.nonzero()[0], first, strict=True))
    return None


def _are_kept(old: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
    """Where values are as they were."""
    return (new == old.to(new.dtype)) | ((new != new) & (old != old))
