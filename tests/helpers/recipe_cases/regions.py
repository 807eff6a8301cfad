"""Small modules across the kinds of region: ragged sizes, several outputs, whole numbers and truths as inputs."""

import textwrap
from dataclasses import dataclass
from typing import Literal

_TASK = """
import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def __init__(self):
        super().__init__()
INIT

    def forward(self, ARGUMENTS):
FORWARD


def get_inputs():
    return [INPUTS]


def get_init_inputs():
    return []
"""


@dataclass(frozen=True)
class RegionCase:
    """A module; lines of its constructor and of its forward are parted by semicolons."""

    name: str
    forward: str
    inputs: str
    init: str = "pass"
    arguments: str = "x"
    mode: Literal["eval", "train"] = "eval"

    def source(self) -> str:
        """The task."""
        text = _TASK.replace("ARGUMENTS", self.arguments).replace("INPUTS", self.inputs)
        for mark, lines in (("INIT", self.init), ("FORWARD", self.forward)):
            text = text.replace(mark, textwrap.indent("\n".join(lines.split("; ")), " " * 8))
        return text


MODULES = [
    RegionCase("softmax along a middle axis", "return torch.softmax(x, 1)", "torch.randn(3, 17, 19)"),
    RegionCase("layer norm of long rows", "return F.gelu(self.n(x))", "torch.randn(4, 5000)", init="self.n=nn.LayerNorm(5000)"),
    RegionCase("group norm", "return F.hardtanh(self.n(x))*2", "torch.randn(3, 12, 7, 5)", init="self.n=nn.GroupNorm(4, 12)"),
    RegionCase("group norm and a pool", "return F.max_pool2d(self.n(x), 2)", "torch.randn(3, 12, 8, 6)", init="self.n=nn.GroupNorm(4, 12)"),
    RegionCase("instance norm", "return self.n(x)", "torch.randn(3, 5, 9, 11)", init="self.n=nn.InstanceNorm2d(5)"),
    RegionCase(
        "group norm with channels last", "return F.silu(self.n(x.permute(0, 3, 1, 2)))", "torch.randn(2, 7, 5, 24)*3+50",
        init="self.n=nn.GroupNorm(3, 24)",
    ),
    RegionCase(
        "operands in two orders", "return torch.relu(x + y.transpose(1, 2)), (x * y.transpose(1, 2)).to(torch.float16)",
        "torch.randn(3, 40, 70), torch.randn(3, 70, 40)", arguments="x, y",
    ),
    RegionCase(
        "channels that are shuffled several times",
        "s = lambda x: torch.cat((x[:, :6], F.relu(x[:, 6:]) * 2), 1).view(2, 2, 6, 5).transpose(1, 2).reshape(2, 12, 5); "
        "return s(s(s(s(s(x))))) * 2",
        "torch.randn(2, 12, 5)",
    ),
    RegionCase("RMS norm", "return self.n(x)", "torch.randn(7, 300)", init="self.n=nn.RMSNorm(300)"),
    RegionCase("sum along a middle axis", "return torch.sum(x, dim=1, keepdim=True)", "torch.randn(5, 100, 70)"),
    RegionCase("mean along the first axis", "return x.mean(0)", "torch.randn(100, 70)"),
    RegionCase("maxima and their places", "return torch.max(x, dim=1)", "torch.randn(5, 30, 70)"),
    RegionCase(
        "largest of each row",
        "v, i = torch.topk(x, 4); w, j = torch.topk(x[:, :30], 3, largest=False); return v / v.sum(-1, keepdim=True), i, w.softmax(-1), j",
        "torch.randn(7, 300)",
    ),
    RegionCase(
        "a router behind a product",
        "p = self.gate(x).softmax(-1); w, i = torch.topk(p, 3, dim=-1); return w / w.sum(-1, keepdim=True), i, F.one_hot(i, 16)",
        "torch.randn(50, 64)",
        init="self.gate = nn.Linear(64, 16, bias=False)",
    ),
    RegionCase(
        "a router with a bias for the choice",
        "s = self.gate(x).sigmoid(); i = torch.topk(s + self.b, 3)[1]; w = s.gather(1, i); m = torch.zeros_like(s).scatter_(1, i, w); "
        "return w / (w.sum(-1, keepdim=True) + 1e-20), i, m",
        "torch.randn(50, 64, dtype=torch.bfloat16)",
        init="self.gate = nn.Linear(64, 24).bfloat16(); self.b = nn.Parameter(torch.randn(24, dtype=torch.bfloat16))",
    ),
    RegionCase(
        "rows of many tables",
        "t = torch.stack([torch.relu(self.l(x)), *(m(ids[:, k]) for k, m in enumerate(self.tables))], dim=1); "
        "return torch.bmm(t, t.transpose(1, 2)), torch.cat([m(ids[:, :3]).sum(1) for m in self.tables], 1)",
        "torch.randn(6, 17), torch.randint(0, 50, (6, 11))",
        init="self.l = nn.Linear(17, 16); self.tables = nn.ModuleList(nn.Embedding(50, 16) for _ in range(11))",
        arguments="x, ids",
    ),
    RegionCase(
        "residual, norm and quantisation of rows",
        "r = x + y; h = F.rms_norm(r.float(), (300,)) * self.w.float(); s = h.abs().amax(-1, keepdim=True).clamp(min=1e-8) / 127.0; "
        "return torch.round(h / s).clamp(-128, 127).to(torch.int8), s, r, (h * self.w).softmax(-1)",
        "torch.randn(9, 300, dtype=torch.bfloat16), torch.randn(9, 300, dtype=torch.bfloat16)",
        init="self.w = nn.Parameter(torch.rand(300, dtype=torch.bfloat16))",
        arguments="x, y",
    ),
    RegionCase("products and extremes", "return torch.prod(x, -1), x.amax((0, 2)), x.amin(1)", "torch.randn(5, 3, 70)"),
    RegionCase("variances", "return torch.var(x, 1), x.std(-1, unbiased=False)", "torch.randn(5, 33, 70)"),
    RegionCase("logsumexp", "return F.mish(torch.logsumexp(x, 1, keepdim=True))*x", "torch.randn(5, 33)"),
    RegionCase("any and all", "return (x>1).any(1), (x>-3).all(-1)", "torch.randn(5, 33)"),
    RegionCase("norms of vectors", "return F.normalize(x, dim=1), x/torch.norm(x, p=2), x.norm(dim=-1)", "torch.randn(5, 33)"),
    RegionCase("running sum of long rows", "return torch.cumsum(x, dim=1)", "torch.randn(5, 5000)"),
    RegionCase("running sum backwards", "return torch.cumsum(x.flip(1), dim=1).flip(1)", "torch.randn(5, 300)"),
    RegionCase(
        "masked running sum",
        "return torch.cumsum(x*m, dim=1)",
        "torch.randn(5, 300), torch.randint(0, 2, (5, 300)).bool()",
        arguments="x, m",
    ),
    RegionCase("running product", "return torch.cumprod(x, dim=1)", "torch.rand(5, 300)+0.5"),
    RegionCase(
        "cross entropy",
        "return F.cross_entropy(x, y, ignore_index=3, reduction='sum'), self.c(x, y)",
        "torch.randn(50, 70), torch.randint(0, 70, (50, ))",
        init="self.c=nn.CrossEntropyLoss(reduction='none')",
        arguments="x, y",
    ),
    RegionCase(
        "mean squared error",
        "return torch.mean((x-y)**2), F.mse_loss(x, y), F.l1_loss(x, y, reduction='sum')",
        "torch.randn(50, 70), torch.randn(50, 70)",
        arguments="x, y",
    ),
    RegionCase(
        "huber losses",
        "return F.smooth_l1_loss(x, y), F.huber_loss(x, y, delta=0.5)",
        "torch.randn(50, 70), torch.randn(50, 70)",
        arguments="x, y",
    ),
    RegionCase(
        "triplet loss",
        "return self.c(x, y, z)",
        "torch.randn(50, 70), torch.randn(50, 70), torch.randn(50, 70)",
        init="self.c=nn.TripletMarginLoss(margin=1.0)",
        arguments="x, y, z",
    ),
    RegionCase(
        "cosine similarity",
        "return torch.mean(1-F.cosine_similarity(x, y, dim=1))",
        "torch.randn(50, 70), torch.randn(50, 70)",
        arguments="x, y",
    ),
    RegionCase("maximum pool", "return F.max_pool2d(x, 3, 2, 1)", "torch.randn(2, 3, 17, 19)"),
    RegionCase(
        "mean pools", "return F.avg_pool2d(x, 3, 2, 1)*2+F.avg_pool2d(x, 3, 2, 1, count_include_pad=False)", "torch.randn(2, 3, 17, 19)"
    ),
    RegionCase("adaptive pools", "return F.adaptive_avg_pool2d(x, (1, 1)), F.adaptive_avg_pool2d(x, (3, 4))", "torch.randn(2, 3, 18, 20)"),
    RegionCase(
        "convolution of each channel",
        "return torch.relu(self.c(x))",
        "torch.randn(2, 6, 9, 11)",
        init="self.c=nn.Conv2d(6, 6, 3, padding=1, groups=6)",
    ),
    RegionCase("matrix times vector", "return torch.matmul(x, y)", "torch.randn(50, 70), torch.randn(70, 1)", arguments="x, y"),
    RegionCase("embedding", "return self.e(x).sum(1)", "torch.randint(0, 50, (4, 6))", init="self.e=nn.Embedding(50, 33)"),
    RegionCase(
        "lookups",
        "return torch.gather(x, 1, y), x[y[:, 0]], x.index_select(1, y[0])",
        "torch.randn(9, 9), torch.randint(0, 9, (9, 5))",
        arguments="x, y",
    ),
    RegionCase(
        "joined tensors",
        "return torch.cat([x, y*2, x[:, :3]], 1), torch.stack([x, y], 1), x.permute(1, 0)+1",
        "torch.randn(5, 7), torch.randn(5, 7)",
        arguments="x, y",
    ),
    RegionCase(
        "slices and rims",
        "return x[:, 1::2]*2, x[..., -1], x[:, None, 2:4].expand(5, 3, 2)+1, torch.roll(x, 2, 1)*1.5, F.pad(x, (1, 2, 0, 1))",
        "torch.randn(5, 7)",
    ),
    RegionCase(
        "whole numbers",
        "return x+y, x*2-y, (x>y), torch.where(x>y, x, y), x//3, x%3, x.float()/2",
        "torch.randint(-9, 9, (5, 7)), torch.randint(-9, 9, (5, 7))",
        arguments="x, y",
    ),
    RegionCase(
        "masks",
        "return x.masked_fill(m, float('-inf')).softmax(-1), (~m).float(), m.sum(1)",
        "torch.randn(5, 7), torch.rand(5, 7)>0.5",
        arguments="x, m",
    ),
    RegionCase(
        "bf16 rows", "return torch.softmax(self.n(x), -1)", "torch.randn(9, 200).bfloat16()", init="self.n=nn.LayerNorm(200).bfloat16()"
    ),
    RegionCase("fp16 rows", "return F.gelu(x)*x.sum(-1, keepdim=True)", "torch.randn(9, 200).half()"),
    RegionCase("float64 rows", "return torch.softmax(x, -1).exp()", "torch.randn(9, 200).double()"),
    RegionCase("norms of few long rows", "return x/torch.norm(x), x.std(), torch.logsumexp(x, 1)", "torch.randn(2, 40000)"),
    RegionCase("statistics of a batch", "return F.batch_norm(x, None, None, training=True)", "torch.randn(20, 3, 40, 50)"),
    RegionCase(
        "a recurrent layer", "return torch.relu(self.g(x)[0]).mean(1)", "torch.randn(2, 4, 8)", init="self.g=nn.GRU(8, 6, batch_first=True)"
    ),
    RegionCase(
        "a convolution",
        "return torch.relu(self.b(self.c(x)))+x",
        "torch.randn(2, 4, 8, 9)",
        init="self.c=nn.Conv2d(4, 4, 3, padding=1); self.b=nn.BatchNorm2d(4)",
    ),
    RegionCase(
        "attention in parts",
        "q, k, v=self.l(x).split(8, 2); w=(q@k.transpose(1, 2))*0.3; "
        "w=w.masked_fill(self.m[:5, :5]==0, float('-inf')); return F.softmax(w, -1)@v",
        "torch.randn(2, 5, 8)",
        init="self.l=nn.Linear(8, 24); self.register_buffer('m', torch.tril(torch.ones(9, 9)))",
    ),
    RegionCase(
        "activations",
        "return F.selu(x)+F.mish(x)+F.logsigmoid(x)+F.hardshrink(x)+F.softshrink(x)+F.celu(x)"
        "+torch.log1p(x.abs())+torch.atan2(x, x*2+1)+x.abs()**2.5",
        "torch.randn(9, 20)",
    ),
]
