"""Parts of Triton that the stock interpreter lacks; run as a script under TRITON_INTERPRET=1, prints one JSON object {case: result}."""

import json
import sys
from typing import Any

import torch
import triton
import triton.language as tl

from tritonsmith.evaluator.confined.interpreter import patches, schedule


@triton.jit
def assembled(x, y, n, out, N: tl.constexpr):
    i = tl.arange(0, N)
    a, b, c = tl.load(x + i), tl.load(y + i), tl.load(n + i)
    largest = tl.inline_asm_elementwise("max.f32 $0, $1, 0f00000000;", "=r,r", [a], dtype=tl.float32, is_pure=True, pack=1)
    fused = tl.inline_asm_elementwise("fma.rn.f32 $0, $1, $2, $1;", "=f,f,f", [a, b], dtype=tl.float32, is_pure=True, pack=1)
    bits = tl.inline_asm_elementwise("and.b32 $0, $1, 0x7fffffff;", "=r,r", [a], dtype=tl.float32, is_pure=True, pack=1)
    shifted = tl.inline_asm_elementwise("shr.s32 $0, $1, 33;", "=r,r", [c], dtype=tl.int32, is_pure=True, pack=1)
    tl.store(out + i, largest)
    tl.store(out + N + i, fused)
    tl.store(out + 2 * N + i, bits)
    tl.store(out + 3 * N + i, shifted.to(tl.float32))


@triton.jit
def unknown_assembly(x, TEXT: tl.constexpr):
    i = tl.arange(0, 8)
    tl.store(x + i, tl.inline_asm_elementwise(TEXT, "=r,r", [tl.load(x + i)], dtype=tl.float32, is_pure=True, pack=1))


@triton.jit
def through_descriptors(x, out, R: tl.constexpr, N: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [4 * R, N], [N, 1], [R, N])
    target = tl.make_tensor_descriptor(out, [R, N], [N, 1], [R, N])
    target.atomic_add([0, 0], source.load([tl.program_id(0) * R, 0]))


@triton.jit
def twice(x):
    return x * 2.0


def made_by(function: Any) -> Any:
    @triton.jit
    def kernel(x, out, N: tl.constexpr):
        i = tl.program_id(0) * N + tl.multiple_of(tl.arange(0, N), N)
        tl.store(out + i, function(tl.load(x + i)))

    return kernel


@triton.jit
def largest(x, best, steps, SIGN: tl.constexpr):
    for step in range(steps):
        tl.atomic_max(best, SIGN * tl.abs(tl.load(x + step)))


@triton.jit
def to_eight_bits(x, out, N: tl.constexpr, KIND: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, tl.load(x + i).to(KIND).to(tl.float32))


@triton.jit
def store_to_one_place(out, N: tl.constexpr):
    rows = tl.arange(0, N)[:, None]
    tl.store(tl.broadcast_to(out + tl.arange(0, 1)[None, :], (N, 1)), rows * 1.0 + 5.0, mask=rows < 1)


def _eight_bits(values: torch.Tensor, kind: Any, same: torch.dtype) -> bool:
    out, limit = torch.zeros_like(values), torch.finfo(same).max
    to_eight_bits[(1,)](values, out, values.numel(), kind)
    return torch.equal(out, values.clamp(-limit, limit).to(same).float())


UNKNOWN = ("rol.b32 $0, $1, 3;", "add.rz.f32 $0, $1, $1;", "add.f32 $0, $1, $2;", "mov.b64 $0, $1;", "add.f32 $0, $1, 1.0; neg.f32 $0, $0;")


def _refusal(text: str) -> str:
    with schedule.session("round_robin", 0):
        try:
            unknown_assembly[(1,)](torch.ones(8), text)
        except schedule.KernelFault as fault:
            return str(fault)
    return ""


def main() -> None:
    """Run all cases."""
    patches.install()
    generator = torch.Generator().manual_seed(0)
    x, y, n = torch.randn(16, generator=generator), torch.randn(16, generator=generator), torch.arange(-8, 8, dtype=torch.int32)
    out, summed, doubled, warm = torch.zeros(64), torch.zeros(4, 8), torch.zeros(16), torch.zeros(16)
    rows = torch.randn(16, 8, generator=generator)
    with schedule.session("shuffled", 3) as session:
        assembled[(1,)](x, y, n, out, 16)
        through_descriptors[(4,)](rows, summed, 4, 8)
        kernel = made_by(twice)
        kernel[(2,)](x, doubled, 8)
        compiled = kernel.warmup(x, warm, N=8, grid=(1,), num_warps=8)
        compiled._init_handles()
        compiled[(2, 1, 1)](x, warm, 8)
        steps = torch.full((520,), 0.5)
        best, nothing = torch.ones(1), torch.zeros(1)
        largest[(1,)](steps, best, 520, 1.0)
        largest[(1,)](steps, nothing, 520, 0.0)
        place = torch.zeros(1)
        store_to_one_place[(1,)](place, 4)
        ties = torch.cat([torch.tensor([17.0, 200.0, 0.001, -0.001, 1e9, -1e9]), torch.randn(58, generator=generator) * 30])
        eight = [_eight_bits(ties, tl.float8e4nv, torch.float8_e4m3fn), _eight_bits(ties, tl.float8e5, torch.float8_e5m2)]
    expected = torch.cat([x.clamp(min=0), torch.addcmul(x, x, y), x.abs(), (n < 0).float() * -1])
    results = {
        "assembly": float((out - expected).abs().max()),
        "unknown": {text: _refusal(text) for text in UNKNOWN},
        "descriptors": float((summed - rows.view(4, 4, 8).sum(0)).abs().max()),
        "atomics": session.launches[1].atomics,
        "races": [race for launch in session.launches for race in launch.races],
        "factory": torch.equal(doubled, x * 2),
        "warmup": torch.equal(warm, x * 2),
        "occupancy": [compiled.n_regs > 0, compiled.metadata.shared > 0, compiled.metadata.num_warps],
        "launches": sum(launch.name == "kernel" for launch in session.launches),
        "bounds": [float(best), float(nothing)],
        "rounds": [launch.sync_rounds for launch in session.launches if launch.name == "largest"],
        "eight_bits": eight,
        "one_place": float(place),
    }
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
