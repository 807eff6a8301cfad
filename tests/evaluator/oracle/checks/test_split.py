"""The class between fp32 and TF32: 32 times the reference's own error, and ten times better than TF32."""

import pytest
import torch

from tritonsmith.evaluator.oracle.checks.correctness import Trial, accepted, list_arithmetic, reached_class, summarize
from tritonsmith.evaluator.oracle.checks.measure import error_stats
from tritonsmith.evaluator.oracle.checks.trials import describe_error
from tritonsmith.evaluator.schema import PrecisionClass

IEEE, SPLIT, TF32, HALF = PrecisionClass
SHAPE = (96, 64)


def noise(seed: int) -> torch.Tensor:
    return torch.randn(SHAPE, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


ORACLE = noise(1)


def trial(times: float, tf32_times: float = 5000.0, own: float = 2.0**-20) -> Trial:
    """The candidate's error and TF32's, as multiples of the reference's own; all three have one shape, so the ratio holds everywhere."""
    error = noise(2) * own
    stats = [error_stats([(ORACLE + error * factor)], [ORACLE]) for factor in (times, 1.0, tf32_times)]
    return Trial(stats[0], {IEEE: stats[1], TF32: stats[2]})


@pytest.mark.parametrize(
    ("times", "tf32_times", "reached"),
    [
        (3.9, 5000.0, IEEE), (4.1, 5000.0, SPLIT), (31.0, 5000.0, SPLIT), (33.0, 5000.0, TF32),
        (9.0, 100.0, SPLIT), (11.0, 100.0, TF32),  # ten times better than TF32
        (3.9, 1.0, IEEE), (3.9, 20.0, IEEE), (4.1, 20.0, TF32),  # where TF32 is near fp32 the class is fp32's
    ],
)  # fmt: skip
def test_both_limits_count(times: float, tf32_times: float, reached: PrecisionClass) -> None:
    assert reached_class([trial(times, tf32_times)]) is reached


def test_the_order_of_the_classes_is_from_strict_to_loose() -> None:
    assert [one.value for one in PrecisionClass] == ["ieee", "split", "tf32", "16-bit"]
    assert accepted(IEEE, SPLIT) and accepted(SPLIT, TF32) and not accepted(SPLIT, IEEE) and not accepted(TF32, SPLIT)


def test_the_worst_trial_decides() -> None:
    assert reached_class([trial(1.0), trial(20.0)]) is SPLIT and reached_class([trial(20.0), trial(40.0)]) is TF32


def test_a_reference_without_error_leaves_the_floor() -> None:
    """Where the reference happens to be exact, eps/4 of the result stands for its error in this class too."""
    exact = error_stats([ORACLE.float()], [ORACLE.float().double()])
    for times, within in ((20.0, True), (40.0, False)):
        off = ORACLE.float().double() + noise(2) * times * 2.0**-25
        candidate = error_stats([off.float()], [ORACLE.float().double()])
        assert candidate.within(exact.bound_split(trial(1.0).reference[TF32])) is within


def test_a_part_that_is_wrong_by_itself_is_refused_and_named() -> None:
    oracle, error = ORACLE.clone(), noise(2) * 2.0**-20
    for one in (oracle, error):
        one[:, -1] *= 0.01
    wrong = error * 2.0
    wrong[:, -1] = error[:, -1] * 200.0
    own = {IEEE: error_stats([oracle + error], [oracle]), TF32: error_stats([oracle + error * 5000.0], [oracle])}
    found = Trial(error_stats([oracle + wrong], [oracle]), own)
    assert reached_class([found]) is TF32 and not found.meets(SPLIT)
    assert "the last 1 of 64 positions along axis 1" in describe_error([found], SPLIT)


def test_the_figures_are_the_references_own_in_fp32() -> None:
    found = summarize([trial(20.0)], SPLIT)
    assert found.precision_class is SPLIT
    assert found.err_vs_oracle == pytest.approx(20.0 * found.reference_err_vs_oracle)


@pytest.mark.parametrize(("asked", "run"), [(IEEE, [IEEE]), (SPLIT, [IEEE, TF32]), (TF32, [IEEE, TF32]), (HALF, [IEEE, TF32, HALF])])
def test_the_reference_runs_in_what_a_class_is_compared_with(asked: PrecisionClass, run: list[PrecisionClass]) -> None:
    assert list_arithmetic(asked) == run


def test_libraries_keep_tf32_off() -> None:
    assert [one.allows_tf32 for one in PrecisionClass] == [False, False, True, True]
    assert [one.arithmetic for one in PrecisionClass] == [IEEE, IEEE, TF32, HALF]
