"""Judges one random module: plans it, runs its kernel on several sets of values, compares. Imports torch and Triton."""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import torch

from tritonsmith.benchmarks.operators.kernels import (
    KernelMaker,
    Outcome,
    Planned,
    limit_time,
    shorten_error,
)
from tritonsmith.benchmarks.random_modules.corners import FixedOrder, Order, is_ordering, list_other_results
from tritonsmith.benchmarks.random_modules.module import RandomModule
from tritonsmith.benchmarks.random_modules.rule import Comparison, compare, find_other_form
from tritonsmith.benchmarks.random_modules.values import draw_values, is_known, list_kinds

_PLAN_SECONDS = 20
"""Of this processor; a plan that takes longer is a fault."""
_PRODUCTS = re.compile(r" @ |matmul|mm\(|linear\(|einsum|conv|scaled_dot_product|dot\(|outer")
_RUNS = 32
"""Other runs of the reference, where a result differs."""


class Fate(StrEnum):
    """What became of a module."""

    RIGHT = "right"
    OPEN = "open"
    """Right, as far as rounding or PyTorch's own order leaves one answer."""
    LEFT = "left"
    """PyTorch does every call."""
    REFUSED = "refused"
    WRONG = "wrong"
    CRASHED = "crashed"
    """The author, or its text's import, raised what is no refusal."""
    SLOW = "slow"


@dataclass(frozen=True)
class Judged:
    """What became of a module, and why; `kind` names the values that showed it."""

    fate: Fate
    reason: str = ""
    kind: str = ""
    number: int = 0
    """Of the result that is wrong."""


class ModuleJudge:
    """Judges modules. Call `close` at the end."""

    def __init__(self) -> None:
        self._maker = KernelMaker()

    def close(self) -> None:
        """Remove the kernels' files."""
        self._maker.close()

    def judge(self, module: RandomModule, seed: int) -> Judged:
        """What becomes of a module on all its sets of values.

        Args:
            module: the module.
            seed: of the values.
        """
        planned = self.plan(module, seed)
        if isinstance(planned, Judged):
            return planned
        rough = False
        for kind in list_kinds(module.text):
            values = lay_out(module, draw_values(module.arguments, kind, seed))
            comparison = run_and_compare(planned, values, module)
            if comparison is None:
                continue
            if comparison.phrase:
                return Judged(Fate.WRONG, comparison.phrase, kind, comparison.number)
            rough |= comparison.rough
        return Judged(Fate.OPEN if rough else Fate.RIGHT)

    def plan(self, module: RandomModule, seed: int) -> Planned | Judged:
        """The module's kernel, or what became of it without one."""
        values = lay_out(module, draw_values(module.arguments, "plain", seed))
        started = time.process_time()  # others may use this machine too
        try:
            with warnings.catch_warnings(), limit_time(10 * _PLAN_SECONDS):
                warnings.simplefilter("ignore")
                planned = self._maker.plan(module.write(), values)
        except TimeoutError as error:
            return Judged(Fate.SLOW, str(error))
        if (spent := time.process_time() - started) > _PLAN_SECONDS:
            return Judged(Fate.SLOW, f"planned in {spent:.0f} s")
        if planned.instead is not None:
            fates = {Outcome.LEFT: Fate.LEFT, Outcome.REFUSED: Fate.REFUSED, Outcome.WRONG: Fate.CRASHED}
            return Judged(fates[planned.instead.outcome], planned.instead.reason)
        if planned.reference is None:
            return Judged(Fate.REFUSED, "PyTorch refuses the values")
        return planned


def lay_out(module: RandomModule, values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The values in memory as the module's arguments say."""
    return [argument.lay_out(value) for argument, value in zip(module.arguments, values, strict=True)]


def run_and_compare(
    planned: Planned, values: Sequence[torch.Tensor], module: RandomModule
) -> Comparison | None:
    """How the kernel's results on these values compare with PyTorch's; None where PyTorch refuses them, or known corners are met.

    Args:
        planned: kernel and reference.
        values: the arguments.
        module: what both compute.
    """
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            if is_known(module, values):
                return None
            own = planned.run_reference(values, arguments=True)
            planned.compute_exact(values, arguments=True)
        except (RuntimeError, IndexError, ValueError, TypeError, ZeroDivisionError):
            return None
        try:
            got = planned.run_kernel(values, arguments=True)
        except Exception as error:  # noqa: BLE001 - whatever a kernel raises is wrong
            return Comparison(f"{type(error).__name__}: {shorten_error(error)}")
        if phrase := find_other_form(got, own):
            return Comparison(phrase)
        found = _compare_in_order(planned, module, values, got, Order.GIVEN)
        if found.phrase and is_ordering(module.text):
            found = found.join(_compare_in_order(planned, module, values, got, Order.FIRST))
        return found


def _compare_in_order(
    planned: Planned, module: RandomModule, values: Sequence[torch.Tensor], got: Sequence[torch.Tensor], order: Order
) -> Comparison:
    """How results compare with PyTorch's where equal elements stand in one order."""
    with FixedOrder(order):
        own, exact = planned.run_reference(values, arguments=True), planned.compute_exact(values, arguments=True)
    others = list_other_results(planned, module, values, _RUNS, order)
    return compare(got, own, exact, others, _PRODUCTS.search(module.text) is not None)
