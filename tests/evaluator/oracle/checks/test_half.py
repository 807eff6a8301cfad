"""The acceptance rule in 16 bits: which sums pass, and the tasks that come along."""

from collections.abc import Callable

import pytest
import torch

from project import ROOT
from tritonsmith.evaluator.cards.cards import CARDS
from tritonsmith.evaluator.oracle.checks.correctness import ErrorStats
from tritonsmith.evaluator.oracle.checks.inputs import KINDS
from tritonsmith.evaluator.oracle.checks.loaded_task import LoadedTask
from tritonsmith.evaluator.oracle.checks.measure import error_stats
from tritonsmith.evaluator.oracle.checks.trials import compute_expected
from tritonsmith.evaluator.schema import PrecisionClass
from tritonsmith.evaluator.tasks.files import load_task

HALF = PrecisionClass.HALF
TASKS = sorted((ROOT / "benchmarks/tasks/half").glob("*.py"))
Sum = Callable[[torch.Tensor], torch.Tensor]


def add_in_turn(values: torch.Tensor, width: int) -> torch.Tensor:
    """The sum along the last axis, kept in the values' own type after every `width` of them."""
    total = torch.zeros(values.shape[:-1], dtype=values.dtype)
    for part in values.split(width, dim=-1):
        total = (total.float() + part.float().sum(-1)).to(values.dtype)
    return total


def add_in_pairs(values: torch.Tensor) -> torch.Tensor:
    while values.shape[-1] > 1:
        values = (values[..., ::2].float() + values[..., 1::2].float()).to(values.dtype)
    return values[..., 0]


def stats(values: torch.Tensor, oracle: torch.Tensor) -> ErrorStats:
    return error_stats([values], [oracle])


@pytest.mark.parametrize("width", [16, 32, 64])
def test_a_long_product_summed_in_fp16_is_refused(width: int) -> None:
    torch.manual_seed(1)
    a, b = torch.randn(48, 4096).half(), (torch.randn(32, 4096) / 64).half()
    oracle = a.double() @ b.double().T
    terms = (a.float()[:, None] * b.float()).view(48, 32, -1, width).sum(-1)  # exact within a tensor core's step
    reference = stats((a.float() @ b.float().T).half(), oracle)
    assert stats(terms.sum(-1).half(), oracle).within(reference)
    wrong = stats(add_in_turn(terms.half(), 1), oracle)
    assert wrong.rms > 4 * reference.rms and not wrong.within(reference)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("add", [add_in_pairs, lambda values: add_in_turn(values, 1)], ids=["in pairs", "in turn"])
def test_a_softmax_summed_in_16_bits_is_refused(add: Sum, dtype: torch.dtype) -> None:
    """On average such an error may be below that of one rounding of each element; along a row it does not cancel."""
    torch.manual_seed(2)
    x = (torch.randn(256, 1024) / 2).to(dtype)
    powers = torch.exp(x.float() - x.float().amax(-1, keepdim=True))
    oracle = torch.softmax(x.double(), -1)
    reference = stats(torch.softmax(x.float(), -1).to(dtype), oracle)
    assert stats((powers / powers.sum(-1, keepdim=True)).to(dtype), oracle).within(reference)
    wrong = stats((powers / add(powers.to(dtype)).float()[:, None]).to(dtype), oracle)
    assert not wrong.within(reference) and wrong.wrong_rows(reference) == 0


@pytest.mark.parametrize(("bits", "right"), [(torch.bfloat16, True), (torch.float8_e5m2, False)])
def test_a_row_may_be_off_by_one_rounding_of_its_factor_to_the_type_of_the_result(bits: torch.dtype, right: bool) -> None:
    torch.manual_seed(5)
    x = torch.randn(256, 1024).bfloat16()
    scale = torch.rsqrt(x.float().square().mean(-1, keepdim=True))
    oracle = x.double() * torch.rsqrt(x.double().square().mean(-1, keepdim=True))
    reference = stats((x.float() * scale).bfloat16(), oracle)
    assert stats((x.float() * scale.to(bits).float()).bfloat16(), oracle).within(reference) is right


def test_an_output_is_compared_with_those_of_its_own_type() -> None:
    """An fp32 result next to a bf16 one is no looser for it, and a small result is judged by itself."""
    torch.manual_seed(3)
    big, small = torch.randn(64, 128).double(), torch.randn(16).double()
    reference = error_stats([big.bfloat16(), small.float()], [big, small])
    assert error_stats([big.bfloat16(), (small * (1 + 1e-7)).float()], [big, small]).within(reference)
    wrong = error_stats([big.bfloat16(), small.bfloat16().float()], [big, small])
    assert wrong.within_on_average(reference) and not wrong.within(reference)


def test_a_kind_that_overflows_fp16_is_not_judged() -> None:
    loaded = LoadedTask(load_task(ROOT / "benchmarks/tasks/half/fp16_matmul.py", "small"), CARDS["h200"], "cpu")
    try:
        for kind in ("own", "signed"):
            assert compute_expected(loaded, loaded.draw(kind), KINDS[kind]).errors[HALF].exact
        above = compute_expected(loaded, loaded.draw("above"), KINDS["above"])
        assert above.finite and not above.errors[HALF].exact  # the oracle is finite, the reference is not
    finally:
        loaded.close()


@pytest.mark.parametrize("path", TASKS, ids=lambda path: path.stem)
def test_each_task_is_one_of_16_bits_and_its_reference_passes(path: object) -> None:
    loaded = LoadedTask(load_task(str(path), "small"), CARDS["h200"], "cpu")
    try:
        assert loaded.task.precision is HALF and loaded.arithmetic.half and not loaded.arithmetic.tf32
        tensors = loaded.draw("own")
        expected = compute_expected(loaded, tensors)
        assert set(expected.errors) == {HALF} and expected.trial(loaded.reference_outputs(tensors, HALF)).meets(HALF)
    finally:
        loaded.close()
