"""Worked examples that were written by hand, each a kernel beside its task in `worked/NAME/`, and which of them fits a task.

A task is told apart by its types, by the sizes of its heaviest product, and by what it does besides: one query for a cache of keys, tokens
that choose their weights, a maximum that is taken several times, a loop over time. `benchmarks/judge_examples.py` judges all on a card.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tritonsmith.evaluator.schema import OpNode, PrecisionClass, Task, TaskFacts
from tritonsmith.prompts.author import Example
from tritonsmith.prompts.kinds import Family

FOLDER = Path(__file__).parent / "worked"
SKINNY_ROWS = 64
"""Up to so many rows a product is bound by reading its weights."""
DECODE_QUERIES = 16
"""Up to so many queries of a head attention is bound by reading its keys and values."""
LONG_ROW = 32768
"""Values of a row that no program holds in registers."""
FEW_ROWS = 1024
"""Up to so many long rows one program for each leaves processors idle, or their last turn half empty."""
_SOFTMAXES = frozenset({"softmax", "log_softmax", "logsoftmax", "softmin"})
_NORMS = frozenset({"layer_norm", "layernorm", "rms_norm", "rmsnorm", "normalize"})
"""Names of calls, and of modules in lower case."""
LARGE_PRODUCT = 1e9
"""Operations from which fp32 products pay for splitting their operands."""
_LOOP = 8
"""Equal operators of one line that are steps of a loop over time."""


@dataclass(frozen=True)
class Worked:
    """One example: what it does, as the end of a sentence, and what to learn from it."""

    title: str
    lesson: str


WORKED: dict[str, Worked] = {
    "matmul_epilogue": Worked(
        "a large product with its epilogue, in bf16",
        "Tensor descriptors, one program per SM in a flat loop over tiles of 128 x 256; the epilogue works on halves of the sums.",
    ),
    "matmul_fp32": Worked(
        "a large product at fp32 accuracy on tensor cores",
        "Operands are split once, ahead of the product: every tile would split them again. Weights are split when they change.",
    ),
    "skinny_product": Worked(
        "a product of few rows, in bf16",
        "The weights are the long side of the tile; all programs fit on the card at once, evenly many on each processor.",
    ),
    "flash_attention": Worked(
        "causal attention, in bf16",
        "Only blocks on the diagonal are masked; both products take bf16 operands; the scale goes to the fp32 scores.",
    ),
    "decode_attention": Worked(
        "one query for a long cache, in bf16",
        "Keys are split over programs and read once for all heads of a group; what lies beyond the length is not read.",
    ),
    "expert_tiles": Worked(
        "products whose tiles depend on values, in bf16",
        "The host waits for no count: the grid has the most tiles that there can be, and a program finds its own from the counts.",
    ),
    "norm_quantise": Worked(
        "a norm and its int8 codes in one pass",
        "A row stays in registers for all its reductions. Where the reference rounds in between, so does the kernel.",
    ),
    "top_k": Worked(
        "a product, a softmax and a top-k in one kernel",
        "A tile holds whole rows; the maximum is taken once for each place; the first of equal values wins.",
    ),
    "gated_recurrence": Worked(
        "a recurrence whose products do not need the state",
        "All products are hoisted out of the loop over time; what is left is elementwise, with loads that run ahead.",
    ),
    "gated_conv1d": Worked(
        "a gated convolution over time, in bf16",
        "Channels-first is right here: time is contiguous and is the tile's long side. Packed weights have a key.",
    ),
    "long_softmax": Worked(
        "a softmax over few long rows",
        "Rows are split over programs; two launches without atomics; the second reading comes out of L2.",
    ),
}  # fmt: skip
"""By the name of the folder."""


@cache
def read_worked(name: str) -> Example:
    """The example of a folder of `worked/`. Raises KeyError for a name that there is not."""
    worked = WORKED[name]
    source = (FOLDER / name / "kernel.py").read_text(encoding="utf-8")
    return Example(title=worked.title, source=source.rstrip(), note=worked.lesson)


def choose_worked(families: tuple[Family, ...], task: Task, facts: TaskFacts) -> tuple[str, ...]:
    """Names of the examples that fit a task, best first; none where the rules' own short kernel shows as much.

    An example in bf16 is shown to tasks in fp32 too, where its design is what counts. One that splits fp32 operands is shown
    to no task of 16 bits or TF32.
    """
    calls = Counter(node.target.rpartition(".")[2].rstrip("_") for node in facts.ops if node.op in ("call_function", "call_method"))
    fitting = []
    if Family.ATTENTION in families:
        fitting.append("decode_attention" if _has_few_queries(facts) else "flash_attention")
    by_value = bool(calls.keys() & {"nonzero", "bincount", "index_add", "index_put", "one_hot", "_grouped_mm", "grouped_mm"})
    if by_value and Family.GEMM in families:
        fitting.append("expert_tiles")
    elif Family.RECURRENT in families or _loops_over_time(facts):
        fitting.append("gated_recurrence")
    if calls.keys() & {"topk", "argmax", "argmin", "kthvalue"}:
        fitting.append("top_k")
    if calls["conv1d"] or any(name.endswith("Conv1d") for name in facts.modules):
        fitting.append("gated_conv1d")
    if Family.GEMM in families and Family.CONVOLUTION not in families:
        fitting.append(_choose_product(task, facts))
    if Family.REDUCTION in families and Family.CONVOLUTION not in families:
        fitting.append(_choose_rows(calls, facts))
    return tuple(dict.fromkeys(name for name in fitting if name))


def _choose_product(task: Task, facts: TaskFacts) -> str:
    """The example for the heaviest product; empty for one that is too small to show more than the rules do."""
    products = [node for node in facts.ops if node.flops and node.outputs and _is_product(node)]
    heaviest = max(products, key=lambda node: node.flops, default=None)
    if heaviest is not None and math.prod(heaviest.outputs[0].shape[:-1]) <= SKINNY_ROWS:
        return "skinny_product"
    if task.precision.allows_tf32 or facts.precision is PrecisionClass.HALF:
        return "matmul_epilogue"
    return "matmul_fp32" if (heaviest.flops if heaviest else facts.flops) >= LARGE_PRODUCT else ""


def _is_product(node: OpNode) -> bool:
    return node.module_type == "Linear" or node.target.rpartition(".")[2] in ("matmul", "linear", "bmm", "mm", "addmm", "einsum", "baddbmm")


def _has_few_queries(facts: TaskFacts) -> bool:
    """Whether the heaviest product of scores or weights has few rows for each head."""
    for node in facts.ops:
        if "attention" in node.target or node.module_type == "MultiheadAttention":
            shapes = [spec.shape for spec in node.outputs if len(spec.shape) >= 3]
            return bool(shapes) and shapes[0][-2] <= DECODE_QUERIES
    softmax = next((node for node in facts.ops if node.target.endswith("softmax") and node.outputs), None)
    shape = softmax.outputs[0].shape if softmax else ()
    return len(shape) >= 2 and shape[-2] <= DECODE_QUERIES


def _loops_over_time(facts: TaskFacts) -> bool:
    """Whether a line is run often by operators that are small beside the whole: a loop over steps."""
    lines = Counter((node.line, node.target) for node in facts.ops if node.launches and not node.module_type)
    return any(count >= _LOOP for count in lines.values())


def _choose_rows(calls: Counter[str], facts: TaskFacts) -> str:
    """The example for statistics of rows that scale their own elements; empty for pools, sums, extremes and losses, and many long rows."""
    named = {*calls, *(node.module_type.lower() for node in facts.ops), *map(str.lower, facts.modules)}
    shapes = [spec.shape for spec in (*facts.inputs, *facts.outputs) if spec is not None and spec.shape]
    longest = max(shapes, key=lambda shape: shape[-1], default=(0,))
    if longest[-1] >= LONG_ROW:
        return "long_softmax" if named & _SOFTMAXES and math.prod(longest[:-1]) <= FEW_ROWS else ""
    return "norm_quantise" if named & (_SOFTMAXES | _NORMS) or {"mean", "rsqrt"} <= named else ""
