"""Tensors with strides of zero: what an expanded one holds once. Imports torch."""

from __future__ import annotations

import torch

# Bound now: in a runner, candidate code may patch the names later.
_is_contiguous, _size, _stride = torch.Tensor.is_contiguous, torch.Tensor.size, torch.Tensor.stride


def read_order(tensor: torch.Tensor) -> list[int] | None:
    """How a tensor lies in memory: None where it is contiguous, else the strides of its axes of more than one element."""
    if _is_contiguous(tensor):
        return None
    return [stride for stride, extent in zip(_stride(tensor), _size(tensor), strict=True) if extent > 1]


def distinct(tensor: torch.Tensor, like: torch.Tensor | None = None) -> torch.Tensor:
    """The view that holds each element of an expanded tensor once; `like` says which axes are expanded, by default those of `tensor`."""
    for axis, (stride, extent) in enumerate(zip((tensor if like is None else like).stride(), tensor.shape, strict=True)):
        if stride == 0 and extent > 1:
            tensor = tensor.narrow(axis, 0, 1)
    return tensor


def with_values(like: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Values for the distinct elements, in the shape and memory layout of `like`."""
    if like.is_contiguous():
        return values
    once = distinct(like)
    laid_out = torch.empty_strided(once.shape, once.stride(), dtype=like.dtype, device=like.device).copy_(values)
    return laid_out.expand(like.shape)
