"""Detection on kernels of the kinds that the notes describe: what must be said, and what must not."""


import pytest

from project import HELPERS
from tritonsmith.evaluator.cards import CARDS
from tritonsmith.evaluator.detect.detection import Detection, Trait, TraitHit, detect
from tritonsmith.evaluator.errors import KernelFileError
from tritonsmith.evaluator.schema import KernelFacts, LaunchFacts, OpNode, TaskFacts, Timing, TimingKind

KERNELS = HELPERS / "kernels"
H200 = CARDS["h200"]
HEAD = """
import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl
"""
MODEL = """
class ModelNew(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n, n))
        self.lstm = nn.LSTM(n, n)
        self.fc = nn.Linear(n, n)
        self.n = n

    def forward(self, x):
        out = torch.empty_like(x)
"""


def module(kernel: str, forward: str) -> str:
    """A kernel file from a kernel and the body of forward."""
    body = "\n".join("        " + line for line in forward.strip().splitlines())
    return f"{HEAD}\n{kernel}\n{MODEL}{body}\n        return out\n"


def hit(detection: Detection, name: Trait) -> TraitHit:
    """The one label of that name."""
    (found,) = [one for one in detection.labels if one.name is name]
    return found


def line_of(source: str, text: str) -> int:
    """Line of the first place where the text stands."""
    return next(number for number, line in enumerate(source.splitlines(), 1) if text in line)


STEP = """
@triton.jit
def step(x, h, w, out, B, H: tl.constexpr, BH: tl.constexpr):
    cols = tl.program_id(0) * BH + tl.arange(0, BH)
    rows = tl.arange(0, 16)
    k = tl.arange(0, H)
    state = tl.load(h + rows[:, None] * H + k[None, :])
    total = tl.dot(state, tl.load(w + k[:, None] * H + cols[None, :]))
    tl.store(out + rows[:, None] * H + cols[None, :], total)
"""
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
    sharing = hit(racy, Trait.UNSYNCHRONISED_SHARING)
    assert sharing.line == line_of(source, "h = tl.load(last + rows[:, None] * H + every")
    assert "states" in sharing.evidence and f"line {line_of(source, 'tl.store(states')}" in sharing.evidence


def test_waiting_in_every_step_is_no_unsynchronised_sharing() -> None:
    forward = "wave[(6 * 8,)](out, self.weight, x, 512, 10, 256, 8, 32, launch_cooperative_grid=True)"
    waiting = detect(module(WAVEFRONT, forward))
    assert waiting.names == {"persistent"}
    (kernel,) = waiting.kernels
    assert kernel.waits and kernel.persistent and kernel.uses_dot
    careless = WAVEFRONT.replace("        wait(progress + layer * N + tl.arange(0, N), t)\n", "")
    assert "unsynchronised_sharing" in detect(module(careless, forward)).names
    only_a_cta_barrier = careless.replace("    for t in range(T):\n", "    for t in range(T):\n        tl.debug_barrier()\n")
    assert "unsynchronised_sharing" in detect(module(only_a_cta_barrier, forward)).names
    helper = WAVEFRONT[: WAVEFRONT.index("@triton.jit\ndef wait")]
    elsewhere = module(WAVEFRONT.replace(helper, "from helpers import load_acquire\n\n"), forward)
    assert "unsynchronised_sharing" not in detect(elsewhere).names
    alone = detect(module(careless, "wave[(1,)](out, self.weight, x, 512, 10, 256, 1, 256)"))
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
    found = detect(module(kernel, "rows_only[(10,)](out, 512, 256)"))
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
    source = module(STEP, loop) + "\n    def one(self, x, out):\n        step[(8,)](x, x, self.weight, out, 10, 256, 32)\n"
    assert ("time_loop_in_python" in detect(source).names) is expected


def test_time_loop_in_python_by_counts() -> None:
    source = module(STEP, "for index in range(self.n):\n    step[(8,)](x[index], x, self.weight, out, 10, 256, 32)")
    task = TaskFacts(ops=(OpNode(name="gru", op="call_module", target="gru", module_type="GRU", attributes={"num_layers": 6}),))

    def facts(launches: int) -> LaunchFacts:
        return LaunchFacts(launches_per_forward=launches, kernels=(KernelFacts(name="step", launches=launches),))

    assert "time_loop_in_python" not in detect(source, facts(6), task).names
    found = hit(detect(source, facts(3072), task), Trait.TIME_LOOP_IN_PYTHON)
    assert "3072" in found.evidence and found.line == line_of(source, "step[(8,)]")


def test_grid_that_leaves_the_card_empty() -> None:
    source = (KERNELS / "gru_batch.py").read_text()

    def facts(programs: int) -> LaunchFacts:
        return LaunchFacts(launches_per_forward=6, kernels=(KernelFacts(name="gru_layer", launches=6, grid=(programs, 1, 1)),))

    found = hit(detect(source, facts(10), hardware=H200), Trait.ONE_AXIS_GRID)
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
    assert "serial_hidden_loop" in detect(module(kernel, "serial[(8,)](x, self.weight, out, 256, 32)")).names


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
    found = detect(module(kernel, "tiled[(8,)](x, self.weight, out, 256, 64, 32)\nscan[(8,)](x, x, out, 512, 32)"))
    assert "serial_hidden_loop" not in found.names
    assert [kernel.name for kernel in found.kernels if kernel.persistent] == ["scan"]


CONVOLUTION = """
@triton.jit
def conv(x, w, out, C, W, KH: tl.constexpr, KW: tl.constexpr, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for c in range(C):
        for i in range(KH):
            for j in range(KW):
                total += tl.load(x + (c * W + i) * W + j + place) * tl.load(w + (c * KH + i) * KW + j)
    tl.store(out + place, total)
"""


def test_direct_convolution() -> None:
    source = module(CONVOLUTION, "conv[(8,)](x, self.weight, out, 64, 224, 3, 3, 32)")
    found = detect(source)
    assert hit(found, Trait.DIRECT_CONVOLUTION).line == line_of(source, "for i in range(KH)")
    assert "serial_hidden_loop" not in found.names
    literal = source.replace("range(KH)", "tl.static_range(3)").replace("range(KW)", "tl.static_range(3)")
    assert "direct_convolution" in detect(literal).names


def test_implicit_gemm_and_pooling_are_no_direct_convolution() -> None:
    gemm = """
@triton.jit
def implicit(x, w, out, C, BC: tl.constexpr, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for i in range(3):
        for j in range(3):
            for start in range(0, C, BC):
                c = start + tl.arange(0, BC)
                a = tl.load(x + place[:, None] + (i * 224 + j) * C + c[None, :])
                total += tl.dot(a, tl.load(w + ((i * 3 + j) * C + c[:, None]) * BLOCK + place[None, :]))
    tl.store(out + place[:, None] + place[None, :], total)

@triton.jit
def pool(x, out, W, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    best = tl.full((BLOCK,), -1e30, tl.float32)
    for i in range(2):
        for j in range(2):
            best = tl.maximum(best, tl.load(x + i * W + j + place))
    tl.store(out + place, best)
"""
    found = detect(module(gemm, "implicit[(8,)](x, self.weight, out, 64, 32, 32)\npool[(8,)](x, out, 224, 32)"))
    assert found.names == set()


@pytest.mark.parametrize(
    ("forward", "named"),
    [
        ("out, _ = self.lstm(x)\nscale[(8,)](out, 32)", "nn.LSTM"),
        ("out = F.linear(x, self.weight)\nscale[(8,)](out, 32)", "linear"),
        ("out = x @ self.weight\nscale[(8,)](out, 32)", "@"),
        ("out = torch.matmul(x, self.weight)\nscale[(8,)](out, 32)", "torch.matmul"),
        ("out = x.reshape(-1, 4).mm(self.weight)\nscale[(8,)](out, 32)", ".mm"),
        ("out = self.fc(x)\nscale[(8,)](out, 32)", "nn.Linear"),
        ("out = self.helper(x)\nscale[(8,)](out, 32)", "torch.conv2d"),
        ("out = torch.relu(x)", "launches no Triton kernel"),
    ],
)
def test_library_pass_through(forward: str, named: str) -> None:
    kernel = """
@triton.jit
def scale(x, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + place, tl.load(x + place) * 2.0)
"""
    source = module(kernel, forward) + "\n    def helper(self, x):\n        return torch.conv2d(x, self.weight)\n"
    found = hit(detect(source), Trait.LIBRARY_PASS_THROUGH)
    assert named in found.evidence and found.line
    if "launches no" not in named:
        mostly_own = LaunchFacts(own_time_share=0.9)
        assert "library_pass_through" not in detect(source, mostly_own).names


def test_library_parameters_and_dead_code_are_no_pass_through() -> None:
    """Parameters of library modules and dead code are no pass-through."""
    source = module(STEP, "step[(8,)](x, x, self.lstm.weight_hh_l0, out, 10, 256, 32)")
    source += "\n\nclass Model(nn.Module):\n    def forward(self, x):\n        return nn.functional.linear(x, x) @ x\n"
    assert detect(source).names == set()


def test_words_never_count() -> None:
    words = '''
    """torch.matmul(x, w); while tl.load(p): for t in range(T): winograd online softmax tl.maximum tl.atomic_add"""
    # wait for the other programs; nn.LSTM; for k in range(H): acc += a * b
'''
    source = module(STEP.replace("    cols", words + "    cols", 1), "step[(8,)](x, x, self.weight, out, 10, 256, 32)")
    found = detect(source)
    assert found.names == set()
    assert [kernel.launch_lines for kernel in found.kernels] == [(line_of(source, "step[(8,)]"),)]


ATTENTION = """
@triton.jit
def attention(q, k, v, out, N, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    query = tl.load(q + m[:, None] * D + d[None, :])
    highest = tl.full((BM,), -1e30, tl.float32)
    weight = tl.zeros((BM,), tl.float32)
    total = tl.zeros((BM, D), tl.float32)
    for start in range(0, N, BN):
        n = start + tl.arange(0, BN)
        scores = tl.dot(query, tl.trans(tl.load(k + n[:, None] * D + d[None, :])))
        higher = tl.maximum(highest, tl.max(scores, 1))
        shrink = tl.exp(highest - higher)
        p = tl.exp(scores - higher[:, None])
        weight = weight * shrink + tl.sum(p, 1)
        total = total * shrink[:, None] + tl.dot(p, tl.load(v + n[:, None] * D + d[None, :]))
        highest = higher
    tl.store(out + m[:, None] * D + d[None, :], total / weight[:, None])
"""


def test_high_complexity() -> None:
    forward = "attention[(8,)](x, x, x, out, 1024, 64, 64, 64)"
    assert detect(module(ATTENTION, forward)).names == {"high_complexity"}
    plain = ATTENTION.replace("shrink = tl.exp(highest - higher)", "shrink = tl.exp(scores * 0.0)")
    assert detect(module(plain, forward)).names == set()
    matrices = module(STEP, "g = torch.tensor([[1, 0, 0], [.5, .5, .5], [.5, -.5, .5], [0, 0, 1]])\nstep[(8,)](x, x, g, out, 10, 256, 32)")
    assert "high_complexity" in detect(matrices).names
    assert "high_complexity" in detect(module(STEP.replace("step", "winograd_tile"), "winograd_tile[(8,)](x, x, x, out, 1, 2, 3)")).names


def test_matrix_product_is_not_persistent_but_tiles_in_turn_are() -> None:
    kernel = """
@triton.jit
def product(a, b, c, K, N, BK: tl.constexpr, BM: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BM + tl.arange(0, BM)
    total = tl.zeros((BM, BM), tl.float32)
    pa = a + m[:, None] * K + tl.arange(0, BK)[None, :]
    for start in range(0, K, BK):
        total += tl.dot(tl.load(pa), tl.load(b + (start + tl.arange(0, BK))[:, None] * N + n[None, :]))
        pa += BK
    tl.store(c + m[:, None] * N + n[None, :], total)

@triton.jit
def in_turn(x, count, BLOCK: tl.constexpr):
    for tile in range(tl.program_id(0), count, tl.num_programs(0)):
        place = tile * BLOCK + tl.arange(0, BLOCK)
        tl.store(x + place, tl.load(x + place) * 2.0)
"""
    found = detect(module(kernel, "product[(8, 8)](x, x, out, 256, 256, 32, 32)\nin_turn[(132,)](out, 4096, 256)"))
    assert {kernel.name: kernel.persistent for kernel in found.kernels} == {"product": False, "in_turn": True}


def timing(milliseconds: float, kind: TimingKind = TimingKind.MEASURED) -> Timing:
    """A latency without a meaningful score."""
    return Timing(kind=kind, median_ms=milliseconds, baselines_ms={"eager": 1.0}, baseline="eager", score=1.0, score_eager=1.0)


@pytest.mark.parametrize(
    ("launches", "milliseconds", "task", "expected"),
    [
        (6000, 25.0, TaskFacts(min_bytes=1e7, flops=2.3e10, serial_steps=3072), Trait.LAUNCH_BOUND),
        (1, 0.08, TaskFacts(min_bytes=268e6, flops=1.3e8), Trait.MEMORY_BOUND),
        (1, 1.0, TaskFacts(min_bytes=1e8, flops=4e10), Trait.COMPUTE_BOUND),
        (1, 2.5, TaskFacts(min_bytes=1.7e7, flops=2.3e10, serial_steps=3072), Trait.LATENCY_BOUND),
    ],
)
def test_bounds_rest_on_figures(launches: int, milliseconds: float, task: TaskFacts, expected: Trait) -> None:
    source = module(STEP, "step[(8,)](x, x, self.weight, out, 10, 256, 32)")
    facts = LaunchFacts(launches_per_forward=launches, kernels=(KernelFacts(name="step", launches=launches),))
    found = detect(source, facts, task, H200, timing(milliseconds))
    assert hit(found, expected).evidence and len([one for one in found.names if one.endswith("_bound")]) == 1
    assert f"{milliseconds:.4g} ms" in hit(found, expected).evidence
    estimated = detect(source, facts, task, H200, timing(milliseconds, TimingKind.ESTIMATED))
    assert "estimated" in hit(estimated, expected).evidence
    assert not any(one.endswith("_bound") for one in detect(source, facts, task, H200).names)


def test_text_that_is_no_python() -> None:
    with pytest.raises(KernelFileError, match=r"mine\.py, line 2: .*fix the syntax"):
        detect("import torch\ndef broken(:\n", path="mine.py")


def branched(piece: str, count: int = 40) -> str:
    """A file in which every piece leads to the next one in two ways."""
    return "".join(piece.replace("NEXT", str(number + 1)).replace("THIS", str(number)) for number in range(count))


HELPERS = "import triton\nimport triton.language as tl\n" + branched(
    "@triton.jit\ndef kTHIS(x):\n    return " + " + ".join(["kNEXT(x)"] * 30) + "\n"
)
DOUBLING = {
    "functions": branched("def fTHIS(x):\n    return fNEXT(x) + fNEXT(x)\n") + "class ModelNew:\n    def forward(self, x): return f0(x)\n",
    "loops": branched("def fTHIS(x):\n    for i in x: fNEXT(x)\n    for i in x: fNEXT(x)\n")
    + "class ModelNew:\n    def forward(self, x): return f0(x)\n",
    "kernels": HELPERS + "@triton.jit\ndef start(x):\n    tl.store(x, k0(1))\nclass ModelNew:\n    def forward(self, x): start[(1,)](x)\n",
    "depth": "class ModelNew:\n    def forward(self, x): return x" + ".a" * 3000 + "\n",
}


@pytest.mark.parametrize("source", DOUBLING.values(), ids=DOUBLING)
def test_a_text_that_cannot_be_followed_is_an_answer_too(source: str) -> None:
    with pytest.raises(KernelFileError, match="write it plainer"):
        detect(source)


def test_classes_that_inherit_in_many_ways_are_read_once() -> None:
    classes = branched("class ATHIS(CTHIS): pass\nclass BTHIS(CTHIS): pass\nclass CNEXT(ATHIS, BTHIS): pass\n")
    source = f"import torch\nclass C0:\n    def work(self, x): return torch.relu(x)\n{classes}class ModelNew(C40):\n"
    source += "    def forward(self, x):\n        return self.work(x)\n"
    assert detect(source).names == detect(source.replace(classes, "").replace("C40", "C0")).names
