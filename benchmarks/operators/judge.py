"""Plans a call of one operator, runs the built-in author's kernel in Triton's interpreter, and compares. Imports torch and Triton."""

from __future__ import annotations

import contextlib
import re
import signal
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import nn

from tritonsmith.author.cards.model import model_card
from tritonsmith.author.compiler.fusing.regions import CallRegion
from tritonsmith.author.compiler.plan import cut_task
from tritonsmith.author.compiler.recipes import REGIONS
from tritonsmith.author.plan import NoPlan
from tritonsmith.benchmarks.operators.calls import OperatorCall
from tritonsmith.benchmarks.operators.compare import choose_nearer, find_difference
from tritonsmith.benchmarks.operators.facts import trace_call
from tritonsmith.benchmarks.operators.special import stride
from tritonsmith.evaluator.cards.cards import named_card
from tritonsmith.evaluator.confined.interpreter import patches, schedule
from tritonsmith.evaluator.confined.runner.candidate import import_candidate
from tritonsmith.evaluator.errors import TaskError
from tritonsmith.evaluator.reference.float64 import InFloat64, widen_module
from tritonsmith.evaluator.reference.module import flatten, load_reference
from tritonsmith.evaluator.reference.number_types import stand_for
from tritonsmith.evaluator.reference.probe import probe
from tritonsmith.evaluator.schema import Task

_CARD = named_card("h200")
_SECONDS = 20
"""For one run in the interpreter; a call of these sizes takes milliseconds."""


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


class Outcome(StrEnum):
    """What became of a trial."""

    PASSED = "passed"
    LEFT = "left"
    """PyTorch does the call."""
    REFUSED = "refused"
    WRONG = "wrong"


@dataclass(frozen=True)
class Judgement:
    """What became of a trial, and why it did not pass."""

    outcome: Outcome
    reason: str = ""


@dataclass
class Planned:
    """A call's module and its kernel; without a kernel, what is there instead; neither where PyTorch refuses the call."""

    reference: nn.Module | None
    instead: Judgement | None
    kernel: Any = None
    in_float64: InFloat64 = field(default_factory=InFloat64)


class OperatorJudge:
    """Judges calls; kernels of equal calls are made once. Call `close` at the end."""

    def __init__(self) -> None:
        patches.install(_CARD)
        self._folder = tempfile.TemporaryDirectory()
        self._planned: dict[tuple[object, ...], Planned] = {}
        self._number = 0

    def close(self) -> None:
        """Remove the kernels' files."""
        self._folder.cleanup()

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
                own = flatten(planned.reference(*map(_copy, values)))
            except (RuntimeError, IndexError, ValueError, TypeError, ZeroDivisionError):
                return None
            if not pointwise and _overflows(own, lambda: self._compute_exact(planned, values)):
                return None
            try:
                with _limit(_SECONDS), schedule.session("round_robin", 0, detect_races=False):
                    got = flatten(planned.kernel(*map(_copy, values)))
            except Exception as error:  # noqa: BLE001 - whatever a kernel raises is wrong
                return Judgement(Outcome.WRONG, f"{type(error).__name__}: {_shorten(error)}")
            compare = partial(
                find_difference, got, compute_exact=lambda: self._compute_exact(planned, values), pointwise=pointwise,
                any_zero=orders_zeros(call.text),
            )  # fmt: skip
            phrase = compare(own)
            if phrase and any(tensor.numel() > 1 for tensor in values):  # PyTorch's code for single elements may give others
                phrase = compare(choose_nearer(got, own, flatten(planned.reference(*map(stride, values)))))
        return Judgement(Outcome.WRONG, phrase) if phrase else Judgement(Outcome.PASSED)

    def _compute_exact(self, planned: Planned, values: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        assert planned.reference is not None
        wide = [stand_for(tensor.double(), tensor.dtype) if tensor.is_floating_point() else tensor.clone() for tensor in values]
        model = widen_module(planned.reference)
        with planned.in_float64(model):
            return flatten(model(*wide))

    def _plan(self, call: OperatorCall) -> Planned:
        if call.key not in self._planned:
            self._planned[call.key] = self._plan_new(call)
        return self._planned[call.key]

    def _plan_new(self, call: OperatorCall) -> Planned:
        task = Task(name="case", path="case.py", source=call.source)
        try:
            loaded = load_reference(task)
            reference = loaded.build(0)
            if not _runs(reference, call.tensors):
                return Planned(None, None)
            facts = trace_call(reference, call.tensors) or probe(task)[0]
        except TaskError as error:
            return Planned(None, Judgement(Outcome.REFUSED, _shorten(error)))
        task = task.model_copy(update={"precision": facts.precision})
        try:
            plan = REGIONS.read(task, facts, model_card(_CARD))
            recipe = REGIONS.recipes[0]
            settings = recipe.defaults(plan, _CARD, task.precision)
        except NoPlan as refusal:
            return Planned(None, _tell_left(task, facts, refusal))
        except Exception as error:  # noqa: BLE001 - the author must plan or refuse
            return Planned(None, Judgement(Outcome.WRONG, f"planning: {type(error).__name__}: {_shorten(error)}"))
        if settings is None:
            return Planned(None, Judgement(Outcome.REFUSED, "no settings that fit the card"))
        self._number += 1
        path = Path(self._folder.name) / f"kernel_{self._number}.py"
        path.write_text(recipe.render(plan, settings))
        try:
            return Planned(reference, None, import_candidate(path).ModelNew())
        except Exception as error:  # noqa: BLE001 - a text that does not import is wrong
            return Planned(None, Judgement(Outcome.WRONG, f"import: {type(error).__name__}: {_shorten(error)}"))


def _runs(reference: nn.Module, tensors: Sequence[torch.Tensor]) -> bool:
    """Whether PyTorch itself takes such arguments."""
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            reference(*map(_copy, tensors))
    except Exception:  # noqa: BLE001 - the samples of some variants are for another signature
        return False
    return True


def _tell_left(task: Task, facts: Any, refusal: NoPlan) -> Judgement:
    """Whether a plan is missing because PyTorch does every call, or because the author cannot write the forward."""
    with contextlib.suppress(NoPlan):
        regions = cut_task(facts, False, task.precision, model_card(_CARD))[1]
        if all(isinstance(region, CallRegion) for region in regions):
            return Judgement(Outcome.LEFT, "PyTorch does the call")
    return Judgement(Outcome.REFUSED, f"no recipe for {refusal}")


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


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    """Equal values and strides in memory of its own."""
    made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
    return made.copy_(tensor) if all(tensor.stride()) else tensor


def _shorten(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]


@contextlib.contextmanager
def _limit(seconds: int) -> Iterator[None]:
    """While open, raise TimeoutError after so many seconds."""

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise TimeoutError(f"more than {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
