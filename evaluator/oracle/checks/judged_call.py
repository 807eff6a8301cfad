"""What one call of a task takes and gives: forward alone, or forward and backward. Imports torch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from tritonsmith.evaluator.reference.given import fit_inputs
from tritonsmith.evaluator.reference.gradients import DifferentiatedReference, GradientPlan, run_plain
from tritonsmith.evaluator.reference.module import Reference


@dataclass(frozen=True)
class JudgedCall:
    """The parts of a call that are forward's own, and those that gradients add."""

    plan: GradientPlan | None
    """What is judged besides what forward returns; its cotangents are the last inputs."""
    own_inputs: int
    """How many of the input tensors are forward's own; cotangents come after them."""

    @classmethod
    def of(cls, reference: Reference, device: str, arguments: Sequence[Any]) -> JudgedCall:
        """The call of a reference with these arguments. Raises TaskError."""
        plan = reference.find_plan(device) if isinstance(reference, DifferentiatedReference) else None
        own = arguments[: plan.arguments] if plan else arguments
        return cls(plan, sum(isinstance(value, torch.Tensor) for value in own))

    def as_plain(self) -> dict[str, Any] | None:
        """The plan for another process; None for forward alone."""
        return self.plan.as_plain() if self.plan else None

    def name_result(self, number: int) -> str:
        """What messages call a result: `output 0`, or `the gradient of layer.weight`."""
        return self.plan.name_result(number) if self.plan else f"output {number}"

    def count_outputs(self, results: int) -> int:
        """How many of the results forward returns or leaves, gradients aside; `results` is how many there are."""
        return self.plan.results if self.plan else results

    def list_given_on(self, lent: Iterable[int]) -> set[int]:
        """Numbers of the results that may lie in an argument: those that do in the reference, and gradients, which autograd passes on."""
        return {*lent, *(range(self.plan.results, self.plan.results + len(self.plan.names)) if self.plan else ())}

    def fit_given(self, given: Sequence[torch.Tensor], drawn: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Inputs that a task brings along in place of drawn ones; cotangents stay drawn."""
        return [*fit_inputs(given, drawn[: self.own_inputs]), *drawn[self.own_inputs :]]

    def run_plain(self, model: nn.Module, arguments: Sequence[Any]) -> Any:
        """What the reference's forward returns, without gradients."""
        return run_plain(model, arguments, self.plan)
