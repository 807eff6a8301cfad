"""Modules of a few operators that random modules showed to be wrong, each of one kind.

Run as a script under TRITON_INTERPRET=1, it prints {name: what is wrong}.
"""

import json
import sys

import torch

from tritonsmith.benchmarks.random_modules.judge import Fate, ModuleJudge
from tritonsmith.benchmarks.random_modules.module import Argument, RandomModule, Step

CASES = {
    # a constant that a step writes is rounded already: its type has nothing to round
    "constant of 16 bits in place": (
        {"x0": ((9, 9), "float16")},
        ["v1 = F.layer_norm(x0, (9,))", "v2 = F.hardtanh(v1)", "v3 = v1.zero_()", "v4 = F.rms_norm(torch.clamp(v3, -0.5, 1.0), (9,))"],
        "v2, v4, v1",
    ),
    # TF32 is for results of 16 bits; one of fp32 beside them is judged as fp32
    "attention in fp32 beside 16 bits": (
        {"x0": ((4, 9, 17), "float32")},
        ["v1 = x0.to(torch.float16)", "v2 = F.scaled_dot_product_attention(x0, x0, x0)"],
        "v1, v2",
    ),
    # between two numbers Triton chooses in fp32 or int32
    "choice of numbers in float64": (
        {"x0": ((7, 3), "float64")},
        ["v1 = torch.sgn(x0)", "v2 = F.softplus(v1)", "v3 = torch.exp(torch.sign(x0)) / 3"],
        "v2, v3",
    ),
    "choice of numbers in int64": (
        {"x0": ((7, 3), "int64")},
        ["v1 = torch.sign(x0) * 3000000000", "v2 = torch.where(x0 > 3, torch.sign(x0), x0) * 5000000000"],
        "v1, v2",
    ),
    # a kernel would have Python's number, which has no methods and no axes
    "extremes of ones": (
        {"x0": ((3, 8), "float32")},
        ["v1 = torch.ones(3, 8, dtype=torch.int64)", "v2, v3 = torch.cummax(v1, 1)", "v4 = v1.any(1)", "v5 = x0 + 1"],
        "v2, v3, v4, v5",
    ),
    "sign bits of ones": (
        {"x0": ((3, 8), "float32")},
        ["v1 = torch.ones_like(x0)", "v2 = torch.signbit(v1)", "v3 = (v1 + 2).to(torch.int8)", "v4 = x0 + 1", "v5 = v3 - v3 == 3"],
        "v2, v3, v4, v5",
    ),
    # a part that another part is made of cannot lie in the whole alone
    "joined with what is made of it": (
        {"x0": ((5, 9), "float32")},
        ["v1 = x0.amax(-1, keepdim=True)", "v2 = v1 > 0", "v3 = v2.triu(1)", "v4 = torch.cat((v2, v3), 1)", "v5 = torch.cat((v2, ~v2), 1)"],
        "v4, v5",
    ),
    "zeros that lie in memory": (
        {"x0": ((4, 1), "float32"), "x1": ((3, 1), "float32")},
        ["v1 = x0 * 2", "v2 = v1.zero_()", "v3 = v1 * torch.rsqrt(v1.pow(2).mean(-1, keepdim=True) + 1e-6)", "v4 = torch.cat((v3, v1), 0)"],
        "v2, v3, v4",
    ),
    "attention of ones": (
        {"x0": ((1, 8, 8), "float32")},
        ["v1 = torch.ones(1, 8, 8)", "v2 = F.scaled_dot_product_attention(x0, x0, v1)", "v3 = x0.scatter_add(1, v1.long(), x0)"],
        "v2, v3",
    ),
    # quotients of what may be negative: Triton rounds them towards zero
    "pairs backwards": (
        {"x0": ((3, 8), "float32")},
        ["v1 = torch.stack((-x0[..., 1::2], x0[..., ::2]), -1).flatten(-2)", "v2 = v1.flip(-1)", "v3 = torch.roll(torch.rot90(x0), 1)"],
        "v2, v3",
    ),
    "a copy of the same type": (
        {"x0": ((4, 5), "float32")},
        ["v1 = torch.exp(x0)", "v2 = v1.to(torch.float32, copy=True)", "v3 = v1.mul_(2)", "v4 = v2 * v3"],
        "v2, v4",
    ),
    "calls that give their tensor back": (
        {"x0": ((4, 5), "float32"), "x1": ((4, 5), "int64"), "x2": ((4, 5), "float32")},
        [
            "v1 = x0 + 1", "v2 = torch.positive(v1)", "v3 = v2.mul_(2)", "v4 = x1 + 1", "v5 = v4.long()", "v6 = v5.mul_(3)",
            "v7 = x2 * 2", "v8 = F.alpha_dropout(v7, 0.5, False)", "v9 = v8.resolve_conj()", "v10 = v9.relu_()",
        ],
        "v1, v4, v7",
    ),
    # beside a literal, which is an int32, these would not begin again at the other end
    "bounds of few bits": (
        {"x0": ((4, 9), "int8"), "x1": ((4, 9), "uint8")},
        ["v1 = (torch.clamp_min(x0, 2) * 2).abs()", "v2 = torch.where(x1 > 3, x1, 1) * 200 // 3", "v3 = (torch.relu(x0) * 2) // 2",
         "v4 = x1.sign()"],
        "v1, v2, v3, v4",
    ),
    # an operand of a product is a tile, also where it is one number
    "convolution by a number": (
        {"x0": ((1, 1, 2, 2), "float32"), "x1": ((1, 1, 2, 2), "float32")},
        ["v1 = F.conv2d(x0, torch.full_like(x1, 3))"],
        "v1",
    ),
    "convolution of a number": (
        {"x0": ((1, 1, 2, 2), "float16"), "x1": ((1, 1, 2, 2), "float16")},
        ["v1 = F.conv2d(torch.full_like(x0, 0.1), x1)"],
        "v1",
    ),
    # a kernel stores what is within an operator as well, of which 16 bits would not hold the squares
    "norms of large values": (
        {"x0": ((16, 3, 3), "float16"), "x1": ((16, 3, 3), "float16")},
        ["v1 = (x0.square() * 100).sum(0)", "v2 = F.normalize(v1, dim=-1) - x1", "v3 = torch.fmod(v2, v1)", "v4 = v1.norm(3, -1)"],
        "v3, v4",
    ),
    "products of nothing": (
        {"x0": ((1, 0), "float32"), "x1": ((1, 0, 2), "float32")},
        ["v1 = torch.matmul(x0, x1)", "v2 = F.linear(x0, x1.flatten(0, 1).t()).sum(1)", "v3 = torch.flip(v1, [0])"],
        "v1, v2, v3",
    ),
    # PyTorch copies where memory cannot show the shape asked for, and a write to the copy is no write to the tensor
    "writes to copies": (
        {"x0": ((4, 3, 4), "int8"), "x1": ((4, 6), "float32")},
        ["v1 = x0.swapaxes(0, -1)", "v2 = v1.reshape(1, -1)", "v3 = v2.square_()", "v4 = x1.t().contiguous()", "v5 = v4.mul_(2)",
         "v6 = x1.t().flatten().add_(1)"],
        "v1, v3, v5, v6",
    ),
    "flips along no axis": (
        {"x0": ((4, 6), "float32")},
        ["v1 = torch.flip(x0, ())", "v2 = x0.flip([]).mul_(2)", "v3 = x0.mul_(2)"],
        "v1, v2, v3",
    ),
    # a number that is read from memory lies somewhere in it
    "product of a filled tensor": (
        {"x0": ((33, 33), "float16")},
        ["v1 = torch.sub(x0, x0, alpha=0.5)", "v2 = v1.fill_(2)", "v3 = F.linear(x0, v1) * 0.1"],
        "v2, v3",
    ),
    # Triton's largest and smallest of few bits are int32
    "extremes of few bits": (
        {"x0": ((65,), "int8"), "x1": ((4, 33), "uint8"), "x2": ((4,), "float32")},
        ["v1 = (x0.amax(-1) * 9) ** 2 + x2", "v2 = x1.amin(-1) - 2", "v3 = v2 * x2", "v4 = (x1.max(-1)[0] * 99) // 2"],
        "v1, v3, v4",
    ),
}


def make_module(name: str) -> RandomModule:
    """One of the modules."""
    given, lines, outputs = CASES[name]
    arguments = tuple(Argument(key, shape, getattr(torch, dtype)) for key, (shape, dtype) in given.items())
    steps = []
    for line in lines:
        targets, sign, text = line.partition(" = ")
        steps.append(Step((), line) if "[" in targets or not sign else Step(tuple(targets.split(", ")), text))
    return RandomModule(arguments, tuple(steps), tuple(outputs.split(", ")))


def main() -> None:
    """Judge all of them."""
    judge, wrong = ModuleJudge(), {}
    for name in sys.argv[1:] or CASES:
        judged = judge.judge(make_module(name), 0)
        if judged.fate not in (Fate.RIGHT, Fate.OPEN):
            wrong[name] = f"{judged.fate} {judged.kind}: {judged.reason}"
    judge.close()
    sys.stdout.write(json.dumps(wrong))


if __name__ == "__main__":
    main()
