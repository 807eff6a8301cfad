"""What a candidate keeps from call to call, and what its caller does meanwhile."""

import pytest

from tritonsmith.benchmarks.hacks.catalogue import FOLDER, read_hack
from tritonsmith.benchmarks.hacks.judge import task_of
from tritonsmith.evaluator.caller.local import LocalEvaluator
from tritonsmith.evaluator.schema import Status

STALE = "where only a part of them is new, output 0 at index ["
SHARED = "output 0 of one call is overwritten by "


@pytest.mark.parametrize(("name", "says"), [
    ("R14_window_cache", STALE),
    pytest.param("R14b_sample_cache", STALE, marks=pytest.mark.slow),
    pytest.param("R14c_results_by_window", STALE, marks=pytest.mark.slow),
    pytest.param("R14d_weights_by_version", "", marks=pytest.mark.slow),
    ("R13b_kept_from_the_second_call", SHARED),
    pytest.param("R13c_three_buffers", SHARED, marks=pytest.mark.slow),
])  # fmt: skip
def test_strict_changes_a_part_of_the_inputs_and_keeps_results(evaluator: LocalEvaluator, name: str, says: str) -> None:
    case = read_hack(FOLDER / "cases" / f"{name}.py")
    verdict = evaluator.evaluate_now(task_of(case), case.source, "strict")
    assert verdict.status is (Status.INACCURATE if says else Status.OK) and says in verdict.message, verdict.message
