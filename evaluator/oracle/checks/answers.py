"""What is right on one set of inputs, computed as the memory plan says: whole, by parts of the batch, or on the host. Imports torch."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch

from tritonsmith.evaluator.oracle.checks.batch import cut_outputs
from tritonsmith.evaluator.oracle.checks.correctness import ErrorStats
from tritonsmith.evaluator.oracle.checks.inputs import perturb_last_place
from tritonsmith.evaluator.oracle.checks.loaded_task import LoadedTask
from tritonsmith.evaluator.oracle.checks.measure import ErrorMeter, equal_bits
from tritonsmith.evaluator.oracle.checks.memory import OraclePlace
from tritonsmith.evaluator.oracle.checks.undecided import move_oracle, settle_undecided
from tritonsmith.evaluator.oracle.checks.written import as_real, find_disturbed
from tritonsmith.evaluator.schema import PrecisionClass

Tensors = list[torch.Tensor]
_STEP = 2.0 * torch.finfo(torch.float32).eps
"""How far values are moved, as a share of each: a sum rounds once more than its terms do."""


class ReferenceErrors(NamedTuple):
    """How far off the reference is on one set of inputs."""

    by_class: dict[PrecisionClass, ErrorStats]
    moved: ErrorStats | None
    """What moving each input by its last place does to the oracle, where that was asked."""
    finite: bool
    """Whether the oracle is finite everywhere."""


class Answers:
    """The float64 reference on one set of inputs.

    Args:
        loaded: the task.
        tensors: the inputs, which must stay as they are.
    Raises:
        what the reference raises on these inputs, where the oracle is computed at once.
    """

    def __init__(self, loaded: LoadedTask, tensors: Tensors) -> None:
        self._loaded = loaded
        self._tensors = tensors
        self._batch = loaded.batch if loaded.plan.oracle is OraclePlace.PARTS else None
        self._whole = loaded.oracle(tensors) if self._batch is None else []

    def measure(self, got: Sequence[torch.Tensor]) -> ErrorStats:
        """The error of these outputs."""
        meter = ErrorMeter(got)
        for first, tensors in self._cut():
            oracle = self._compute(tensors)
            ours = cut_outputs(got, first, oracle)
            meter.add(ours, settle_undecided(self._loaded, tensors, self._loaded.task.precision, oracle, ours), first)
        return meter.finish()

    def measure_reference(self, classes: Sequence[PrecisionClass], *, moved: bool = False) -> ReferenceErrors:
        """The reference's own error in some classes; with `moved` also what moving the inputs does."""
        loaded, finite = self._loaded, True
        meters = {precision: ErrorMeter(loaded.output_shapes()) for precision in classes}
        moved_meter = ErrorMeter(loaded.output_shapes(torch.float64)) if moved else None
        for first, tensors in self._cut():
            oracle = self._compute(tensors)
            finite = finite and all(not output.is_floating_point() or bool(torch.isfinite(output).all()) for output in oracle)
            for precision, meter in meters.items():
                own = loaded.reference_outputs(tensors, precision)
                meter.add(own, settle_undecided(loaded, tensors, precision, oracle, own), first)
            if moved_meter is not None:
                inputs = [tensor.to(loaded.oracle_device) for tensor in tensors]
                shifted = loaded.oracle(perturb_last_place(inputs))
                _add_moved(moved_meter, shifted, oracle, first)
        errors = {precision: meter.finish() for precision, meter in meters.items()}
        if self._batch is not None:
            factors = self._batch.rms_factor, self._batch.max_factor
            errors = {precision: error.scale_errors(*factors) for precision, error in errors.items()}
        return ReferenceErrors(errors, moved_meter.finish() if moved_meter else None, finite)

    def measure_moves(self, draws: int) -> ErrorStats:
        """The most, place by place, that moves of inputs and weights by up to `_STEP` do to the oracle, over so many draws."""
        return functools.reduce(ErrorStats.widen, [self._measure_move() for _ in range(draws)])

    def _measure_move(self) -> ErrorStats:
        meter = ErrorMeter(self._loaded.output_shapes(torch.float64))
        for first, tensors in self._cut():
            oracle = self._compute(tensors)
            _add_moved(meter, move_oracle(self._loaded, tensors, _STEP), oracle, first)
        return meter.finish()

    def list_left(self, got: Sequence[torch.Tensor]) -> frozenset[int]:
        """Numbers of the results that are inputs which the reference writes to and these results leave as they were, bit by bit."""
        return frozenset(number for number, place in self._list_written(got) if equal_bits(got[number], as_real(self._tensors[place])))

    def find_disturbed(self, got: Sequence[torch.Tensor]) -> tuple[int, tuple[int, ...]] | None:
        """The first result, and an element of it, that the oracle leaves as it was in the inputs and these results do not."""
        written = self._list_written(got)
        for first, tensors in self._cut() if written else ():
            oracle = self._compute(tensors)
            ours = cut_outputs(got, first, oracle)
            for number, place in written:
                before = as_real(tensors[place])
                found = find_disturbed(before, oracle[number], ours[number])
                if found is not None:  # unless rounding leaves something else there in the reference as well
                    own = self._loaded.reference_outputs(tensors, self._loaded.task.precision.arithmetic)
                    found = find_disturbed(before, oracle[number], ours[number], own[number])
                if found is not None:
                    return number, (found[0] + first, *found[1:]) if found else found
        return None

    def _list_written(self, got: Sequence[torch.Tensor]) -> list[tuple[int, int]]:
        """Numbers of the results that are inputs, each with the input's number."""
        return list(enumerate(self._loaded.written, start=len(got) - len(self._loaded.written)))

    def _cut(self) -> Iterator[tuple[int, Tensors]]:
        """The inputs of each part, with the number of its first row."""
        if self._batch is None:
            yield 0, self._tensors
            return
        count = self._loaded.plan.rows
        for first in range(0, self._batch.rows, count):
            yield first, self._batch.cut(self._tensors, first, count)

    def _compute(self, tensors: Tensors) -> Tensors:
        return self._whole if self._batch is None else self._loaded.oracle(tensors)


def _add_moved(meter: ErrorMeter, moved: Tensors, oracle: Tensors, first: int) -> None:
    """Compare the oracle on moved values with the oracle; whole numbers are settled each by itself."""
    meter.add([one if one.is_floating_point() else right for one, right in zip(moved, oracle, strict=True)], oracle, first)
