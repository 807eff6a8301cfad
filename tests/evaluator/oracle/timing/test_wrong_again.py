"""What is said of a wrong call after right ones: only a call that is always wrong where it is timed, and right elsewhere, is cheating."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from tritonsmith.evaluator.cards.cards import named_card
from tritonsmith.evaluator.oracle.checks.loaded_task import LoadedTask
from tritonsmith.evaluator.oracle.checks.trials import Expected, compute_expected
from tritonsmith.evaluator.oracle.timing.wrong_again import explain_wrong
from tritonsmith.evaluator.schema import PrecisionClass, Status
from tritonsmith.evaluator.tasks.files import load_task

TASK = """
import torch
from torch import nn
class Model(nn.Module):
    def forward(self, a, b):
        return a @ b
def get_inputs():
    return [torch.randn(96, 256), torch.randn(256, 64)]
def get_init_inputs():
    return []
"""


@pytest.fixture
def product(tmp_path: Path) -> Iterator[tuple[Expected, Callable[[float], list[torch.Tensor]]]]:
    """What is right, and results with so many times the reference's own error."""
    (path := tmp_path / "task.py").write_text(TASK)
    loaded = LoadedTask(load_task(path), named_card("h200"), "cpu")
    tensors = loaded.draw("own")
    (right,), (own,) = loaded.oracle(tensors), loaded.reference_outputs(tensors, PrecisionClass.IEEE)
    yield compute_expected(loaded, tensors), lambda times: [(right + times * (own.double() - right)).float()]
    loaded.close()


@pytest.mark.parametrize(
    ("first", "timed", "plain", "status", "seen"),
    [
        (600.0, [600.0], [1.0], Status.CHEATING, "6 of 6 such calls are wrong, 0 of 6 plain ones"),
        (600.0, [600.0], [600.0], Status.INACCURATE, "6 of 6 such calls are wrong, 6 of 6 plain ones"),
        (600.0, [1.0], [1.0], Status.RACY, "0 of 6 such calls are wrong, 0 of 6 plain ones"),
        (600.0, [1.0, 600.0], [1.0], Status.RACY, "3 of 6 such calls are wrong, 0 of 6 plain ones"),
        (6.0, [6.0], [1.0], Status.INACCURATE, "is not accurate enough, though the checked calls are"),
    ],
)
def test_the_same_call_is_made_again_both_ways(
    product: tuple[Expected, Callable[[float], list[torch.Tensor]]], first: float, timed: list[float], plain: list[float], status: Status,
    seen: str,
) -> None:  # fmt: skip
    expected, give = product
    same, other = (itertools.cycle([give(times) for times in given]) for given in (timed, plain))
    fault = explain_wrong(
        "a timed call (number 7)", expected, give(first), PrecisionClass.IEEE, lambda: next(same), lambda: next(other)
    )  # fmt: skip
    assert fault.status is status and str(fault).startswith("a timed call (number 7)") and seen in str(fault)
    assert "maximum error" in str(fault)


@pytest.mark.parametrize(("later", "status"), [((False,) * 6, Status.CHEATING), ((False,) * 5 + (True,), Status.INACCURATE)])
def test_a_candidate_that_is_wrong_from_some_call_on_counts_its_calls(
    product: tuple[Expected, Callable[[float], list[torch.Tensor]]], later: tuple[bool, ...], status: Status
) -> None:
    expected, give = product
    answers = iter(later)
    wrong = give(600.0)
    fault = explain_wrong(
        "a timed call (number 11)", expected, wrong, PrecisionClass.IEEE, lambda: wrong, lambda: wrong, lambda: next(answers)
    )  # fmt: skip
    assert fault.status is status
