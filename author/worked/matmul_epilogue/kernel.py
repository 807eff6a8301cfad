"""gelu(x @ w.T + b) in bf16: tensor descriptors, programs that take tiles in turn in one flat loop, the epilogue on halves of the sums."""

import torch
import triton
import triton.language as tl

BLOCK_M = 128  # tunable: BLOCK_M = 64, 128 [block]
BLOCK_N = 256  # tunable: BLOCK_N = 128, 256 [block]
BLOCK_K = 64
GROUP = 8  # tunable: GROUP = 4, 8, 16 [grid]
NUM_WARPS = 8
NUM_STAGES = 3


@triton.jit
def linear_gelu(x, w, bias, y, M, N, K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr):
    # Descriptors know the edges: what lies beyond is read as zero and is not stored, so no load or store needs a mask.
    x_tiles = tl.make_tensor_descriptor(x, [M, K], [K, 1], [BM, BK])
    w_tiles = tl.make_tensor_descriptor(w, [N, K], [K, 1], [BN, BK])
    y_tiles = tl.make_tensor_descriptor(y, [M, N], [N, 1], [BM, BN // 2])
    row_tiles, column_tiles = tl.cdiv(M, BM), tl.cdiv(N, BN)
    # One program for each processor. `flatten` makes one loop of both: the next tile's operands are read while a tile is stored.
    for pid in tl.range(tl.program_id(0), row_tiles * column_tiles, tl.num_programs(0), flatten=True):
        # Grouped order: GROUP row tiles share the columns of w that lie in L2.
        group = pid // (GROUP * column_tiles)
        height = tl.minimum(row_tiles - group * GROUP, GROUP)
        m = (group * GROUP + pid % (GROUP * column_tiles) % height) * BM
        n = pid % (GROUP * column_tiles) // height * BN
        total = tl.zeros((BM, BN), tl.float32)
        for k in range(0, K, BK):
            total = tl.dot(x_tiles.load([m, k]), w_tiles.load([n, k]).T, total)
        # Halves of the sums need half the registers, and half the shared memory on their way out.
        first, second = tl.split(tl.permute(tl.reshape(total, (BM, 2, BN // 2)), (0, 2, 1)))
        for half in tl.static_range(2):
            sums = first if half == 0 else second
            start = n + half * (BN // 2)
            columns = start + tl.arange(0, BN // 2)
            v = sums + tl.load(bias + columns, mask=columns < N, other=0.0).to(tl.float32)[None, :]
            v = 0.5 * v * (1.0 + tl.erf(v * 0.7071067811865476))
            y_tiles.store([m, start], v.to(y.dtype.element_ty))


def allocate(size, alignment, stream):
    """Memory for descriptors, which Triton asks for at each launch."""
    return torch.empty(size, dtype=torch.int8, device="cuda")


def align(x):
    """Descriptors need memory that begins at a multiple of 16 bytes."""
    return x if x.data_ptr() % 16 == 0 else x.clone()


class ModelNew(torch.nn.Module):
    def __init__(self, inner, columns):
        super().__init__()
        if inner % 8 or columns % 8:
            raise ValueError(f"this kernel is made for rows of whole 16 bytes, and was given {inner} and {columns} columns of 2 bytes")
        self.fc = torch.nn.Linear(inner, columns, dtype=torch.bfloat16)

    def forward(self, x):
        triton.set_allocator(allocate)
        N, K = self.fc.weight.shape
        x = align(x.contiguous())
        M = x.numel() // K
        y = torch.empty(*x.shape[:-1], N, dtype=x.dtype, device=x.device)
        tiles = triton.cdiv(M, BLOCK_M) * triton.cdiv(N, BLOCK_N)
        programs = torch.cuda.get_device_properties(x.device).multi_processor_count if x.is_cuda else 4
        linear_gelu[(min(tiles, programs),)](
            x, align(self.fc.weight), self.fc.bias, y, M, N, K, BLOCK_M, BLOCK_N, BLOCK_K, GROUP, num_warps=NUM_WARPS, num_stages=NUM_STAGES
        )
        return y
