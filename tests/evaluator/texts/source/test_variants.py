"""How far the difference between two kernel files can reach: compiler options, what is launched, or anything."""

import pytest

from tritonsmith.evaluator.texts.source.variants import Reach, compare_texts

BASE = '''"""A kernel of 64."""
import torch
import triton
import triton.language as tl

SIZE, BLOCK = 1000, 64  # both are launched
WARPS = 4
ROWS = 16
UNITS = 8


@triton.autotune(configs=[triton.Config({"WIDE": 2}, num_warps=2)], key=["n"])
@triton.jit
def double(x, y, n, BLOCK: tl.constexpr, WIDE: tl.constexpr):
    for tile in tl.range(0, WIDE, num_stages=3):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(y + at, tl.load(x + at, mask=at < n) * 2.0, mask=at < n)


class ModelNew(torch.nn.Module):
    """Does it in steps of 64."""

    def forward(self, x):
        y = torch.empty(1000)
        grid = (triton.cdiv(SIZE, BLOCK),)
        for row in range(0, 32, ROWS):
            double[grid](x, y, SIZE, BLOCK, num_warps=WARPS, num_stages=2 if BLOCK > 32 else 1)
        return self.finish(y, UNITS)

    def finish(self, y, units):
        for _ in range(units):
            double[(1,)](y, y, 8, min(16, 32), enable_fp_fusion=False)
        return y
'''


@pytest.mark.parametrize(
    ("change", "reach"),
    [
        (("of 64", "of 128"), Reach.OPTIONS),  # a text that nobody runs
        (("# both are launched", "# noted"), Reach.OPTIONS),
        (("WARPS = 4", "WARPS = 8"), Reach.OPTIONS),
        (("num_warps=2", "num_warps=8"), Reach.OPTIONS),
        (("num_stages=3", "num_stages=1"), Reach.OPTIONS),
        (("else 1", "else 4"), Reach.OPTIONS),
        (("BLOCK = 1000, 64", "BLOCK = 1000, 128"), Reach.LAUNCHED),
        (("* 2.0", "* 3.0"), Reach.LAUNCHED),
        (('"WIDE": 2', '"WIDE": 4'), Reach.LAUNCHED),
        (("(1,)", "(2,)"), Reach.LAUNCHED),
        (("min(16, 32)", "min(16, 64)"), Reach.LAUNCHED),
        (("=False", "=True"), Reach.LAUNCHED),
        (("ROWS = 16", "ROWS = 32"), Reach.ANYTHING),  # a loop around launches
        (("UNITS = 8", "UNITS = 4"), Reach.ANYTHING),  # as an argument
        (("range(0, 32", "range(0, 64"), Reach.ANYTHING),
        (("empty(1000)", "empty(2000)"), Reach.ANYTHING),
        (("WARPS = 4", "WARPS = 4\nWARPS = 8"), Reach.ANYTHING),  # another statement
        (("tl.load(x", "tl.load(y"), Reach.ANYTHING),
        (("at < n) * 2.0", "at < n, eviction_policy='evict_first') * 2.0"), Reach.ANYTHING),
        (("class ModelNew", "class ModelNew("), Reach.ANYTHING),  # no Python
    ],
)
def test_a_change_reaches_who_reads_it(change: tuple[str, str], reach: Reach) -> None:
    assert change[0] in BASE
    assert compare_texts(BASE, BASE.replace(*change)) is reach


def test_a_constant_with_several_readers_or_values_reaches_the_furthest() -> None:
    shared = BASE.replace("x, y, SIZE, BLOCK,", "x, y, SIZE, WARPS,")
    assert compare_texts(shared, shared.replace("WARPS = 4", "WARPS = 8")) is Reach.LAUNCHED
    again = BASE.replace("ROWS = 16", "ROWS = 16\nWARPS = 2")
    assert compare_texts(again, again.replace("WARPS = 4", "WARPS = 8")) is Reach.ANYTHING
    both = BASE.replace("WARPS = 4", "WARPS = 8").replace("BLOCK = 1000, 64", "BLOCK = 1000, 32")
    assert compare_texts(BASE, both) is Reach.LAUNCHED
