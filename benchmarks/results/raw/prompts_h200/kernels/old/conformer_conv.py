"""Conformer convolution module in four launches: layer norm, first product with GLU, depthwise convolution with batch norm and SiLU, second product.

The first product stores its result with frames contiguous, [batch, channel, frame]. There the 31 taps of one channel are a product with a banded
matrix on the tensor cores: 32 results of a row read a window of 64 frames. The second product reads that order as a transposed operand.
Operands are fp16, all sums fp32. Nothing is packed: the weights are read as they are stored.
"""

import torch
import torch.nn as nn
import triton
import triton.language as tl

CHANNELS, FRAMES, TAPS = 512, 512, 31
MADE_FOR = "x float16[batch, 512, 512] on a CUDA device and float16 weights"

NORM_ROWS = 8  # tunable: NORM_ROWS = 4, 8, 16 [block]
NORM_WARPS = 4  # tunable: NORM_WARPS = 4, 8 [block]

GATED_CHANNELS = 128  # tunable: GATED_CHANNELS = 64, 128 [block]
GATED_FRAMES = 128  # tunable: GATED_FRAMES = 64, 128, 256 [block]
GATED_DEPTH = 64  # tunable: GATED_DEPTH = 32, 64 [block]
GATED_WARPS = 8  # tunable: GATED_WARPS = 4, 8 [block]
GATED_STAGES = 3  # tunable: GATED_STAGES = 3, 4 [memory]

DEPTHWISE_ROWS = 128  # tunable: DEPTHWISE_ROWS = 64, 128, 256 [block]
DEPTHWISE_WARPS = 4  # tunable: DEPTHWISE_WARPS = 4, 8 [block]

PROJECT_FRAMES = 128  # tunable: PROJECT_FRAMES = 64, 128 [block]
PROJECT_CHANNELS = 256  # tunable: PROJECT_CHANNELS = 128, 256 [block]
PROJECT_DEPTH = 64  # tunable: PROJECT_DEPTH = 32, 64 [block]
PROJECT_WARPS = 8  # tunable: PROJECT_WARPS = 4, 8 [block]
PROJECT_STAGES = 3  # tunable: PROJECT_STAGES = 3, 4 [memory]

SPAN, WINDOW, LEAD = 32, 64, 16  # results of one row of the banded product, frames it reads, and how many of these lie before the first result


@triton.jit
def normalise(x, gamma, beta, y, eps, C: tl.constexpr, ROWS: tl.constexpr):
    """Layer norm of ROWS frames. The number of frames is a multiple of 512, so that no row is outside."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    c = tl.arange(0, C)
    offset = row[:, None] * C + c[None, :]
    v = tl.load(x + offset).to(tl.float32)
    g = tl.load(gamma + c).to(tl.float32)
    b = tl.load(beta + c).to(tl.float32)
    mean = tl.sum(v, axis=1) / C
    centred = v - mean[:, None]
    variance = tl.sum(centred * centred, axis=1) / C
    inverse = 1.0 / tl.sqrt(variance + eps)
    result = centred * inverse[:, None] * g[None, :] + b[None, :]
    tl.store(y + offset, result.to(tl.float16))


@triton.jit
def gated_product(x, weight, bias, h, C: tl.constexpr, T: tl.constexpr, BC: tl.constexpr, BT: tl.constexpr, BK: tl.constexpr):
    """h[image, channel, frame] = GLU of weight @ x + bias. x: [frames, C], weight: [2 C, C]. Tiles divide C and T: nothing is outside."""
    blocks: tl.constexpr = C // BC
    channel = tl.program_id(0) % blocks * BC + tl.arange(0, BC)
    start = tl.program_id(0) // blocks * BT
    frame = (start + tl.arange(0, BT)).to(tl.int64)
    k = tl.arange(0, BK)
    value_weights = weight + channel[:, None] * C + k[None, :]
    gate_weights = value_weights + C * C
    inputs = x + frame[None, :] * C + k[:, None]
    value = tl.zeros((BC, BT), tl.float32)
    gate = tl.zeros((BC, BT), tl.float32)
    for depth in range(0, C, BK):
        wv = tl.load(value_weights + depth)
        wg = tl.load(gate_weights + depth)
        v = tl.load(inputs + depth)
        value = tl.dot(wv, v, value)
        gate = tl.dot(wg, v, gate)
    value += tl.load(bias + channel).to(tl.float32)[:, None]
    gate += tl.load(bias + C + channel).to(tl.float32)[:, None]
    result = value / (1.0 + tl.exp(-gate))
    image = (start // T).to(tl.int64)
    t = start % T + tl.arange(0, BT)
    tl.store(h + image * (C * T) + channel[:, None] * T + t[None, :], result.to(tl.float16))


@triton.jit
def depthwise(
    h, weight, bias, gamma, beta, mean, variance, y, rows, eps, C: tl.constexpr, T: tl.constexpr, TAPS: tl.constexpr, SPAN: tl.constexpr,
    WINDOW: tl.constexpr, LEAD: tl.constexpr, BR: tl.constexpr,
):  # fmt: skip
    """y = SiLU(batch norm(depthwise convolution of h)) for one channel. h and y: [images, C, T]; a row is SPAN frames of one image.

    Row r's window begins LEAD frames before its first result: result n and tap j read frame n + j - TAPS // 2 = k - LEAD of the window.
    """
    channel = tl.program_id(0)
    per_image: tl.constexpr = T // SPAN
    half: tl.constexpr = TAPS // 2
    row = tl.program_id(1) * BR + tl.arange(0, BR)
    inside = row < rows
    base = (row // per_image).to(tl.int64) * (C * T) + channel * T
    first = row % per_image * SPAN
    k = tl.arange(0, WINDOW)
    n = tl.arange(0, SPAN)
    t = first[:, None] + (k[None, :] - LEAD)
    a = tl.load(h + base[:, None] + t, mask=inside[:, None] & (t >= 0) & (t < T), other=0.0)
    tap_of = k[:, None] - n[None, :] - (LEAD - half)
    band = tl.load(weight + channel * TAPS + tap_of, mask=(tap_of >= 0) & (tap_of < TAPS), other=0.0)
    total = tl.dot(a, band)
    # A NaN or an infinity in a window spoils all results of its row through the zeros of the band: then the taps are summed one by one.
    bits = total.to(tl.int32, bitcast=True) & 0x7FFFFFFF
    largest = tl.max(tl.max(bits, axis=1), axis=0)
    if largest >= 0x7F800000:
        total = tl.zeros((BR, SPAN), tl.float32)
        for tap in range(0, TAPS):
            place = first[:, None] + n[None, :] + (tap - half)
            seen = inside[:, None] & (place >= 0) & (place < T)
            v = tl.load(h + base[:, None] + place, mask=seen, other=0.0).to(tl.float32)
            total += v * tl.load(weight + channel * TAPS + tap).to(tl.float32)
    scale = tl.load(gamma + channel).to(tl.float32) / tl.sqrt(tl.load(variance + channel).to(tl.float32) + eps)
    centre = tl.load(bias + channel).to(tl.float32) - tl.load(mean + channel).to(tl.float32)
    result = (total + centre) * scale + tl.load(beta + channel).to(tl.float32)
    result = result / (1.0 + tl.exp(-result))
    tl.store(y + base[:, None] + (first[:, None] + n[None, :]), result.to(tl.float16), mask=inside[:, None])


@triton.jit
def project(y, weight, bias, x, out, C: tl.constexpr, T: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """out[frame, column] = x + weight @ y + bias. y: [images, C, T], weight: [C, C], x and out: [frames, C]. Nothing is outside."""
    blocks: tl.constexpr = C // BN
    column = tl.program_id(0) % blocks * BN + tl.arange(0, BN)
    start = tl.program_id(0) // blocks * BM
    image = (start // T).to(tl.int64)
    t = start % T + tl.arange(0, BM)
    k = tl.arange(0, BK)
    inputs = y + image * (C * T) + t[:, None] + k[None, :] * T
    weights = weight + column[None, :] * C + k[:, None]
    total = tl.zeros((BM, BN), tl.float32)
    for depth in range(0, C, BK):
        a = tl.load(inputs + depth * T)
        w = tl.load(weights + depth)
        total = tl.dot(a, w, total)
    frame = (start + tl.arange(0, BM)).to(tl.int64)
    offset = frame[:, None] * C + column[None, :]
    total += tl.load(bias + column).to(tl.float32)[None, :]
    total += tl.load(x + offset).to(tl.float32)
    tl.store(out + offset, total.to(tl.float16))


COMPILED = isinstance(normalise, triton.JITFunction)  # Triton's interpreter takes tensors of any device


class ModelNew(nn.Module):
    """The modules hold the parameters under the reference's names; the kernels above do the work. Batch norm is that of evaluation."""

    def __init__(self):
        super().__init__()
        self.norm, self.p1 = nn.LayerNorm(512), nn.Conv1d(512, 1024, 1)
        self.d, self.bn, self.p2 = nn.Conv1d(512, 512, 31, padding=15, groups=512), nn.BatchNorm1d(512), nn.Conv1d(512, 512, 1)
        self.to(torch.float16)

    def forward(self, x):
        norm, p1, d, bn, p2 = self.norm, self.p1, self.d, self.bn, self.p2
        right = x.dim() == 3 and x.shape[1:] == (FRAMES, CHANNELS) and x.dtype is torch.float16 and (x.is_cuda or not COMPILED)
        if not right or p1.weight.dtype is not torch.float16:
            raise ValueError(
                f"this kernel is made for {MADE_FOR}, and was given x {x.dtype}{list(x.shape)} on {x.device} and {p1.weight.dtype} weights"
            )
        x = x.contiguous()
        out = torch.empty_like(x)
        batch = x.shape[0]
        if batch == 0:
            return out
        frames = batch * FRAMES
        rows = frames // SPAN
        normed = torch.empty_like(x)
        gated = torch.empty((batch, CHANNELS, FRAMES), dtype=torch.float16, device=x.device)
        filtered = normed.view(batch, CHANNELS, FRAMES)  # the first product has read this memory before it is written again

        normalise[(frames // NORM_ROWS,)](x, norm.weight, norm.bias, normed, norm.eps, CHANNELS, NORM_ROWS, num_warps=NORM_WARPS)
        gated_product[(frames // GATED_FRAMES * (CHANNELS // GATED_CHANNELS),)](
            normed, p1.weight.contiguous(), p1.bias, gated, CHANNELS, FRAMES, GATED_CHANNELS, GATED_FRAMES, GATED_DEPTH,
            num_warps=GATED_WARPS, num_stages=GATED_STAGES,
        )  # fmt: skip
        depthwise[(CHANNELS, triton.cdiv(rows, DEPTHWISE_ROWS))](
            gated, d.weight.contiguous(), d.bias, bn.weight, bn.bias, bn.running_mean, bn.running_var, filtered, rows, bn.eps,
            CHANNELS, FRAMES, TAPS, SPAN, WINDOW, LEAD, DEPTHWISE_ROWS, num_warps=DEPTHWISE_WARPS,
        )  # fmt: skip
        project[(frames // PROJECT_FRAMES * (CHANNELS // PROJECT_CHANNELS),)](
            filtered, p2.weight.contiguous(), p2.bias, x, out, CHANNELS, FRAMES, PROJECT_FRAMES, PROJECT_CHANNELS, PROJECT_DEPTH,
            num_warps=PROJECT_WARPS, num_stages=PROJECT_STAGES,
        )  # fmt: skip
        return out
