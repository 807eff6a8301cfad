"""The acceptance rule: legitimate rounding passes, wrong answers do not, whatever their size."""

import pytest
import torch

from tritonsmith.evaluator.oracle.checks.correctness import Trial, accepted, reached_class
from tritonsmith.evaluator.oracle.checks.measure import error_stats
from tritonsmith.evaluator.oracle.checks.trials import describe_error
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


@pytest.mark.parametrize(
    "tail", [pytest.param(torch.relu, id="relu"), pytest.param(torch.nn.functional.gelu, id="gelu", marks=pytest.mark.slow)]
)
def test_a_sparse_edge_refuses_no_honest_rounding(tail) -> None:  # type: ignore[no-untyped-def]
    """An edge of which a tail leaves a few values refuses no honest rounding."""
    generator, refused = torch.Generator().manual_seed(11), 0
    for _ in range(400):
        a, b = torch.randn(512, 256, generator=generator), torch.randn(256, 70, generator=generator)
        bias = torch.zeros(70)
        bias[-1] = -3.0 * 16.0  # one or none of the last column's 512 sums of 256 products is larger than that
        oracle = [tail(a.double() @ b.double() + bias.double())]
        mine, own = (error_stats([tail(product + bias)], oracle) for product in (split_k(a, b), a @ b))
        refused += not mine.within(own)
    assert refused == 0


SMALL = ["a thousandth of a small column", "one value of a small column"]
ZEROS = ["noise in a column of zeros", "half of a column of zeros"]


@pytest.mark.parametrize("wrong", SMALL + ZEROS)
def test_an_edge_that_is_wrong_by_itself_is_refused(wrong: str) -> None:
    a, b = operands()
    oracle, reference, result = a.double() @ b.double(), a @ b, split_k(a, b)
    for one in (oracle, reference, result):
        one[:, -1] *= 1e-5 if wrong in SMALL else 0.0
    if wrong in SMALL:
        result[: None if wrong.startswith("a thousandth") else 1, -1] *= 1.001
    else:
        result[:: 2 if wrong.startswith("half") else 1, -1] = 1e-7
    mine, own = error_stats([result], [oracle]), error_stats([reference], [oracle])
    assert mine.within_on_average(own) and not mine.within(own)
    if wrong in ZEROS:  # a floor that is far below the error excuses nothing, whatever the reference's own places are
        assert not mine.within(own.lift_to_share(1e-9).lift_edges_to_share(1e-11)) and not mine.scale_errors(1.0).within(own.widen(own))


@pytest.mark.parametrize(("error", "right"), [(3e-7, True), (3e-6, False)])
def test_a_few_numbers_may_differ_more_than_many(error: float, right: bool) -> None:
    """Four losses: the reference may happen to be exact, which refuses no honest sum."""
    oracle = [torch.rand((), dtype=torch.float64) + 1.0 for _ in range(4)]
    own = error_stats([value.float() for value in oracle], oracle)
    assert error_stats([(value * (1.0 + error)).float() for value in oracle], oracle).within(own) is right
    many = [torch.rand(400, dtype=torch.float64) + 1.0]
    assert not error_stats([(many[0] * (1.0 + error)).float()], many).within(error_stats([many[0].float()], many))


@pytest.mark.parametrize(("error", "right"), [(3e-7, True), (3e-6, False)])
def test_a_large_number_next_to_many_small_ones_is_one_number(error: float, right: bool) -> None:
    """A perplexity next to an image makes nearly all of the scale: the reference may happen to be exact there."""
    oracle = [torch.rand(240, dtype=torch.float64), torch.tensor(13.0, dtype=torch.float64)]
    own = error_stats([value.float() for value in oracle], oracle)
    assert error_stats([oracle[0].float(), (oracle[1] * (1.0 + error)).float()], oracle).within(own) is right
    wrong = [(oracle[0] * (1.0 + error)).float(), oracle[1].float()]
    assert not error_stats(wrong, oracle).within(own)


def test_few_wrong_places_are_bounded_by_the_whole_output() -> None:
    """A few wrong places, where the reference has few values, are bounded by the whole output."""
    a, b = operands()
    oracle, reference, result = a.double() @ b.double(), a @ b, split_k(a, b)
    for one in (oracle, reference, result):
        one[:, -1] = 0.0
    own = error_stats([reference], [oracle])
    for off, passes in ((4.0, True), (9.0, False)):
        result[5, -1] = off * own.max_abs
        assert error_stats([result], [oracle]).within(own) is passes
        assert not error_stats([result], [oracle]).within(own.lift_edges_to_share(1e-11))  # a floor is no sample: there the rule holds


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


INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_infinities_and_nans_must_match_the_oracle(dtype: torch.dtype) -> None:
    """Values that are not finite must stand where the oracle has them."""
    want = torch.tensor([1.0, INF, -INF, NAN], dtype=torch.float64)
    assert error_stats([want.to(dtype)], [want]).exact
    for wrong in (
        [1.0, INF, INF, NAN],
        [1.0, -INF, -INF, NAN],
        [1.0, INF, -INF, 0.0],
        [NAN, INF, -INF, NAN],
        [1.0, 512.0, -INF, NAN],
        [1.0, INF, -INF, INF],
    ):
        stats = error_stats([torch.tensor(wrong, dtype=dtype)], [want])
        assert not stats.exact and wrong[stats.worst_index[0]] == pytest.approx(stats.worst_actual, nan_ok=True)


@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (70,)])
@pytest.mark.parametrize(("got", "want", "right"), [(1e200, 1.0, False), (1.0, 1e200, False), (1e200, 1e200, True), (-1e308, 1e308, False)])
def test_values_whose_squares_are_infinite_are_judged(shape: tuple[int, ...], got: float, want: float, right: bool) -> None:
    oracle = [torch.full(shape, want, dtype=torch.float64)]
    stats = error_stats([torch.full(shape, got, dtype=torch.float64)], oracle)
    assert reached_class([Trial(stats, {PrecisionClass.IEEE: error_stats(oracle, oracle)})]) is (PrecisionClass.IEEE if right else None)


def test_scalars_and_outputs_without_elements() -> None:
    want = [
        torch.tensor(2.5, dtype=torch.float64),
        torch.empty(0, 7, dtype=torch.float64),
        torch.tensor(True),
        torch.empty(0, dtype=torch.long),
    ]
    right = [want[0].float(), want[1].float(), *want[2:]]
    assert error_stats(right, want).exact and error_stats(right, want).max_abs == 0
    off = error_stats([torch.tensor(2.6), *right[1:]], want)
    assert off.worst_tensor == 0 and off.worst_index == () and off.max_abs == pytest.approx(0.1)
    assert not error_stats([*right[:2], torch.tensor(False), right[3]], want).exact


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.bool, torch.int32])
def test_what_was_never_written_is_found(dtype: torch.dtype) -> None:
    want = torch.ones(4, 6, dtype=dtype)
    got = want.clone()
    got.view(-1).view(torch.uint8).view(24, -1)[7] = 0xFF
    stats = error_stats([got], [want.double() if dtype.is_floating_point else want])
    assert not stats.exact and stats.worst_index == (1, 1)
    assert stats.unwritten == int(dtype.is_floating_point)


def test_a_wrong_value_is_not_called_unwritten() -> None:
    """A value that was computed wrongly is not called unwritten."""
    want = torch.ones(8, dtype=torch.float64)
    got = torch.tensor([1.0, NAN, INF, 1.0, 1.0, 1.0, 1.0, 1.0])
    assert error_stats([got], [want]).unwritten == 0
    assert "never written" not in describe_error(
        [Trial(error_stats([got], [want]), {PrecisionClass.IEEE: error_stats([want], [want])})], PrecisionClass.IEEE
    )
    got.view(torch.int32)[5:7] = -1
    said = describe_error([Trial(error_stats([got], [want]), {PrecisionClass.IEEE: error_stats([want], [want])})], PrecisionClass.IEEE)
    assert said.startswith("2 elements of output 0 were never written")


def test_a_looser_class_never_stands_for_a_stricter_one() -> None:
    assert accepted(PrecisionClass.IEEE, PrecisionClass.TF32)
    assert not accepted(PrecisionClass.TF32, PrecisionClass.IEEE)
    assert not accepted(None, PrecisionClass.HALF)
