"""Tasks without SMALL on a machine without a card: run as they are, shrunk by themselves, or refused with the way out."""

import math

import pytest

from bench_tasks import FILES
from tritonsmith.evaluator.errors import TaskError
from tritonsmith.evaluator.records.operator_cost import OperatorCost
from tritonsmith.evaluator.reference.choose_size import MOST_SECONDS, choose_size
from tritonsmith.evaluator.reference.interpreter_time import predict_seconds
from tritonsmith.evaluator.reference.probe import probe
from tritonsmith.evaluator.schema import FIT, Task
from tritonsmith.evaluator.tasks.files import at_chosen_size

REFUSED = {
    "literal": "declares no small size, and at its own a verdict takes about 37 min without a card; no module-level whole number makes it",
    "constant": "smaller results are not finite, or do not depend on the inputs; .* add SMALL = {'NAME': VALUE} to the file",
    "broken": r"broken\.py, line 11: forward raised IndexError \(Dimension out of range .* but got 7\)",
    "broken and large": r"broken and large\.py, line 11: forward raised AttributeError .*no attribute 'nothing'",
}
UNTOUCHED = ("small",)
ALIKE = {"softmax", "conv2d", "sum over a dimension", "linear and group norm", "cumulative sum", "loss", "heads", "layers of a list"}
"""Shrunk in the way of others; they wait for `make test-all`."""
SHRUNK = [name for name in FILES if name not in (*REFUSED, *UNTOUCHED)]


def task_of(name: str) -> Task:
    return Task(name=name, path=f"{name}.py", source=FILES[name], size=FIT)


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow if name in ALIKE else ()) for name in SHRUNK])
def test_a_large_task_is_shrunk_and_still_runs(name: str) -> None:
    chosen = choose_size(task_of(name))
    task = at_chosen_size(task_of(name), chosen)
    assert task.size == "small" and task.sized == chosen.note
    facts, costs = probe(task)
    assert 0.0 < predict_seconds(costs) <= MOST_SECONDS
    assert all(math.prod(spec.shape) for spec in facts.outputs)
    assert chosen.note.startswith("the task has no SMALL: shrunk for the interpreter (about ")
    assert all(f"{key} " in chosen.note and f"-> {value}" in chosen.note for key, value in chosen.overrides.items())
    assert choose_size(task_of(name)) == chosen  # a run that is resumed finds the same size


def test_sizes_keep_their_relations() -> None:
    norm = choose_size(task_of("linear and group norm")).overrides
    assert norm["in_features"] == norm["out_features"] and norm["out_features"] // norm["num_groups"] == 8192 // 256
    same = choose_size(task_of("two names for one size")).overrides
    assert same["hidden"] == same["same"] < 4096
    assert choose_size(task_of("sum over a dimension")).overrides["dim2"] % 2 == 1  # odd, to test masks
    assert "n_head" not in choose_size(task_of("heads")).overrides
    assert "kernel_size" not in choose_size(task_of("conv2d")).overrides
    layers = choose_size(task_of("layers of a list")).overrides["layer_sizes"]
    assert isinstance(layers, tuple) and layers[0] == 2 * layers[1] < 16384
    pair = choose_size(task_of("rows that are columns too")).overrides
    assert pair["input_shape"] == (pair["batch_size"],)
    assert set(choose_size(task_of("a size in the model")).overrides) == {"batch_size", "in_features"}


def test_a_task_that_is_fast_enough_is_run_as_it_is() -> None:
    facts, _ = probe(task_of("small"))
    assert facts.chosen is not None and facts.chosen.overrides == {}
    task = at_chosen_size(task_of("small"), facts.chosen)
    assert (task.size, task.overrides) == ("full", {})
    assert task.sized == "the task has no SMALL: judged at its own size (about 1 s a verdict in the interpreter)"
    assert facts.inputs[0] is not None and facts.inputs[0].shape == (16, 1024)


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_shrunk_or_run_is_one_sentence(name: str) -> None:
    with pytest.raises(TaskError, match=REFUSED[name]) as caught:
        choose_size(task_of(name))
    assert "\n" not in str(caught.value)


def test_a_call_that_fake_tensors_accept_is_found_by_running_it() -> None:
    """torch.softmax over a dimension that is not there has a shape, and no result."""
    with pytest.raises(TaskError, match="Dimension out of range"):
        probe(task_of("broken").model_copy(update={"size": "full"}))


def test_predictions_grow_with_work_and_with_launches() -> None:
    copy = OperatorCost("aten.relu", 1, 1e6, 8e6)
    assert predict_seconds([copy, copy]) == pytest.approx(2 * predict_seconds([copy]))
    assert predict_seconds([OperatorCost("nn.GRU", 6000, 1e6, 1e6)]) > 10 * predict_seconds([OperatorCost("aten.mm", 1, 1e6, 1e6)])
    assert predict_seconds([OperatorCost("aten.mm", 1, 1e9, 8e6)]) > predict_seconds([OperatorCost("aten.mm", 1, 1e8, 8e6)])
