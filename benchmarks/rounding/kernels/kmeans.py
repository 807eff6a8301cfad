"""The product, each point's nearest centre, then the means of the points of some centres."""

import torch
import triton
import triton.language as tl
from torch import nn

BLOCK_M, BLOCK_N, BLOCK_K = 32, 32, 32
REVERSED = False
SPLIT = False
BLOCK = 32
CENTRES = 16
POINTS = 64


@triton.jit
def multiply(x, w, y, M, N, K, REVERSED: tl.constexpr, SPLIT: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """y [M, N] = x [M, K] @ w [N, K]^T."""
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    low = tl.zeros((BM, BN), tl.float32)
    high = tl.zeros((BM, BN), tl.float32)
    for step in range(tl.cdiv(K, BK)):
        k = (tl.cdiv(K, BK) - 1 - step if REVERSED else step) * BK + tl.arange(0, BK)
        a = tl.load(x + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        b = tl.load(w + n[None, :] * K + k[:, None], mask=(n[None, :] < N) & (k[:, None] < K), other=0.0)
        if SPLIT:
            odd = step % 2
            part = tl.dot(a, b, input_precision="ieee")
            low += part * (1 - odd)
            high += part * odd
        else:
            low = tl.dot(a, b, low, input_precision="ieee")
    inside = (m[:, None] < M) & (n[None, :] < N)
    tl.store(y + m[:, None].to(tl.int64) * N + n[None, :], low + high, mask=inside)


def product(x, w, rows, columns, inner):
    """x [rows, inner] @ w [columns, inner]^T in fp32."""
    y = torch.empty((rows, columns), dtype=torch.float32, device=x.device)
    grid = (triton.cdiv(rows, BLOCK_M), triton.cdiv(columns, BLOCK_N))
    multiply[grid](x, w, y, rows, columns, inner, REVERSED, SPLIT, BLOCK_M, BLOCK_N, BLOCK_K)
    return y


@triton.jit
def find_nearest(x, centres, inner, distances, nearest, points, count, WIDTH: tl.constexpr, COUNT: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    centre = tl.arange(0, COUNT)
    k = tl.arange(0, WIDTH)
    inside = row < points
    point = tl.load(x + row[:, None] * WIDTH + k[None, :], mask=inside[:, None], other=0.0)
    at = tl.load(centres + centre[:, None] * WIDTH + k[None, :], mask=centre[:, None] < count, other=0.0)
    both = tl.load(inner + row[:, None] * count + centre[None, :], mask=inside[:, None] & (centre[None, :] < count), other=0.0)
    square = tl.sum(point * point, 1)[:, None] + tl.sum(at * at, 1)[None, :] - 2.0 * both
    square = tl.where(centre[None, :] < count, tl.maximum(square, 0.0), float("inf"))
    place = tl.argmin(square, 1)
    distance = tl.sqrt(tl.min(square, 1))
    tl.store(distances + row, distance, mask=inside)
    tl.store(nearest + row, place.to(tl.int64), mask=inside)


@triton.jit
def average(x, nearest, means, points, count, REVERSED: tl.constexpr, WIDTH: tl.constexpr, CENTRES: tl.constexpr, POINTS: tl.constexpr):
    centre = tl.program_id(0) * CENTRES + tl.arange(0, CENTRES)
    k = tl.arange(0, WIDTH)
    sums = tl.zeros((CENTRES, WIDTH), tl.float32)
    members = tl.zeros((CENTRES,), tl.float32)
    for step in range(tl.cdiv(points, POINTS)):
        row = (tl.cdiv(points, POINTS) - 1 - step if REVERSED else step) * POINTS + tl.arange(0, POINTS)
        place = tl.load(nearest + row, mask=row < points, other=-1)
        point = tl.load(x + row[:, None] * WIDTH + k[None, :], mask=row[:, None] < points, other=0.0)
        mine = (place[None, :] == centre[:, None]).to(tl.float32)
        sums += tl.dot(mine, point, input_precision="ieee")
        members += tl.sum(mine, 1)
    mean = sums / tl.maximum(members, 1.0)[:, None]
    tl.store(means + centre[:, None] * WIDTH + k[None, :], mean, mask=centre[:, None] < count)


class ModelNew(nn.Module):
    def __init__(self, centres, width):
        super().__init__()
        self.centres = nn.Parameter(torch.empty((centres, width), dtype=torch.float32))

    def forward(self, x):
        points, width = x.shape
        count = self.centres.shape[0]
        inner = product(x, self.centres, points, count, width)
        distances = torch.empty((points,), dtype=torch.float32, device=x.device)
        nearest = torch.empty((points,), dtype=torch.int64, device=x.device)
        means = torch.empty((count, width), dtype=torch.float32, device=x.device)
        find_nearest[(triton.cdiv(points, BLOCK),)](
            x, self.centres, inner, distances, nearest, points, count, width, triton.next_power_of_2(count), BLOCK
        )
        average[(triton.cdiv(count, CENTRES),)](x, nearest, means, points, count, REVERSED, width, CENTRES, POINTS)
        return distances, nearest, means
