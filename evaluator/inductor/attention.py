"""Attention stays one call of PyTorch: which of its kernels runs follows from a card that is not asked here. Imports torch."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from unittest import mock

import torch
import torch.nn.functional as F

from tritonsmith.evaluator.reference.module import take_plain_layers


@torch.library.custom_op("tritonsmith::attention", mutates_args=())
def attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: torch.Tensor | None, dropout_p: float, is_causal: bool,
    scale: float | None, enable_gqa: bool,
) -> torch.Tensor:  # fmt: skip
    """Stands for `F.scaled_dot_product_attention`; it is traced and never run."""
    raise NotImplementedError("this operator is only traced")


@attention.register_fake
def _(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: torch.Tensor | None, dropout_p: float, is_causal: bool,
    scale: float | None, enable_gqa: bool,
) -> torch.Tensor:  # fmt: skip
    shape = (*query.shape[:-1], value.shape[-1])
    if query.dim() != 4:
        return query.new_empty(shape)
    batch, heads, length, width = shape
    return query.new_empty((batch, length, heads, width)).transpose(1, 2)  # as the fused kernels lay it out


def _call(  # type: ignore[no-untyped-def]  # the signature of PyTorch's function
    query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False
):
    return attention(query, key, value, attn_mask, float(dropout_p), bool(is_causal), scale, bool(enable_gqa))


@contextlib.contextmanager
def keep_attention() -> Iterator[None]:
    """While open, attention is traced as one operator, and layers of attention take no way of their own."""
    with take_plain_layers(), mock.patch.object(F, "scaled_dot_product_attention", _call):
        yield
