"""Without a card, nothing that a candidate does in its own process counts: its forward is done again from launches and operators alone."""

import json
import os
import subprocess
import sys

import pytest

from tritonsmith.evaluator.caller.local import LocalEvaluator
from tritonsmith.evaluator.channel.trace import Unreplayable, copy_trace, digest, read_trace, write_trace
from tritonsmith.evaluator.oracle.judge.facts_without_card import find_other_constants
from tritonsmith.evaluator.schema import Label, Status, Task, Verdict

TASK = Task(
    name="scaled",
    path="scaled.py",
    source="""
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.scale = nn.Parameter(torch.rand(columns) + 0.5)

    def forward(self, x):
        return x * self.scale + 1.0

def get_inputs():
    return [torch.randn(6, 32)]

def get_init_inputs():
    return [32]
""",
)
TOP = """
import ctypes, math, sys, threading
import numpy
import torch
import triton
import triton.language as tl
from torch import nn
from triton.language.extra import libdevice

ONE = tl.constexpr(1.0)
_TWO = tl.constexpr(2.0)

@triton.jit
def _affine(value, scale, shift):
    return libdevice.fma(value, scale, shift)

@triton.jit
def scaled(x, scale, out, count, columns, shift, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    value = _affine(tl.load(x + place, mask=inside), tl.load(scale + place % columns, mask=inside), shift * ONE)
    tl.store(out + place, value + 0.0 * math.pi, mask=inside)

@triton.jit
def copy(x, out, count, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + place, tl.load(x + place, mask=place < count), mask=place < count)

class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.scale = nn.Parameter(torch.empty(columns))
        self.calls = 0
        self.begin()

    def begin(self):
        pass

    def launch(self, x, out=None, count=None, shift=1.0):
        out = torch.empty_like(x) if out is None else out
        count = count or x.numel()
        scaled[(triton.cdiv(count, 64),)](x, self.scale, out, count, x.shape[-1], shift, BLOCK=64)
        return out

    def by_numpy(self, x):
        return torch.from_numpy(x.numpy() * self.scale.detach().numpy() + numpy.float32(1.0))
"""
HONEST = "    def forward(self, x):\n        return self.launch(x)\n"


def judged(evaluator: LocalEvaluator, body: str) -> Verdict:
    return evaluator.evaluate_now(TASK, TOP + body)


HIDDEN_WORK = {
    "numpy": """
    def forward(self, x):
        self.launch(x, count=1)
        return self.by_numpy(x)
""",
    "numpy through a kernel that copies": """
    def forward(self, x):
        hidden, out = self.by_numpy(x), torch.empty_like(x)
        copy[(3,)](hidden, out, x.numel(), BLOCK=64)
        return out
""",
    "another thread": """
    def forward(self, x):
        box = []
        thread = threading.Thread(target=lambda: box.append(x * self.scale + 1.0))
        thread.start()
        thread.join()
        self.launch(x, count=1)
        return box[0]
""",
    "bytes moved behind a tensor": """
    def forward(self, x):
        out = self.launch(x, torch.zeros_like(x), count=1)
        hidden = x.numpy() * self.scale.detach().numpy() + numpy.float32(1.0)
        ctypes.memmove(out.data_ptr(), hidden.ctypes.data, hidden.nbytes)
        return out
""",
    "a number computed by numpy": """
    def forward(self, x):
        return self.launch(x, shift=1.0 + 1e-12 * float(x.numpy().sum()))
""",
    "as many numbers as were read": """
    def forward(self, x):
        read = [x[0, place].item() for place in range(8)]
        for number in self.by_numpy(x)[0, :16].tolist():
            self.launch(x, count=1, shift=number)
        return self.launch(x, shift=1.0 + 0.0 * len(read))
""",
}


CORPUS = ("numpy", "a number computed by numpy", "numpy through a kernel that copies", "another thread", "bytes moved behind a tensor")
"""Judged in the corpus of hacks or the slow suite."""


@pytest.mark.parametrize(
    "body", [pytest.param(body, id=name, marks=pytest.mark.slow if name in CORPUS else ()) for name, body in HIDDEN_WORK.items()]
)
def test_work_that_nobody_counts_is_refused(evaluator: LocalEvaluator, body: str) -> None:
    verdict = judged(evaluator, body)
    assert verdict.status is Status.CHEATING, verdict.message


def test_what_kernels_and_forwards_may_do(evaluator: LocalEvaluator) -> None:
    """Packed weights, kept and alternating buffers, tables, constants, numbers that were read, autotuning, kernels in place."""
    verdict = judged(
        evaluator,
        """
    def begin(self):
        self.packed, self.flags = None, [torch.full((4,), 7), torch.zeros(4, dtype=torch.int32)]
        self.table = torch.from_numpy(numpy.linspace(0.0, 1.0, 64, dtype=numpy.float32))

    def forward(self, x):
        self.calls += 1
        if self.packed is None:
            self.packed = torch.stack([self.scale, self.table[:32]], 1).contiguous()
        flag = self.flags[self.calls % 2]
        add_one[(2,)](flag, self.calls, BLOCK=4)
        limit = x.abs().max().item() * 1.5
        steps = torch.tensor([3, 1, 2], device=x.device)
        out = x.clone()
        tuned[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](out, self.packed, steps, limit, x.numel(), x.shape[1])
        return out

@triton.jit
def add_one(flag, calls, BLOCK: tl.constexpr):
    tl.atomic_add(flag + tl.arange(0, BLOCK), calls)

@triton.autotune([triton.Config({"BLOCK": 32}), triton.Config({"BLOCK": 64})], key=["count"], restore_value=["out"])
@triton.jit
def tuned(out, packed, steps, limit, count, columns, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < count
    one = tl.load(steps + 1).to(tl.float32)
    value = tl.minimum(tl.load(out + place, mask=inside), limit)
    tl.store(out + place, _affine(value, tl.load(packed + place % columns * 2, mask=inside), one * _TWO - 1.0), mask=inside)
""",
    )
    assert verdict.status is Status.OK, verdict.message
    assert {kernel.name for kernel in verdict.facts.kernels} == {"add_one", "tuned"}
    assert verdict.facts.library_calls.get("abs") == 1 and "stack" not in verdict.facts.library_calls


def test_an_honest_kernel_keeps_its_label(evaluator: LocalEvaluator) -> None:
    verdict = judged(evaluator, HONEST)
    assert verdict.status is Status.OK, verdict.message
    assert verdict.label is Label.KERNEL and verdict.facts.triton_launches == 1


def test_the_candidate_cannot_switch_the_race_detector_off(evaluator: LocalEvaluator) -> None:
    """A race is found where the candidate cannot switch the detector off."""
    verdict = judged(
        evaluator,
        """
    def forward(self, x):
        out, word = self.launch(x), torch.zeros(1)
        everybody_writes[(4,)](word)
        return out

@triton.jit
def everybody_writes(word):
    tl.store(word, tl.program_id(0) * 1.0)

for name, module in list(sys.modules.items()):
    if name.endswith("interpreter.races"):
        for method in ("read", "write", "atomic", "_check", "_check_readers", "_report"):
            setattr(module.RaceDetector, method, lambda *a, **k: None)
""",
    )
    assert verdict.status is Status.RACY, verdict.message
    assert "line " in verdict.message and "word[0]" in verdict.message


def test_memory_that_nothing_wrote_is_no_result(evaluator: LocalEvaluator) -> None:
    verdict = judged(
        evaluator,
        """
    def forward(self, x):
        scratch = torch.empty_like(x)
        scratch.numpy()[:] = 0.0  # what fresh memory often holds
        return self.launch(x) + scratch
""",
    )
    assert verdict.status is Status.INACCURATE, verdict.message
    assert "in another process" in verdict.message and "never written" in verdict.message


def test_an_access_out_of_bounds_names_kernel_line_and_tensor(evaluator: LocalEvaluator) -> None:
    """The slots of inputs lie in one block, with gaps; a read past the end of one is found all the same."""
    text = (TOP + HONEST).replace("64", "128").replace("tl.load(x + place, mask=inside)", "tl.load(x + place)", 1)
    assert text.count("128") == 2 and "tl.load(x + place)" in text
    verdict = evaluator.evaluate_now(TASK, text)
    assert verdict.status is Status.RUNTIME_ERROR, verdict.message
    for part in ("kernel scaled, line ", "out-of-bounds load", "past the end of x (768 bytes)"):
        assert part in verdict.message


PROBE = '''
import json, sys
from tritonsmith.evaluator.confined.interpreter import patches, schedule
patches.install()
from tritonsmith.evaluator.channel.trace import Unreplayable
from tritonsmith.evaluator.confined.replay.kernels import Kernels

HEAD = """
import math, os
import triton
import triton.language as tl
from triton.language.extra import libdevice as lib
from triton.language import core
LIMIT = 3.0
WIDTH = -(2 * 4) + 1
SCALE = tl.constexpr(0.5)
sine = tl.sin

@triton.jit
def helper(x):
    return x + 1

@triton.constexpr_function
def half(n):
    return n // 2

@triton.constexpr_function
def sly(n):
    return os.getpid()

def plain(x, by: tl.constexpr = SCALE, width: tl.constexpr = WIDTH):
    return x * by * width

called = triton.jit(plain)

@triton.autotune(configs=[], key=[])
@triton.jit
def kernel(x, BLOCK: tl.constexpr = 4, n: int = 3):
    'Does little.'
"""
answers = {}
HELPERS = {name: [name, HEAD[: HEAD.index("def " + name)].count("\\n") + 1] for name in ("helper", "half", "plain")}
KERNEL = HEAD[: HEAD.index("def kernel")].count("\\n") + 1
for body in json.loads(sys.stdin.read()):
    text = HEAD + "".join(f"    {line}\\n" for line in body.splitlines())
    kernels = Kernels(text, "candidate.py")
    try:
        with schedule.session("round_robin", 0):
            kernels.bind({"LIMIT": 3.0}, HELPERS)
            if "sly" in body:
                kernels.bind({}, {"sly": ["sly", HELPERS["half"][1] + 4]})
            answers[body] = "accepted" if callable(kernels.find_function("kernel", KERNEL).rewrite()) else "nothing"
    except Unreplayable as problem:
        answers[body] = str(problem)
twice = "import triton\\nif 1:\\n    @triton.jit\\n    def f(x):\\n        pass\\nelse:\\n    @triton.jit\\n    def f(x):\\n        1\\n"
try:
    Kernels(twice, "candidate.py").find_function("f", 4)
except Unreplayable as problem:
    answers["twice"] = str(problem)
print(json.dumps(answers))
'''
ALLOWED = (
    "tl.store(x, helper(tl.load(x)) + LIMIT)",
    "for i in tl.static_range(BLOCK):\n    y = lib.tanh(tl.math.exp(tl.load(x + i).to(tl.float32)))\n    tl.store(x + i, y)",
    "while tl.atomic_add(x, 0, sem='acquire') < n:\n    pass",
    "y = tl.zeros([BLOCK, BLOCK], core.float32)\ntl.static_assert(y.shape[0] == BLOCK)\nz = tl.sum(y, 1, keep_dims=True).T",
    "a, b = sine(1.0), math.pi * float('inf')\na += triton.cdiv(n, BLOCK)",
    "i = tl.max_contiguous(tl.multiple_of(tl.arange(0, BLOCK), BLOCK), BLOCK)\ntl.static_print('block', BLOCK)",
    "H: tl.constexpr = half(BLOCK)\ntl.store(x + tl.arange(0, H), plain(1.0))",
)
REFUSED = (
    "import os",
    "os.system('true')",
    "open('/etc/passwd')",
    "__import__('os')",
    "tl.__builtins__",
    "tl.core.builtins",
    "tl.core.inspect.currentframe()",
    "triton.runtime.driver",
    "x.handle.data[:] = 0",
    "tl.load.__globals__['x'] = 1",
    "tl.load = n",
    "x[0] = 1",
    "y = (lambda: 1)()",
    "try:\n    n = 1\nexcept Exception:\n    pass",
    "helper.fn(x)",
    "tl.load(x, _semantic=n)",
    "interpreter_builder.grid_idx",
    "eval('1')",
    "getattr(x, 'han' + 'dle')",
    "def inner():\n    pass",
    "global n",
    "tl.multiple_of.__globals__",
    "half.fn(x)",
)


@pytest.fixture(scope="module")
def probed() -> dict[str, str]:
    done = subprocess.run(
        [sys.executable, "-P", "-c", PROBE], input=json.dumps([*ALLOWED, *REFUSED, "n = sly(4)"]), capture_output=True, text=True,
        env=os.environ | {"TRITON_INTERPRET": "1"}, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    answers: dict[str, str] = json.loads(done.stdout)
    return answers


@pytest.mark.parametrize("body", ALLOWED)
def test_kernels_in_the_language_are_run(probed: dict[str, str], body: str) -> None:
    assert probed[body] == "accepted"


def test_a_function_on_constants_is_held_to_the_language_as_well(probed: dict[str, str]) -> None:
    assert probed["n = sly(4)"] == "kernel sly, line 22: the name os is not part of Triton's language"


@pytest.mark.parametrize("body", REFUSED)
def test_kernels_that_leave_the_language_are_not(probed: dict[str, str], body: str) -> None:
    assert probed[body].startswith("kernel kernel, line ") and "is not part of Triton's language" in probed[body]


def test_a_kernel_with_two_bodies_is_not_run(probed: dict[str, str]) -> None:
    assert "kernel f is defined more than once" in probed["twice"]


def test_constants_must_be_those_that_were_compiled() -> None:
    """Constants must be those that were compiled, unless a tuner chooses them."""
    kernel = {"name": "f", "launches": 1, "grid": [2, 1, 1], "constexprs": {"STEPS": 1, "KIND": "fp32", "BLOCK": 64}}
    launch = {"name": "f", "grid": [2, 1, 1], "constexprs": {"STEPS": 6, "KIND": "float32", "BLOCK": 64}}
    said = find_other_constants({"kernels": [kernel]}, {"launches": [launch], "fixed": ["f"]})
    assert "kernel f runs with STEPS=6 and is compiled with STEPS=1" in said
    assert not find_other_constants({"kernels": [kernel]}, {"launches": [launch], "fixed": []})
    assert not find_other_constants({"kernels": [kernel]}, {"launches": [launch | {"constexprs": {"STEPS": 1}}], "fixed": ["f"]})
    assert not find_other_constants({"kernels": [kernel | {"grid": [3, 1, 1]}]}, {"launches": [launch], "fixed": ["f"]})


def test_a_trace_comes_back_as_it_was_written() -> None:
    block = memoryview(bytearray(4096))
    events = [{"kind": "found", "number": 1, "at": 0, "size": 3}]
    write_trace(block, events, [digest(b"one"), digest(b"two")], [b"abc", b"de"])
    whole, short = read_trace(copy_trace(block, blobs=True)), read_trace(copy_trace(block, blobs=False))
    assert whole.events == short.events == events and whole.blobs == b"abcde" and short.blobs == b""
    assert whole.digests == short.digests == {digest(b"one"), digest(b"two")}


def test_a_trace_that_is_cut_off_or_too_large_is_none() -> None:
    block = memoryview(bytearray(64))
    with pytest.raises(Unreplayable, match="take a smaller size"):
        write_trace(block, [], [], [bytes(100)])
    with pytest.raises(ValueError):
        read_trace(copy_trace(block, blobs=True))
    block[:8] = (1 << 40).to_bytes(8, "little")  # a length that is not there
    with pytest.raises(ValueError):
        read_trace(copy_trace(block, blobs=True))
