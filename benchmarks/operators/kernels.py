"""Makes the built-in author's kernel for a small module, and runs it in Triton's interpreter. Imports torch and Triton."""

from __future__ import annotations

import contextlib
import signal
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
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
from tritonsmith.benchmarks.operators.facts import trace_call
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

    def run_kernel(self, values: Sequence[torch.Tensor], *, arguments: bool = False) -> list[torch.Tensor]:
        """The kernel's results for copies of these values. Raises what it raises, and TimeoutError.

        Args:
            values: the arguments.
            arguments: whether what is left in the arguments counts as results too.
        """
        copies = list(map(copy_tensor, values))
        with limit_time(_SECONDS), schedule.session("round_robin", 0, detect_races=False):
            results = flatten(self.kernel(*copies))
        return results + copies * arguments

    def run_reference(self, values: Sequence[torch.Tensor], *, arguments: bool = False) -> list[torch.Tensor]:
        """PyTorch's results for copies of these values; with `arguments` as in `run_kernel`. Raises what it raises."""
        assert self.reference is not None
        copies = list(map(copy_tensor, values))
        return flatten(self.reference(*copies)) + copies * arguments

    def compute_exact(self, values: Sequence[torch.Tensor], *, arguments: bool = False) -> list[torch.Tensor]:
        """PyTorch's results in float64; with `arguments` as in `run_kernel`."""
        assert self.reference is not None
        wide = [stand_for(tensor.double(), tensor.dtype) if tensor.is_floating_point() else tensor.clone() for tensor in values]
        model = widen_module(self.reference)
        with self.in_float64(model):
            return flatten(model(*wide)) + wide * arguments


class KernelMaker:
    """Plans modules and imports their kernels. Call `close` at the end."""

    def __init__(self) -> None:
        patches.install(_CARD)
        self._folder = tempfile.TemporaryDirectory()
        self._number = 0

    def close(self) -> None:
        """Remove the kernels' files."""
        self._folder.cleanup()

    def plan(self, source: str, tensors: Sequence[torch.Tensor]) -> Planned:
        """The kernel of a module that has no weights, or what is there instead.

        Args:
            source: its task file.
            tensors: arguments of its forward.
        """
        task = Task(name="case", path="case.py", source=source)
        try:
            loaded = load_reference(task)
            reference = loaded.build(0)
            if not _runs(reference, tensors):
                return Planned(None, None)
            facts = trace_call(reference, tensors) or probe(task)[0]
        except TaskError as error:
            return Planned(None, Judgement(Outcome.REFUSED, shorten_error(error)))
        task = task.model_copy(update={"precision": facts.precision})
        try:
            plan = REGIONS.read(task, facts, model_card(_CARD))
            recipe = REGIONS.recipes[0]
            settings = recipe.defaults(plan, _CARD, task.precision)
        except NoPlan as refusal:
            return Planned(None, _tell_left(task, facts, refusal))
        except Exception as error:  # noqa: BLE001 - the author must plan or refuse
            return Planned(None, Judgement(Outcome.WRONG, f"planning: {type(error).__name__}: {shorten_error(error)}"))
        if settings is None:
            return Planned(None, Judgement(Outcome.REFUSED, "no settings that fit the card"))
        self._number += 1
        path = Path(self._folder.name) / f"kernel_{self._number}.py"
        try:
            path.write_text(recipe.render(plan, settings))
        except Exception as error:  # noqa: BLE001 - what is planned must be written
            return Planned(None, Judgement(Outcome.WRONG, f"writing: {type(error).__name__}: {shorten_error(error)}"))
        try:
            return Planned(reference, None, import_candidate(path).ModelNew())
        except Exception as error:  # noqa: BLE001 - a text that does not import is wrong
            return Planned(None, Judgement(Outcome.WRONG, f"import: {type(error).__name__}: {shorten_error(error)}"))


def _runs(reference: nn.Module, tensors: Sequence[torch.Tensor]) -> bool:
    """Whether PyTorch itself takes such arguments."""
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            reference(*map(copy_tensor, tensors))
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


def copy_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """Equal values and strides in memory of its own."""
    made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
    return made.copy_(tensor) if all(tensor.stride()) else tensor


def shorten_error(error: BaseException) -> str:
    """The words of an error in a line."""
    return " ".join(str(error).split())[:200]


@contextlib.contextmanager
def limit_time(seconds: int) -> Iterator[None]:
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
