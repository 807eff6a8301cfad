"""Advice from the text alone: what it sees and on which line, that right kernels get none, and that no text makes it fail."""

import pytest

from tritonsmith.benchmarks.hacks.catalogue import hacks, variants
from tritonsmith.evaluator.schema import PrecisionClass
from tritonsmith.evaluator.texts.advice.advise import Advice, Kind, advice_lines, advise

IMPORTS = """import os
import sys
import time
import torch
import triton
import triton.language as tl
from torch import nn
from torch.nn import functional as F
"""
KERNEL = """
CACHE = {}

@triton.jit
def twice(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, at < n) * 2.0, at < n)
"""
LAUNCH = "y = torch.empty_like(x); twice[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), BLOCK=64)"


def module(forward: str, above: str = "", init: str = "pass", kernel: str = KERNEL) -> str:
    """A candidate; each argument is the body of its place, one statement per line."""
    lines = "\n".join(f"        {line}" for line in forward.splitlines())
    start = "\n".join(f"        {line}" for line in init.splitlines())
    return f"{IMPORTS}{above}\n{kernel}\nclass ModelNew(nn.Module):\n    def __init__(self):\n{start}\n    def forward(self, x):\n{lines}\n"


def honest(before: str = "", after: str = "return y", **places: str) -> str:
    """A candidate that launches its kernel, with something besides."""
    return module("\n".join(part for part in (before, LAUNCH, after) if part), **places)


def kinds(source: str, precision: PrecisionClass = PrecisionClass.IEEE) -> list[Kind]:
    return [one.kind for one in advise(source, precision)]


SPARE = "\n@triton.jit\ndef spare(x):  # HERE\n    tl.store(x, 0)\n"
WARNED = [
    ("a syntax error", "x = 1\ndef forward(:  # HERE\n", "Python cannot read"),
    ("no ModelNew", "# HERE\n" + honest().replace("ModelNew", "Model"), "no class ModelNew"),
    ("no kernel", "# HERE\n" + module("return torch.relu(x)", kernel=""), "no @triton.jit kernel"),
    ("a kernel that nothing launches", honest(kernel=KERNEL + SPARE), "spare is defined"),
    ("no launch", module("return F.relu(x)").replace("forward(self, x):", "forward(self, x):  # HERE"), "reaches no launch"),
    ("an empty grid", honest("twice[(0,)](x, x, 0, BLOCK=64)  # HERE", after="return y + 0"), "grid is empty"),
    ("a functional alone", module("return F.gelu(x)  # HERE"), "nothing but a library"),
    ("a layer alone", module("return self.gru(x)[0]  # HERE", init="self.gru = nn.GRU(3, 4)"), "nn.GRU"),
    ("a product alone", module("return torch.matmul(x, x)  # HERE"), "torch.matmul"),
    ("torch.compile", honest(above="fast = torch.compile(F.gelu)  # HERE"), "torch.compile"),
    ("torch.jit", honest(above="fast = torch.jit.script(F.gelu)  # HERE"), "torch.jit"),
    ("a fallback", honest("try:  # HERE\n    self.work(x)\nexcept Exception:\n    return F.gelu(x)"), "caught"),
    *((f"import {name}", honest(above=f"import {name}  # HERE"), f"import {name}") for name in (
        "subprocess", "socket", "ctypes", "threading", "importlib.util", "gc", "inspect", "numpy", "multiprocessing",
        "tritonsmith.evaluator.oracle.server",
    )),
    ("from concurrent", honest(above="from concurrent.futures import ThreadPoolExecutor  # HERE"), "concurrent.futures"),
    ("a stream", honest("s = torch.cuda.Stream()  # HERE"), "another stream"),
    ("a graph", honest("g = torch.cuda.CUDAGraph()  # HERE"), "old addresses"),
    ("a patched clock", honest("time.perf_counter = lambda: 0.0  # HERE"), "time.perf_counter gets another value"),
    ("a patched tensor", honest(above="torch.Tensor.copy_ = print  # HERE"), "torch.Tensor.copy_ gets another value"),
    ("setattr on a module", honest(above="setattr(triton, 'jit', print)  # HERE"), "setattr"),
    ("setattr in a loop over modules", honest(above="for one in (torch, triton): pass\nsetattr(sys, 'x', 1)  # HERE"), "setattr"),
    ("a method of one tensor", honest(after="y.cpu = lambda: x  # HERE\nreturn y"), "replaced by a function"),
    ("a kind of tensor", honest(above="class Lazy(torch.Tensor):  # HERE\n    pass"), "kind of tensor"),
    ("the environment", honest("mode = os.environ.get('MODE')  # HERE"), "os.environ"),
    ("a file", honest("text = open('/tmp/x').read()  # HERE"), "file"),
    ("a tensor from a file", honest("old = torch.load('/tmp/x')  # HERE"), "torch.load"),
    ("a seed", honest(above="torch.manual_seed(0)  # HERE"), "whole process"),
    ("TF32 for the library", honest(above="torch.backends.cuda.matmul.allow_tf32 = True  # HERE"), "whole process"),
    ("random numbers", honest("x = x + torch.randn(3)  # HERE"), "random numbers"),
    ("a cache by address", honest("if x.data_ptr() in CACHE:  # HERE\n    return 0"), "data_ptr of an input"),
    ("a cache by identity", honest("key = id(x)  # HERE"), "id()"),
    ("a cache by version", honest("key = x._version  # HERE"), "_version of an input"),
    ("a cache by shape", honest(after="CACHE[x.shape] = y  # HERE\nreturn y"), "CACHE is kept between calls"),
    ("a counter of calls", honest("self.calls += 1  # HERE"), "counts calls"),
    ("a global", honest("global CACHE  # HERE"), "earlier calls"),
    ("an input changed by torch", honest("x.mul_(2.0)  # HERE"), "writes to the input x"),
    ("an input changed by index", honest("x[0] = 1.0  # HERE"), "writes to the input x"),
    ("an input added to", honest("x += 1.0  # HERE"), "writes to the input x"),
    ("an input as the output", module("out = x\ntwice[(4,)](x, out, 9, BLOCK=64)  # HERE\nreturn 0"), "`y`, which is the input x"),
    ("an input as the answer", honest(after="return x  # HERE"), "returns its input"),
    ("fresh memory", honest(after="return torch.empty_like(x)  # HERE"), "no kernel wrote"),
    ("frames", honest("frame = sys._getframe()  # HERE"), "sys._getframe"),
    ("private parts", honest("y = torch._neg_view(x)  # HERE"), "private part of torch"),
    ("a hook", honest(init="self.register_forward_hook(print)  # HERE"), "hooks"),
    ("an endless loop", honest("while True:  # HERE\n    pass"), "never ends"),
    ("sleeping", honest("time.sleep(1)  # HERE"), "time.sleep"),
    ("in a function that forward calls", honest("helper(x)", above="def helper(x):\n    return id(x)  # HERE"), "id()"),
    ("in a module inside", honest("self.part(x)", above="class Part(nn.Module):\n    def forward(self, x):\n        self.n += 1  # HERE",
                                      init="self.part = Part()"), "counts calls"),
]  # fmt: skip


@pytest.mark.parametrize(("source", "says"), [case[1:] for case in WARNED], ids=[case[0] for case in WARNED])
def test_what_is_warned_of_and_where(source: str, says: str) -> None:
    line = next(number for number, text in enumerate(source.splitlines(), start=1) if "# HERE" in text)
    found = [one for one in advise(source) if says in one.text]
    assert found, [str(one) for one in advise(source)]
    assert found[0].kind is Kind.WARNING and found[0].line == line
    assert "\n" not in found[0].text and str(found[0]) == f"line {line}: {found[0].text}" and str(found[0]) in advice_lines(source)


DOT = "\n@triton.jit\ndef product(x, y, BLOCK: tl.constexpr):\n    a = tl.load(x)\n    tl.store(y, tl.dot(a, a{}))\n"
NOTED = [
    ("a library beside a kernel", honest("x = torch.matmul(x, x)"), "torch.matmul"),
    ("the product sign", honest("x = x @ x"), "`@`"),
    ("tl.dot as it stands", honest("product[(1,)](x, x.clone(), 4)", kernel=KERNEL + DOT.format("")), "input_precision"),
    ("rounding", honest(after="return y.bfloat16().float()"), "16 bit"),
    ("values in Python", honest("n = x.sum().item()"), ".item()"),
    ("an expanded row", honest(after="return y[:1].expand(4, 4)"), "many times"),
]


@pytest.mark.parametrize(("source", "says"), [case[1:] for case in NOTED], ids=[case[0] for case in NOTED])
def test_what_right_kernels_may_do_is_a_note(source: str, says: str) -> None:
    found = [one for one in advise(source) if says in one.text]
    assert found and {one.kind for one in found} == {Kind.NOTE}
    assert "note: " in str(found[0])


def test_precision_is_the_tasks() -> None:
    source = honest("product[(1,)](x, x.clone(), 4)", kernel=KERNEL + DOT.format(""))
    assert Kind.NOTE in kinds(source) and not kinds(source, PrecisionClass.TF32)
    assert not kinds(honest("product[(1,)](x, x.clone(), 4)", kernel=KERNEL + DOT.format(", input_precision='ieee'")))


ALLOWED = [
    ("nothing besides", honest()),
    ("an aligned address", honest("wide = x.data_ptr() % 16 == 0")),
    ("a changed copy", honest("x = x.clone()\nx.mul_(2.0)\nx += 1.0")),
    ("words in strings and comments", honest('"import subprocess; id(x); torch.compile"  # os.environ, x.data_ptr(), try: pass')),
    ("members below a number", honest(init="super().__init__()\nself.net = nn.Module()\nsetattr(self.net, '0', nn.Module())\n"
                                      "setattr(getattr(self.net, '0'), '1', nn.Module())")),
    ("parameters by name", honest(init="super().__init__()\nfor n in range(3):\n    setattr(self, f'w{n}', nn.Parameter(torch.zeros(3)))")),
    ("a layer that holds weights", honest("w = self.linear.weight", init="self.linear = nn.Linear(3, 4)")),
    ("a function as a grid", honest("grid = lambda meta: (9 // meta['BLOCK'],)\ntwice[grid](x, torch.empty_like(x), 9, BLOCK=64)")),
    ("a kernel by another name", honest("run = self.kernel\nrun[(1,)](x, torch.empty_like(x), 9, BLOCK=64)", init="self.kernel = twice")),
    ("a kernel for kernels", honest(kernel="\n@triton.jit\ndef half(v):\n    return v * 0.5\n" + KERNEL.replace("* 2.0", "* half(4.0)"))),
    ("a loop that ends", honest("while True:\n    break")),
]


@pytest.mark.parametrize("source", [case[1] for case in ALLOWED], ids=[case[0] for case in ALLOWED])
def test_what_right_kernels_do_is_not_remarked(source: str) -> None:
    assert advise(source) == ()


def test_no_right_kernel_of_the_corpus_is_warned_of() -> None:
    right = [case for kind in ("honest", "legitimate", "clean", "racy") for case in variants(kind)]
    assert len(right) >= 90  # the racy ones are right in everything that a text shows
    warned = {case.name: one for case in right for one in advise(case.source, PrecisionClass(case.precision)) if one.kind is Kind.WARNING}
    assert warned == {}


def test_most_hacks_of_the_corpus_are_warned_of() -> None:
    """Feedback, not a gate: what is missed here is refused by what it does, and what is warned of may still be accepted."""
    corpus = hacks()
    warned = {case.name for case in corpus if Kind.WARNING in kinds(case.source, PrecisionClass(case.precision))}
    assert len(warned) >= 0.7 * len(corpus)
    assert any(case.expect == ("ok",) for case in corpus if case.name in warned), "advice does not decide what a verdict is"


HOSTILE = {
    "diamonds": "class C0: pass\n"
    + "".join(f"class A{n}(C{n}): pass\nclass B{n}(C{n}): pass\nclass C{n + 1}(A{n}, B{n}): pass\n" for n in range(60))
    + "class ModelNew(C60):\n    def forward(self, x): return self.q(x)\n",
    "calls that double": "".join(f"def f{n}(x): return f{n + 1}(x) + f{n + 1}(x)\n" for n in range(200))
    + "class ModelNew:\n    def forward(self, x): return f0(x)\n",
    "a circle": "class A(B): pass\nclass B(A): pass\nclass ModelNew(A): pass\n",
    "brackets": "x = " + "(" * 500 + "1" + ")" * 500,
    "a long sum": "x = " + "+".join("1" * 50_000),
    "a long name": "x" + ".a" * 50_000,
    "null bytes": "x = 1\0",
    "half a character": "x = '\udcff'",
    "nothing": "",
    "a flood": "x = 1\n" * 200_000,
}


@pytest.mark.parametrize("source", HOSTILE.values(), ids=HOSTILE)
def test_any_text_gets_an_answer(source: str) -> None:
    answer = advise(source)
    assert answer and all(isinstance(one, Advice) and one.line >= 1 for one in answer)


def test_the_first_dozen_is_enough_and_warnings_come_first() -> None:
    many = honest("\n".join(f"n{number} = x.sum().item()" for number in range(20)) + "\nkey = id(x)")
    answer = advise(many)
    assert len(answer) == 12 and answer[0].kind is Kind.WARNING and {one.kind for one in answer[1:]} == {Kind.NOTE}
