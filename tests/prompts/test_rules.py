"""The right examples of the rule blocks, taken from the prompts as they stand, are right; the recurrent one without its barrier is racy."""

import asyncio
import re
from pathlib import Path

import pytest
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from compiled_products import AT_RISK, import_file
from tritonsmith.author.book import BOOK
from tritonsmith.author.examples import EXAMPLES
from tritonsmith.author.prompt_pages import read_briefs
from tritonsmith.evaluator.caller.local import LocalEvaluator
from tritonsmith.evaluator.schema import PrecisionClass, Status, Task, Verdict
from tritonsmith.prompts.kinds import Family
from tritonsmith.prompts.templates import render

BRIEFS = Path(__file__).parent
RIGHT = re.compile(r"\nRight[^\n]*\n```python\n(.*?)\n```", re.DOTALL)
TANH = re.compile(r"`(tl\.where\(tl\.abs\(v\) < 0\.5, .*?)`")
TANH_ROWS = """@triton.jit
def tanh_rows(x, y, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    for start in range(0, columns, BLOCK):
        i = start + tl.arange(0, BLOCK)
        v = tl.load(x + row * columns + i, mask=i < columns, other=0.0)
        s = v * v
        tl.store(y + row * columns + i, {formula}, mask=i < columns)"""
"""Where the rule for tanh stands in a kernel."""
HEAD = "import torch\nimport triton\nimport triton.language as tl\nfrom torch import nn\n\n"
MODULE = """
class {name}(nn.Module):
    def __init__(self):
        super().__init__()
        {members}

    def forward(self, {arguments}):
        {body}
"""
INPUTS = "\ndef get_inputs():\n    return [{inputs}]\n\ndef get_init_inputs():\n    return []\n"
# By block: members of both modules, arguments, the reference's body, the body that launches the example's kernel, the inputs.
USES = {
    "general": (
        "pass", "x", "return torch.tanh(x)",
        "y = torch.empty_like(x); tanh_rows[(x.shape[0],)](x, y, x.shape[1], 64); return y", "torch.randn(33, 100)",
    ),
    "recurrent": (
        "self.rnn = nn.RNN(24, 40)", "x", "return self.rnn(x)[0]",
        "T, B, _ = x.shape; H, rnn = 40, self.rnn; gates = x @ rnn.weight_ih_l0.t() + (rnn.bias_ih_l0 + rnn.bias_hh_l0); "
        "states = torch.zeros(T + 1, B, H, device=x.device); counter = torch.zeros(1, dtype=torch.int32, device=x.device); "
        "recur[(triton.cdiv(H, 32),)](gates.contiguous(), rnn.weight_hh_l0, states, counter, T, B, H, 16, 32, 64, "
        "launch_cooperative_grid=True); return states[1:].contiguous()",
        "torch.randn(9, 5, 24)",
    ),
    "convolution": (
        "self.conv = nn.Conv2d(20, 24, 3, padding=1)", "x", "return torch.relu(self.conv(x))",
        "N, C, H, W = x.shape; K = 24; "
        "w = self.conv.weight.permute(2, 3, 1, 0).contiguous(); y = torch.empty(N, H, W, K, device=x.device); "
        "conv_bias_relu[(triton.cdiv(N * H * W, 64), 1)](x.permute(0, 2, 3, 1).contiguous(), w, self.conv.bias, y, H, W, C, K, N * H * W, "
        "64, 32, 16, 'ieee'); return y.permute(0, 3, 1, 2).contiguous()",
        "torch.randn(2, 20, 9, 11)",
    ),
    "gemm": (
        "self.fc = nn.Linear(70, 50)", "x", "return torch.relu(self.fc(x))",
        "M = x.shape[0]; y = torch.empty(M, 50, device=x.device); "
        "linear_relu[(triton.cdiv(M, 32), 2)](x, self.fc.weight, self.fc.bias, y, M, 50, 70, 32, 32, 32, 'ieee'); return y",
        "torch.randn(45, 70)",
    ),
    "reduction": (
        "pass", "x", "return torch.softmax(x, -1)", "y = torch.empty_like(x); softmax_rows[(x.shape[0],)](x, y, x.shape[1], 128); return y",
        "torch.randn(20, 100)",
    ),
    "attention": (
        "pass", "q, k, v", "return torch.softmax(q @ k.transpose(1, 2) * 32**-0.5, -1) @ v",
        "h, S, D = q.shape; out = torch.empty_like(q); "
        "attend[(triton.cdiv(S, 32), h)](q, k, v, out, S, D**-0.5, D, 32, 16, 'ieee'); return out",
        "torch.randn(2, 50, 32), torch.randn(2, 50, 32), torch.randn(2, 50, 32)",
    ),
    "pointwise": (
        "self.bias = nn.Parameter(torch.randn(40))", "x", "return 0.75 * nn.functional.gelu(x + self.bias)",
        "y = torch.empty_like(x); "
        "bias_gelu_scale[(triton.cdiv(x.numel(), 256),)](x, self.bias, y, 0.75, x.numel(), x.shape[1], 256); return y",
        "torch.randn(30, 40)",
    ),
}  # fmt: skip


class NoExamples:
    """A book without examples: a prompt then has the rules' own kernels."""

    folder = BRIEFS

    def name_examples(self, families, task, facts):
        return ()

    def write_example(self, name, hardware, precision):
        return None

    def list_algorithms(self, families):
        return ()


def right_examples() -> dict[str, str]:
    """The kernels that rule blocks show as right, by block; what follows a kernel outside of it (its launch) is cut off."""
    found = {"general": TANH_ROWS.format(formula=TANH.search(seed_text("recurrent"))[1])}
    for family in Family:
        found[family.value] = re.split(r"\n\n(?=\w+\[)", RIGHT.findall(seed_text(family.value))[0])[0]
    return found


def seed_text(name: str) -> str:
    return render.prompt_for("seed", read_briefs(BRIEFS / f"{name}.json")["seed"], NoExamples()).text


def judged(evaluator: LocalEvaluator, block: str, kernel: str) -> Verdict:
    members, arguments, reference, launches, inputs = USES[block]
    model = MODULE.format(name="Model", members=members, arguments=arguments, body=reference) + INPUTS.format(inputs=inputs)
    new = MODULE.format(name="ModelNew", members=members, arguments=arguments, body=launches)
    task = Task(name=block, path=f"{block}.py", source=HEAD + model)
    return asyncio.run(evaluator.evaluate(task, HEAD + kernel + "\n\n" + new))


def test_every_block_shows_one_kernel_that_is_right() -> None:
    found = right_examples()
    assert set(found) == set(USES) == {"general", *(family.value for family in Family)}
    assert all(text.startswith("@triton.jit\ndef ") and text.count("@triton.jit") == 1 for text in found.values())


@pytest.mark.parametrize("block", ["gemm", "convolution", "attention"])
def test_products_that_rules_show_are_not_at_risk(block, tmp_path):
    kernel = right_examples()[block]
    names = re.findall(r"def \w+\((.*?)\):\n", kernel)[0].split(", ")
    sizes = {"BM": 128, "BN": 128, "BK": 64, "D": 64, "PRECISION": "tf32"}
    pointers = {"x", "w", "bias", "y", "q", "k", "v", "out"}
    types = {name.split(":")[0]: "constexpr" if ":" in name else "*bf16" if name in pointers else "i32" for name in names}
    types |= {name: "fp32" for name in types if name == "scale"}
    file = tmp_path / "shown.py"
    file.write_text(HEAD + kernel + "\n")
    module = import_file(file)
    aligned = {(at,): [["tt.divisibility", 16]] for at, kind in enumerate(types.values()) if kind != "constexpr" and kind != "fp32"}
    function = next(value for value in vars(module).values() if isinstance(value, triton.JITFunction))
    constants = {name: sizes[name] for name, kind in types.items() if kind == "constexpr"}
    source = ASTSource(fn=function, signature=types, constexprs=constants, attrs=aligned)
    text = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 8}).asm["ttgir"]
    assert "warp_group_dot" in text and not AT_RISK.search(text)


@pytest.mark.slow
@pytest.mark.parametrize("block", USES)
def test_right_examples_are_right(evaluator: LocalEvaluator, block: str) -> None:
    verdict = judged(evaluator, block, right_examples()[block])
    assert verdict.status is Status.OK, verdict.message
    assert not verdict.facts.races


@pytest.mark.slow
def test_the_recurrent_example_without_its_barrier_is_racy(evaluator: LocalEvaluator) -> None:
    kernel = right_examples()["recurrent"]
    broken = re.sub(r"        tl\.debug_barrier\(\)\n        tl\.atomic_add.*", "", kernel, flags=re.DOTALL)
    assert broken != kernel and judged(evaluator, "recurrent", broken).status is Status.RACY


@pytest.mark.slow
@pytest.mark.parametrize("recipe", [recipe.name for recipe in BOOK.values() if recipe.lesson])
def test_worked_examples_are_right(evaluator: LocalEvaluator, recipe: str) -> None:
    for precision in (PrecisionClass.IEEE, PrecisionClass.TF32):
        example = EXAMPLES.write_example(recipe, evaluator.hardware, precision)
        assert example is not None
        task = Task(name=recipe, path=f"{recipe}.py", source=example.reference, precision=precision)
        verdict = asyncio.run(evaluator.evaluate(task, example.source))
        assert verdict.status is Status.OK, verdict.message
