"""Modules in the style of public projects: what their authors write, with odd arguments, results, states and control flow."""

# mypy: disable-error-code="no-any-return, no-untyped-call, operator, arg-type, assignment, return-value, misc"
# Written as projects write them, whose types say little.

from __future__ import annotations

import math
from collections import OrderedDict, namedtuple
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations

from tritonsmith.benchmarks.census.parts import (
    GEGLU,
    BlockOutput,
    PreNorm,
    ScaledSign,
    SwishFunction,
    default,
    exists,
    rearrange_heads,
)

Case = tuple[str, Callable[[], tuple[nn.Module, Any]]]
"""A name, and what makes the module with its inputs."""
Pair = namedtuple("Pair", ["mean", "spread"])


class LucidAttention(nn.Module):
    """Attention with a context and a mask that may be left out."""

    def __init__(self, dim: int, context_dim: int | None = None, heads: int = 4, dim_head: int = 8) -> None:
        super().__init__()
        inner, context_dim = heads * dim_head, default(context_dim, dim)
        self.heads, self.scale = heads, dim_head**-0.5
        self.to_q, self.to_kv = nn.Linear(dim, inner, bias=False), nn.Linear(context_dim, inner * 2, bias=False)
        self.to_out = nn.Linear(inner, dim)

    def forward(self, x: torch.Tensor, context: Any = None, mask: Any = None) -> torch.Tensor:
        """Attention of x to the context."""
        q = self.to_q(x)
        k, v = self.to_kv(default(context, x)).chunk(2, dim=-1)
        q, k, v = (rearrange_heads(t, self.heads) for t in (q, k, v))
        scores = torch.einsum("b h i d, b h j d -> b h i j", q, k) * self.scale
        if exists(mask):
            scores = scores.masked_fill(~mask[:, None, None, :], -torch.finfo(scores.dtype).max)
        return self.to_out(torch.einsum("b h i j, b h j d -> b h i d", scores.softmax(-1), v).transpose(1, 2).flatten(2))


class DictOutput(nn.Module):
    """A dict of results."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk, self.heads = nn.Linear(16, 32), nn.ModuleDict({"boxes": nn.Linear(32, 4), "classes": nn.Linear(32, 10)})

    def forward(self, x: torch.Tensor) -> dict[str, Any]:
        """Each head's."""
        x = F.relu(self.trunk(x))
        out = {name: head(x) for name, head in self.heads.items()}
        out["count"] = x.shape[0]
        return out


class DataclassOutput(nn.Module):
    """A dataclass with fields that are None."""

    def __init__(self) -> None:
        super().__init__()
        self.proj = nn.Linear(16, 16)

    def forward(self, hidden: torch.Tensor, *, return_weights: bool = False) -> BlockOutput:
        """A record."""
        weights = self.proj(hidden).softmax(-1)
        return BlockOutput(hidden * weights, weights if return_weights else None)


class TupleOutput(nn.Module):
    """A named tuple and an ordered dict."""

    def forward(self, x: torch.Tensor) -> Any:
        """Moments."""
        return Pair(x.mean(-1), x.std(-1)), OrderedDict(top=x.amax(-1), low=[x.amin(-1), None])


class EarlyExit(nn.Module):
    """Control flow by values."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(16, 16) for _ in range(3)])
        self.gate = nn.Linear(16, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Layers until the gate says so."""
        for layer in self.layers:
            x = torch.tanh(layer(x))
            if torch.sigmoid(self.gate(x)).mean() > 0.9:
                break
        return x


class NonzeroSelect(nn.Module):
    """A result whose size goes by values."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Rows that are positive."""
        return x[x.sum(-1) > 0]


class ItemScale(nn.Module):
    """A number taken out of a tensor."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scaled by the largest."""
        top = x.abs().max().item()
        return x / top if top > 0 else x


class RoutedExperts(nn.Module):
    """Experts by a loop over where they are chosen."""

    def __init__(self, experts: int = 4, dim: int = 16) -> None:
        super().__init__()
        self.gate = nn.Linear(dim, experts, bias=False)
        self.experts = nn.ModuleList([nn.Sequential(nn.Linear(dim, 32), nn.SiLU(), nn.Linear(32, dim)) for _ in range(experts)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The best two of each token."""
        flat = x.flatten(0, 1)
        weights, chosen = self.gate(flat).softmax(-1).topk(2, dim=-1)
        out = torch.zeros_like(flat)
        for number, expert in enumerate(self.experts):
            rows, places = torch.where(chosen == number)
            out[rows] += weights[rows, places, None] * expert(flat[rows])
        return out.view_as(x)


class DenseExperts(RoutedExperts):
    """The same without control flow."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """All experts, weighted."""
        weights = self.gate(x).softmax(-1)
        return (torch.stack([expert(x) for expert in self.experts], -1) * weights.unsqueeze(-2)).sum(-1)


class BinaryLinear(nn.Module):
    """A custom gradient for the weight's sign."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """A product with signs."""
        return F.linear(x, ScaledSign.apply(self.weight, 0.1))


class MemoryEfficientSwish(nn.Module):
    """A custom Function as an activation."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Swish."""
        return SwishFunction.apply(x)


class TiedLanguageModel(nn.Module):
    """Embedding and head share their weight."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.norm = nn.Embedding(50, 16), nn.LayerNorm(16)
        self.head = nn.Linear(16, 50, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Scores of words."""
        return self.head(self.norm(self.embed(ids)))


class StepCounter(nn.Module):
    """A buffer that each call changes."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("steps", torch.zeros(()))
        self.fc = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """A call that counts."""
        self.steps += 1
        return self.fc(x)


class MovingAverage(nn.Module):
    """A buffer that each call changes in training alone."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Centred."""
        if self.training:
            with torch.no_grad():
                self.mean.lerp_(x.mean(0), 0.1)
        return x - self.mean


class CachedMask(nn.Module):
    """A mask that is made at the first call and kept as an attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.mask: torch.Tensor | None = None
        self.fc = nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Causal scores."""
        n = x.shape[1]
        if self.mask is None or self.mask.shape[0] != n:
            self.mask = torch.ones(n, n, dtype=torch.bool).tril()
        scores = self.fc(x) @ x.transpose(1, 2)
        return scores.masked_fill(~self.mask, float("-inf")).softmax(-1) @ x


class RotaryEmbedding(nn.Module):
    """Complex numbers for positions."""

    def __init__(self, dim: int = 16) -> None:
        super().__init__()
        self.register_buffer("inv_freq", 1.0 / (10000 ** (torch.arange(0, dim, 2).float() / dim)), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Rotated pairs."""
        angles = torch.outer(torch.arange(x.shape[1], device=x.device).float(), self.inv_freq)
        turns = torch.polar(torch.ones_like(angles), angles)
        return torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (-1, 2))) * turns).flatten(-2)


class SpectralConv1d(nn.Module):
    """Fourier neural operator: a complex weight between two transforms."""

    def __init__(self, channels: int = 4, modes: int = 5) -> None:
        super().__init__()
        self.modes = modes
        self.weights = nn.Parameter(torch.rand(channels, channels, modes, dtype=torch.cfloat) / channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Low frequencies mixed."""
        spectrum = torch.fft.rfft(x)
        out = torch.zeros_like(spectrum)
        out[:, :, : self.modes] = torch.einsum("bix,iox->box", spectrum[:, :, : self.modes], self.weights)
        return torch.fft.irfft(out, n=x.size(-1))


class ListInputs(nn.Module):
    """A list of tensors and a plain number."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList([nn.Conv2d(c, 8, 1) for c in (4, 8)])

    def forward(self, features: list[torch.Tensor], size: int = 8, mode: str = "nearest") -> torch.Tensor:
        """A sum at one size."""
        return sum(F.interpolate(conv(x), size=size, mode=mode) for conv, x in zip(self.convs, features, strict=True))


class KeywordsOnly(nn.Module):
    """Everything by keyword."""

    def __init__(self, dim: int = 16) -> None:
        super().__init__()
        self.block = PreNorm(dim, nn.Sequential(nn.Linear(dim, 4 * dim), GEGLU(), nn.Linear(2 * dim, dim)))

    def forward(self, **batch: Any) -> torch.Tensor:
        """A residual block."""
        return self.block(batch["x"]) + batch.get("skip", 0.0) * batch["scale"]


class StarArguments(nn.Module):
    """Any number of tensors."""

    def forward(self, *xs: torch.Tensor) -> torch.Tensor:
        """Side by side."""
        return torch.cat(xs, -1).tanh()


class SparseAdjacency(nn.Module):
    """A sparse matrix as an argument."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(16, 8)

    def forward(self, x: torch.Tensor, adjacency: torch.Tensor) -> torch.Tensor:
        """A graph convolution."""
        return torch.sparse.mm(adjacency, self.fc(x))


class InplaceInput(nn.Module):
    """It writes to what it is given."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """ReLU in place."""
        return x.mul_(2).relu_()


class ReturnsInput(nn.Module):
    """A view of the input is the result."""

    def forward(self, x: torch.Tensor) -> Any:
        """Two views."""
        return x.view(x.shape[0], -1), x


class NoiseInEval(nn.Module):
    """Random numbers in each mode."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """With noise."""
        return x + torch.randn_like(x) * 0.1


class NumpyInside(nn.Module):
    """A part in numpy."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The sorted rows."""
        import numpy as np  # noqa: PLC0415 - as such projects do

        return torch.from_numpy(np.sort(x.detach().cpu().numpy(), axis=-1))


class WaveNetLayer(nn.Module):
    """Gated dilated convolutions with a skip."""

    def __init__(self, channels: int = 8, dilation: int = 2) -> None:
        super().__init__()
        self.pad = dilation
        self.conv = parametrizations.weight_norm(nn.Conv1d(channels, 2 * channels, 2, dilation=dilation))
        self.out = nn.Conv1d(channels, 2 * channels, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Residual and skip."""
        a, b = self.conv(F.pad(x, (self.pad, 0))).chunk(2, 1)
        residual, skip = self.out(torch.tanh(a) * torch.sigmoid(b)).chunk(2, 1)
        return (x + residual) * math.sqrt(0.5), skip


class Snake(nn.Module):
    """x + sin^2(ax) / a, as vocoders have it."""

    def __init__(self, channels: int = 8) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(1, channels, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The activation."""
        return x + (self.alpha + 1e-9).reciprocal() * torch.sin(self.alpha * x).pow(2)


class VectorQuantizer(nn.Module):
    """Codes, quantized values and a loss."""

    def __init__(self) -> None:
        super().__init__()
        self.codebook = nn.Embedding(12, 8)

    def forward(self, z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]:
        """The nearest codes."""
        flat = z.reshape(-1, 8)
        distances = flat.pow(2).sum(1, keepdim=True) - 2 * flat @ self.codebook.weight.t() + self.codebook.weight.pow(2).sum(1)
        codes = distances.argmin(1)
        quantized = self.codebook(codes).view_as(z)
        loss = F.mse_loss(quantized.detach(), z) + 0.25 * F.mse_loss(quantized, z.detach())
        return z + (quantized - z).detach(), loss, {"codes": codes.view(z.shape[:-1])}


class WindowAttention(nn.Module):
    """Windows of a picture with a bias by distance."""

    def __init__(self, dim: int = 16, window: int = 4, heads: int = 2) -> None:
        super().__init__()
        self.window, self.heads = window, heads
        self.qkv, self.proj = nn.Linear(dim, dim * 3), nn.Linear(dim, dim)
        self.bias = nn.Parameter(torch.randn((2 * window - 1) ** 2, heads) * 0.02)
        grid = torch.stack(torch.meshgrid(torch.arange(window), torch.arange(window), indexing="ij")).flatten(1)
        gaps = (grid[:, :, None] - grid[:, None, :]).permute(1, 2, 0) + window - 1
        self.register_buffer("index", gaps[..., 0] * (2 * window - 1) + gaps[..., 1])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """b h w c to the same."""
        b, h, w, c = x.shape
        n = self.window
        x = x.view(b, h // n, n, w // n, n, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, n * n, c)
        q, k, v = self.qkv(x).reshape(-1, n * n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        bias = self.bias[self.index.view(-1)].view(n * n, n * n, -1).permute(2, 0, 1)
        x = F.scaled_dot_product_attention(q, k, v, attn_mask=bias.expand(q.shape[0], -1, -1, -1))
        x = self.proj(x.transpose(1, 2).reshape(-1, n * n, c))
        return x.view(b, h // n, w // n, n, n, c).permute(0, 1, 3, 2, 4, 5).reshape(b, h, w, c)


class TimestepEmbedding(nn.Module):
    """Sines of a time, and an MLP."""

    def __init__(self, dim: int = 16) -> None:
        super().__init__()
        self.dim, self.mlp = dim, nn.Sequential(nn.Linear(dim, 32), nn.SiLU(), nn.Linear(32, dim))

    def forward(self, t: torch.Tensor) -> torch.Tensor:
        """One vector for each time."""
        freqs = torch.exp(-math.log(10000) * torch.arange(self.dim // 2, device=t.device) / (self.dim // 2))
        args = t[:, None].float() * freqs[None]
        return self.mlp(torch.cat([torch.cos(args), torch.sin(args)], dim=-1))


class UNetResBlock(nn.Module):
    """A residual block with a time embedding."""

    def __init__(self, channels: int = 8, time: int = 16) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.GroupNorm(4, channels), nn.SiLU(), nn.Conv2d(channels, 16, 3, padding=1))
        self.time = nn.Linear(time, 32)
        self.norm, self.conv, self.skip = nn.GroupNorm(4, 16), nn.Conv2d(16, 16, 3, padding=1), nn.Conv2d(channels, 16, 1)

    def forward(self, x: torch.Tensor, emb: torch.Tensor) -> torch.Tensor:
        """Scale and shift by the time."""
        h = self.first(x)
        scale, shift = self.time(F.silu(emb))[..., None, None].chunk(2, dim=1)
        return self.skip(x) + self.conv(F.silu(self.norm(h) * (1 + scale) + shift))


class SelectiveScan(nn.Module):
    """A state-space recurrence step by step."""

    def __init__(self, dim: int = 8, state: int = 4) -> None:
        super().__init__()
        self.decay = nn.Parameter(torch.log(torch.arange(1, state + 1).float()).repeat(dim, 1))
        self.proj = nn.Linear(dim, dim + 2 * state)
        self.state = state

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """b l d to the same."""
        delta, b, c = self.proj(x).split([x.shape[-1], self.state, self.state], dim=-1)
        delta = F.softplus(delta)
        h, out = x.new_zeros(x.shape[0], x.shape[2], self.state), []
        for step in range(x.shape[1]):
            h = torch.exp(-delta[:, step, :, None] * self.decay.exp()) * h + (delta * x)[:, step, :, None] * b[:, step, None]
            out.append((h * c[:, step, None]).sum(-1))
        return torch.stack(out, 1)


class LSTMTagger(nn.Module):
    """A packed sequence through an LSTM."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.lstm = nn.Embedding(20, 8), nn.LSTM(8, 8, batch_first=True, bidirectional=True)

    def forward(self, ids: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        """States of words."""
        packed = nn.utils.rnn.pack_padded_sequence(self.embed(ids), lengths.cpu(), batch_first=True, enforce_sorted=False)
        return nn.utils.rnn.pad_packed_sequence(self.lstm(packed)[0], batch_first=True)[0]


class GRUDecoder(nn.Module):
    """A hidden state that may be left out, and two results."""

    def __init__(self) -> None:
        super().__init__()
        self.gru, self.out = nn.GRU(8, 16, 2, batch_first=True), nn.Linear(16, 5)

    def forward(self, x: torch.Tensor, hidden: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """Scores and the new state."""
        states, hidden = self.gru(x, hidden)
        return F.log_softmax(self.out(states), -1), hidden


class ScriptedPart(nn.Module):
    """A part that TorchScript compiled."""

    def __init__(self) -> None:
        super().__init__()
        self.part = torch.jit.script(nn.Sequential(nn.Linear(16, 16), nn.ReLU()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The part."""
        return self.part(x) + x


class StatefulBuffers(nn.Module):
    """Plain tensors, lists of tensors and a frozen parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.linspace(0, 1, 16)
        self.tables = [torch.ones(16), torch.arange(16.0)]
        self.scale = nn.Parameter(torch.tensor(2.0), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """All of them."""
        for table in self.tables:
            x = x + table
        return x * self.table * self.scale


class LayerDrop(nn.Module):
    """Python's own random numbers."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Sometimes doubled in training."""
        import random  # noqa: PLC0415 - as such projects do

        return x * 2 if self.training and random.random() < 0.5 else x  # noqa: S311


class NoParameters(nn.Module):
    """Structural similarity of two pictures."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """The mean of a map."""
        pool = F.avg_pool2d
        ma, mb = pool(a, 3, 1, 1), pool(b, 3, 1, 1)
        va, vb, vab = pool(a * a, 3, 1, 1) - ma**2, pool(b * b, 3, 1, 1) - mb**2, pool(a * b, 3, 1, 1) - ma * mb
        return (((2 * ma * mb + 1e-4) * (2 * vab + 9e-4)) / ((ma**2 + mb**2 + 1e-4) * (va + vb + 9e-4))).mean()


class Constant(nn.Module):
    """A result that no input is in."""

    def __init__(self) -> None:
        super().__init__()
        self.grid = nn.Parameter(torch.randn(4, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The grid, whatever comes."""
        return self.grid.sigmoid()


class NoInputs(nn.Module):
    """A forward without arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4))

    def forward(self) -> torch.Tensor:
        """The kernel matrix."""
        return self.weight @ self.weight.t()


class EmptyAxis(nn.Module):
    """An axis of length zero."""

    def forward(self, x: torch.Tensor, memory: torch.Tensor) -> torch.Tensor:
        """Both after each other."""
        return torch.cat([memory, x], 1) * 2


class HalfModel(nn.Module):
    """bfloat16 inside, float32 outside."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(16, 16).to(torch.bfloat16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Down and up again."""
        return self.fc(x.to(torch.bfloat16)).float()


class AutocastInside(nn.Module):
    """It turns autocast off for its norm."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """A norm in float32."""
        with torch.autocast(x.device.type, enabled=False):
            x = x.float()
            return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.weight


class CheckpointInside(nn.Module):
    """Activation checkpointing in its forward."""

    def __init__(self) -> None:
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The MLP."""
        return torch.utils.checkpoint.checkpoint(self.mlp, x, use_reentrant=False)


class StringMode(nn.Module):
    """A word chooses what is computed; an int counts repeats; a bool returns more."""

    def forward(self, x: torch.Tensor, act: str = "relu", repeats: int = 1, verbose: bool = False) -> Any:
        """Activations by name."""
        for _ in range(repeats):
            x = getattr(F, act)(x)
        return (x, {"norm": x.norm(), "act": act}) if verbose else x


def _hooked() -> nn.Module:
    module = nn.Sequential(nn.Linear(16, 16), nn.ReLU())
    module[0].register_forward_hook(lambda part, given, result: result * 2)
    return module


def _normed() -> nn.Module:
    return nn.Sequential(parametrizations.spectral_norm(nn.Linear(16, 16)), nn.ReLU(), parametrizations.orthogonal(nn.Linear(16, 16)))


def _old_norms() -> nn.Module:
    return nn.Sequential(nn.utils.weight_norm(nn.Linear(16, 16)), nn.utils.spectral_norm(nn.Linear(16, 16)))


def _pruned() -> nn.Module:
    from torch.nn.utils import prune  # noqa: PLC0415 - rarely used

    module = nn.Linear(16, 16)
    prune.l1_unstructured(module, "weight", 0.5)
    return module


def _quantized() -> nn.Module:
    return torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(16, 16), nn.ReLU()), {nn.Linear}, torch.qint8)


def _meta() -> nn.Module:
    with torch.device("meta"):
        return nn.Linear(16, 16)


def _compiled() -> nn.Module:
    return torch.compile(nn.Linear(16, 16))


def _double() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 16), nn.Softplus()).double()


def list_projects() -> Iterator[Case]:
    """Every module with its inputs."""
    x, seq, image = torch.randn(4, 16), torch.randn(2, 6, 16), torch.randn(2, 8, 8, 8)
    ids = torch.randint(0, 20, (2, 6))
    shared = torch.randn(4, 16)
    makes: dict[str, Callable[[], tuple[Any, Any]]] = {
        "LucidAttention": lambda: (LucidAttention(16), seq),
        "LucidAttention context mask": lambda: (
            LucidAttention(16, 24), ((seq,), {"context": torch.randn(2, 5, 24), "mask": torch.ones(2, 5, dtype=torch.bool)})),
        "DictOutput": lambda: (DictOutput(), x), "DataclassOutput": lambda: (DataclassOutput(), x),
        "DataclassOutput keyword": lambda: (DataclassOutput(), ((x,), {"return_weights": True})), "TupleOutput": lambda: (TupleOutput(), x),
        "EarlyExit": lambda: (EarlyExit(), x), "NonzeroSelect": lambda: (NonzeroSelect(), x), "ItemScale": lambda: (ItemScale(), x),
        "RoutedExperts": lambda: (RoutedExperts(), seq), "DenseExperts": lambda: (DenseExperts(), seq),
        "BinaryLinear": lambda: (BinaryLinear(), x), "MemoryEfficientSwish": lambda: (MemoryEfficientSwish(), x),
        "TiedLanguageModel": lambda: (TiedLanguageModel(), ids), "StepCounter": lambda: (StepCounter(), x),
        "MovingAverage": lambda: (MovingAverage(), x), "CachedMask": lambda: (CachedMask(), seq),
        "RotaryEmbedding": lambda: (RotaryEmbedding(), seq), "SpectralConv1d": lambda: (SpectralConv1d(), torch.randn(2, 4, 32)),
        "ListInputs": lambda: (ListInputs(), ([torch.randn(2, 4, 8, 8), torch.randn(2, 8, 4, 4)], 8)),
        "KeywordsOnly": lambda: (KeywordsOnly(), {"x": x, "scale": 0.5}), "StarArguments": lambda: (StarArguments(), (x, x + 1, x * 2)),
        "SparseAdjacency": lambda: (SparseAdjacency(), (x, torch.eye(4).to_sparse())), "InplaceInput": lambda: (InplaceInput(), x.clone()),
        "InplaceInput on a view": lambda: (InplaceInput(), torch.randn(8, 16)[::2]), "ReturnsInput": lambda: (ReturnsInput(), seq),
        "StarArguments shared": lambda: (StarArguments(), (shared, shared)), "NoiseInEval": lambda: (NoiseInEval(), x),
        "NumpyInside": lambda: (NumpyInside(), x), "WaveNetLayer": lambda: (WaveNetLayer(), torch.randn(2, 8, 20)),
        "Snake": lambda: (Snake(), torch.randn(2, 8, 20)), "VectorQuantizer": lambda: (VectorQuantizer(), torch.randn(2, 5, 8)),
        "WindowAttention": lambda: (WindowAttention(), torch.randn(2, 8, 8, 16)),
        "TimestepEmbedding": lambda: (TimestepEmbedding(), torch.randint(0, 1000, (4,))),
        "UNetResBlock": lambda: (UNetResBlock(), (image, torch.randn(2, 16))),
        "SelectiveScan": lambda: (SelectiveScan(), torch.randn(2, 5, 8)),
        "LSTMTagger": lambda: (LSTMTagger(), (ids, torch.tensor([6, 4]))), "GRUDecoder": lambda: (GRUDecoder(), torch.randn(2, 5, 8)),
        "GRUDecoder state": lambda: (GRUDecoder(), (torch.randn(2, 5, 8), torch.randn(2, 2, 16))),
        "ScriptedPart": lambda: (ScriptedPart(), x), "scripted whole": lambda: (torch.jit.script(nn.Linear(16, 16)), x),
        "traced whole": lambda: (torch.jit.trace(nn.Linear(16, 16), x), x), "StatefulBuffers": lambda: (StatefulBuffers(), x),
        "LayerDrop": lambda: (LayerDrop(), x), "NoParameters": lambda: (NoParameters(), (image, image + 0.1)),
        "Constant": lambda: (Constant(), x), "NoInputs": lambda: (NoInputs(), ()),
        "EmptyAxis": lambda: (EmptyAxis(), (seq, torch.randn(2, 0, 16))), "HalfModel": lambda: (HalfModel(), x),
        "AutocastInside": lambda: (AutocastInside(), x), "CheckpointInside": lambda: (CheckpointInside(), x),
        "StringMode": lambda: (StringMode(), ((x, "gelu"), {"repeats": 2, "verbose": True})), "hooked": lambda: (_hooked(), x),
        "spectral and orthogonal": lambda: (_normed(), x), "old weight and spectral norm": lambda: (_old_norms(), x),
        "pruned": lambda: (_pruned(), x), "quantized": lambda: (_quantized(), x), "meta": lambda: (_meta(), x),
        "lazy": lambda: (nn.LazyLinear(8), x), "compiled": lambda: (_compiled(), x), "float64": lambda: (_double(), x.double()),
        "data parallel": lambda: (nn.DataParallel(nn.Linear(16, 16)), x), "one element batch": lambda: (nn.Linear(16, 16), x[:1]),
        "scalar input": lambda: (nn.Softplus(), torch.tensor(1.5)), "no batch": lambda: (nn.Linear(16, 16), x[0]),
        "not contiguous": lambda: (nn.Linear(4, 8), x.t()), "nan in the input": lambda: (nn.LayerNorm(16), x.clone().fill_(float("nan"))),
        "needs a gradient": lambda: (nn.Linear(16, 16), x.clone().requires_grad_()),
        "complex input": lambda: (nn.Identity(), torch.randn(4, 4, dtype=torch.cfloat)),
        "a number": lambda: (nn.Softplus(), 3.0), "no module": lambda: (torch.relu, x), "wrong size": lambda: (nn.Linear(8, 8), x),
        "numpy input": lambda: (nn.Linear(16, 16), x.numpy()), "a set": lambda: (StarArguments(), ({1, 2},)),
        "nested tensor": lambda: (nn.Linear(16, 16), torch.nested.nested_tensor([x[:2], x[2:]], layout=torch.jagged)),
    }  # fmt: skip
    for name, make in makes.items():
        yield f"projects {name}", make
