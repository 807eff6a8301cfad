"""The built-in author's operators give PyTorch's own results; differences that the suite must see are seen; the page is current."""

import importlib.util
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from interpreted import Interpreted
from project import ROOT
from tritonsmith.benchmarks.operators.calls import CannotWrite, write_call
from tritonsmith.benchmarks.operators.compare import choose_nearer, find_difference
from tritonsmith.benchmarks.operators.digest import make_digest, read_rows
from tritonsmith.benchmarks.operators.facts import trace_call
from tritonsmith.benchmarks.operators.special import draw_specials, list_specials, stride
from tritonsmith.benchmarks.operators.suite import OperatorRow, describe_end
from tritonsmith.evaluator.reference.module import load_reference
from tritonsmith.evaluator.reference.probe import probe
from tritonsmith.evaluator.schema import Task

PARTS = 8
"""Of the whole suite, each within the limit of a test."""
DRAWN = 8


def run_suite(path: Path, *options: str, seconds: int = 280) -> list[dict[str, object]]:
    """The rows of a run in a process of its own, whose Triton is the interpreter."""
    words = [sys.executable, "-W", "ignore", "-m", "tritonsmith.benchmarks.operators.suite", "--out", str(path), *options]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=seconds, env=environment)
    wrong = [line for line in done.stdout.splitlines() if line.startswith("WRONG")]
    assert done.returncode == 0, "\n".join(wrong) or done.stderr[-2000:]
    _, *rows = map(json.loads, path.read_text().splitlines())
    return rows


def test_drawn_operators_give_pytorchs_results(interpreted: Interpreted, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    options = ("--out", path, "--draw", DRAWN, "--samples", 1, "--types", "float32,int64")
    interpreted.run("tritonsmith.benchmarks.operators.suite", *options)
    _, *rows = map(json.loads, path.read_text().splitlines())
    assert len(rows) == DRAWN and sum(bool(row["passed"]) for row in rows) > DRAWN / 2


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("part", range(1, PARTS + 1))
def test_all_operators_give_pytorchs_results(part: int, tmp_path: Path) -> None:
    rows = run_suite(tmp_path / "rows.jsonl", "--samples", "1", "--part", f"{part}/{PARTS}", seconds=1150)
    assert any(row["passed"] for row in rows)


ONE = torch.tensor([0.0, 1.0, math.nan, 3.0])


@pytest.mark.parametrize(
    ("got", "told"),
    [
        (torch.tensor([-0.0, 1.0, math.nan, 3.0]), "-0.0 for 0.0 at [0]"),
        (torch.tensor([0.0, 1.0, 2.0, 3.0]), "2.0 for nan at [2]"),
        (torch.tensor([0.0, math.inf, math.nan, 3.0]), "inf for 1.0 at [1]"),
        (torch.tensor([0.0, 1.0, math.nan, 3.00001]), "for 3.0 at [3]"),
        (torch.tensor([0, 1, 2, 3]), "result 0 is torch.int64[4]"),
        (ONE.reshape(2, 2), "result 0 is torch.float32[2, 2]"),
    ],
)
def test_a_difference_is_told(got: torch.Tensor, told: str) -> None:
    assert told in find_difference([got], [ONE], lambda: [ONE.double()], pointwise=True)


def test_roundings_and_other_bits_of_nan_are_no_difference() -> None:
    nearly = torch.tensor([0.0, 1.0 + 2.0**-23, -math.nan, 3.0])
    assert not find_difference([nearly], [ONE], lambda: [ONE.double()], pointwise=True)


def test_one_far_element_among_large_ones_is_a_difference_of_an_elementwise_operator() -> None:
    own = torch.tensor([1e30, 1e-20])
    assert find_difference([torch.tensor([1e30, 0.0])], [own], lambda: [own.double()], pointwise=True)


def test_either_of_pytorchs_two_codes_is_right() -> None:
    first, second, got = torch.tensor([math.nan, 1.0]), torch.tensor([0.0, 5.0]), torch.tensor([0.0, 2.0])
    assert choose_nearer([got], [first], [second])[0].tolist() == [0.0, 1.0]


def test_zeros_of_either_sign_are_right_only_where_they_are_in_an_order() -> None:
    got, own = [torch.tensor([-0.0])], [torch.tensor([0.0])]
    assert find_difference(got, own, lambda: own, pointwise=False)
    assert not find_difference(got, own, lambda: own, pointwise=False, any_zero=True)


def test_a_call_is_written_with_its_tensors_and_numbers() -> None:
    call = write_call("clamp", torch.zeros(2), (-math.inf,), {"max": torch.ones(2), "generator": None})
    assert call.text == 'torch.clamp(x0, float("-inf"), max=x1)' and len(call.tensors) == 2
    assert write_call("__rsub__", torch.zeros(2), (2,), {}).text == "2 - x0"
    with pytest.raises(CannotWrite):
        write_call("clamp", torch.zeros(2), (print,), {})


def test_special_values_reach_floating_tensors_and_leave_indices() -> None:
    source, places = torch.zeros(200), torch.tensor([0, 1])
    for _, (values, index) in draw_specials([source, places], pointwise=True, seed=3):
        assert {str(value) for value in values.tolist()} >= {"nan", "inf", "-inf", "-0.0"} and torch.equal(index, places)
    assert min(list_specials(torch.int8)) == -128 and not stride(torch.zeros(4)).is_contiguous()


def test_rows_of_later_files_replace_earlier_ones(tmp_path: Path) -> None:
    for name, passed in (("a", 1), ("b", 2)):
        row = {"name": "sum", "passed": passed, "left": 0, "refused": 0, "wrong": 0, "types": ["float32"], "refusals": []}
        (tmp_path / name).write_text(json.dumps({"command": "x"}) + "\n" + json.dumps(row) + "\n")
    made = make_digest(read_rows([tmp_path / "a", tmp_path / "b"]))
    assert made["sums"]["passed"] == 2 and made["written"]["sum"]["samples"] == 2


def test_wrong_results_are_named_at_the_end() -> None:
    failure = {"type": "float32", "kind": "sample", "call": "torch.sum(x0)", "reason": "1 for 2"}
    first, last = describe_end([OperatorRow("sum", passed=1, wrong=1, failures=[failure])])
    assert first == "WRONG sum (sample): torch.sum(x0): 1 for 2" and last.endswith("2 samples, 1 passed, 0 left, 0 refused, 1 wrong")


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("add", (torch.ones(2, 3),)), ("sum", (-1,)), ("split", (1, -1)), ("__getitem__", ((slice(None), 0),)),
        ("masked_fill", (torch.ones(3) > 0, math.inf)),
    ],
)
def test_a_call_is_traced_as_the_probe_traces_it(name: str, args: tuple[object, ...]) -> None:
    call = write_call(name, torch.ones(2, 3), args, {})
    task = Task(name="case", path="case.py", source=call.source)
    probed, traced = probe(task)[0], trace_call(load_reference(task).build(0), call.tensors)
    assert traced is not None
    costs = {"launches": 0, "flops": 0.0, "bytes": 0.0, "line": 0}
    assert traced.ops == tuple(node.model_copy(update=costs) for node in probed.ops)
    for field in ("inputs", "outputs", "values", "parameters", "init_inputs", "updates", "traced_by", "precision"):
        assert getattr(traced, field) == getattr(probed, field), field


def load_page() -> ModuleType:
    """The script docs/operators.py as a module."""
    spec = importlib.util.spec_from_file_location("operators_page", ROOT / "docs" / "operators.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_has_the_kept_result_and_nothing_is_wrong() -> None:
    page, text = load_page(), (ROOT / "docs" / "operators.md").read_text()
    written = page.BEGIN + text.partition(page.BEGIN)[2].partition(page.END)[0] + page.END
    assert written == page.write_result(page.read_result()), "run: python docs/operators.py --write"
    assert page.read_result()["sums"]["wrong"] == 0
