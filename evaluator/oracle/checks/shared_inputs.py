"""Sets of inputs that all candidates of a task are checked with: drawn, and answered in float64, once. Imports torch.

A float64 reference may take longer than all calls of a candidate. So its answers are kept, with the reference's own error, while the card
has room for them. No process of a candidate outlives its verdict. What one of them could tell an author about a set helps no other for
long: a set is drawn again after some verdicts, and the first call of every verdict has inputs of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from tritonsmith.evaluator.oracle.checks.correctness import Trial
from tritonsmith.evaluator.oracle.checks.inputs import KINDS
from tritonsmith.evaluator.oracle.checks.loaded_task import LoadedTask
from tritonsmith.evaluator.oracle.checks.trials import Expected, compute_expected

_COPIES = 5
"""Of each answer where rounding may decide some: beside it what a smooth change may be, and three values that were shown."""
_MOST_USES = 16
"""Verdicts that one set serves."""

Name = tuple[str, int, int]
"""Kind, which one of that kind within a verdict, and the number of the weights."""


class InputSet:
    """One set of inputs of a kind, with what is right on it.

    Args:
        loaded: the task.
        kind: see `inputs.KINDS`.
    """

    def __init__(self, loaded: LoadedTask, kind: str) -> None:
        self._loaded = loaded
        self.kind = kind
        self.tensors = loaded.draw(kind)
        self.uses = 0
        self._expected: Expected | None = None

    def expect(self, before: Sequence[Trial]) -> Expected:
        """What is right; computed when the first candidate has answered. Raises what the reference raises."""
        if self._expected is None:
            self._expected = compute_expected(self._loaded, self.tensors, KINDS[self.kind], before)
        return self._expected

    @property
    def nbytes(self) -> int:
        """Bytes of the inputs and of the answers in float64, with what is known of undecided elements."""
        outputs = self._loaded.output_shapes(torch.float64) * (_COPIES if self._loaded.decides else 1)
        return sum(tensor.numel() * tensor.element_size() for tensor in (*self.tensors, *outputs))


class SharedInputs:
    """Keeps sets within the memory that the task's plan has for them.

    Args:
        loaded: the task.
    """

    def __init__(self, loaded: LoadedTask) -> None:
        self._loaded = loaded
        self._sets: dict[Name, InputSet] = {}

    def take(self, kind: str, number: int) -> InputSet:
        """The set with this number among those of a kind, for the weights of now; a new one where none is kept."""
        name = (kind, number, self._loaded.weights_number)
        kept = self._sets.get(name)
        if kept is None or kept.uses >= _MOST_USES:
            self._sets.pop(name, None)
            kept = InputSet(self._loaded, kind)
            if sum(one.nbytes for one in self._sets.values()) + kept.nbytes <= self._loaded.plan.kept:
                self._sets[name] = kept
        kept.uses += 1
        return kept
