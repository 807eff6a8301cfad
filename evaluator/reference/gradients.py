"""Forward and backward as one call: a task with BACKWARD has its gradients judged like its outputs. Imports torch.

The call has forward's arguments and then a cotangent for each output that has a gradient. It gives what forward returns, and the gradients
of arguments and parameters. So every rule for inputs and outputs holds for cotangents and gradients, in the oracle's process as in a
candidate's.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn

from tritonsmith.evaluator.errors import TaskError
from tritonsmith.evaluator.reference.module import Reference, list_tensors, load_reference, take_plain_layers, use_seed
from tritonsmith.evaluator.reference.structure import Differentiated
from tritonsmith.evaluator.schema import Task

_SEED = 0
_COTANGENTS = 0x5EED
"""Added to a seed for the cotangents, which then do not repeat what get_inputs drew."""
_IN_PLACE = "leaf Variable that requires grad"
"""What autograd says where forward writes to an argument."""
_take_gradients = torch.autograd.grad
"""As it was ahead of any candidate's import."""


@dataclass(frozen=True)
class GradientPlan:
    """Which gradients a task asks for."""

    arguments: int
    """How many arguments forward has; those after them are cotangents."""
    outputs: tuple[int, ...]
    """Numbers of the tensors among forward's results that get a cotangent."""
    inputs: tuple[int, ...]
    """Numbers of the arguments whose gradient is asked for."""
    parameters: tuple[tuple[str, ...], ...]
    """The names of each parameter whose gradient is asked for; several where it is tied."""
    results: int
    """How many tensors forward returns."""
    names: tuple[str, ...]
    """What messages call each gradient, in the order in which they come."""

    def as_plain(self) -> dict[str, Any]:
        """Numbers, lists and text."""
        return asdict(self)

    @classmethod
    def from_plain(cls, value: dict[str, Any]) -> GradientPlan:
        """The inverse of `as_plain`, also of what went through JSON."""
        plain = {name: tuple(part) if isinstance(part, list) else part for name, part in value.items()}
        return cls(**plain | {"parameters": tuple(map(tuple, value["parameters"]))})

    def name_result(self, number: int) -> str:
        """What messages call a result of the call: an output, or the gradient of what."""
        place = number - self.results
        return self.names[place] if 0 <= place < len(self.names) else f"output {number}"


def run_with_gradients(
    forward: Callable[..., Any], arguments: Sequence[Any], plan: GradientPlan, parameters: Sequence[Sequence[torch.Tensor]],
    refuse: Callable[[str], Exception] | None = None,
) -> Differentiated:  # fmt: skip
    """What one forward returns, and the gradients for the cotangents among the arguments.

    Args:
        forward: called with forward's own arguments.
        arguments: these, and the cotangents.
        plan: what is asked for.
        parameters: for each of the plan the tensors that hold it; the gradient is the sum of theirs.
        refuse: the error for a gradient that is missing. Without it a missing gradient is zero.
    """
    own, cotangents = arguments[: plan.arguments], arguments[plan.arguments :]
    given = [value.detach().requires_grad_() if number in plan.inputs else value for number, value in enumerate(own)]
    groups = [[given[number]] for number in plan.inputs] + [list(group) for group in parameters]
    with torch.enable_grad():
        result = forward(*given)
        tensors = list_tensors(result)
        pairs = _pair_cotangents(tensors, cotangents, plan, refuse)
        wanted = [tensor for group in groups for tensor in group]
        outputs, weights = [output for output, _ in pairs], [cotangent for _, cotangent in pairs]
        found = iter(_take_gradients(outputs, wanted, weights, allow_unused=True) if pairs else [None] * len(wanted))
    gradients = []
    for name, group in zip(plan.names, groups, strict=True):
        parts = [part for part in [next(found) for _ in group] if part is not None]
        if not parts and refuse is not None:
            raise refuse(f"{name} is missing: no result of forward depends on it in a way that autograd follows")
        gradients.append(_add(parts) if parts else torch.zeros_like(group[0]))
    return Differentiated(result, [tensor.detach() if _has_graph(tensor) else tensor for tensor in tensors], gradients)


def _add(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def _has_graph(tensor: Any) -> bool:
    return type(tensor) in (torch.Tensor, nn.Parameter) and tensor.requires_grad


def _pair_cotangents(
    tensors: Sequence[torch.Tensor], cotangents: Sequence[torch.Tensor], plan: GradientPlan, refuse: Callable[[str], Exception] | None
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The results that have a gradient, each with its cotangent; another number or shape of results is refused when they are delivered."""
    pairs = []
    for number, cotangent in zip(plan.outputs, cotangents, strict=True):
        output = tensors[number] if len(tensors) == plan.results else None
        if output is None or output.shape != cotangent.shape:
            continue
        if output.requires_grad:
            pairs.append((output, cotangent))
        elif refuse is not None:
            raise refuse(
                f"output {number} has no gradient: it is detached, or kernels write to it outside autograd. Give forward a backward "
                "(torch.autograd.Function); one that runs the original's operations again is right"
            )
    return pairs


class _WithGradients:
    """Mixed into the class of a reference: a call is forward and backward."""

    gradient_plan: GradientPlan

    def __call__(self, *arguments: Any) -> Differentiated:
        held = dict(self.named_parameters())  # type: ignore[attr-defined] # it is mixed into a module
        parameters = [[held[names[0]]] for names in self.gradient_plan.parameters]
        return run_with_gradients(super().__call__, arguments, self.gradient_plan, parameters)  # type: ignore[misc]


def differentiate(model: nn.Module, plan: GradientPlan) -> nn.Module:
    """The same module, whose call is forward and backward from now on; names, weights and copies stay what they are."""
    kind = type(model)
    model.__class__ = type(kind.__name__, (_WithGradients, kind), {"gradient_plan": plan, "__module__": kind.__module__})
    return model


def run_plain(model: nn.Module, arguments: Sequence[Any], plan: GradientPlan | None) -> Any:
    """What forward alone returns, of a model that may have been differentiated."""
    with take_plain_layers():
        return model(*arguments) if plan is None else nn.Module.__call__(model, *arguments[: plan.arguments])


def allow_backward(model: nn.Module) -> None:
    """Let cuDNN keep what its recurrent layers need: it has gradients in training mode alone, and without dropout both modes are one."""
    for part in model.modules():
        if isinstance(part, nn.RNNBase) and not part.dropout:
            part.training = True


def find_plan(reference: Reference, model: nn.Module, arguments: list[Any]) -> tuple[GradientPlan, list[torch.Tensor]]:
    """What a task's gradients are, and the results of forward that get a cotangent, from one call. Raises TaskError.

    Args:
        reference: the task's file.
        model: its model, whose call is forward alone.
        arguments: of forward.
    """
    allow_backward(model)
    is_free = [isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex()) for value in arguments]
    given = [value.detach().requires_grad_() if free else value for value, free in zip(arguments, is_free, strict=True)]
    held = {name: value for name, value in model.named_parameters() if value.requires_grad}
    found: list[torch.Tensor | None] = []

    def call() -> Any:
        with torch.enable_grad():
            result = model(*given)
            outputs = [tensor for tensor in list_tensors(result) if tensor.requires_grad]
            wanted = [*(value for value, free in zip(given, is_free, strict=True) if free), *held.values()]
            if outputs and wanted:
                found[:] = _take_gradients(outputs, wanted, [torch.ones_like(output) for output in outputs], allow_unused=True)
        return result

    try:
        tensors = list_tensors(reference.check_output(call))
    except TaskError as error:
        if _IN_PLACE in str(error):
            raise reference.refuse_forward(f"writes to an argument in place, which has no gradient then; {_CURE}") from error
        raise
    numbers = tuple(number for number, tensor in enumerate(tensors) if tensor.requires_grad)
    if not any(tensor.is_floating_point() or tensor.is_complex() for tensor in tensors):
        raise reference.refuse_forward(f"returns whole numbers alone, which have no gradient; {_CURE}")
    if not any(gradient is not None for gradient in found):
        why = "it runs under no_grad, detaches what it returns, or has nothing to differentiate by"
        raise reference.refuse_forward(f"returns nothing that has a gradient: {why}; {_CURE}")
    plan = _write_plan(reference, model, arguments, is_free, (numbers, len(tensors)), found)
    return plan, [tensors[number].detach() for number in numbers]


_CURE = "leave BACKWARD out"


def _write_plan(
    reference: Reference, model: nn.Module, arguments: Sequence[Any], is_free: Sequence[bool], outputs: tuple[tuple[int, ...], int],
    found: Sequence[torch.Tensor | None],
) -> GradientPlan:  # fmt: skip
    aliases: dict[int, list[str]] = {}
    for name, value in model.named_parameters(remove_duplicate=False):
        aliases.setdefault(id(value), []).append(name)
    free = [number for number, is_one in enumerate(is_free) if is_one]
    held = [tuple(aliases[id(value)]) for _, value in model.named_parameters() if value.requires_grad]
    inputs = [number for number, gradient in zip(free, found, strict=False) if gradient is not None]
    parameters = [names for names, gradient in zip(held, found[len(free) :], strict=True) if gradient is not None]
    said = name_arguments(model, len(arguments))
    names = [f"the gradient of argument {said[number]}" for number in inputs] + [f"the gradient of {group[0]}" for group in parameters]
    for name, gradient in zip(names, [part for part in found if part is not None], strict=True):
        if gradient.layout is not torch.strided:
            raise reference.refuse_forward(f"has a sparse gradient ({name}), which cannot be compared; set sparse=False")
    return GradientPlan(len(arguments), outputs[0], tuple(inputs), tuple(parameters), outputs[1], tuple(names))


def name_arguments(model: nn.Module, count: int) -> list[str]:
    """The names of forward's first arguments; `xs[0]` for the first of `*xs`."""
    names: list[str] = []
    for parameter in inspect.signature(model.forward).parameters.values():
        several = parameter.kind is inspect.Parameter.VAR_POSITIONAL
        names += [f"{parameter.name}[{place}]" for place in range(count - len(names))] if several else [parameter.name]
    return [*names, *(str(number) for number in range(len(names), count))][:count]


class DifferentiatedReference(Reference):
    """A task's file whose models give forward and backward in one call, and whose inputs end with the cotangents."""

    def __init__(self, plain: Reference) -> None:
        super().__init__(plain.task, plain.module, plain.world)
        self._plain = plain
        self._found: tuple[GradientPlan, list[tuple[tuple[int, ...], torch.dtype]]] | None = None

    def find_plan(self, device: str | torch.device = "cpu") -> GradientPlan:
        """What the task's gradients are; forward and backward run once for it. Raises TaskError."""
        return self._find(device)[0]

    def _find(self, device: str | torch.device) -> tuple[GradientPlan, list[tuple[tuple[int, ...], torch.dtype]]]:
        if self._found is None:
            model, arguments = self._plain.build(_SEED).to(device), self._plain.draw_inputs(_SEED, device)
            with use_seed(_SEED):
                plan, outputs = find_plan(self._plain, model, arguments)
            self._found = plan, [(tuple(output.shape), output.dtype) for output in outputs]
        return self._found

    def build(self, seed: int) -> nn.Module:
        """The model, whose call is forward and backward. Raises TaskError."""
        model = super().build(seed)
        allow_backward(model)
        return differentiate(model, self.find_plan())

    def draw_inputs(self, seed: int, device: str | torch.device = "cpu") -> list[Any]:
        """Forward's arguments and a cotangent for each output that has a gradient. Raises TaskError."""
        arguments = super().draw_inputs(seed, device)
        _, specs = self._find(device)
        with use_seed(seed + _COTANGENTS):
            return [*arguments, *(torch.randn(shape, dtype=dtype, device=device) for shape, dtype in specs)]


def load_judged(task: Task) -> Reference:
    """The executed task file as it is judged: with gradients where the task asks for them. Raises TaskError."""
    plain = load_reference(task)
    return DifferentiatedReference(plain) if task.backward else plain
