"""GEGLU in fp16, two launches: (1) persistent product with h and g side by side in one tile and the gate on the fp32 sums,
(2) product with tiles of 128 x (256 + 64), whose 128 programs are one wave over the card."""

import torch
import triton
import triton.language as tl

COLUMNS = 640  # columns of x, and of the result
INNER = 2560  # columns of h and of g

# first product: BLOCK_M rows, BLOCK_N columns of h and the same BLOCK_N of g
BLOCK_M = 128
BLOCK_N = 128
BLOCK_K = 64
GROUP = 8  # tunable: GROUP = 4, 8, 16 [grid]
PROGRAMS = 132  # processors of the card
NUM_WARPS = 8
NUM_STAGES = 3

# second product: OUT_M rows, OUT_N0 + OUT_N1 = 320 columns
OUT_M = 128
OUT_N0 = 256
OUT_N1 = 64
OUT_K = 64
OUT_WARPS = 8
OUT_STAGES = 3  # tunable: OUT_STAGES = 3, 4 [memory]


@triton.jit
def place(tile, row_tiles, column_tiles: tl.constexpr, GROUP: tl.constexpr):
    # Grouped order: GROUP row tiles share the columns of w that lie in L2.
    group = tile // (GROUP * column_tiles)
    height = tl.minimum(row_tiles - group * GROUP, GROUP)
    rest = tile % (GROUP * column_tiles)
    return group * GROUP + rest % height, rest // height


@triton.jit
def gate_product(
    x,
    w,
    bias,
    act,
    M,
    K: tl.constexpr,
    INNER: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
    PROGRAMS: tl.constexpr,
):
    # w is packed: BN rows of h, then the BN rows of g that belong to them, and so on.
    x_desc = tl.make_tensor_descriptor(x, [M, K], [K, 1], [BM, BK])
    w_desc = tl.make_tensor_descriptor(w, [2 * INNER, K], [K, 1], [2 * BN, BK])
    act_desc = tl.make_tensor_descriptor(act, [M, INNER], [INNER, 1], [BM, BN])
    start = tl.program_id(0)
    row_tiles = tl.cdiv(M, BM)
    tiles = row_tiles * (INNER // BN)
    stored = start - PROGRAMS  # a count of its own, so that loads of the next tile do not wait for the epilogue
    for tile in tl.range(start, tiles, PROGRAMS, flatten=True):
        m_tile, n_tile = place(tile, row_tiles, INNER // BN, GROUP)
        m_from = m_tile * BM
        w_from = n_tile * (2 * BN)
        total = tl.zeros((BM, 2 * BN), tl.float32)
        for step in range(K // BK):  # K is a multiple of BK
            a = x_desc.load([m_from, step * BK])
            b = w_desc.load([w_from, step * BK])
            total = tl.dot(a, tl.trans(b), total)

        stored += PROGRAMS
        m_done, n_done = place(stored, row_tiles, INNER // BN, GROUP)
        n = n_done * BN + tl.arange(0, BN)
        # Columns c and c + BN lie in the same thread: the split moves no data.
        h, g = tl.split(tl.permute(tl.reshape(total, (BM, 2, BN)), (0, 2, 1)))
        h = h + tl.load(bias + n).to(tl.float32)[None, :]
        g = g + tl.load(bias + INNER + n).to(tl.float32)[None, :]
        # gelu(g) = max(g, 0) - |g| * Phi(-|g|), Phi(-u) = 2 ** (polynomial of u), right to about 2e-5 of itself.
        u = tl.abs(g)
        q = u * -2.20418303e-6 + 6.91045741e-5
        q = q * u - 9.90546312e-4
        q = q * u + 8.74800568e-3
        q = q * u - 5.44641622e-2
        q = q * u - 0.4579450836
        q = q * u - 1.151449258
        q = q * u - 1.0
        v = h * (tl.maximum(g, 0.0) - u * tl.exp2(q))  # NaN stays: u and q carry it
        act_desc.store([m_done * BM, n_done * BN], v.to(act.dtype.element_ty))


@triton.jit
def out_product(
    act,
    w,
    bias,
    y,
    M,
    K: tl.constexpr,
    N: tl.constexpr,
    BM: tl.constexpr,
    BN0: tl.constexpr,
    BN1: tl.constexpr,
    BK: tl.constexpr,
):
    a_desc = tl.make_tensor_descriptor(act, [M, K], [K, 1], [BM, BK])
    w0_desc = tl.make_tensor_descriptor(w, [N, K], [K, 1], [BN0, BK])
    w1_desc = tl.make_tensor_descriptor(w, [N, K], [K, 1], [BN1, BK])
    pid = tl.program_id(0)
    m_from = pid // (N // (BN0 + BN1)) * BM  # neighbours share the rows of act
    n_from = pid % (N // (BN0 + BN1)) * (BN0 + BN1)
    total0 = tl.zeros((BM, BN0), tl.float32)
    total1 = tl.zeros((BM, BN1), tl.float32)
    for step in range(K // BK):  # K is a multiple of BK
        a = a_desc.load([m_from, step * BK])
        b0 = w0_desc.load([n_from, step * BK])
        b1 = w1_desc.load([n_from + BN0, step * BK])
        total0 = tl.dot(a, tl.trans(b0), total0)
        total1 = tl.dot(a, tl.trans(b1), total1)

    m = m_from + tl.arange(0, BM)
    n0 = n_from + tl.arange(0, BN0)
    n1 = n_from + BN0 + tl.arange(0, BN1)
    inside = m[:, None] < M
    row = y + m.to(tl.int64)[:, None] * N
    v0 = total0 + tl.load(bias + n0).to(tl.float32)[None, :]
    tl.store(row + n0[None, :], v0.to(y.dtype.element_ty), mask=inside)
    v1 = total1 + tl.load(bias + n1).to(tl.float32)[None, :]
    tl.store(row + n1[None, :], v1.to(y.dtype.element_ty), mask=inside)


def scratch(size, alignment, stream):
    return torch.empty(size, dtype=torch.int8, device="cuda")


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.i = torch.nn.Linear(COLUMNS, 2 * INNER)
        self.o = torch.nn.Linear(INNER, COLUMNS)
        self.to(torch.float16)
        self.pack_key = None
        self.pack = None

    def packed(self):
        # Per BLOCK_N columns: the rows of h, then the rows of g.
        w = self.i.weight
        key = (w.data_ptr(), w._version)
        if self.pack_key != key:
            with torch.no_grad():
                blocks = w.detach().reshape(2, INNER // BLOCK_N, BLOCK_N, COLUMNS).transpose(0, 1)
                self.pack = blocks.reshape(2 * INNER, COLUMNS).contiguous()
            self.pack_key = key
        return self.pack

    def forward(self, x):
        if x.shape[-1] != COLUMNS or x.dtype != torch.float16:
            raise ValueError(
                f"this kernel is made for float16 and {COLUMNS} columns, and was given {x.dtype} and {x.shape[-1]} columns"
            )
        triton.set_allocator(scratch)  # for the tensor descriptors
        x = x.contiguous()
        if x.data_ptr() % 16:
            x = x.clone()
        M = x.numel() // COLUMNS
        act = torch.empty(M, INNER, dtype=x.dtype, device=x.device)
        y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        tiles = triton.cdiv(M, BLOCK_M) * (INNER // BLOCK_N)
        gate_product[(min(PROGRAMS, tiles),)](
            x,
            self.packed(),
            self.i.bias,
            act,
            M,
            COLUMNS,
            INNER,
            BLOCK_M,
            BLOCK_N,
            BLOCK_K,
            GROUP,
            PROGRAMS,
            num_warps=NUM_WARPS,
            num_stages=NUM_STAGES,
        )
        out_product[(triton.cdiv(M, OUT_M) * (COLUMNS // (OUT_N0 + OUT_N1)),)](
            act,
            self.o.weight.contiguous(),
            self.o.bias,
            y,
            M,
            INNER,
            COLUMNS,
            OUT_M,
            OUT_N0,
            OUT_N1,
            OUT_K,
            num_warps=OUT_WARPS,
            num_stages=OUT_STAGES,
        )
        return y
