"""Arguments that a reference writes to are results, and what it leaves alone in them stays as it was; structures cross as plain values."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tritonsmith.evaluator.cards.cards import named_card
from tritonsmith.evaluator.errors import TaskError
from tritonsmith.evaluator.oracle.checks.answers import Answers
from tritonsmith.evaluator.oracle.checks.loaded_task import LoadedTask
from tritonsmith.evaluator.oracle.checks.memory import MemoryPlan, OraclePlace
from tritonsmith.evaluator.oracle.checks.planning import find_batch
from tritonsmith.evaluator.oracle.checks.structure import find_difference, pair_parts
from tritonsmith.evaluator.oracle.checks.trials import describe_error, judge_outputs
from tritonsmith.evaluator.oracle.checks.written import find_disturbed
from tritonsmith.evaluator.reference.structure import Structure, describe
from tritonsmith.evaluator.schema import PrecisionClass
from tritonsmith.evaluator.tasks.files import load_task

IEEE = PrecisionClass.IEEE
CACHE = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, *caches):
        caches[1][:, 3] = torch.exp(x)
        return caches[1].sum(1)


def get_inputs():
    return [torch.randn(24, 8), torch.randn(24, 4, 8), torch.randn(24, 6, 8)]


def get_init_inputs():
    return []
"""


@pytest.fixture
def loaded(tmp_path: Path) -> Iterator[LoadedTask]:
    path = tmp_path / "task.py"
    path.write_text(CACHE)
    task = LoadedTask(load_task(path), named_card("h200"), "cpu")
    yield task
    task.close()


@pytest.mark.parametrize("plan", [MemoryPlan(), MemoryPlan(OraclePlace.PARTS, 5), MemoryPlan(OraclePlace.HOST)], ids=str)
def test_what_forward_leaves_in_an_argument_is_a_result(loaded: LoadedTask, plan: MemoryPlan) -> None:
    assert loaded.written == (2,) and loaded.input_names == ("input 0 (x)", "input 1 (caches[0])", "input 2 (caches[1])")
    tensors = loaded.draw("own")
    state, cache = right = loaded.reference_outputs(tensors, IEEE)
    loaded.batch = find_batch(loaded, tensors, right)
    assert loaded.batch is not None
    loaded.take_plan(plan)
    assert judge_outputs(loaded, tensors, right).meets(IEEE) and Answers(loaded, tensors).find_disturbed(right) is None
    left = judge_outputs(loaded, tensors, [state, tensors[2].clone()])
    assert not left.meets(IEEE) and describe_error([left], IEEE) == "forward does not write to output 1, the reference does"
    cache[17, 2, 5] += 1e-5
    assert Answers(loaded, tensors).find_disturbed(right) == (1, (17, 2, 5))
    cache[17, 2, 5], cache[17, 3, 5] = tensors[2][17, 2, 5], cache[17, 3, 5] + 1e-5
    assert Answers(loaded, tensors).find_disturbed(right) is None  # it is written to there: the rule for results holds


def test_an_element_that_rounding_changes_in_the_reference_may_change(tmp_path: Path) -> None:
    """What is added and taken away again stays as it is in float64, and not in float32."""
    path = tmp_path / "task.py"
    path.write_text(CACHE.replace("caches[1][:, 3] = torch.exp(x)", "caches[1].add_(1.0).sub_(1.0)"))
    task = LoadedTask(load_task(path), named_card("h200"), "cpu")
    tensors = task.draw("own")
    right = task.reference_outputs(tensors, IEEE)
    assert not torch.equal(right[1], tensors[2]) and Answers(task, tensors).find_disturbed(right) is None
    right[1][2, 3, 4] *= 1.001
    kept = bool((task.reference_outputs(tensors, IEEE)[1] == tensors[2])[2, 3, 4])
    assert (Answers(task, tensors).find_disturbed(right) == (1, (2, 3, 4))) is kept
    task.close()


def test_a_returned_buffer_has_the_value_that_the_call_leaves(tmp_path: Path) -> None:
    """Calls begin with the values of before. What forward returned must not go back to them, and the next call may change it."""
    path = tmp_path / "task.py"
    norm = "    def __init__(self):\n        super().__init__()\n        self.norm = nn.BatchNorm1d(8)\n\n    def forward"
    source = CACHE.replace("return caches[1].sum(1)", "return self.norm(x), self.norm.running_mean")
    path.write_text(source.replace("    def forward", norm))
    task = LoadedTask(load_task(path, mode="train"), named_card("h200"), "cpu")
    assert task.lent == (1,) and "norm.running_mean" in task.updates
    tensors = task.draw("own")
    outputs = task.reference_outputs(tensors, IEEE)
    assert torch.equal(outputs[1], outputs[2 + task.updates.index("norm.running_mean")]) and bool(outputs[1].any())
    assert judge_outputs(task, tensors, outputs).meets(IEEE)
    task.close()


@pytest.mark.parametrize("change", ["x.t_()", "x.unsqueeze_(0)", "x.data = torch.exp(x)"])
def test_an_argument_that_gets_another_shape_or_memory_is_refused(tmp_path: Path, change: str) -> None:
    path = tmp_path / "task.py"
    path.write_text(CACHE.replace("caches[1][:, 3] = torch.exp(x)", change))
    with pytest.raises(TaskError, match=r"task.py, line 7: forward gives argument 1 another shape or other memory in place"):
        LoadedTask(load_task(path), named_card("h200"), "cpu")


@pytest.mark.parametrize(
    ("before", "want", "got", "place"),
    [
        ([1.0, 2.0], [1.0, 3.0], [1.0, 9.0], None),
        ([1.0, 2.0], [1.0, 3.0], [1.0000001, 3.0], None),
        ([1.0, 2.0], [1.0, 3.0], [1.00001, 3.0], (0,)),
        ([float("nan"), 2.0], [float("nan"), 3.0], [float("nan"), 3.0], None),
        ([float("nan"), 2.0], [float("nan"), 3.0], [0.0, 3.0], (0,)),
        ([1, float("inf")], [0.0, float("inf")], [0.0, float("inf")], None),
        ([1, float("inf")], [0.0, float("inf")], [0.0, 5.0], (1,)),
    ],
)  # fmt: skip
def test_elements_that_keep_their_value_must_keep_it(before: Any, want: Any, got: Any, place: Any) -> None:
    assert find_disturbed(torch.tensor(before), torch.tensor(want, dtype=torch.float64), torch.tensor(got)) == place


def test_whole_numbers_that_are_left_alone_are_equal() -> None:
    before, want = torch.tensor([3, 4]), torch.tensor([3, 5])
    assert find_disturbed(before, want, torch.tensor([3, 7])) is None
    assert find_disturbed(before, want, torch.tensor([2, 5])) == (0,)


def differ(given: Any, wanted: Any) -> str:
    """The difference after the way from a runner."""
    crossed = Structure.from_plain(json.loads(json.dumps(describe(given).as_plain())))
    assert crossed == describe(given)
    return find_difference(list(pair_parts(crossed, describe(wanted))))


def test_structures_are_compared_part_by_part() -> None:
    x = torch.zeros(2)
    assert differ((x, [x, 1, None]), [x, (x, 2, None)]) == ""
    assert differ({1: x, "1": x}, {"1": x, 1: x}) == ""
    assert differ(torch.topk(x, 1), (x, x)) == differ((x, x), torch.topk(x, 1)) == ""
    assert differ([x], {"a": x}) == "forward returns a tuple or list of 1, the reference returns a dict with the keys 'a'"
    assert differ({"a": x, 2: {}}, {"a": x, 2: {3: x}}) == "forward returns no key 3 at result[2], the reference does"
    assert differ((x, 2), (x, 2.0)) == "" and differ((x, 2.0), (x, 2)) and differ((x, True), (x, 1))
    assert differ((x, object()), (x, None)) == "forward returns object at result[1], the reference returns None"
    assert differ([], [x]) == "forward returns a tuple or list of 0, the reference returns a tuple or list of 1"


def test_large_structures_stay_within_a_line() -> None:
    deep: list[Any] = []
    deep.append(deep)
    wide = {"\\" * 100 + str(number): "\\" * 100 for number in range(2000)}
    for value in (deep, wide, [[torch.zeros(1)] * 3000] * 2):
        assert differ(value, value) == "" and len(json.dumps(describe(value).as_plain())) < 60_000


@pytest.mark.parametrize("plain", [[], ["tensor"], "tensor", 3, ["a", "", 3, []], ["a", "", [], [[]]], None])
def test_what_is_no_structure_is_refused(plain: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        Structure.from_plain(plain)
