"""Plans a call of one operator, runs the built-in author's kernel in Triton's interpreter, and compares. Imports torch and Triton."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from tritonsmith.benchmarks.operators.calls import OperatorCall
from tritonsmith.benchmarks.operators.compare import choose_nearer, find_difference
from tritonsmith.benchmarks.operators.kernels import Judgement, KernelMaker, Outcome, Planned, shorten_error
from tritonsmith.benchmarks.operators.special import stride

_OF_ZEROS = re.compile(
    r"[.](a?max|a?min|aminmax|maximum|minimum|fmax|fmin|clamp|clamp_min|clamp_max|clip|cummax|cummin|relu6?|hardtanh|max_pool[123]d"
    r"|adaptive_max_pool[123]d|sort|msort|topk|kthvalue|median|nanmedian|mode|hardswish|hardsigmoid|scatter_reduce|index_reduce|cumsum|logcumsumexp|bmm|baddbmm|mm|addmm|addr|matmul|linear|einsum|inner|outer|ger|kron)[(]|@"
)
"""Calls that put two zeros in an order, running sums, and products of matrices, which may have one term.

PyTorch's vector code, its code for single elements, its libraries and its code for cards differ in the sign of zero there. A running sum on
a card begins with zero or with the first element, as its shape says.
"""


def orders_zeros(text: str) -> bool:
    """Whether a call may return either of two zeros."""
    return _OF_ZEROS.search(text) is not None


class OperatorJudge:
    """Judges calls; kernels of equal calls are made once. Call `close` at the end."""

    def __init__(self) -> None:
        self._maker = KernelMaker()
        self._planned: dict[tuple[object, ...], Planned] = {}

    def close(self) -> None:
        """Remove the kernels' files."""
        self._maker.close()

    def forget(self) -> None:
        """Drop the kernels so far."""
        self._planned.clear()

    def judge(self, call: OperatorCall, tensors: Sequence[torch.Tensor] | None = None, pointwise: bool = False) -> Judgement | None:
        """What becomes of the call with these values; None where PyTorch itself refuses them.

        Args:
            call: what the kernel is made for.
            tensors: other values for its tensors, of any strides; None for its own.
            pointwise: whether each element of the results is judged by itself.
        """
        values = list(call.tensors if tensors is None else tensors)
        planned = self._plan(call)
        if planned.instead is not None:
            return planned.instead
        if planned.reference is None:
            return None
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                own = planned.run_reference(values)
            except (RuntimeError, IndexError, ValueError, TypeError, ZeroDivisionError):
                return None
            if not pointwise and _overflows(own, lambda: planned.compute_exact(values)):
                return None
            try:
                got = planned.run_kernel(values)
            except Exception as error:  # noqa: BLE001 - whatever a kernel raises is wrong
                return Judgement(Outcome.WRONG, f"{type(error).__name__}: {shorten_error(error)}")
            compare = partial(
                find_difference, got, compute_exact=lambda: planned.compute_exact(values), pointwise=pointwise,
                any_zero=orders_zeros(call.text),
            )  # fmt: skip
            phrase = compare(own)
            if phrase and any(tensor.numel() > 1 for tensor in values):  # PyTorch's code for single elements may give others
                phrase = compare(choose_nearer(got, own, planned.run_reference(list(map(stride, values)))))
        return Judgement(Outcome.WRONG, phrase) if phrase else Judgement(Outcome.PASSED)

    def _plan(self, call: OperatorCall) -> Planned:
        if call.key not in self._planned:
            self._planned[call.key] = self._maker.plan(call.source, call.tensors)
        return self._planned[call.key]


def _overflows(own: Sequence[torch.Tensor], compute_exact: Any) -> bool:
    """Whether what is not finite is another thing in float64: then the order of a sum decides it."""
    floats = [tensor for tensor in own if tensor.is_floating_point()]
    if all(bool(tensor.isfinite().all()) for tensor in floats):
        return False
    pairs = zip(own, compute_exact(), strict=True)
    return any(not bool(_are_alike(ours, wide)) for ours, wide in pairs if ours.is_floating_point())


def _are_alike(ours: torch.Tensor, wide: torch.Tensor) -> torch.Tensor:
    """Whether finite values, infinities and NaN lie at the same places."""
    same = (ours.isfinite() & wide.isfinite()) | (ours == wide) | (ours.isnan() & wide.isnan())
    return same.all()
