"""Verdicts on tasks in 16 bits, of several types, and in training mode, in the interpreter: right kernels pass, wrong ones do not."""

from pathlib import Path

import pytest

from tritonsmith.evaluator.caller.local import LocalEvaluator
from tritonsmith.evaluator.schema import PrecisionClass, Status, Task, Verdict
from tritonsmith.evaluator.tasks.files import load_task

HALF = PrecisionClass.HALF

RMS_TASK = """
import torch
from torch import nn
ROWS, D = 48, 128
class Model(nn.Module):
    def __init__(self, d):
        super().__init__(); self.weight = nn.Parameter(torch.rand(d).to(torch.bfloat16) + 0.5)
    def forward(self, x):
        y = x.float()
        return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * self.weight
def get_inputs(): return [torch.randn(ROWS, D, dtype=torch.bfloat16)]
def get_init_inputs(): return [D]
"""

RMS = """
import torch
from torch import nn
import triton
import triton.language as tl
@triton.jit
def rms(x, w, y, D, B: tl.constexpr):
    r = tl.program_id(0)
    c = tl.arange(0, B)
    v = tl.load(x + r * D + c, mask=c < D, other=0.0).to(tl.float32)
    s = tl.sum(v * v) / D
    o = v / tl.sqrt(s + 1e-6) * tl.load(w + c, mask=c < D, other=0.0).to(tl.float32)
    tl.store(y + r * D + c, o, mask=c < D)
class ModelNew(nn.Module):
    def __init__(self, d):
        super().__init__(); self.weight = nn.Parameter(torch.empty(d, dtype=torch.bfloat16))
    def forward(self, x):
        y = torch.empty_like(x); rms[(x.shape[0],)](x, self.weight, y, x.shape[1], triton.next_power_of_2(x.shape[1])); return y
"""

ATTENTION_TASK = """
import torch
from torch import nn
import torch.nn.functional as F
HEADS, S, D = 2, 64, 32
class Model(nn.Module):
    def forward(self, q, k, v):
        return torch.softmax(q @ k.transpose(-1, -2) * (D ** -0.5), dim=-1) @ v
def get_inputs(): return [torch.randn(HEADS, S, D, dtype=torch.float16) for _ in range(3)]
def get_init_inputs(): return []
"""

ATTENTION = """
import torch
from torch import nn
import triton
import triton.language as tl
@triton.jit
def attend(q, k, v, o, S, scale, D: tl.constexpr, BM: tl.constexpr, B: tl.constexpr):
    h = tl.program_id(1); m = tl.program_id(0) * BM + tl.arange(0, BM); n = tl.arange(0, B); d = tl.arange(0, D)
    base = h * S * D
    a = tl.load(q + base + m[:, None] * D + d[None, :], mask=m[:, None] < S, other=0.0)
    b = tl.load(k + base + n[None, :] * D + d[:, None], mask=n[None, :] < S, other=0.0)
    s = tl.where(n[None, :] < S, tl.dot(a, b) * scale, -float("inf"))
    p = tl.exp(s - tl.max(s, 1)[:, None])
    total = tl.sum(p, 1)
    w = tl.load(v + base + n[:, None] * D + d[None, :], mask=n[:, None] < S, other=0.0)
    r = tl.dot(p.to(tl.float16), w) / total[:, None]
    tl.store(o + base + m[:, None] * D + d[None, :], r, mask=m[:, None] < S)
class ModelNew(nn.Module):
    def forward(self, q, k, v):
        o = torch.empty_like(q); h, s, d = q.shape
        attend[(triton.cdiv(s, 16), h)](q, k, v, o, s, d ** -0.5, d, 16, triton.next_power_of_2(s)); return o
"""

PRODUCT_TASK = """
import torch
from torch import nn
M, K, N = 16, 4096, 16
class Model(nn.Module):
    def __init__(self, k, n):
        super().__init__(); self.fc = nn.Linear(k, n).half()
    def forward(self, x):
        return torch.relu(self.fc(x))
def get_inputs(): return [torch.randn(M, K, dtype=torch.float16)]
def get_init_inputs(): return [K, N]
"""

PRODUCT = """
import torch
from torch import nn
import triton
import triton.language as tl
@triton.jit
def lin(x, w, b, y, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM); n = tl.program_id(1) * BN + tl.arange(0, BN)
    t = tl.zeros((BM, BN), tl.float32)
    for s in range(0, K, BK):
        k = s + tl.arange(0, BK)
        a = tl.load(x + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        c = tl.load(w + n[None, :] * K + k[:, None], mask=(n[None, :] < N) & (k[:, None] < K), other=0.0)
        t += tl.dot(a, c)
    t += tl.load(b + n, mask=n < N, other=0.0)[None, :]
    tl.store(y + m[:, None] * N + n[None, :], tl.maximum(t, 0.0), mask=(m[:, None] < M) & (n[None, :] < N))
class ModelNew(nn.Module):
    def __init__(self, k, n):
        super().__init__(); self.fc = nn.Linear(k, n).half()
    def forward(self, x):
        M, K = x.shape; N = self.fc.weight.shape[0]
        y = torch.empty(M, N, dtype=x.dtype, device=x.device)
        lin[(triton.cdiv(M, 16), triton.cdiv(N, 16))](x, self.fc.weight, self.fc.bias, y, M, N, K, 16, 16, 64); return y
"""

SEVERAL_TASK = """
import torch
from torch import nn
B, V, D = 64, 40, 64
class Model(nn.Module):
    def __init__(self, v, d):
        super().__init__(); self.table = nn.Embedding(v, d).bfloat16()
    def forward(self, ids, mask):
        e = self.table(ids).masked_fill(~mask[:, None], 0.0)
        n = e.float().pow(2).mean(-1)
        return e, n, e.argmax(-1), e > 0
def get_inputs(): return [torch.randint(0, V, (B,)), torch.rand(B) > 0.3]
def get_init_inputs(): return [V, D]
"""

SEVERAL = """
import torch
from torch import nn
import triton
import triton.language as tl
@triton.jit
def look(ids, mask, w, e, n, a, p, D, B: tl.constexpr):
    r = tl.program_id(0); c = tl.arange(0, B)
    i = tl.load(ids + r); keep = tl.load(mask + r)
    v = tl.load(w + i * D + c, mask=c < D, other=0.0)
    v = tl.where(keep != 0, v, 0.0).to(tl.bfloat16)
    f = v.to(tl.float32)
    tl.store(e + r * D + c, v, mask=c < D)
    tl.store(n + r, tl.sum(f * f) / D)
    g = tl.where(c < D, f, -float("inf"))
    best = tl.max(g)
    tl.store(a + r, tl.min(tl.where(g == best, c, B)).to(tl.int64))
    tl.store(p + r * D + c, f > 0, mask=c < D)
class ModelNew(nn.Module):
    def __init__(self, v, d):
        super().__init__(); self.table = nn.Embedding(v, d).bfloat16()
    def forward(self, ids, mask):
        b = ids.shape[0]; d = self.table.weight.shape[1]
        e = torch.empty(b, d, dtype=torch.bfloat16, device=ids.device); n = torch.empty(b, device=ids.device)
        a = torch.empty(b, dtype=torch.int64, device=ids.device); p = torch.empty(b, d, dtype=torch.bool, device=ids.device)
        look[(b,)](ids, mask, self.table.weight, e, n, a, p, d, triton.next_power_of_2(d)); return e, n, a, p
"""

MLP_TASK = """
import torch
from torch import nn
from torch.nn import functional as F
T, D, H = 16, 64, 32
class Model(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.gate = nn.Linear(d, h, bias=False, dtype=torch.bfloat16); self.up = nn.Linear(d, h, bias=False, dtype=torch.bfloat16)
    def forward(self, x):
        return F.silu(self.gate(x)) * self.up(x)
def get_inputs(): return [torch.randn(T, D, dtype=torch.bfloat16)]
def get_init_inputs(): return [D, H]
"""

MLP = """
import torch
from torch import nn
import triton
import triton.language as tl
@triton.jit
def gated(x, g, u, y, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.arange(0, BM); n = tl.program_id(0) * BN + tl.arange(0, BN); k = tl.arange(0, BK)
    a = tl.load(x + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
    inside = (n[None, :] < N) & (k[:, None] < K)
    left = tl.dot(a, tl.load(g + n[None, :] * K + k[:, None], mask=inside, other=0.0))
    right = tl.dot(a, tl.load(u + n[None, :] * K + k[:, None], mask=inside, other=0.0))
    tl.store(y + m[:, None] * N + n[None, :], left * tl.sigmoid(left) * right, mask=(m[:, None] < M) & (n[None, :] < N))
class ModelNew(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.gate = nn.Linear(d, h, bias=False, dtype=torch.bfloat16); self.up = nn.Linear(d, h, bias=False, dtype=torch.bfloat16)
    def forward(self, x):
        m, k = x.shape; n = self.gate.weight.shape[0]
        y = torch.empty(m, n, dtype=x.dtype, device=x.device)
        gated[(triton.cdiv(n, 16),)](x, self.gate.weight, self.up.weight, y, m, n, k, 16, 16, triton.next_power_of_2(k)); return y
"""

CONV_TRAIN_TASK = """
import torch
from torch import nn
MODE = "train"
N, C, F, S = 2, 2, 4, 6
class Model(nn.Module):
    def __init__(self, c, f):
        super().__init__()
        self.conv = nn.Conv2d(c, f, 1, bias=False); self.bn = nn.BatchNorm2d(f)
    def forward(self, x):
        return torch.relu(self.bn(self.conv(x)))
def get_inputs(): return [torch.randn(N, C, S, S)]
def get_init_inputs(): return [C, F]
"""

CONV_TRAIN = """
import torch
from torch import nn
import triton
import triton.language as tl
@triton.jit
def conv_norm(x, filters, y, w, b, mean, var, count, N, C, F, HW, momentum, eps, B: tl.constexpr):
    f = tl.program_id(0)
    o = tl.arange(0, B)
    n = N * HW
    inside = o < n
    v = tl.zeros((B,), tl.float32)
    for c in range(C):
        v += tl.load(x + (o // HW * C + c) * HW + o % HW, mask=inside, other=0.0) * tl.load(filters + f * C + c)
    m = tl.sum(v) / n
    d = tl.where(inside, v - m, 0.0)
    s = tl.sum(d * d) / n
    out = d * (1.0 / tl.sqrt(s + eps)) * tl.load(w + f) + tl.load(b + f)
    tl.store(y + (o // HW * F + f) * HW + o % HW, tl.maximum(out, 0.0), mask=inside)
    tl.store(mean + f, tl.load(mean + f) * (1 - momentum) + momentum * m)
    tl.store(var + f, tl.load(var + f) * (1 - momentum) + momentum * s * n / (n - 1))
    if f == 0:
        tl.store(count, tl.load(count) + 1)
class ModelNew(nn.Module):
    def __init__(self, c, f):
        super().__init__()
        self.conv = nn.Conv2d(c, f, 1, bias=False); self.bn = nn.BatchNorm2d(f)
    def forward(self, x):
        n, c, h, w = x.shape; f = self.conv.weight.shape[0]; p = self.bn
        y = torch.empty(n, f, h, w, device=x.device)
        conv_norm[(f,)](x, self.conv.weight, y, p.weight, p.bias, p.running_mean, p.running_var, p.num_batches_tracked, n, c, f, h * w,
                        0.1, 1e-5, triton.next_power_of_2(n * h * w))
        return y
"""


def task_of(folder: Path, source: str) -> Task:
    path = folder / "task.py"
    path.write_text(source)
    return load_task(path)


def edit(text: str, old: str, new: str) -> str:
    assert old in text
    return text.replace(old, new)


def reached(verdict: Verdict) -> PrecisionClass | None:
    assert verdict.correctness is not None, verdict.message
    return verdict.correctness.precision_class


@pytest.mark.slow
def test_a_product_in_fp16_is_summed_in_fp32(tmp_path: Path, evaluator: LocalEvaluator) -> None:
    task = task_of(tmp_path, PRODUCT_TASK)
    right = evaluator.evaluate_now(task, PRODUCT)
    assert (right.status, reached(right), right.environment["precision"]) == (Status.OK, HALF, "16-bit"), right.message
    assert {kernel.product for kernel in right.facts.kernels} == {"fp16"}
    narrow = edit(PRODUCT, "tl.zeros((BM, BN), tl.float32)", "tl.zeros((BM, BN), tl.float16)")
    wrong = evaluator.evaluate_now(task, edit(narrow, "t += tl.dot(a, c)", "t += tl.dot(a, c).to(tl.float16)"))
    assert wrong.status is Status.INACCURATE and wrong.correctness is not None
    assert wrong.correctness.err_vs_oracle > 4 * wrong.correctness.reference_err_vs_oracle


def test_updated_statistics_are_compared(tmp_path: Path, evaluator: LocalEvaluator) -> None:
    task = task_of(tmp_path, CONV_TRAIN_TASK)
    right = evaluator.evaluate_now(task, CONV_TRAIN)
    assert (right.status, right.environment["mode"]) == (Status.OK, "train"), right.message
    kept = evaluator.evaluate_now(task, edit(CONV_TRAIN, "tl.load(mean + f) * (1 - momentum) + momentum * m", "tl.load(mean + f)"))
    assert kept.status is Status.INACCURATE and "buffer bn.running_mean after the call" in kept.message, kept.message


@pytest.mark.slow
@pytest.mark.parametrize(("old", "new"), [("tl.load(count) + 1", "tl.load(count)"), ("s * n / (n - 1)", "s")])
def test_each_statistic_is_compared(tmp_path: Path, evaluator: LocalEvaluator, old: str, new: str) -> None:
    verdict = evaluator.evaluate_now(task_of(tmp_path, CONV_TRAIN_TASK), edit(CONV_TRAIN, old, new))
    assert verdict.status is Status.INACCURATE, verdict.message


@pytest.mark.slow
def test_right_kernels_in_16_bits(tmp_path: Path, evaluator: LocalEvaluator) -> None:
    pairs = ((RMS_TASK, RMS), (ATTENTION_TASK, ATTENTION), (MLP_TASK, MLP), (SEVERAL_TASK, SEVERAL))
    for source, kernel in pairs:
        verdict = evaluator.evaluate_now(task_of(tmp_path, source), kernel, "strict")
        assert (verdict.status, reached(verdict)) == (Status.OK, HALF), verdict.message


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("tl.sum(f * f) / D", "(tl.sum(f * f) / D).to(tl.bfloat16)", "output 1: too far off by itself"),
        ("f > 0,", "f >= 0,", "output 3 at index"),
        ("c, B)).to", "c + 1, B)).to", "output 2 at index"),
    ],
)
def test_each_of_several_outputs_is_judged_in_its_type(tmp_path: Path, evaluator: LocalEvaluator, old: str, new: str, said: str) -> None:
    verdict = evaluator.evaluate_now(task_of(tmp_path, SEVERAL_TASK), edit(SEVERAL, old, new))
    assert verdict.status is Status.INACCURATE and said in verdict.message, verdict.message
