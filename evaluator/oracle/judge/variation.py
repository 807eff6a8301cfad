"""Results that vary from call to call on the same inputs: allowed for atomic adds, and where the reference's own operators vary.

Some of a library's operators add up in an order that no card promises: transposed convolutions, scattered sums. A candidate that leaves
work to a library may vary like the reference. One whose own kernels do the work is racy, whatever it fills or copies. Imports torch.
"""

from __future__ import annotations

import ast

import torch

from tritonsmith.evaluator.oracle.checks.loaded_task import LoadedTask
from tritonsmith.evaluator.oracle.checks.trials import same_bits
from tritonsmith.evaluator.oracle.handles.runner import RunnerFault
from tritonsmith.evaluator.oracle.judge.label import choose_label
from tritonsmith.evaluator.schema import Label, LaunchFacts, Status

_CALLS = 20
"""Calls of the reference on the same inputs, until one gives other bits."""


class Variation:
    """Judges varying results of one task's candidates.

    Args:
        session: the task on the card.
    """

    def __init__(self, session: LoadedTask) -> None:
        self._session = session
        self._reference_varies: bool | None = None
        self._finding = ""

    def look(self, differing: int, calls: int, source: str) -> bool:
        """Whether any of a candidate's repeated calls gave other bits. Raises RunnerFault(racy) where nothing can explain that."""
        self._finding = ""
        if differing and not _adds_atomically(source):
            self._finding = f"{differing} of {calls} calls on the same inputs gave other bits, and no atomic add explains it"
            if not self._does_reference_vary():
                raise RunnerFault(Status.RACY, self._finding)
        return bool(differing)

    def require_explained(self, facts: LaunchFacts) -> None:
        """Raises RunnerFault(racy) where results vary as the reference's do, and no library does a part of the candidate's work."""
        if self._finding and (not facts.library_calls or choose_label(facts) is Label.KERNEL):
            why = "the reference's results vary as well, by operators whose work this candidate does itself"
            raise RunnerFault(Status.RACY, f"{self._finding}; {why}")

    def _does_reference_vary(self) -> bool:
        if self._reference_varies is None:
            self._reference_varies = self._compare_calls()
        return self._reference_varies

    def _compare_calls(self) -> bool:
        session, precision = self._session, self._session.task.precision
        tensors = session.draw("own")
        first = session.reference_outputs(tensors, precision)
        varies = any(not same_bits(first, session.reference_outputs(tensors, precision)) for _ in range(_CALLS))
        del tensors, first
        torch.cuda.empty_cache()
        return varies


def _adds_atomically(source: str) -> bool:
    """Whether the code (not a comment or a string) names atomic_add, whose order no card promises."""
    return any(isinstance(node, ast.Attribute | ast.Name) and _name(node) == "atomic_add" for node in ast.walk(ast.parse(source)))


def _name(node: ast.Attribute | ast.Name) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id
