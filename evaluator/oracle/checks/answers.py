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
from tritonsmith.evaluator.oracle.checks.moves import draw_seed, move_oracle_arithmetic
from tritonsmith.evaluator.oracle.checks.undecided import Undecided
from tritonsmith.evaluator.oracle.checks.written import as_real, find_disturbed
from tritonsmith.evaluator.schema import PrecisionClass

Tensors = list[torch.Tensor]
_STEP_SHARE = 0.5
"""Of the four units of float32's last place by which arithmetic is moved elsewhere: a sum rounds once more than its terms do."""


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
        self._undecided: dict[PrecisionClass, Undecided] = {}

    def name_result(self, number: int) -> str:
        """What messages call a result."""
        return self._loaded.call.name_result(number)

    def measure(self, got: Sequence[torch.Tensor]) -> ErrorStats:
        """The error of these outputs."""
        meter = ErrorMeter(got)
        for first, tensors in self._cut():
            oracle = self._compute(tensors)
            ours = cut_outputs(got, first, oracle)
            meter.add(ours, self._find_undecided(tensors, oracle, self._loaded.task.precision).settle(ours), first)
            if self._loaded.arithmetic.half:
                meter.add_factors(ours, oracle)
        return meter.finish()

    def _find_undecided(self, tensors: Tensors, oracle: Tensors, precision: PrecisionClass) -> Undecided:
        """What rounding in a class leaves open on these inputs; kept where the oracle is."""
        arithmetic = precision.arithmetic
        found = self._undecided.get(arithmetic) or Undecided(self._loaded, tensors, arithmetic, oracle)
        if self._batch is None:
            self._undecided[arithmetic] = found
        return found

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
                meter.add(own, self._find_undecided(tensors, oracle, precision).settle(own), first)
                if loaded.arithmetic.half:
                    meter.add_factors(own, oracle)
            if moved_meter is not None:
                inputs = [tensor.to(loaded.oracle_device) for tensor in tensors]
                shifted = loaded.oracle(perturb_last_place(inputs))
                self._add_moved(moved_meter, tensors, shifted, oracle, first)
        errors = {precision: meter.finish() for precision, meter in meters.items()}
        if self._batch is not None:
            factors = self._batch.rms_factor, self._batch.max_factor
            errors = {precision: error.scale_errors(*factors) for precision, error in errors.items()}
        return ReferenceErrors(errors, moved_meter.finish() if moved_meter else None, finite)

    def measure_moves(self, draws: int) -> ErrorStats:
        """The most, place by place, that two units of float32's last place do to the oracle's arithmetic, over so many draws."""
        return functools.reduce(ErrorStats.widen, [self._measure_move() for _ in range(draws)])

    def _measure_move(self) -> ErrorStats:
        meter = ErrorMeter(self._loaded.output_shapes(torch.float64))
        for first, tensors in self._cut():
            oracle = self._compute(tensors)
            moved = move_oracle_arithmetic(self._loaded, tensors, PrecisionClass.IEEE, seed=draw_seed(), share=_STEP_SHARE, long_sums=False)
            self._add_moved(meter, tensors, moved, oracle, first)
        return meter.finish()

    def _add_moved(self, meter: ErrorMeter, tensors: Tensors, moved: Tensors, oracle: Tensors, first: int) -> None:
        """Compare the oracle on moved values with the oracle, jumps left out; whole numbers are settled each by itself."""
        smooth = self._find_undecided(tensors, oracle, self._loaded.task.precision).drop_jumps(moved)
        meter.add([one if one.is_floating_point() else right for one, right in zip(smooth, oracle, strict=True)], oracle, first)

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

