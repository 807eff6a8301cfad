"""The acceptance rule: legitimate rounding passes, wrong answers do not, whatever their size."""

import pytest
import torch

from tritonsmith.evaluator.correctness import Trial, accepted, error_stats, reached_class
from tritonsmith.evaluator.schema import PrecisionClass


def trial(candidate: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> Trial:
    oracle = [a.double() @ b.double()]
    return Trial(error_stats([candidate], oracle), {PrecisionClass.IEEE: error_stats([a @ b], oracle)})


def operands(scale: float = 1.0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(7)
    return torch.randn(96, 256, generator=generator) * scale, torch.randn(256, 64, generator=generator)


def split_k(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return sum((a[:, i::4] @ b[i::4] for i in range(1, 4)), a[:, 0::4] @ b[0::4])


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_another_order_of_summation_is_accepted_at_every_scale(scale: float) -> None:
    a, b = operands(scale)
    assert reached_class([trial(split_k(a, b), a, b)]) is PrecisionClass.IEEE


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize(
    "wrong",
    [
        lambda a, b: torch.zeros(96, 64),
        lambda a, b: (a.bfloat16() @ b.bfloat16()).float(),
        lambda a, b: a[:, :-1] @ b[:-1],
        lambda a, b: (a @ b) * 1.001,
        lambda a, b: (a @ b).roll(1, 0),
        lambda a, b: torch.full((96, 64), float("nan")),
    ],
    ids=["zeros", "bf16", "dropped tail", "a tenth of a percent", "shifted rows", "nan"],
)
def test_wrong_results_are_refused_at_every_scale(scale: float, wrong) -> None:  # type: ignore[no-untyped-def]
    a, b = operands(scale)
    assert reached_class([trial(wrong(a, b), a, b)]) is None


def test_one_wrong_element_of_many_is_found_and_placed() -> None:
    a, b = operands()
    result = a @ b
    result[17, 3] += 1e-2
    found = trial(result, a, b)
    assert reached_class([found]) is None
    assert found.candidate.worst_index == (17, 3)


def test_integers_must_be_equal_and_infinities_must_match() -> None:
    want = torch.tensor([1.0, float("inf"), 3.0], dtype=torch.float64)
    assert error_stats([torch.tensor([1.0, float("inf"), 3.0])], [want]).exact
    assert not error_stats([torch.tensor([1.0, 2.0, 3.0])], [want]).exact
    assert not error_stats([torch.tensor([1, 2, 4])], [torch.tensor([1, 2, 3])]).exact


def test_a_looser_class_never_stands_for_a_stricter_one() -> None:
    assert accepted(PrecisionClass.IEEE, PrecisionClass.TF32)
    assert not accepted(PrecisionClass.TF32, PrecisionClass.IEEE)
    assert not accepted(None, PrecisionClass.HALF)
