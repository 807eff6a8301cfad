"""The kinds of operation that a task is made of. They decide which rules and worked examples a model sees."""

import re

from tritonsmith.evaluator.schema import OpNode, TaskFacts
from tritonsmith.prompts.kinds import Family
from tritonsmith.prompts.node_names import operation_name

MOST_FAMILIES = 3
"""Families of one task whose rules are shown; the rest of a task is seldom what makes it slow."""

_MODULES = {
    Family.RECURRENT: re.compile(r"(GRU|LSTM|RNN)(Cell|Base)?"),
    Family.ATTENTION: re.compile(r"MultiheadAttention|Transformer\w*"),
    Family.CONVOLUTION: re.compile(r"(Lazy)?Conv(Transpose)?[123]d"),
    Family.GEMM: re.compile(r"(Lazy)?Linear|Bilinear"),
    Family.REDUCTION: re.compile(r"(Log)?Softm(ax|in)|(Layer|Group|RMS|Instance)Norm\w*|\w*Pool[123]d|\w+Loss|CosineSimilarity"),
}
_CALLS = {
    Family.RECURRENT: re.compile(r"(gru|lstm|rnn_tanh|rnn_relu)(_cell)?"),
    Family.ATTENTION: re.compile(r"scaled_dot_product_attention|multi_head_attention_forward"),
    Family.CONVOLUTION: re.compile(r"conv(_transpose)?[123]d"),
    Family.GEMM: re.compile(r"matmul|bmm|mm|addmm|baddbmm|einsum|linear|bilinear|mv|dot|tensordot|outer"),
    Family.REDUCTION: re.compile(
        r"(log_)?softmax|(layer|group|rms|instance)_norm|\w*pool[123]d|sum|mean|prod|amax|amin|max|min|argmax|argmin|norm|std|var|"
        r"logsumexp|cumsum|cumprod|topk|sort|all|any|cross_entropy|\w+_loss"
    ),
}
_WORD = re.compile(r"\b([A-Za-z_]\w*)\s*\(")


def families_of(facts: TaskFacts, source: str = "") -> tuple[Family, ...]:
    """The families of a task, most telling first, at least one; `source` is read where forward could not be traced."""
    found = {family for name in facts.modules for family, pattern in _MODULES.items() if pattern.fullmatch(name)}
    calls = _calls(facts, source)
    found |= {family for name in calls for family, pattern in _CALLS.items() if pattern.fullmatch(name)}
    if facts.serial_steps > 1:
        found.add(Family.RECURRENT)
    if _looks_like_attention(calls):
        found.add(Family.ATTENTION)
    if Family.CONVOLUTION in found and all("pool" in name.lower() for name in (*facts.modules, *calls) if _reduces(name)):
        found.discard(Family.REDUCTION)  # the rules for convolutions speak of pooling
    if not found:
        found.add(Family.POINTWISE)
    return tuple(family for family in Family if family in found)[:MOST_FAMILIES]


def _calls(facts: TaskFacts, source: str) -> list[str]:
    """Names of the functions and methods that forward calls, in order."""
    if not facts.ops:
        return [*_WORD.findall(source), *("matmul" for _ in re.findall(r"\w\s@\s\w", source))]
    names = []
    for node in facts.ops:
        if node.op in ("call_function", "call_method") and not _is_two_operand_extreme(node):
            names.append(node.target.rpartition(".")[2].rstrip("_"))
        elif node.op == "call_module" and operation_name(node) is None and "Softmax" in node.module_type:
            names.append("softmax")
    return names


def _reduces(name: str) -> bool:
    return any(patterns[Family.REDUCTION].fullmatch(name) for patterns in (_MODULES, _CALLS))


def _is_two_operand_extreme(node: OpNode) -> bool:
    """`torch.max(a, b)` is pointwise, `torch.max(a, dim)` is not; both look alike but for the second operand."""
    second = node.args[1] if len(node.args) > 1 else node.kwargs.get("other")
    return node.target.rpartition(".")[2] in ("max", "min") and isinstance(second, dict) and "ref" in second


def _looks_like_attention(calls: list[str]) -> bool:
    """A softmax between two products."""
    products = [place for place, name in enumerate(calls) if re.fullmatch("matmul|bmm|einsum|baddbmm", name)]
    return any(products[0] < place < products[-1] for place, name in enumerate(calls) if name == "softmax") if products else False
