"""Detection on recurrent kernels: steps that wait, loops over time, serial sums, and grids that leave the card empty."""

import pytest

from detected_kernels import STEP, find_hit, line_of, make_module
from project import HELPERS
from tritonsmith.evaluator.cards.cards import CARDS
from tritonsmith.evaluator.schema import KernelFacts, LaunchFacts, OpNode, TaskFacts
from tritonsmith.evaluator.texts.detect.detection import Trait, detect

KERNELS = HELPERS / "kernels"
H200 = CARDS["h200"]
WAVEFRONT = """
@triton.jit
def load_acquire(pointer):
    return tl.inline_asm_elementwise("ld.acquire.gpu.global.b32 $0, [$1];", "=r,l", [pointer], dtype=tl.int32, is_pure=False, pack=1)

@triton.jit
def wait(slots, goal):
    low = tl.min(load_acquire(slots), 0)
    while low < goal:
        low = tl.min(load_acquire(slots), 0)

@triton.jit
def wave(states, weight, progress, T, B, H: tl.constexpr, N: tl.constexpr, BH: tl.constexpr):
    pid = tl.program_id(0)
    layer = pid // N
    j = pid % N
    rows = tl.arange(0, 16)
    k = tl.arange(0, H)
    cols = j * BH + tl.arange(0, BH)
    w = tl.load(weight + layer * H * H + k[:, None] * H + cols[None, :])
    base = states + layer * (T + 1) * B * H
    for t in range(T):
        wait(progress + layer * N + tl.arange(0, N), t)
        h = tl.load(base + t * B * H + rows[:, None] * H + k[None, :], cache_modifier=".cg")
        tl.store(base + (t + 1) * B * H + rows[:, None] * H + cols[None, :], tl.dot(h, w))
        tl.debug_barrier()
        tl.atomic_xchg(progress + layer * N + j, t + 1, sem="release", scope="gpu")
"""


def test_kernels_of_a_gru() -> None:
    correct = detect((KERNELS / "gru_batch.py").read_text())
    assert correct.names == {"persistent", "one_axis_grid"}
    source = (KERNELS / "gru_tiled_racy.py").read_text()
    racy = detect(source)
    assert {"persistent", "unsynchronised_sharing"} <= racy.names
    sharing = find_hit(racy, Trait.UNSYNCHRONISED_SHARING)
    assert sharing.line == line_of(source, "h = tl.load(last + rows[:, None] * H + every")
    assert "states" in sharing.evidence and f"line {line_of(source, 'tl.store(states')}" in sharing.evidence


def test_waiting_in_every_step_is_no_unsynchronised_sharing() -> None:
    forward = "wave[(6 * 8,)](out, self.weight, x, 512, 10, 256, 8, 32, launch_cooperative_grid=True)"
    waiting = detect(make_module(WAVEFRONT, forward))
    assert waiting.names == {"persistent"}
    (kernel,) = waiting.kernels
    assert kernel.waits and kernel.persistent and kernel.uses_dot
    careless = WAVEFRONT.replace("        wait(progress + layer * N + tl.arange(0, N), t)\n", "")
    assert "unsynchronised_sharing" in detect(make_module(careless, forward)).names
    only_a_cta_barrier = careless.replace("    for t in range(T):\n", "    for t in range(T):\n        tl.debug_barrier()\n")
    assert "unsynchronised_sharing" in detect(make_module(only_a_cta_barrier, forward)).names
    helper = WAVEFRONT[: WAVEFRONT.index("@triton.jit\ndef wait")]
    elsewhere = make_module(WAVEFRONT.replace(helper, "from helpers import load_acquire\n\n"), forward)
    assert "unsynchronised_sharing" not in detect(elsewhere).names
    alone = detect(make_module(careless, "wave[(1,)](out, self.weight, x, 512, 10, 256, 1, 256)"))
    assert "unsynchronised_sharing" not in alone.names


def test_sharing_needs_tiles_of_other_programs() -> None:
    # Every program reads back only the rows that it stored: batch rows are split by pid // N, columns are whole.
    kernel = """
@triton.jit
def rows_only(states, T, H: tl.constexpr):
    row = tl.program_id(0)
    k = tl.arange(0, H)
    for t in range(T):
        h = tl.load(states + t * 10 * H + row * H + k)
        tl.store(states + (t + 1) * 10 * H + row * H + k, h * 0.5)
"""
    found = detect(make_module(kernel, "rows_only[(10,)](out, 512, 256)"))
    assert "persistent" in found.names and "unsynchronised_sharing" not in found.names


@pytest.mark.parametrize(
    ("loop", "expected"),
    [
        ("for t in range(x.shape[0]):\n    step[(8,)](x[t], x, self.weight, out, 10, 256, 32)", True),
        ("T, B, H = x.shape\nfor t in range(T):\n    step[(8,)](x[t], x, self.weight, out, B, H, 32)", True),
        ("for i in range(x.size(0)):\n    step[(8,)](x[i], x, self.weight, out, 10, 256, 32)", True),
        ("for i in range(x.size(0)):\n    self.one(x[i], out)", True),
        ("t = 0\nwhile t < x.shape[0]:\n    step[(8,)](x[t], x, self.weight, out, 10, 256, 32)\n    t += 1", True),
        ("for row in x.unbind(0):\n    step[(8,)](row, x, self.weight, out, 10, 256, 32)", True),
        ("for layer in range(self.n):\n    step[(8,)](x, x, self.weight, out, 10, 256, 32)", False),
        ("for d in range(2):\n    step[(8,)](x, x, self.weight, out, 10, 256, 32)", False),
        ("for b in range(0, x.shape[1], 16):\n    step[(8,)](x[:, b], x, self.weight, out, 10, 256, 32)", False),
        ("step[(8,)](x, x, self.weight, out, 10, 256, 32)\nfor t in range(x.shape[0]):\n    pass", False),
    ],
)
def test_time_loop_in_python_by_its_looks(loop: str, expected: bool) -> None:
    source = make_module(STEP, loop) + "\n    def one(self, x, out):\n        step[(8,)](x, x, self.weight, out, 10, 256, 32)\n"
    assert ("time_loop_in_python" in detect(source).names) is expected


def test_time_loop_in_python_by_counts() -> None:
    source = make_module(STEP, "for index in range(self.n):\n    step[(8,)](x[index], x, self.weight, out, 10, 256, 32)")
    task = TaskFacts(ops=(OpNode(name="gru", op="call_module", target="gru", module_type="GRU", attributes={"num_layers": 6}),))

    def facts(launches: int) -> LaunchFacts:
        return LaunchFacts(launches_per_forward=launches, kernels=(KernelFacts(name="step", launches=launches),))

    assert "time_loop_in_python" not in detect(source, facts(6), task).names
    assert "time_loop_in_python" in detect(source, facts(6), TaskFacts()).names  # a short sequence, and no layers that it could be
    assert "time_loop_in_python" not in detect(source, facts(1), TaskFacts()).names
    found = find_hit(detect(source, facts(3072), task), Trait.TIME_LOOP_IN_PYTHON)
    assert "3072" in found.evidence and found.line == line_of(source, "step[(8,)]")


def test_grid_that_leaves_the_card_empty() -> None:
    source = (KERNELS / "gru_batch.py").read_text()

    def facts(programs: int) -> LaunchFacts:
        return LaunchFacts(launches_per_forward=6, kernels=(KernelFacts(name="gru_layer", launches=6, grid=(programs, 1, 1)),))

    found = find_hit(detect(source, facts(10), hardware=H200), Trait.ONE_AXIS_GRID)
    assert "10 programs on 132 processors" in found.evidence
    assert "one_axis_grid" not in detect(source, facts(128), hardware=H200).names


@pytest.mark.parametrize(
    "body",
    [
        "total += tl.load(h + k) * tl.load(w + k * H + cols)",
        "total = total + tl.load(w + k * H + cols) * tl.load(h + k)",
        "one = tl.sum(tl.where(every == k, state, 0.0))\n        total += one * tl.load(w + k * H + cols)",
        "column = tl.load(h + cols * H + k)\n        row = tl.load(w + k * H + cols)\n        tile += column[:, None] * row[None, :]",
    ],
)
def test_serial_hidden_loop(body: str) -> None:
    kernel = f"""
@triton.jit
def serial(h, w, out, H: tl.constexpr, BH: tl.constexpr):
    cols = tl.program_id(0) * BH + tl.arange(0, BH)
    every = tl.arange(0, H)
    state = tl.load(h + every)
    total = tl.zeros((BH,), tl.float32)
    tile = tl.zeros((BH, BH), tl.float32)
    for k in range(H):
        {body}
    tl.store(out + cols, total)
"""
    assert "serial_hidden_loop" in detect(make_module(kernel, "serial[(8,)](x, self.weight, out, 256, 32)")).names


def test_tiles_and_recurrences_are_no_serial_hidden_loop() -> None:
    kernel = """
@triton.jit
def tiled(h, w, out, K, BK: tl.constexpr, BN: tl.constexpr):
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    total = tl.zeros((BN,), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        total += tl.sum(tl.load(h + k)[None, :] * tl.load(w + n[:, None] * K + k[None, :]), 1)
    tl.store(out + n, total)

@triton.jit
def scan(a, b, out, T, BN: tl.constexpr):
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    h = tl.zeros((BN,), tl.float32)
    for t in range(T):
        h = tl.load(a + t * BN + n) * h + tl.load(b + t * BN + n)
        tl.store(out + t * BN + n, h)
"""
    found = detect(make_module(kernel, "tiled[(8,)](x, self.weight, out, 256, 64, 32)\nscan[(8,)](x, x, out, 512, 32)"))
    assert "serial_hidden_loop" not in found.names
    assert [kernel.name for kernel in found.kernels if kernel.persistent] == ["scan"]


@pytest.mark.parametrize(
    ("loop", "expected"),
    [
        ("for layer in self.layers:\n    step[(8,)](x, x, layer.weight, out, 10, 256, 32)", False),
        ("for i in range(12):\n    step[(8,)](x, x, self.layers[str(i)].weight, out, 10, 256, 32)", False),
        ("for layer in self.layers:\n    for t in range(12):\n        step[(8,)](x[t], x, layer.weight, out, 10, 256, 32)", True),
        ("for i in range(12):\n    step[(8,)](x, x, self.weight, out, i, 256, 32)", True),
    ],
)
def test_a_loop_over_many_layers_is_no_time_loop(loop: str, expected: bool) -> None:
    facts = LaunchFacts(launches_per_forward=12, kernels=(KernelFacts(name="step", launches=12),))
    assert ("time_loop_in_python" in detect(make_module(STEP, loop), facts, TaskFacts()).names) is expected
