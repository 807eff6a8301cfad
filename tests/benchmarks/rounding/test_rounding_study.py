"""The list of tasks that rounding decides is complete; one right kernel is accepted, and one wrong one is refused."""

import argparse
import json
from collections import Counter
from pathlib import Path

import pytest

from tritonsmith.benchmarks.rounding import study
from tritonsmith.benchmarks.rounding.cases import TASKS, list_cases
from tritonsmith.benchmarks.rounding.study import RoundingRow, describe_end, make_task, read_part, read_tasks
from tritonsmith.evaluator.caller.local import LocalEvaluator
from tritonsmith.evaluator.schema import Status

CASES = {case.name: case for case in list_cases()}


def test_each_task_has_three_right_kernels_and_four_wrong_ones() -> None:
    assert len(TASKS) == 12 and len({case.source for case in CASES.values()}) == 12 * (3 + 4)
    assert Counter((case.task, case.expect == ("ok",)) for case in CASES.values()) == {
        (task, right): count for task in TASKS for right, count in ((True, 3), (False, 4))
    }


@pytest.mark.parametrize("name", ["threshold_mask-right2", "threshold_mask-wrong_one"])
def test_a_kernel_gets_the_verdict_that_it_must_get(evaluator: LocalEvaluator, name: str) -> None:
    case = CASES[name]
    verdict = evaluator.evaluate_now(make_task(case.task, "small"), case.source)
    assert verdict.status is (Status.OK if "right" in name else Status.INACCURATE), verdict.message


def test_a_disagreement_is_told_with_its_message() -> None:
    """A failure of the evaluator is no refusal."""
    rows = [RoundingRow("sort-wrong_one", "sort", "strict", 0, False, status, "why", 1.0) for status in ("inaccurate", "ok", "failed")]
    lines = describe_end(rows)
    assert [row.agrees for row in rows] == [True, False, False] and "refused 1 of 3 wrong" in lines[0]
    assert [line.split()[0] for line in lines[1:]] == ["DISAGREES", "DISAGREES"]


@pytest.mark.parametrize("read, text", [(read_part, "5/4"), (read_part, "0/4"), (read_part, "half"), (read_tasks, "sort,sorting")])
def test_options_that_mean_nothing_are_refused(read: object, text: str) -> None:
    assert callable(read)
    with pytest.raises(argparse.ArgumentTypeError, match=text.split(",")[-1]):
        read(text)


@pytest.mark.slow
def test_calls_in_a_row_are_judged_and_written(tmp_path: Path) -> None:
    out = tmp_path / "rows.jsonl"
    words = ["--verdicts", "none", "--calls", "3", "--tasks", "threshold_mask", "--only", "_one", "--target", "h200", "--out", str(out)]
    assert study.main(words) == 0
    _, *rows = map(json.loads, out.read_text().splitlines())
    assert [(row["number"], row["agrees"]) for row in rows] == [(0, True), (1, True), (2, True)]
