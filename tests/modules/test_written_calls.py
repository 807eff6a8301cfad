"""Layers and functions of torch, written down as a task, compute what they compute."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from brought import Apply, bring_and_compare
from tritonsmith.modules.bringing.check import copy_call

x2, x3, x4 = torch.randn(6, 8), torch.randn(3, 5, 8), torch.randn(2, 4, 9, 10)
ids = torch.randint(0, 12, (3, 5))

LAYERS: dict[str, tuple[nn.Module, Any]] = {
    "linear": (nn.Linear(8, 5), x3),
    "linear without bias": (nn.Linear(8, 5, bias=False), x2),
    "bf16 linear": (nn.Linear(8, 5).bfloat16(), x2.bfloat16()),
    "bilinear": (nn.Bilinear(8, 8, 3), (x2, x2 + 1)),
    "conv1d": (nn.Conv1d(5, 4, 3, padding="same"), x3),
    "conv2d": (nn.Conv2d(4, 6, 3, stride=2, padding=1, groups=2), x4),
    "conv2d reflect": (nn.Conv2d(4, 6, 3, padding=1, padding_mode="reflect"), x4),
    "conv3d": (nn.Conv3d(2, 3, 2), torch.randn(1, 2, 4, 5, 6)),
    "transposed 1d": (nn.ConvTranspose1d(5, 4, 3), x3),
    "transposed 2d": (nn.ConvTranspose2d(4, 3, 3, stride=2, output_padding=1), x4),
    "layer norm": (nn.LayerNorm(8), x3),
    "layer norm over two axes": (nn.LayerNorm((5, 8)), x3),
    "plain layer norm": (nn.LayerNorm(8, 1e-3, False), x3),
    "layer norm without bias": (nn.LayerNorm(8, bias=False), x3),
    "rms norm": (nn.RMSNorm(8, 1e-6), x3),
    "group norm": (nn.GroupNorm(2, 4), x4),
    "batch norm 1d": (nn.BatchNorm1d(8), x2),
    "batch norm 2d": (nn.BatchNorm2d(4), x4),
    "instance norm": (nn.InstanceNorm2d(4, affine=True), x4),
    "embedding": (nn.Embedding(12, 4, padding_idx=0), ids),
    "embedding bag": (nn.EmbeddingBag(12, 4, mode="sum"), ids),
    "gru": (nn.GRU(8, 6, 2, batch_first=True), x3),
    "gru with a state": (nn.GRU(8, 6), (x3, torch.randn(1, 5, 6))),
    "both ways": (nn.LSTM(8, 6, bidirectional=True), x3),
    "lstm with states": (nn.LSTM(8, 6), (x3, (torch.randn(1, 5, 6), torch.randn(1, 5, 6)))),
    "rnn": (nn.RNN(8, 6, nonlinearity="relu"), x3),
    "gru cell": (nn.GRUCell(8, 6), (x2, torch.randn(6, 6))),
    "lstm cell": (nn.LSTMCell(8, 6), x2),
    "attention": (nn.MultiheadAttention(8, 2, batch_first=True), (x3, x3 + 1, x3 - 1)),
    "encoder layer": (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=True), x3),
    "decoder layer": (nn.TransformerDecoderLayer(8, 2, 16, batch_first=True), (x3, x3 + 1)),
    "prelu": (nn.PReLU(), x2),
    "pixel shuffle": (nn.PixelShuffle(2), x4),
    "upsample": (nn.Upsample(scale_factor=2), x4),
    "bilinear upsample": (nn.Upsample(size=(5, 7), mode="bilinear", align_corners=True), x4),
    "unfold": (nn.Unfold(3), x4),
    "fold": (nn.Fold((4, 5), (2, 2)), torch.randn(1, 8, 12)),
    "max pool": (nn.MaxPool2d(2, ceil_mode=True), x4),
    "max pool with places": (nn.MaxPool2d(2, return_indices=True), x4),
    "average pool": (nn.AvgPool2d(2, padding=1, count_include_pad=False), x4),
    "adaptive average": (nn.AdaptiveAvgPool2d(1), x4),
    "adaptive maximum": (nn.AdaptiveMaxPool2d((3, 2)), x4),
    "pad": (nn.ReflectionPad2d(1), x4),
    "sequence": (nn.Sequential(nn.Linear(8, 16), nn.GELU("tanh"), nn.Dropout(0.1), nn.Linear(16, 8)), x3),
    "weight norm": (nn.utils.parametrizations.weight_norm(nn.Linear(8, 5)), x2),
    "cross entropy": (nn.CrossEntropyLoss(label_smoothing=0.1), (x2, torch.randint(0, 8, (6,)))),
    "mse": (nn.MSELoss(reduction="sum"), (x2, x2 + 1)),
    "smooth l1": (nn.SmoothL1Loss(beta=0.5), (x2, x2 + 1)),
    "kl": (nn.KLDivLoss(reduction="batchmean"), (x2.log_softmax(1), x2.softmax(1))),
    "bce": (nn.BCEWithLogitsLoss(), (x2, torch.rand(6, 8))),
    "triplet": (nn.TripletMarginLoss(), (x2, x2 + 1, x2 - 1)),
    "cosine": (nn.CosineSimilarity(dim=1), (x2, x2 + 1)),
}
for plain in (
    nn.ReLU(inplace=True),
    nn.SiLU(),
    nn.ELU(0.5),
    nn.SELU(),
    nn.CELU(0.7),
    nn.LeakyReLU(0.2),
    nn.Hardswish(),
    nn.Hardsigmoid(),
    nn.Hardtanh(-2, 2),
    nn.ReLU6(),
    nn.Mish(),
    nn.Softplus(2, 10),
    nn.Softsign(),
    nn.Tanhshrink(),
    nn.Hardshrink(),
    nn.Softshrink(),
    nn.LogSigmoid(),
    nn.Sigmoid(),
    nn.Tanh(),
    nn.Softmax(-1),
    nn.LogSoftmax(1),
    nn.GLU(),
    nn.Threshold(0.1, 2.0),
    nn.RReLU(),
    nn.Identity(),
):
    LAYERS[type(plain).__name__] = (plain, x3)

FUNCTIONS: dict[str, tuple[Callable[..., Any], Any]] = {
    "signs": (lambda a, b: (a + b) * (a - 2) / (b * b + 1) - (-a) ** 2 // 3, (x2, x2 + 1)),
    "comparisons": (lambda a: torch.where((a > 0) & (a <= 1), a, -a), x2),
    "alpha": (lambda a, b: torch.add(a, b, alpha=3), (x2, x2 + 1)),
    "properties": (lambda a, b: (a.mT @ a, a.mH @ a, b.T @ b, b.H @ b), (x3, x2)),
    "from a number": (lambda a: 1 - a, x2),
    "parts": (lambda a: a[:, 1:, ::2] + a[..., :-1, 3:7], x3),
    "places": (lambda a, i: a[i], (x2, torch.tensor([3, 1]))),
    "places along an axis": (lambda a: a[:, [0, 2]], x2),
    "split": (lambda a: torch.cat(a.chunk(2, -1)[::-1], -1), x2),
    "stack": (lambda a: torch.stack([a, a * 2], 1).flatten(1), x2),
    "reductions": (lambda a: (a.mean(-1), a.sum((0, 2)), a.amax(1), a.std(0)), x3),
    "maximum with place": (lambda a: a.max(1), x2),
    "top": (lambda a: torch.topk(a, 3, -1), x2),
    "sort": (lambda a: a.sort(dim=-1, descending=True), x2),
    "cumulative": (lambda a: a.cumsum(1), x2),
    "einsum": (lambda a, b: torch.einsum("bij,bkj->bik", a, b), (x3, x3 + 1)),
    "products": (lambda a, b: torch.bmm(a, b.transpose(1, 2)) @ b, (x3, x3 + 1)),
    "attention": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        (x4, x4 + 1, x4 - 1),
    ),
    "masks": (
        lambda a: a.masked_fill(torch.ones_like(a, dtype=torch.bool).tril(), float("-inf")).softmax(-1),
        torch.randn(5, 5),
    ),
    "makers": (
        lambda a: (
            a
            + torch.arange(a.shape[1])
            + torch.zeros(a.shape[1])
            + a.new_ones(1)
            + torch.full((1,), 2.0)
            + torch.eye(8)[0]
        ),
        x2,
    ),
    "types": (lambda a: (a.half().float() + a.to(torch.float64)).float() + a.long() + (a > 0).type_as(a), x2),
    "changed in place": (lambda a: (a * 2).relu_().add_(1).mul_(a), x2),
    "filled in place": (lambda a: _write(a.clone()), x2),
    "rolls": (lambda a: torch.roll(a, 1, 0).flip(1) + torch.rot90(a, 2, (0, 1)), x2),
    "windows": (lambda a: a.unfold(-1, 3, 2).sum(-1), x2),
    "gather": (lambda a, i: a.gather(1, i), (x2, torch.randint(0, 8, (6, 2)))),
    "scatter": (lambda a, i: torch.zeros(6, 8).scatter(1, i, a), (x2, torch.arange(8).expand(6, 8).clone())),
    "indexed add": (lambda a, i: torch.zeros(12, 8).index_add(0, i, a), (x2, torch.randint(0, 12, (6,)))),
    "norms": (lambda a: F.normalize(a, dim=-1) + a.norm(dim=1, keepdim=True), x2),
    "one hot": (lambda i: F.one_hot(i, 12).float(), ids),
    "fourier": (lambda a: torch.fft.irfft(torch.fft.rfft(a)), x2),
    "complex": (lambda a: torch.view_as_complex(a.view(6, 4, 2).contiguous()).abs(), x2),
    "sampled": (lambda a, g: F.grid_sample(a, g, align_corners=False), (x4, torch.rand(2, 3, 3, 2) * 2 - 1)),
    "interpolated": (lambda a: F.interpolate(a, size=(4, 4), mode="nearest"), x4),
    "padded": (lambda a: F.pad(a, (1, 2), value=3.0), x2),
    "clamped": (lambda a: a.clamp(-1).clamp_max(1) + a.clamp(min=0.1, max=0.2), x2),
    "lerp": (lambda a, b: torch.lerp(a, b, 0.3), (x2, x2 + 1)),
    "listed numbers": (lambda a: a * torch.tensor([1.0, 2.0] * 4), x2),
    "detached": (lambda a: a.detach() + a, x2),
    "expanded": (lambda a: a[:, None].expand(-1, 3, -1) * 2, x2),
    "repeated": (lambda a: a.repeat(2, 1).repeat_interleave(2, 0), x2),
    "outer": (lambda a: torch.outer(a[0], a[1]) + torch.dot(a[0], a[1]), x2),
    "special": (
        lambda a: (
            torch.erf(a)
            + torch.special.expm1(a)
            + torch.logaddexp(a, a * 2)
            + torch.logsumexp(a, -1, keepdim=True)
        ),
        x2,
    ),
    "no gradients": (torch.no_grad()(lambda a: a.sin() + 1), x2),
    "meshgrid": (lambda a: torch.meshgrid(a[0], a[1], indexing="ij"), x2),
    "unbound": (lambda a: a.unbind(1)[0] + a.unbind(1)[-1], x3),
    "linalg": (lambda a: torch.linalg.vector_norm(a, dim=-1) + torch.linalg.norm(a, dim=-1), x2),
    "variance": (lambda a: torch.var_mean(a, dim=-1, unbiased=False), x2),
    "addmm": (lambda a: torch.addmm(a[0], a, a.new_ones(8, 8)), x2),
    "cdist": (lambda a, b: torch.cdist(a, b), (x2, x2 + 1)),
}


def _write(value: torch.Tensor) -> torch.Tensor:
    value[:, 0] = 3.0
    value[1:] += 1
    return value


SLOW = ("attention", "encoder layer", "decoder layer")
"""Layers whose export takes seconds."""


class Several(nn.Module):
    """Modules side by side, each on its own inputs."""

    def __init__(self, parts: list[nn.Module], counts: list[int]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)
        self.counts = counts

    def forward(self, *inputs: Any) -> list[Any]:
        left = iter(inputs)
        return [
            part(*(next(left) for _ in range(count)))
            for part, count in zip(self.parts, self.counts, strict=True)
        ]


def put_side_by_side(cases: list[tuple[nn.Module, Any]]) -> tuple[Several, tuple[Any, ...]]:
    """One module of several, and its inputs."""
    calls = [inputs if isinstance(inputs, tuple) else (inputs,) for _, inputs in cases]
    return Several([module for module, _ in cases], [*map(len, calls)]), copy_call(
        [value for call in calls for value in call], {}
    )[0]


@pytest.mark.slow
@pytest.mark.parametrize("part", [0, 1])
def test_layers_of_torch_compute_the_same(part: int, tmp_path: Path) -> None:
    module, inputs = put_side_by_side([case for name, case in LAYERS.items() if name not in SLOW][part::2])
    text = bring_and_compare(module, inputs, tmp_path).task.read_text()
    assert "nn.GRU(" in text and "nn.Embedding" in text or part == 0, "layers stay layers"
    assert "torch.ops.aten" not in text.replace("torch.ops.aten.rrelu", "")


@pytest.mark.parametrize("part", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_functions_compute_the_same(part: int, tmp_path: Path) -> None:
    module, inputs = put_side_by_side(
        [(Apply(function), inputs) for function, inputs in list(FUNCTIONS.values())[part::2]]
    )
    bring_and_compare(module, inputs, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_of_torch_computes_the_same(name: str, tmp_path: Path) -> None:
    module, inputs = LAYERS[name]
    bring_and_compare(module, inputs, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_computes_the_same(name: str, tmp_path: Path) -> None:
    function, inputs = FUNCTIONS[name]
    bring_and_compare(Apply(function), inputs, tmp_path)
