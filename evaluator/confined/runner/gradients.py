"""Forward and backward of a candidate as one call. Imports torch.

Values are all that counts: a candidate that puts other functions in autograd's places changes only what it delivers itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import nn

from tritonsmith.evaluator.confined.runner.faults import CandidateFault
from tritonsmith.evaluator.reference.gradients import GradientPlan, allow_backward, run_with_gradients
from tritonsmith.evaluator.schema import Status


def bind_call(model: nn.Module, plan: GradientPlan | None) -> Callable[..., Any]:
    """The call of a candidate that is judged: its forward, or forward and backward where there is a plan. Raises CandidateFault."""
    if plan is None:
        return model
    parameters = find_parameters(model, plan)
    allow_backward(model)  # as for the reference

    def call(*arguments: Any) -> Any:
        return run_with_gradients(model, arguments, plan, parameters, _refuse)

    return call


def find_parameters(model: nn.Module, plan: GradientPlan) -> list[Sequence[nn.Parameter]]:
    """The candidate's parameters that stand for each of the reference's whose gradient is asked for.

    Raises CandidateFault where there is none, or where it takes no gradient.
    """
    mapping = getattr(model, "WEIGHT_MAP", None)
    mapping = dict(mapping) if isinstance(mapping, dict) else {}
    held: dict[str, dict[int, nn.Parameter]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        held.setdefault(mapping.get(name, name), {})[id(parameter)] = parameter
    found: list[Sequence[nn.Parameter]] = []
    for names in plan.parameters:
        group = {key: value for name in names for key, value in held.get(name, {}).items()}
        if not group or not all(parameter.requires_grad for parameter in group.values()):
            what = "has requires_grad=False" if group else "is no nn.Parameter"
            raise CandidateFault(
                Status.WRONG_WEIGHTS,
                f"{names[0]} {what} in the candidate, so the gradient of {names[0]} is missing; make it an nn.Parameter",
            )
        found.append([*group.values()])
    return found


def _refuse(why: str) -> CandidateFault:
    return CandidateFault(Status.INACCURATE, why)

