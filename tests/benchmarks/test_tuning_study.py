"""The study of tuning searches: its kernels state their spaces, the autotuner gets the same, and bad input is one sentence."""

import ast

import pytest

from tritonsmith.benchmarks.tuning.cases import CASES, load_case, read_stated, write_autotuned
from tritonsmith.benchmarks.tuning.study import ArmRow, TuningStudy, compare_arms, describe, main
from tritonsmith.evaluator.schema import Status, Verdict
from tritonsmith.evaluator.texts.spaces.read import read_space
from tritonsmith.evaluator.texts.spaces.space import count_configurations

SAME_KERNEL = ("matmul_tf32", "matmul_bf16")
"""Their kernel is that of the case before; they wait for `make test-all`."""
WRITTEN = [
    pytest.param(case, marks=pytest.mark.slow if case.name in SAME_KERNEL else (), id=case.name)
    for case in CASES
    if case.kernel is not None
]


@pytest.mark.parametrize("case", WRITTEN)
def test_the_autotuner_has_the_space_that_the_kernel_states(case):
    space = read_stated(case.read_kernel())
    assert space.parameters and not space.unread and all(parameter.current in parameter.values for parameter in space.parameters)
    text = write_autotuned(case.read_kernel(), space.parameters)
    again = {parameter.name: parameter for parameter in read_space(text).parameters if parameter.needed}
    assert {name: set(parameter.values) for name, parameter in again.items()} == {one.name: set(one.values) for one in space.parameters}
    configs = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call) and ast.unparse(node.func) == "triton.Config"]
    assert len(configs) == count_configurations(space.parameters)
    assert "autotune" not in space.write({space.parameters[0].name: space.parameters[0].values[-1]})


def test_cases_on_large_tasks_have_sizes_of_their_own():
    cumsum = next(case for case in CASES if case.name == "cumsum")
    assert load_case(cumsum, "full").overrides == {"rows": 32768, "columns": 32768}
    assert load_case(cumsum, "small").overrides == {"rows": 4, "columns": 4096}
    assert "running_sum[(rows,)](x, out, columns, **TUNED)" in cumsum.read_kernel() and "WARPS" not in cumsum.read_kernel()


def test_a_row_without_a_score_says_why(tmp_path):
    class Judge:
        async def describe(self, task):
            return None

        def evaluate_now(self, task, source):
            return Verdict(status=Status.INACCURATE, sha="x", message="maximum error 9 at output 0\nand more")

    case = next(case for case in CASES if case.name == "layer_norm")
    (row,) = TuningStudy(Judge(), tmp_path, "small", 4, autotuned=False).run(case)
    assert row.arm == "untuned" and row.note == "maximum error 9 at output 0"
    assert '"note": "maximum error 9 at output 0"' in (tmp_path / "rows.jsonl").read_text()


def test_bad_input_is_one_sentence(tmp_path, capsys):
    (tmp_path / "there").write_text("x")
    for words, says in (
        (["--out", str(tmp_path / "new"), "--cases", "softmax,sofmax"], "--cases sofmax: no such case; choose from matmul_ieee"),
        (["--out", str(tmp_path)], "something lies there; name a new folder"),
        (["--out", str(tmp_path / "new"), "--configurations", "0"], "--configurations 0: a stage must try at least one"),
        (["--out", str(tmp_path / "new"), "--autotune-seconds", "0"], "--autotune-seconds 0: an autotuner needs some; give more than 0"),
    ):
        assert main(words) == 2
        assert says in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_arms_are_compared_in_speed_and_wall_time():
    rows = [
        ArmRow("softmax", "untuned", "ok", 1.0, None, 2.0, "measured", 9.0),
        ArmRow("softmax", "tuned", "ok", 2.0, None, 1.0, "measured", 30.0),
        ArmRow("softmax", "autotune", "ok", 1.9, None, 1.05, "measured", 90.0, 96, 96),
        ArmRow("gru", "untuned", "crashed", note="why"),
    ]  # fmt: skip
    (line,) = compare_arms(rows)
    assert line == "softmax: tuned is 2.000x the speed of untuned, 1.050x the speed of the autotuner's choice in 0.33 of its wall time"
    assert "crashed: why" in describe(rows[3]) and "96 of 96 configurations" in describe(rows[2]) and "ESTIMATE" not in describe(rows[1])
