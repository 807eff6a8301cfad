"""The list of real modules: each is a task file, and a small one goes through its command."""

import ast

from tritonsmith.benchmarks.real_modules.cases import CASES
from tritonsmith.benchmarks.real_modules.suite import choose_cases, summarize, write_tasks
from tritonsmith.evaluator.tasks.files import load_task
from tritonsmith.graph.suites.records import RowState, SuiteRow


def test_each_case_is_a_program_of_its_own_name(tmp_path) -> None:
    assert len(CASES) >= 60
    assert len({case.name for case in CASES}) == len(CASES)
    assert sum(case.type != "fp32" for case in CASES) * 2 >= len(CASES)
    for case in CASES:
        ast.parse(case.write())
    own = [case for case in choose_cases([], ["bf16"]) if not case.library]
    for path in write_tasks(own, tmp_path):
        assert load_task(path).source


def test_a_kept_module_counts_as_one() -> None:
    rows = [
        SuiteRow(task="rotary", state=RowState.DONE, outcome="faster", score=4.0),
        SuiteRow(task="geglu", state=RowState.DONE, outcome="right", score=0.2),
        SuiteRow(task="kmeans", state=RowState.OPEN),
    ]
    groups = summarize(rows, CASES)
    assert groups["16 bits"]["geometric mean"] == 2.0
    assert groups["16 bits"]["faster"] == 1
    assert groups["fp32"]["modules"] == 0
