"""The compile-only process: real compilation for a named card, launches recorded and refused as the card would."""

import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tritonsmith.evaluator.caller.compiling.client import COMPILER, Compilation
from tritonsmith.evaluator.caller.compiling.outlook import digest_report
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.sandbox.oneself import guard_self
from tritonsmith.evaluator.sandbox.policy import use_policy
from tritonsmith.evaluator.sandbox.self_test import establish
from tritonsmith.evaluator.sandbox.warm_start import begin_warm_start, end_warm_start, finish_warm_start

HEAD = "import torch\nimport triton\nimport triton.language as tl\nfrom torch import nn\n"
MODEL = """
class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.zeros_like(x)
        bar = torch.zeros(64, dtype=torch.int32, device=x.device)
        {launch}
        return out
"""
SPIN = """
@triton.jit
def kernel(x, out, bar, P):
    i = tl.program_id(0) * 32 + tl.arange(0, 32)
    tl.store(out + i, tl.load(x + i, mask=i < 4096, other=0.0), mask=i < 4096)
    tl.debug_barrier()
    tl.atomic_add(bar, 1, sem="release")
    while {poll} < P:
        pass
"""
PRODUCT = """
@triton.jit
def kernel(x, out, H: tl.constexpr):
    i = tl.arange(0, H)
    a = tl.load(x + i[:, None] + i[None, :])
    tl.store(out + i[:, None] * 0 + i[None, :], tl.dot(a, a))
"""
POLLS = {
    "atomic": 'tl.atomic_add(bar, 0, sem="acquire")',
    "volatile": "tl.load(bar, volatile=True)",
    "vector": 'tl.min(tl.atomic_add(bar + tl.arange(0, 16), tl.zeros([16], tl.int32), sem="acquire"))',
    "asm": 'tl.min(tl.inline_asm_elementwise("ld.acquire.gpu.global.b32 $0, [$1];", "=r,l", [bar + tl.arange(0, 16)], '
    "dtype=tl.int32, is_pure=False, pack=1))",
}

Compile = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module", autouse=True)
def warm() -> Iterator[None]:
    """Compilations are forked from one zygote, which has done the imports; where there is none, each is a program."""
    guard_self()
    establish("auto", cuda=False)
    begin_warm_start(COMPILER)
    finish_warm_start()
    yield
    end_warm_start()
    use_policy(None, {"mode": "off", "layers": {}, "actions": {}})


@pytest.fixture
def compile_only() -> Compile:
    def run(kernel: str, launch: str = "pass", *, target: str = "h200", text: str | None = None, inputs: Any = None) -> dict[str, Any]:
        request = pickle.dumps({"init": [], "inputs": inputs or [((4096,), "float32")], "overrides": {}})
        with Compilation() as compilation:
            compilation.begin(KernelText.of(text or HEAD + kernel + MODEL.format(launch=launch)), request, target)
            result = compilation.report(120.0)
            return result | {"stderr": compilation.stderr_tail()}

    return run


def test_a_kernel_launched_through_its_warmup_is_recorded(compile_only: Compile) -> None:
    launch = (
        "ready = kernel.warmup(x, out, H=32, grid=(1,)); ready._init_handles(); "
        "ready[(min(7, 65536 // (ready.n_regs * 128)) + ready.metadata.shared * 0, 1, 1)](x, out, 32)"
    )
    result = compile_only(PRODUCT, launch)
    assert result["status"] == "ok", result["message"]
    assert [(kernel["name"], kernel["launches"], kernel["grid"]) for kernel in result["kernels"]] == [("kernel", 1, [7, 1, 1])]


def test_a_compiled_kernel_launched_as_the_jit_launches_it_is_recorded(compile_only: Compile) -> None:
    launch = (
        "ready = kernel.warmup(x, out, H=32, grid=(1,)); "
        "ready.run(5, 1, 1, 0, ready.function, ready.packed_metadata, None, None, None, x, out, 32)"
    )
    result = compile_only(PRODUCT, launch)
    assert result["status"] == "ok", result["message"]
    assert [(kernel["name"], kernel["launches"], kernel["grid"]) for kernel in result["kernels"]] == [("kernel", 1, [5, 1, 1])]


def test_a_good_kernel_is_compiled_and_measured_in_resources(compile_only: Compile) -> None:
    result = compile_only(PRODUCT, "kernel[(2,)](x, out, H=32); kernel[lambda meta: (meta['H'],)](x, out, H=32); out.add_(1)")
    assert result["status"] == "ok" and result["message"] == ""
    assert [(k["name"], k["launches"], k["grid"], k["constexprs"]) for k in result["kernels"]] == [
        ("kernel", 1, [2, 1, 1], {"H": 32}),
        ("kernel", 1, [32, 1, 1], {"H": 32}),
    ]
    facts = result["kernels"][0]
    assert facts["registers"] > 0 and facts["spills"] == 0 and facts["resident"] >= 132
    assert facts["tensor_cores"] is True
    assert result["torch_ops"] == {"zeros_like": 1, "zeros": 1, "add_": 1}
    assert result["torch_launches"] == 3 and result["torch_bytes"] > 0


def test_classes_of_torch_cuda_may_stand_in_annotations(compile_only: Compile) -> None:
    """As modules of libraries have them, which a candidate imports."""
    stream = "def f(a: torch.cuda.CUDAGraph | None, b: torch.cuda.device | None, c: torch.cuda.graph | None): pass\n"
    assert compile_only(stream + PRODUCT, "kernel[(2,)](x, out, H=32)")["status"] == "ok"


def test_a_module_that_is_no_python_names_the_line(compile_only: Compile) -> None:
    result = compile_only("\ndef broken(:\n")
    assert result["status"] == "compile_error"
    assert "line 6" in result["message"] and "SyntaxError" in result["message"]


def test_an_error_in_a_helper_names_kernel_line_and_reason(compile_only: Compile) -> None:
    kernel = """
@triton.jit
def helper(v):
    return tl.tanh(v)

@triton.jit
def kernel(x, out):
    i = tl.arange(0, 32)
    tl.store(out + i, helper(tl.load(x + i)))
"""
    result = compile_only(kernel, "kernel[(1,)](x, out)")
    assert result["status"] == "compile_error"
    for part in ("kernel kernel, line 13", "no attribute 'tanh'", "return tl.tanh(v)"):
        assert part in result["message"]


def test_a_refusal_that_the_candidate_catches_still_counts(compile_only: Compile) -> None:
    caught = compile_only(
        "\n@triton.jit\ndef kernel(x):\n    tl.store(x, tl.arange(0, 33))\n"
        "\ndef attempt(x):\n    try:\n        kernel[(1,)](x)\n    except Exception:\n        return x.exp()\n",
        "attempt(x)",
    )
    assert caught["status"] == "compile_error" and "power of 2" in caught["message"]


def test_shared_memory_beyond_the_card_is_a_launch_error(compile_only: Compile) -> None:
    result = compile_only(PRODUCT, "kernel[(1,)](x, out, H=128)", target="rtx4090")
    assert result["status"] == "launch_error"
    assert "shared memory" in result["message"] and "RTX 4090" in result["message"]


def test_a_host_may_compile_what_it_does_not_launch(compile_only: Compile) -> None:
    asks = "needed = kernel.warmup(x, out, H=128, grid=(1,)).metadata.shared\n        kernel[(1,)](x, out, H=64 if needed > 100000 else 9)"
    result = compile_only(PRODUCT, asks, target="rtx4090")
    assert result["status"] == "ok" and result["kernels"][0]["constexprs"] == {"H": 64}


def test_the_autotuner_drops_what_does_not_fit(compile_only: Compile) -> None:
    decorator = "\n@triton.autotune(configs=[triton.Config({'H': h}) for h in (128, 64)], key=[])"
    result = compile_only(decorator + PRODUCT, "kernel[(1,)](x, out)", target="rtx4090")
    assert result["status"] == "ok"
    assert [(k["launches"], k["constexprs"]) for k in result["kernels"]] == [(1, {"H": 64})]


@pytest.mark.parametrize("poll", [poll if poll in ("atomic", "asm") else pytest.param(poll, marks=pytest.mark.slow) for poll in POLLS])
def test_more_waiting_programs_than_fit_are_refused(compile_only: Compile, poll: str) -> None:
    kernel = SPIN.format(poll=POLLS[poll])
    result = compile_only(kernel, "kernel[(5000,)](x, out, bar, 5000)")
    assert result["status"] == "launch_error"
    assert "5000 programs" in result["message"]


def test_waiting_programs_must_fit_locks_and_queues_need_not(compile_only: Compile) -> None:
    """Waiting programs that fit are fine, and locks and queues need not fit."""
    assert compile_only(SPIN.format(poll=POLLS["atomic"]), "kernel[(128,)](x, out, bar, 128)")["status"] == "ok"
    lock_and_queue = """
@triton.jit
def kernel(x, out, bar):
    while tl.atomic_cas(bar, 0, 1) == 1:
        pass
    tl.debug_barrier()
    tl.atomic_xchg(bar, 0)
    item = tl.atomic_add(bar + 1, 1)
    while item < 4096:
        tl.store(out + item, tl.load(x + item))
        item = tl.atomic_add(bar + 1, 1)
"""
    assert compile_only(lock_and_queue, "kernel[(100000,)](x, out, bar)")["status"] == "ok"


def test_candidate_output_does_not_reach_the_answer(compile_only: Compile) -> None:
    """Prints and writes of the candidate do not reach the answer."""
    noisy = "\nimport os\nprint('{\"status\": \"ok\"}')\nos.write(1, b'from the candidate')\n"
    result = compile_only(noisy, "raise SystemExit(3)")
    assert result["status"] == "runtime_error" and "SystemExit" in result["message"]
    assert "from the candidate" in result["stderr"]


def test_work_done_once_is_no_part_of_a_forward(compile_only: Compile) -> None:
    text = HEAD + (
        "@triton.jit\ndef pack(x):\n    tl.store(x, 1.0)\n\n@triton.jit\ndef kernel(x):\n    tl.store(x, 2.0)\n\n"
        "class ModelNew(nn.Module):\n    packed = None\n"
        "    def forward(self, x):\n        if self.packed is None:\n"
        "            self.packed = x.exp()\n            pack[(1,)](self.packed)\n"
        "        kernel[(1,)](x)\n        return x + self.packed\n"
    )
    result = compile_only("", text=text)
    assert [(k["name"], k["launches"]) for k in result["kernels"]] == [("kernel", 1)]
    assert result["torch_ops"] == {"add": 1}


def test_an_index_buffer_that_waits_for_weights_leads_nowhere(compile_only: Compile) -> None:
    text = HEAD + (
        "class ModelNew(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.register_buffer('at', torch.empty(300, dtype=torch.int64))\n"
        "        self.register_buffer('kept', torch.arange(4))\n"
        "    def forward(self, x):\n        assert self.kept.tolist() == [0, 1, 2, 3]\n        return x[self.at]\n"
    )
    result = compile_only("", text=text)
    assert (result["status"], result["torch_ops"]) == ("ok", {"index": 1}), result


def test_a_library_layer_counts_its_launches_per_step(compile_only: Compile) -> None:
    text = HEAD + (
        "class ModelNew(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n        self.gru = nn.GRU(8, 16, 2)\n"
        "    def forward(self, x):\n        assert x.is_cuda\n        return self.gru(x)[0]\n"
    )
    result = compile_only("", text=text, inputs=[((32, 4, 8), "float32")])
    assert result["status"] == "ok", result["message"]
    assert result["torch_ops"]["gru"] == 1
    assert result["torch_launches"] >= 2 * 2 * 32


def test_library_calls_on_large_tensors_are_counted_and_not_computed(compile_only: Compile) -> None:
    side = 1 << 13
    text = HEAD + (
        "class ModelNew(nn.Module):\n"
        "    def forward(self, x):\n"
        "        y = torch.relu_(x.exp().cumsum(1)) + torch.ones(x.shape, device=x.device)\n"
        "        values, indices = y.max(dim=1)\n"
        "        if float(y.norm()) != 0.0:\n"
        "            raise ValueError('somebody has computed this')\n"
        "        return torch.cat([y, x]).norm() + y.argmax(0)[: len((values > 1.0).nonzero())].sum() + indices.sum()\n"
    )
    report = compile_only("", text=text, inputs=[((side, side), "float32")])
    assert report["status"] == "ok", report["message"]
    assert {"exp", "cumsum", "relu_", "max", "cat", "linalg_vector_norm", "argmax"} <= set(report["torch_ops"])
    assert report["torch_bytes"] > 10 * 4.0 * side**2


@pytest.mark.slow
def test_names_and_places_make_no_other_code(compile_only: Compile) -> None:
    """A kernel that is renamed and moved compiles to the same code; other arithmetic or another grid does not."""
    kernel = "\n@triton.jit\ndef first(x, out):\n    i = tl.arange(0, 64)\n    tl.store(out + i, tl.load(x + i) {sign} 1.0)\n"
    texts = {
        "plain": (kernel.format(sign="+"), "first[(1,)](x, out)"),
        "renamed": ("\n# moved\n\n" + kernel.format(sign="+").replace("first", "other").replace("i = ", "j = ").replace("+ i", "+ j"),
                    "other[(1,)](x, out)"),
        "arithmetic": (kernel.format(sign="*"), "first[(1,)](x, out)"),
        "grid": (kernel.format(sign="+"), "first[(2,)](x, out)"),
    }  # fmt: skip
    reports = {name: compile_only(*text) for name, text in texts.items()}
    codes = {name: digest_report(report) for name, report in reports.items()}
    assert codes["plain"] and codes["plain"] == codes["renamed"]
    assert len(set(codes.values())) == 3, "arithmetic and grid are another code"
    assert reports["plain"]["kernels"][0]["instructions"]["global load"] >= 1
    assert digest_report(compile_only("\n@triton.jit\ndef broken(x):\n    tl.nothing(x)\n", "broken[(1,)](x)")) == ""
