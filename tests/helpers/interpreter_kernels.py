"""Litmus kernels for the concurrent interpreter: messages, barriers, locks, tickets, and what goes wrong with them."""

import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def message(data, flag, out, RELEASE: tl.constexpr, ACQUIRE: tl.constexpr, FENCE: tl.constexpr):
    i = tl.arange(0, 8)
    if tl.program_id(0) == 0:
        tl.store(data + i, i.to(tl.float32))
        if FENCE:
            tl.debug_barrier()
        tl.atomic_xchg(flag, 1, sem=RELEASE)
    else:
        while tl.atomic_add(flag, 0, sem=ACQUIRE) == 0:
            pass
        tl.store(out + i, tl.load(data + i))


@triton.jit
def barrier_sum(x, bar, P, T, DOUBLE: tl.constexpr):
    p = tl.program_id(0)
    i = tl.arange(0, 4)
    for t in range(T):
        source = x + (t % 2) * 4 * DOUBLE
        target = x + ((t + 1) % 2) * 4 * DOUBLE
        tl.store(target + p, tl.sum(tl.load(source + i), 0) + t)
        tl.debug_barrier()
        tl.atomic_add(bar, 1, sem="release")
        while tl.atomic_add(bar, 0, sem="acquire") < P * (t + 1):
            pass


@triton.jit
def slots(x, progress, T, P: tl.constexpr, ASM: tl.constexpr):
    """Each program publishes its own progress; everyone polls all slots in one operation."""
    p = tl.program_id(0)
    i = tl.arange(0, P)
    for t in range(T):
        value = tl.sum(tl.load(x + t * P + i, cache_modifier=".cg"), 0)
        tl.store(x + (t + 1) * P + p, value + p)
        tl.debug_barrier()
        tl.atomic_xchg(progress + p, t + 1, sem="release")
        behind = 1
        while behind > 0:
            if ASM:
                seen = tl.inline_asm_elementwise(
                    "ld.acquire.gpu.global.b32 $0, [$1];", "=r,l", [progress + i], dtype=tl.int32, is_pure=False, pack=1
                )
            else:
                seen = tl.atomic_add(progress + i, tl.zeros([P], tl.int32), sem="acquire")
            behind = tl.sum((seen <= t).to(tl.int32), 0)


@triton.jit
def shared_row(h, w, T, H: tl.constexpr, B: tl.constexpr):
    """The race of facts.md: the hidden dimension is tiled, every program reads the whole row, nobody waits."""
    k = tl.arange(0, H)
    c = tl.program_id(0) * B + tl.arange(0, B)
    weight = tl.load(w + k[:, None] * H + c[None, :])
    for t in range(T):
        row = tl.load(h + t * H + k)
        tl.store(h + (t + 1) * H + c, tl.sum(row[:, None] * weight, 0))


@triton.jit
def split_k(x, out, ATOMIC: tl.constexpr):
    i = tl.arange(0, 8)
    value = tl.load(x + tl.program_id(0) * 8 + i)
    if ATOMIC:
        tl.atomic_add(out + i, value)
    else:
        tl.store(out + i, tl.load(out + i) + value)


@triton.jit
def spin_lock(x, out, lock, FENCE: tl.constexpr):
    i = tl.arange(0, 8)
    value = tl.load(x + tl.program_id(0) * 8 + i)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(out + i, tl.load(out + i) + value)
    if FENCE:
        tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


@triton.jit
def last_block(x, part, out, count, P, WAIT: tl.constexpr):
    p = tl.program_id(0)
    tl.store(part + p, tl.sum(tl.load(x + p * 8 + tl.arange(0, 8)), 0))
    tl.debug_barrier()
    last = tl.atomic_add(count, 1) == P - 1
    if last or not WAIT:
        tl.store(out, tl.sum(tl.load(part + tl.arange(0, 4)), 0))


@triton.jit
def last_program(x, part, out, count, P, W: tl.constexpr):
    """Parts of W elements, published by a ticket without a barrier: one thread stores a single element and takes the ticket."""
    p = tl.program_id(0)
    i = tl.arange(0, W)
    row = tl.load(x + p * 8 + tl.arange(0, 8))
    if W == 1:
        tl.store(part + p, tl.sum(row, 0))
    else:
        tl.store(part + p * W + i, tl.sum(row, 0) + i.to(tl.float32))
    if tl.atomic_add(count, 1, sem="acq_rel") == P - 1:
        total = 0.0
        for other in range(P):
            total += tl.sum(tl.load(part + other * W + i), 0)
        tl.store(out, total)


@triton.jit
def overwritten(part, out, flag):
    """A whole block and then its first element, both before a release without a barrier: other threads may be late with the block."""
    i = tl.arange(0, 4)
    if tl.program_id(0) == 0:
        tl.store(part + i, i.to(tl.float32) + 1.0)
        tl.store(part, 5.0)
        tl.atomic_xchg(flag, 1, sem="release")
    else:
        while tl.atomic_add(flag, 0, sem="acquire") == 0:
            pass
        tl.store(out, tl.load(part))


@triton.jit
def late_part(part, out, flag):
    """What is stored after the release belongs to no earlier one."""
    if tl.program_id(0) == 0:
        tl.atomic_xchg(flag, 1, sem="release")
        tl.store(part, 5.0)
    else:
        while tl.atomic_add(flag, 0, sem="acquire") == 0:
            pass
        tl.store(out, tl.load(part))


@triton.jit
def turned(x, part, out, FENCE: tl.constexpr):
    """A row stored and loaded again in the reverse order: each element by another thread of the same program."""
    p = tl.program_id(0)
    i = tl.arange(0, 8)
    tl.store(part + p * 8 + i, tl.load(x + p * 8 + i))
    if FENCE:
        tl.debug_barrier()
    tl.store(out + p * 8 + i, tl.load(part + p * 8 + 7 - i))


@triton.jit
def turned_in_place(x):
    i = tl.program_id(0) * 8 + tl.arange(0, 8)
    row = tl.load(x + i)
    tl.store(x + tl.program_id(0) * 8 + 7 - tl.arange(0, 8), row)


@triton.jit
def halves_in_place(x):
    """The threads pass a sum to each other, then each loads and stores its own elements, twice."""
    i = tl.program_id(0) * 8 + tl.arange(0, 4)
    total = tl.sum(tl.load(x + tl.program_id(0) * 8 + tl.arange(0, 8)), 0)
    first, second = tl.load(x + i), tl.load(x + 4 + i)
    tl.store(x + i, first + total)
    tl.store(x + 4 + i, second - total)
    tl.store(x + i, tl.load(x + i) * 2.0)


@triton.jit
def overlap(out, SAME: tl.constexpr):
    i = tl.arange(0, 16)
    tl.store(out + tl.program_id(0) * 8 + i, i * 0.0 + (1.0 if SAME else tl.program_id(0) * 1.0))


@triton.jit
def shift_in_place(x, n):
    i = tl.program_id(0) * 8 + tl.arange(0, 8)
    tl.store(x + i, tl.load(x + i + 1, mask=i + 1 < n, other=0.0))


@triton.jit
def copy(x, out):
    i = tl.program_id(0) * 8 + tl.arange(0, 8)
    tl.store(out + i, tl.load(x + i))


@triton.jit
def faulty(x, out):
    i = tl.arange(0, 8)
    tl.store(out + i, tl.load(x + i).no_such_method())


@triton.jit
def arithmetic(a, b, out, N: tl.constexpr):
    i = tl.arange(0, N)
    x, y = tl.load(a + i), tl.load(b + i)
    tl.store(out + i, x + y)
    tl.store(out + N + i, x * y)
    tl.store(out + 2 * N + i, tl.where(x > y, -x, y))
    tl.store(out + 3 * N + i, (x.to(tl.float32) / 3).to(tl.bfloat16))


@triton.jit
def product(a, b, out, N: tl.constexpr, PRECISION: tl.constexpr):
    i = tl.arange(0, N)
    x, y = tl.load(a + i[:, None] * N + i[None, :]), tl.load(b + i[:, None] * N + i[None, :])
    tl.store(out + i[:, None] * N + i[None, :], tl.dot(x, y, input_precision=PRECISION))


@triton.jit
def _keep_larger(value, index, other, other_index):
    take = other > value
    return tl.where(take, other, value), tl.where(take, other_index, index)


@triton.jit
def odds(x, out, n, N: tl.constexpr):
    i = tl.arange(0, N)
    total = tl.zeros([N], tl.float32)
    for k in range(0, n):
        total += tl.load(x + k * N + i)
    best, where = tl.reduce((total, i), 0, _keep_larger)
    tl.store(out, best)
    tl.store(out + 1, where.to(tl.float32))
    tl.store(out + 2 + i, libdevice.tanh(total))
    tl.store(out + 2 + N + i, tl.cumsum(total, 0))


@triton.autotune(configs=[triton.Config({"N": 8}), triton.Config({"N": 16})], key=[])
@triton.jit
def tuned(out, N: tl.constexpr):
    tl.store(out + tl.arange(0, N), 1.0)
