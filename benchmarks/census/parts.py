"""Parts that modules of `projects` import, as a project of several files has them."""

# mypy: disable-error-code="no-any-return, no-untyped-call, operator, arg-type, assignment, return-value, misc"
# Written as projects write them, whose types say little.

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class BlockOutput:
    """What a block gives."""

    hidden: torch.Tensor
    weights: torch.Tensor | None = None
    loss: torch.Tensor | None = None


class ScaledSign(torch.autograd.Function):
    """The sign forward, the gradient straight through."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, scale: float) -> torch.Tensor:
        """The sign times a scale."""
        ctx.scale = scale
        return torch.sign(x) * scale

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        """The gradient times the scale."""
        return gradients[0] * ctx.scale, None


class SwishFunction(torch.autograd.Function):
    """Swish that keeps its input alone."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        """x times its sigmoid."""
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        """The derivative."""
        (x,) = ctx.saved_tensors
        gate = torch.sigmoid(x)
        return gradients[0] * gate * (1 + x * (1 - gate))


def exists(value: object) -> bool:
    """Whether there is one."""
    return value is not None


def default(value: Any, other: Any) -> Any:
    """A value, or another where there is none."""
    return value if exists(value) else other


def rearrange_heads(x: torch.Tensor, heads: int) -> torch.Tensor:
    """b n (h d) -> b h n d."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


class PreNorm(nn.Module):
    """A norm ahead of another module."""

    def __init__(self, dim: int, fn: nn.Module) -> None:
        super().__init__()
        self.norm, self.fn = nn.LayerNorm(dim), fn

    def forward(self, x: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        """The module of the norm."""
        return self.fn(self.norm(x), **kwargs)


class GEGLU(nn.Module):
    """Half of the features gates the other half."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Two halves."""
        x, gate = x.chunk(2, dim=-1)
        return x * F.gelu(gate)
