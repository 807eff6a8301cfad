"""The space of kernels that nobody here wrote for it: what is read, where it is written, and what is left alone."""

import ast

import pytest

from project import ROOT
from tritonsmith.evaluator.schema import Stage
from tritonsmith.evaluator.texts.spaces.read import read_space

KERNELS = sorted((ROOT / "benchmarks/hacks/kernels").glob("*.py")) + sorted((ROOT / "benchmarks/kernelbench/kernels").glob("*.py"))
HEAD = "import torch\nimport triton\nimport triton.language as tl\n"
MATMUL = HEAD + '''
TILE = (64, 128)
SETTINGS = {"BK": 32, "GROUP": 8}


@triton.jit
def load_tile(p, rows, columns, stride):
    return tl.load(p + rows[:, None] * stride + columns[None, :])


@triton.jit
def product(a_ptr, b_ptr, c_ptr, M, N, K, WIDTH: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr):
    pid = tl.program_id(0)
    across = GROUP * tl.cdiv(N, BN)
    first = pid // across * GROUP
    m = (first + pid % GROUP) * BM + tl.arange(0, BM)
    n = (pid % across) // GROUP * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for start in tl.range(0, K, BK, num_stages=3):
        k = start + tl.arange(0, BK)
        total += tl.dot(load_tile(a_ptr, m, k, K), tl.load(b_ptr + k[:, None] * N + n[None, :], eviction_policy="evict_last"))
    tl.store(c_ptr + m[:, None] * N + n[None, :], total + tl.load(c_ptr + tl.arange(0, WIDTH)[None, :]))


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        c = torch.empty(1024, 512, device=a.device)
        bm, bn = TILE
        grid = (triton.cdiv(1024, bm) * triton.cdiv(512, bn),)
        product[grid](a, b, c, 1024, 512, a.shape[1], 512, bm, bn, **SETTINGS, num_warps=8,  # the last
        )
        return c
'''
ROWS = HEAD + '''

def configs():
    return [triton.Config({"BLOCK": block}, num_warps=warps) for block in (256, 512) for warps in (2, 4) if block > 256 or warps < 4]


@triton.autotune(
    configs=configs(), key=["n"],
)
@triton.jit
def scale(x, y, n, BLOCK: tl.constexpr):
    for at in range(tl.program_id(0) * BLOCK, n, BLOCK * tl.num_programs(0)):
        i = at + tl.arange(0, BLOCK)
        tl.store(y + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.programs = 132

    def forward(self, x):
        y = torch.empty_like(x)
        scale[(min(self.programs, 4096),)](x, y, x.numel())
        return y
'''


def by_name(space):
    return {parameter.name: parameter for parameter in space.parameters}


def constants(text):
    return [node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant)]


def test_constants_are_followed_to_where_they_are_written():
    space, found = read_space(MATMUL), by_name(read_space(MATMUL))
    stages = {name: (parameter.stage, parameter.current) for name, parameter in found.items()}
    assert stages == {
        "BM": (Stage.TUNE_BLOCK, 64), "BN": (Stage.TUNE_BLOCK, 128), "BK": (Stage.TUNE_BLOCK, 32), "GROUP": (Stage.TUNE_GRID, 8),
        "num_warps": (Stage.TUNE_MEMORY, 8), "num_stages": (Stage.TUNE_MEMORY, 3), "maxnreg": (Stage.TUNE_MEMORY, None),
        "loop_stages": (Stage.TUNE_MEMORY, 3), "hint_b_ptr": (Stage.TUNE_MEMORY, "evict_last"), "hint_c_ptr": (Stage.TUNE_MEMORY, ""),
    }  # fmt: skip
    assert found["BM"].values == (16, 32, 64, 128, 256) and found["BK"].values == (16, 32, 64, 128)
    text = space.write({"BM": 128, "BK": 64, "maxnreg": 128, "loop_stages": 2, "hint_c_ptr": "evict_first", "num_warps": 8})
    assert "TILE = (128, 128)" in text and '{"BK": 64, "GROUP": 8}' in text and "num_stages=2" in text
    assert "num_warps=8, maxnreg=128,  # the last" in text or "num_warps=8, maxnreg=128" in text
    assert "[None, :], eviction_policy='evict_first'))" in text
    assert space.write({}) == MATMUL


def test_the_size_of_something_is_no_tunable():
    assert "WIDTH" not in by_name(read_space(MATMUL)), "a tile as wide as the row is no step"
    split = MATMUL.replace('"GROUP": 8', '"GROUP": 16')
    assert "GROUP" in by_name(read_space(split)) and "GROUP" not in by_name(read_space(split, {16}))


def test_an_autotuner_becomes_plain_constants():
    space, found = read_space(ROWS), by_name(read_space(ROWS))
    assert found["BLOCK"].values == (256, 512) and found["BLOCK"].stage is Stage.TUNE_BLOCK
    assert found["num_warps"].values == (2, 4) and found["num_warps"].stage is Stage.TUNE_MEMORY
    assert found["programs_scale"].values == (66, 132, 264, 528) and found["programs_scale"].stage is Stage.TUNE_GRID
    assert space.starts == ({"BLOCK": 256, "num_warps": 2}, {"BLOCK": 512, "num_warps": 2}, {"BLOCK": 512, "num_warps": 4})
    text = space.write({"BLOCK": 512, "programs_scale": 264})
    assert "autotune" not in text and "x.numel(), BLOCK=512, num_warps=2)" in text and "self.programs = 264" in text
    unknown = ROWS.replace("configs=configs()", "configs=make(3)")
    assert "autotune" in read_space(unknown).write({"programs_scale": 66}) and "stays" in read_space(unknown).unread[0]


def test_a_comment_may_state_more():
    stated = ("# tunable: GROUP = 2, 4 [grid]", "# tunable: STEPS = 7, 9 [memory]", "# tunable: HUE = 1", "# tunable BM", "STEPS = 5")
    text = MATMUL.replace("TILE =", "\n".join([*stated, "TILE ="]))
    space, found = read_space(text), by_name(read_space(text))
    assert found["GROUP"].values == (2, 4, 8) and found["STEPS"].values == (7, 9, 5) and found["STEPS"].stage is Stage.TUNE_MEMORY
    assert "STEPS = 9\n" in space.write({"STEPS": 9})
    assert [line for line in space.unread if "HUE is not one constant" in line] and [line for line in space.unread if "[block]" in line]


def test_repeated_literals_of_a_launch_change_together():
    text = HEAD + (
        "@triton.jit\ndef k(x, n, B: tl.constexpr):\n    i = tl.program_id(0) * B + tl.arange(0, B)\n    tl.store(x + i, 0, mask=i < n)\n"
        "def run(x):\n    k[(triton.cdiv(x.numel(), 256), 1)](x, x.numel(), B=256)\n"
    )
    assert "cdiv(x.numel(), 512), 1)](x, x.numel(), B=512)" in read_space(text).write({"B": 512})


@pytest.mark.parametrize("path", KERNELS, ids=lambda path: path.stem)
def test_what_is_written_is_read_again(path):
    space = read_space(path.read_text())
    base = space.write({})
    for parameter in space.parameters:
        for value in parameter.values:
            written = space.write({parameter.name: value})
            assert written is not None and (written == base) == (value == parameter.current), (parameter.name, value)
    last = {parameter.name: parameter.values[-1] for parameter in space.parameters}
    again = by_name(read_space(space.write(last)))
    assert all(again[name].current == value for name, value in last.items() if name in again)
    assert set(last) <= set(again) | {parameter.name for parameter in space.parameters if parameter.needed}


def test_what_cannot_be_read_has_no_space():
    assert read_space("def (").parameters == () and read_space("x = 1").parameters == () and read_space("").parameters == ()
