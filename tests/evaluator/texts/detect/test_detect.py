"""Detection on kernels of the kinds that the notes describe: what must be said, and what must not."""

import pytest

from detected_kernels import STEP, find_hit, line_of, make_module
from tritonsmith.evaluator.cards.cards import CARDS
from tritonsmith.evaluator.errors import KernelFileError
from tritonsmith.evaluator.schema import KernelFacts, LaunchFacts, TaskFacts, Timing, TimingKind
from tritonsmith.evaluator.texts.detect.detection import Trait, detect

H200 = CARDS["h200"]
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


COUNTING = """
@triton.jit
def count(x, out, calls, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n), mask=i < n)
    old = tl.load(calls)
    tl.store(calls, old * 2 + 1)
"""


def test_a_lost_update_names_both_lines() -> None:
    source = make_module(COUNTING, "count[(8,)](x, out, self.weight, 2048, 256)")
    hit = find_hit(detect(source), Trait.UNSYNCHRONISED_SHARING)
    assert hit.line == line_of(source, "old = tl.load") and f"line {line_of(source, 'old * 2')}" in hit.evidence
    assert "calls" in hit.evidence and "one program" in hit.nearest
    facts = LaunchFacts(launches_per_forward=1, kernels=(KernelFacts(name="count", launches=1, grid=(1, 1, 1)),))
    assert "unsynchronised_sharing" not in detect(source, facts).names
    assert "unsynchronised_sharing" not in detect(source.replace("old * 2 + 1", "old")).names


@pytest.mark.parametrize(
    ("guard", "several"),
    [
        ("pid > 0", True), ("0 < pid", True), ("pid < 4", True), ("pid * BLOCK < n", True), ("pid != 3", True), ("pid % 2 == 0", True),
        ("pid < 1", False), ("pid <= 0", False), ("pid == 3", False), ("pid >= n - 1", False), ("not pid", False),
    ],
)  # fmt: skip
def test_a_condition_may_leave_one_program(guard: str, several: bool) -> None:
    kernel = COUNTING.replace("    old =", f"    pid = tl.program_id(0)\n    if {guard}:\n      old =")
    kernel = kernel.replace("    tl.store(calls", "      tl.store(calls")
    found = detect(make_module(kernel, "count[(8,)](x, out, self.weight, 2048, 256)"))
    assert ("unsynchronised_sharing" in found.names) == several


def test_direct_convolution() -> None:
    source = make_module(CONVOLUTION, "conv[(8,)](x, self.weight, out, 64, 224, 3, 3, 32)")
    found = detect(source)
    assert find_hit(found, Trait.DIRECT_CONVOLUTION).line == line_of(source, "for i in range(KH)")
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
    found = detect(make_module(gemm, "implicit[(8,)](x, self.weight, out, 64, 32, 32)\npool[(8,)](x, out, 224, 32)"))
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
    source = make_module(kernel, forward) + "\n    def helper(self, x):\n        return torch.conv2d(x, self.weight)\n"
    found = find_hit(detect(source), Trait.LIBRARY_PASS_THROUGH)
    assert named in found.evidence and found.line
    if "launches no" not in named:
        mostly_own = LaunchFacts(own_time_share=0.9)
        assert "library_pass_through" not in detect(source, mostly_own).names


def test_library_parameters_and_dead_code_are_no_pass_through() -> None:
    """Parameters of library modules and dead code are no pass-through."""
    source = make_module(STEP, "step[(8,)](x, x, self.lstm.weight_hh_l0, out, 10, 256, 32)")
    source += "\n\nclass Model(nn.Module):\n    def forward(self, x):\n        return nn.functional.linear(x, x) @ x\n"
    assert detect(source).names == set()


def test_words_never_count() -> None:
    words = '''
    """torch.matmul(x, w); while tl.load(p): for t in range(T): winograd online softmax tl.maximum tl.atomic_add"""
    # wait for the other programs; nn.LSTM; for k in range(H): acc += a * b
'''
    source = make_module(STEP.replace("    cols", words + "    cols", 1), "step[(8,)](x, x, self.weight, out, 10, 256, 32)")
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
    assert detect(make_module(ATTENTION, forward)).names == {"high_complexity"}
    plain = ATTENTION.replace("shrink = tl.exp(highest - higher)", "shrink = tl.exp(scores * 0.0)")
    assert detect(make_module(plain, forward)).names == set()
    loop = "step[(8,)](x, x, g, out, 10, 256, 32)"
    matrices = make_module(STEP, "g = torch.tensor([[1, 0, 0], [.5, .5, .5], [.5, -.5, .5], [0, 0, 1]])\n" + loop)
    assert "high_complexity" in detect(matrices).names
    named = make_module(STEP.replace("step", "winograd_tile"), "winograd_tile[(8,)](x, x, x, out, 1, 2, 3)")
    assert "high_complexity" not in detect(named).names


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
    found = detect(make_module(kernel, "product[(8, 8)](x, x, out, 256, 256, 32, 32)\nin_turn[(132,)](out, 4096, 256)"))
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
    source = make_module(STEP, "step[(8,)](x, x, self.weight, out, 10, 256, 32)")
    facts = LaunchFacts(launches_per_forward=launches, kernels=(KernelFacts(name="step", launches=launches),))
    found = detect(source, facts, task, H200, timing(milliseconds))
    assert find_hit(found, expected).evidence and len([one for one in found.names if one.endswith("_bound")]) == 1
    assert f"{milliseconds:.4g} ms" in find_hit(found, expected).evidence
    estimated = detect(source, facts, task, H200, timing(milliseconds, TimingKind.ESTIMATED))
    assert "estimated" in find_hit(estimated, expected).evidence
    assert not any(one.endswith("_bound") for one in detect(source, facts, task, H200).names)


def test_kernels_compiled_several_times_keep_the_card_busy() -> None:
    source = make_module(STEP, "step[(8,)](x, x, self.weight, out, 10, 256, 32)")
    untimed = [KernelFacts(name="step", launches=3, grid=(size, 1, 1)) for size in (8, 16)]  # the profiler knows names only
    timed = KernelFacts(name="other", launches=1, device_ms=0.001)
    task = TaskFacts(min_bytes=268e6, flops=1.3e8)
    facts = LaunchFacts(launches_per_forward=7, kernels=(*untimed, timed), own_time_share=1.0, device_ms=0.078)
    assert "launch_bound" not in detect(source, facts, task, H200, timing(0.08)).names


def test_text_that_is_no_python() -> None:
    with pytest.raises(KernelFileError, match=r"mine\.py, line 2: .*fix the syntax"):
        detect("import torch\ndef broken(:\n", path="mine.py")


def branched(piece: str, count: int = 40) -> str:
    """A file in which every piece leads to the next one in two ways."""
    return "".join(piece.replace("NEXT", str(number + 1)).replace("THIS", str(number)) for number in range(count))


HELPED = "import triton\nimport triton.language as tl\n" + branched(
    "@triton.jit\ndef kTHIS(x):\n    return " + " + ".join(["kNEXT(x)"] * 30) + "\n"
)
DOUBLING = {
    "functions": branched("def fTHIS(x):\n    return fNEXT(x) + fNEXT(x)\n") + "class ModelNew:\n    def forward(self, x): return f0(x)\n",
    "loops": branched("def fTHIS(x):\n    for i in x: fNEXT(x)\n    for i in x: fNEXT(x)\n")
    + "class ModelNew:\n    def forward(self, x): return f0(x)\n",
    "kernels": HELPED + "@triton.jit\ndef start(x):\n    tl.store(x, k0(1))\nclass ModelNew:\n    def forward(self, x): start[(1,)](x)\n",
    "depth": "class ModelNew:\n    def forward(self, x): return x" + ".a" * 3000 + "\n",
}


@pytest.mark.parametrize(
    "source",
    [pytest.param(text, id=name, marks=pytest.mark.slow if name in ("functions", "kernels") else ()) for name, text in DOUBLING.items()],
)
def test_a_text_that_cannot_be_followed_is_an_answer_too(source: str) -> None:
    with pytest.raises(KernelFileError, match="write it plainer"):
        detect(source)


def test_classes_that_inherit_in_many_ways_are_read_once() -> None:
    classes = branched("class ATHIS(CTHIS): pass\nclass BTHIS(CTHIS): pass\nclass CNEXT(ATHIS, BTHIS): pass\n")
    source = f"import torch\nclass C0:\n    def work(self, x): return torch.relu(x)\n{classes}class ModelNew(C40):\n"
    source += "    def forward(self, x):\n        return self.work(x)\n"
    assert detect(source).names == detect(source.replace(classes, "").replace("C40", "C0")).names
