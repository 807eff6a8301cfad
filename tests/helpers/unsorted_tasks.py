"""Modules in KernelBench's format whose names stand in no alphabet's order, and who plays a whole run with them.

The model answers by the request's words alone, so it says the same in every process. Each seed fails and is repaired, and is analysed;
what the analysis proposes fails and is repaired, too.
"""

import re
import sys
from pathlib import Path

import chat_server as chat
from durable_driver import die_at_line
from tritonsmith.evaluator.cards.cards import named_card
from tritonsmith.evaluator.protocol import Evaluator
from tritonsmith.evaluator.schema import KernelFacts, OpNode, TaskFacts, TensorSpec, Verdict
from tritonsmith.graph.run import optimize, resume
from tritonsmith.nodes.evaluators.scripted import scripted_verdict

SCORER = """
import torch
from torch import nn

rows = 32
width = 24
kinds = 10
SMALL = {"width": 8, "rows": 4}


class Model(nn.Module):
    def __init__(self, width, kinds):
        super().__init__()
        self.temper = nn.Parameter(torch.ones(width))
        self.register_buffer("decay", torch.linspace(0.0, 1.0, width).half())
        self.table = nn.Embedding(kinds, width)
        self.norm = nn.BatchNorm1d(width)
        self.down = nn.Linear(width, 3)

    def forward(self, x, kind, keep):
        hidden = self.norm(x * self.temper + self.table(kind)) * self.decay.float()
        return self.down(hidden.masked_fill(~keep, 0.0)), hidden.argmax(dim=1)


def get_inputs():
    return [torch.randn(rows, width), torch.randint(0, kinds, (rows,)), torch.rand(rows, width) > 0.5]


def get_init_inputs():
    return [width, kinds]
"""
"""Parameters and buffers, three inputs and two outputs, of five types."""


def _specs(**shapes: tuple[int, ...]) -> dict[str, TensorSpec]:
    return {name.replace("__", "."): TensorSpec(shape=shape) for name, shape in shapes.items()}


SCORER_FACTS = TaskFacts(
    inputs=(TensorSpec(shape=(4, 8)), TensorSpec(shape=(4,), dtype="int64"), TensorSpec(shape=(4, 8), dtype="bool")),
    outputs=(TensorSpec(shape=(4, 3)), TensorSpec(shape=(4,), dtype="int64")),
    returns="a tuple of 2 tensors: float32[4, 3]; int64[4]",
    parameters={
        **_specs(temper=(8,)),
        "decay": TensorSpec(shape=(8,), dtype="float16"),
        **_specs(table__weight=(10, 8), norm__weight=(8,), norm__bias=(8,), norm__running_mean=(8,), norm__running_var=(8,)),
        "norm.num_batches_tracked": TensorSpec(shape=(), dtype="int64"),
        **_specs(down__weight=(3, 8), down__bias=(3,)),
    },
    init_inputs=("8", "10"),
    ops=(
        OpNode(name="x", op="placeholder", target="x"),
        OpNode(name="table", op="call_module", target="table", module_type="Embedding", args=({"ref": "kind"},)),
        OpNode(name="masked_fill", op="call_method", target="masked_fill", args=({"ref": "x"}, 0.0), kwargs={"value": 0.5, "mask": 1}),
        OpNode(name="output", op="output", target="output", args=([{"ref": "down"}, {"ref": "argmax"}],)),
    ),
    modules={"Linear": 1, "Embedding": 1, "BatchNorm1d": 1},
    flops=1234.5,
    min_bytes=0.1 + 0.2,
    reference_launches=9,
)
"""What the probe says of SCORER at its small size, but for the operators; the order is the module's own."""

BASELINES = {"eager": 1.0 / 3.0, "cuda_graph": 0.2, "compile": 0.25, "compile_reduce_overhead": 0.1}
_LIBRARY = {"aten.mm": 1, "aten.addmm": 1, "aten.gelu": 2, "aten.bmm": 1}


def verdict_of(number: int) -> Verdict:
    """By the last digit: 1 and 3 fail, 2 is slow, 4 is fast."""
    kind = number % 10
    if kind in (1, 3):
        return scripted_verdict(None, message=f"kernel {number} writes output 1 nowhere")
    found = scripted_verdict(0.5 if kind == 2 else 1.5, launches=7 if kind == 2 else 1, share=0.75, library=_LIBRARY)
    assert found.timing is not None
    kernel = KernelFacts(
        name="rows", launches=7 if kind == 2 else 1, grid=(4, 1, 1), num_warps=4, num_stages=2, registers=32, spills=0,
        constexprs={"WIDTH": 8, "BLOCK": 16, "EVEN": True, "SCALE": 1.0, "HINT": None, "ACC": "fp32"}, bytes_loaded=0.1 + 0.2,
    )  # fmt: skip
    return found.model_copy(
        update={
            "timing": found.timing.model_copy(update={"baselines_ms": BASELINES, "baseline": "compile_reduce_overhead"}),
            "facts": found.facts.model_copy(update={"kernels": (kernel,)}),
            "environment": {"versions": {"triton": "3", "torch": "2"}, "at": [1, 2.5, None]},
        }
    )


class Judge(Evaluator):
    """Judges kernels by their number, and knows what it was asked."""

    parallel = 2

    def __init__(self, facts: TaskFacts = SCORER_FACTS) -> None:
        self.hardware = named_card("h200")
        self.calls: list[tuple[str, str]] = []
        self.described = 0
        self._facts = facts

    async def describe(self, task):
        self.described += 1
        return self._facts

    async def evaluate(self, task, kernel, profile="quick"):
        self.calls.append((kernel.sha, profile))
        return verdict_of(_number_in(kernel.text))

    async def aclose(self):
        pass


def say(asked: str) -> str:
    """What the model answers to a prompt. Kernels of the second branch are numbered from ten."""
    if "Answer with one JSON object" in asked:
        return chat.analysis()
    if "This kernel fails" in asked or "Rewrite the current kernel" in asked:
        return chat.answer(_current_in(asked) + 1).text
    return chat.answer(11 if "variant 2" in asked else 1).text


def answer_body(body: chat.Json) -> str:
    """The same as the script of a ChatServer."""
    return say(body["messages"][-1]["content"])


def _current_in(asked: str) -> int:
    return _number_in(asked.partition("# The current kernel")[2])


def _number_in(text: str) -> int:
    found = re.search(r"number = (\d+)", text)
    assert found is not None
    return int(found[1])


def main(task: str, out: str, url: str, lines: str) -> None:
    """One process's part of a run, killed once its tape has so many more lines (0: never)."""
    if int(lines):
        die_at_line(int(lines))
    folder = Path(out)
    if (folder / "run.json").is_file():
        resume(folder, evaluator=Judge())
    else:
        optimize(task, out=out, evaluator=Judge(), model="openai:toy", base_url=url, seeds=2, policy="no-tune")


if __name__ == "__main__":
    main(*sys.argv[1:])
