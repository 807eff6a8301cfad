"""What a prompt says of a task's bound, of how its results are compared, and in which direction a further seed goes."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from tritonsmith.evaluator.cards.device_time import l2_bandwidth
from tritonsmith.evaluator.cards.floors import Rates
from tritonsmith.evaluator.schema import Allow, Hardware, KernelFacts, OpNode, PrecisionClass, Task, TaskFacts
from tritonsmith.evaluator.tasks.declarations import declarations_of
from tritonsmith.prompts.author import Brief
from tritonsmith.prompts.kinds import Family
from tritonsmith.prompts.node_names import operation_name

_EPSILONS = {"float32": 2.0**-23, "bfloat16": 2.0**-7, "float16": 2.0**-10}
"""Machine epsilon by dtype: an error of that share of the root mean square always passes (docs/correctness.md)."""
_TANH = re.compile(r"tanh|GRU|LSTM|RNN|gelu|GELU")
_BY_VALUE = ("int", "uint", "bool")
"""How dtypes of lengths, places and masks begin."""
_DISCRETE = frozenset({"topk", "argmax", "argmin", "argsort", "sort", "kthvalue", "multinomial", "round", "floor", "ceil", "bucketize"})
_MAXIMA = frozenset({"max", "min", "amax", "amin", "aminmax"})
"""Operators whose result is a NaN of their input."""
_MAX_POOL = re.compile(r"max_?pool", re.IGNORECASE)
_GROUPS = re.compile(r"\bgroups\s*=")
_BATCH_NORM = re.compile(r"BatchNorm|\bbatch_norm\(")
_DROPOUT = re.compile(r"dropout|Dropout")
_SHARES = re.compile(r"\bbinary_cross_entropy\(|\bBCELoss\b")
"""Operators of shares: other values have no meaning, so every kind of inputs is brought into 0 to 1."""
_EIGHTH = ("int8", "uint8", "float8")
"""How dtypes of 8 bits begin."""
_QUOTIENTS = frozenset({"truediv", "div", "divide", "true_divide"})
_HOPPER = 90
_WARP_GROUPS = (90, 100, 103)
"""Cards whose products read both operands from shared memory while the next tiles arrive; others free a tile at once."""
_NO_CORNERS = frozenset({Family.RECURRENT, Family.ATTENTION, Family.CONVOLUTION, Family.GEMM})
"""Families whose modules are not asked what infinities and NaN give."""
_MANY_LAUNCHES = 3
"""Launches of a reference that one kernel may save."""
_TILE, _LINE = 128 * 64, 256
"""Results that one program of a product holds, and one of a reduction."""
_MANY_TERMS = 128
"""Operations or bytes for each result from which these are sums of many terms: a window of a pool has fewer."""


def tell_facts(task: Task, facts: TaskFacts, hardware: Hardware, families: tuple[Family, ...]) -> dict[str, Any]:
    """Values of the templates that follow from a task's types and operators.

    Returns:
        rate: operations per second of its products at best, with `rate_words`, what that rate is;
        tolerances: for each dtype of its floating outputs the error, relative to the root mean square, that always passes;
        products, half, float16, eighth, discrete, whole, by_values, corners, tanh, maxima, by_number, grouped, batch_norms, dropouts,
            ranged, hopper: what its types and operators, and the card, ask to be said;
        interpreted: whether a kernel that the card accepts also runs in the interpreter;
        buffers, l2_rate: tiles that the stages of a product's loop hold, in words, and bytes per second from the L2 cache.
    """
    half = facts.precision is PrecisionClass.HALF or task.precision is PrecisionClass.HALF
    rates = Rates.of(hardware)
    products = bool(_NO_CORNERS & {*families})
    rate, words = (rates.rate(task.precision), _name_rate(task.precision, rates)) if products else (rates.fp32, "the fp32 rate")
    inputs = [spec.dtype for spec in facts.inputs if spec is not None]
    outputs = [spec.dtype for spec in facts.outputs]
    used = [*inputs, *outputs, *(spec.dtype for spec in facts.parameters.values())]
    calls = {node.target.rpartition(".")[2].rstrip("_") for node in facts.ops}
    given = any(dtype.startswith(_BY_VALUE) for dtype in inputs)
    discrete = bool(calls & _DISCRETE) or any(dtype.startswith(_BY_VALUE) for dtype in outputs)
    named = (*facts.modules, task.source)
    ranged = "their DOMAINS" if "DOMAINS" in declarations_of(task).names else "0 to 1" if _SHARES.search(task.source) else ""
    tanh = bool(_TANH.search(task.source)) or any(operation_name(node) == "tanh" for node in facts.ops)
    return {
        "half": half, "products": products, "rate": rate, "rate_words": words, "discrete": discrete, "whole": given,
        "by_values": given, "float16": "float16" in used or not half, "tanh": tanh, "corners": not products and not discrete,
        "tolerances": [(dtype, _EPSILONS[dtype]) for dtype in dict.fromkeys(outputs or ["float32"]) if dtype in _EPSILONS],
        "maxima": bool(calls & _MAXIMA) or any(_MAX_POOL.search(f"{node.module_type} {node.target}") for node in facts.ops),
        "by_number": discrete and any(map(_divides_by_number, facts.ops)), "grouped": bool(_GROUPS.search(task.source)),
        "interpreted": declarations_of(task).small is not None, "l2_rate": l2_bandwidth(hardware),
        "eighth": any(dtype.startswith(_EIGHTH) for dtype in used), "hopper": hardware.capability == _HOPPER, "ranged": ranged,
        "batch_norms": any(map(_BATCH_NORM.search, named)), "dropouts": any(map(_DROPOUT.search, named)),
        "buffers": "`num_stages`" if hardware.capability in _WARP_GROUPS else "(`num_stages` - 1)",
    }  # fmt: skip


def _divides_by_number(node: OpNode) -> bool:
    """Whether an operator divides by a number of the code, not by a tensor."""
    return node.target.rpartition(".")[2].rstrip("_") in _QUOTIENTS and any(type(value) in (int, float) for value in node.args[1:2])


def _name_rate(precision: PrecisionClass, rates: Rates) -> str:
    """The rate of `Rates.rate` in words."""
    if precision is PrecisionClass.HALF:
        return "the rate of 16-bit products"
    if precision.allows_tf32:
        return "the TF32 rate"
    return "the fp32 rate" if rates.rate(precision) == rates.fp32 else "the rate of three fp16 products"


def choose_direction(brief: Brief, facts: TaskFacts, families: tuple[Family, ...]) -> str:
    """What a further seed is to try, as the end of a sentence; each branch another, as far as the task has some.

    A library's product is one only where the class lets it use tensor cores, and a split over programs only where a program sums up
    much for few results.
    """
    directions, hardware = [], brief.hardware
    rate = Rates.of(hardware).rate(brief.task.precision)
    if facts.serial_steps > 1:
        directions.append("more parallelism along the chain of steps (layers and directions side by side, hidden units over more programs)")
    bound_by_products = {Family.CONVOLUTION, Family.GEMM} & {*families} and facts.flops / rate > facts.min_bytes / hardware.bandwidth
    quick_library = brief.allow is not Allow.KERNEL and brief.task.precision.allows_tf32
    if quick_library and bound_by_products and facts.reference_launches >= _MANY_LAUNCHES:
        directions.append("the library for the product that it does best, and one kernel of your own for each stretch around it")
    if facts.reference_launches >= _MANY_LAUNCHES:
        directions.append("fewer launches: what one kernel stores for the next stays in registers or in L2")
    if _has_few_results(facts, hardware):
        directions.append("more parallelism: split what one program would sum up over several, and join the parts in a last step")
    directions.append("more work for each program: larger tiles or several rows, so that what programs share is loaded once")
    directions.append("smaller programs: fewer registers each and more of them at once, so that they wait at different times")
    return directions[max(0, brief.branch - 1) % len(directions)]


def _has_few_results(facts: TaskFacts, hardware: Hardware) -> bool:
    """Whether an operator that sums up much leaves too few results for a tile of them on each processor."""
    heavy = max((node for node in facts.ops if node.launches and node.outputs), key=lambda node: max(node.flops, node.bytes), default=None)
    if heavy is None:
        return False
    results = sum(math.prod(spec.shape) for spec in heavy.outputs)
    room = hardware.processors * (_TILE if heavy.flops > heavy.bytes else _LINE)
    return results < room and max(heavy.flops, heavy.bytes) > _MANY_TERMS * results


def bound_kernels(
    kernels: Sequence[KernelFacts], hardware: Hardware, precision: PrecisionClass
) -> dict[str, tuple[float, str]]:
    """The least milliseconds per forward of each kernel whose work its compiled text tells, and by which limit."""
    rates, bounds = Rates.of(hardware), {}
    for kernel in kernels:
        work = kernel.work
        if work is None or work.unknown:
            continue
        limits = {
            "bytes": work.unique_bytes / rates.bandwidth,
            "products": work.product_flops / rates.rate(precision),
            "operations": work.operations / rates.fp32,
        }
        limit = max(limits, key=lambda name: limits[name])
        bounds[kernel.name] = (kernel.launches * limits[limit] * 1e3, limit)
    return bounds
