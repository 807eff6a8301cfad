"""Wrong variants of right kernels, made by rules over the text of each kernel function; none may be accepted.

A rule is a pattern with its replacement; every place where it matches gives one mutant. A few mutants compute the same function
(a mask that a later mask makes up for, an addition of zero): they are listed, not judged.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tritonsmith.benchmarks.hacks.catalogue import ANY_REFUSAL, Case
from tritonsmith.benchmarks.hacks.edits import TASK_OF, read_kernel


@dataclass(frozen=True)
class Mutation:
    """One kind of mistake: text that matches `pattern` becomes `replacement`."""

    name: str
    pattern: str
    replacement: str
    bases: tuple[str, ...]


MUTATIONS = (
    Mutation("tail not written", r"inside = place < count$", "inside = place < count - 1", ("gelu", "gelu_persistent")),
    Mutation("whole last block not written", r"inside = place < count$", "inside = place < count // BLOCK * BLOCK", ("gelu", "gelu_persistent")),
    Mutation("first element not written", r"inside = place < count$", "inside = (place < count) & (place > 0)", ("gelu",)),
    Mutation("constant of erf", r"0\.7071067811865476", "0.7071", ("gelu", "gelu_rows")),
    Mutation("half", r"0\.5 \* value", "0.5001 * value", ("gelu", "gelu_rows")),
    Mutation("tanh form of gelu", r"tl\.erf\(value \* 0\.7071067811865476\)",
         "(1.0 - 2.0 / (1.0 + tl.exp(1.5957691216057308 * (value + 0.044715 * value * value * value))))", ("gelu", "gelu_rows")),
    Mutation("sigmoid form of gelu", r"0\.5 \* value \* \(1\.0 \+ tl\.erf\(value \* 0\.7071067811865476\)\)", "value * tl.sigmoid(1.702 * value)", ("gelu", "gelu_rows")),
    Mutation("no clamp", r"tl\.minimum\(value, limit\)", "value", ("gelu", "gelu_persistent")),
    Mutation("clamp from below", r"tl\.minimum\(", "tl.maximum(", ("gelu", "gelu_rows")),
    Mutation("clamp before scale", r"tl\.minimum\(value \* scale, limit\)", "tl.minimum(value, limit) * scale", ("gelu_rows",)),
    Mutation("no scale", r"\) \* scale$", ")", ("gelu", "gelu_persistent")),
    Mutation("bias subtracted", r"mask=inside\) \+ tl\.load", "mask=inside) - tl.load", ("gelu",)),
    Mutation("bias by the wrong axis", r"place % columns", "place // columns", ("gelu", "linear_split_k")),
    Mutation("bias not repeated", r"place % columns, mask=inside\)", "place, mask=inside & (place < columns), other=0.0)", ("gelu",)),
    Mutation("half precision", r"tl\.store\(out \+ place, tl\.minimum\(value, limit\)", "tl.store(out + place, tl.minimum(value, limit).to(tl.float16).to(tl.float32)", ("gelu",)),
    Mutation("bfloat16 input", r"tl\.load\(x \+ place, mask=inside\)", "tl.load(x + place, mask=inside).to(tl.bfloat16).to(tl.float32)", ("gelu",)),
    Mutation("row off by one", r"row = tl\.program_id\(0\)\.to\(tl\.int64\)$", "row = tl.maximum(tl.program_id(0) - 1, 0).to(tl.int64)", ("gelu_rows",)),
    Mutation("last block of a row skipped", r"range\(0, columns, BLOCK\)", "range(0, columns - BLOCK, BLOCK)", ("gelu_rows", "softmax_online")),
    Mutation("blocks skipped", r"tl\.num_programs\(0\)\):", "tl.num_programs(0) + 1):", ("gelu_persistent",)),
    Mutation("tf32 product", r"input_precision=PRECISION", 'input_precision="tf32"', ("linear",)),
    Mutation("fp16 product", r"tl\.dot\(a, b, input_precision=PRECISION\)", "tl.dot(a.to(tl.float16), b.to(tl.float16))", ("linear",)),
    Mutation("bf16 product", r"tl\.dot\(a, b, input_precision=PRECISION\)", "tl.dot(a.to(tl.bfloat16), b.to(tl.bfloat16))", ("linear",)),
    Mutation("fp16 accumulator", r"sums \+= tl\.dot\(a, b, input_precision=PRECISION\)", "sums = (sums + tl.dot(a, b, input_precision=PRECISION)).to(tl.float16).to(tl.float32)", ("linear",)),
    Mutation("inner tail dropped", r"range\(0, K, BK\)", "range(0, K // BK * BK, BK)", ("linear",)),
    Mutation("first inner block dropped", r"range\(0, K, BK\)", "range(BK, K, BK)", ("linear",)),
    Mutation("last column of the inner product", r"k\[None, :\] < K\)", "k[None, :] < K - 1)", ("linear", "linear_split_k")),
    Mutation("last row not computed", r"\(m\[:, None\] < M\) & \(n\[None, :\] < N\)\)$", "(m[:, None] < M - 1) & (n[None, :] < N))", ("linear", "linear_split_k")),
    Mutation("weight not transposed", r"weight \+ n\[None, :\] \* K \+ k\[:, None\]", "weight + k[:, None] * N + n[None, :]", ("linear",)),
    Mutation("stride of the wrong axis", r"x \+ m\[:, None\] \* K", "x + m[:, None] * N", ("linear",)),
    Mutation("no bias", r"    sums \+= tl\.load\(bias.*$", "    sums += 0.0", ("linear",)),
    Mutation("bias by row", r"bias \+ n, mask=n < N, other=0\.0\)\[None, :\]", "bias + m, mask=m < M, other=0.0)[:, None]", ("linear",)),
    Mutation("no relu", r"tl\.maximum\((sums|value), 0\.0\)", r"\1", ("linear", "linear_split_k")),
    Mutation("absolute value", r"tl\.maximum\((sums|value), 0\.0\)", r"tl.abs(\1)", ("linear",)),
    Mutation("leaky relu", r"tl\.maximum\((sums|value), 0\.0\)", r"tl.where(\1 > 0, \1, 0.01 * \1)", ("linear",)),
    Mutation("accumulator overwritten", r"sums \+= tl\.dot", "sums = tl.dot", ("linear",)),
    Mutation("a part of the split left out", r"BK \* SPLIT\):", "BK * (SPLIT + 1)):", ("linear_split_k",)),
    Mutation("relu before the sum is whole", r"tl\.atomic_add\((.*), sums, mask", r"tl.atomic_add(\1, tl.maximum(sums, 0.0), mask", ("linear_split_k",)),
    Mutation("no maximum", r" - tl\.max\(value, 0\)\)", " * 1.0)", ("softmax",)),
    Mutation("padding counted", r'other=float\("-inf"\)\) \* 40\.0$', "other=0.0) * 40.0", ("softmax",)),
    Mutation("epsilon in the denominator", r"value / tl\.sum\(value, 0\)", "value / (tl.sum(value, 0) + 1e-3)", ("softmax",)),
    Mutation("maximum in the denominator", r"value / tl\.sum\(value, 0\)", "value / tl.max(value, 0)", ("softmax",)),
    Mutation("temperature", r"\* 40\.0$", "* 39.99", ("softmax",)),
    Mutation("last column", r"inside = column < columns$", "inside = column < columns - 1", ("softmax",)),
    Mutation("sum not rescaled", r"total \* tl\.exp\(top - higher\)", "total", ("softmax_online",)),
    Mutation("maximum not kept", r"        top = higher", "        top = tl.max(value, 0)", ("softmax_online",)),
    Mutation("ln 2", r"1\.4426950408889634", "1.44", ("softmax_rows",)),
    Mutation("other axis", r"tl\.sum\(value, 1\)\[:, None\]", "tl.sum(value, 0)[None, :]", ("softmax_rows",)),
    Mutation("row stride", r"row\[:, None\] \* columns \+ column", "row[:, None] * (columns - 1) + column", ("softmax_rows", "column_sum")),
    Mutation("half of the rows", r"range\(0, rows, ROWS\)", "range(0, rows, 2 * ROWS)", ("column_sum",)),
    Mutation("last row", r"\(row\[:, None\] < rows\)", "(row[:, None] < rows - 1)", ("column_sum", "column_sum_atomic")),
    Mutation("total overwritten", r"total \+= tl\.sum", "total = tl.sum", ("column_sum",)),
    Mutation("mean", r"tl\.store\(out \+ column, total,", "tl.store(out + column, total / rows,", ("column_sum",)),
    Mutation("half precision sum", r"other=0\.0\), 0\)$", "other=0.0), 0).to(tl.float16)", ("column_sum",)),
    Mutation("not cleared", r"torch\.zeros\(columns", "torch.empty(columns", ("column_sum_atomic",)),
    Mutation("plain store", r"tl\.atomic_add\(out \+ column, part", "tl.store(out + column, part", ("column_sum_atomic",)),
    Mutation("no grid barrier", r'    while tl\.atomic_add\(arrived, 0, sem="acquire"\) < P:\n        pass\n', "", ("column_sum_barrier",)),
    Mutation("barrier without fence", r"^ +tl\.debug_barrier\(\)\n", "", ("column_sum_barrier", "column_sum_chain", "column_sum_lock", "gru_tiled")),
    Mutation("does not wait", r'while tl\.atomic_add\((.*), 0, sem="acquire"\)', r'while tl.atomic_add(\1, 0, sem="acquire") * 0 + 1000', ("gru_tiled",)),
    Mutation("gates swapped", r"r \* \(tl\.dot\(h, w_n", "z * (tl.dot(h, w_n", ("gru", "gru_tiled")),
    Mutation("blend swapped", r"\(1\.0 - z\) \* n \+ z \*", "z * n + (1.0 - z) *", ("gru", "gru_tiled")),
    Mutation("last step left out", r"range\(steps\)", "range(steps - 1)", ("gru", "gru_tiled")),
    Mutation("reset before the product", r"tl\.load\(g \+ 2 \* H, mask=inside, other=0\.0\) \+ r \* \(tl\.dot\(h, w_n, input_precision=\"ieee\"\) \+ b_n\)",
         'tl.load(g + 2 * H, mask=inside, other=0.0) + tl.dot(r * h, w_n, input_precision="ieee") + b_n', ("gru",)),
    Mutation("no recurrent bias", r" \+ b_n\)\)", "))", ("gru",)),
    Mutation("sigmoid for tanh", r"n = tanh\(", "n = sigmoid(", ("gru",)),
    Mutation("initial state zero", r"h = tl\.load\(h0 \+ place, mask=inside, other=0\.0\)", "h = tl.zeros((BB, H), tl.float32)", ("gru",)),
    Mutation("initial state of the first layer", r"h0\[layer\]", "h0[0]", ("gru", "gru_tiled")),
    Mutation("input of the first layer", r"            x = out\n", "", ("gru",)),
    Mutation("fp16 recurrence", r"tl\.dot\(h, w_z, input_precision=\"ieee\"\)", "tl.dot(h.to(tl.float16), w_z.to(tl.float16))", ("gru",)),
    Mutation("tf32 recurrence", r"tl\.dot\(h, w_z, input_precision=\"ieee\"\)", 'tl.dot(h, w_z, input_precision="tf32")', ("gru",)),
    Mutation("own row of the last step only", r"mine = tl\.load\(last", "mine = tl.load(states", ("gru_tiled",)),
)  # fmt: skip
EQUIVALENT: frozenset[str] = frozenset()
"""Names of mutants that compute the right function after all."""


def mutants() -> list[Case]:
    """Every rule at every place of its kernels, without the equivalent ones. Raises ValueError for a rule that matches nowhere."""
    cases = []
    for rule in MUTATIONS:
        for base in rule.bases:
            text = read_kernel(base)
            places = list(re.finditer(rule.pattern, text, re.MULTILINE))
            if not places:
                raise ValueError(f"rule {rule.name!r} matches nothing in kernels/{base}.py")
            for number, place in enumerate(places):
                changed = text[: place.start()] + place.expand(rule.replacement) + text[place.end() :]
                name = f"{base}-{rule.name.replace(' ', '_')}" + (f"-{number}" if number else "")
                if name not in EQUIVALENT:
                    cases.append(Case(name, "mutant", TASK_OF[base.split("_")[0]], changed, "mutant", ANY_REFUSAL, about=rule.name))
    return cases
