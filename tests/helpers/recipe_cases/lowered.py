"""What reading and lowering make of a small module, beside what torch does: no kernel is written."""

import copy
from typing import Any

import torch

from recipe_cases.reading import describe_case
from recipe_cases.regions import RegionCase
from tritonsmith.author.cards.model import FIRST
from tritonsmith.author.compiler.ir.values import Tensor
from tritonsmith.author.compiler.reading.reader import Forward, list_values, read_forward
from tritonsmith.author.members import attribute
from tritonsmith.evaluator.reference.module import load_reference
from values_in_torch import Values


def read_case(forward: str, inputs: str = "torch.randn(3, 4)", *, called: tuple[str, ...] = (), **rest: str) -> Forward:
    """The values of a module of one line."""
    task, facts = describe_case(RegionCase("small", forward, inputs, **rest))  # type: ignore[arg-type]
    return read_forward(facts, task.mode == "train", FIRST, called)


def compare_with_torch(forward: str, inputs: str = "torch.randn(3, 4)", *, near: float = 1e-5, **rest: str) -> Forward:
    """The values of a module of one line, after each result, buffer and argument that it writes was found to be torch's.

    near: how far results may be apart, absolutely and relatively.
    """
    task, facts = describe_case(RegionCase("small", forward, inputs, **rest))  # type: ignore[arg-type]
    found = read_forward(facts, task.mode == "train", FIRST)
    reference = load_reference(task)
    model, drawn = reference.build(0), reference.draw_inputs(0, "cpu")
    given = {held.source: value for held, value in zip(found.inputs, copy.deepcopy(drawn), strict=True)}
    given |= {attribute(name): tensor.clone() for name, tensor in model.state_dict().items()}
    given |= {held.source: eval(text, {"torch": torch}) for text, held in found.constants.items()}
    values = Values(given)
    with torch.no_grad():
        results = _flatten(model(*drawn))
    wanted = list(zip(list_values(found.results), results, strict=True))
    wanted += [(value, model.state_dict()[path]) for path, value in found.updates.items()]
    wanted += [(value, drawn[[held.source for held in found.inputs].index(name)]) for name, value in found.written.items()]
    for value, right in wanted:
        torch.testing.assert_close(values.compute(value), _as_real(right), atol=near, rtol=near, equal_nan=True)
    return found


def result_of(forward: Forward) -> Tensor:
    """The only tensor that a forward returns."""
    (value,) = list_values(forward.results)
    return value


def _flatten(results: Any) -> list[torch.Tensor]:
    if isinstance(results, torch.Tensor):
        return [results]
    parts = results.values() if isinstance(results, dict) else results
    return [tensor for part in parts for tensor in _flatten(part)]


def _as_real(tensor: torch.Tensor) -> torch.Tensor:
    """A complex tensor as its values are stored: both parts beside each other."""
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor
