"""What a forward leaves beside the values of its tensors: how its result is nested, and what it writes to its arguments."""

import re
from pathlib import Path

import pytest

from tritonsmith.evaluator.caller.local import LocalEvaluator
from tritonsmith.evaluator.errors import TaskError
from tritonsmith.evaluator.schema import Status, Task
from tritonsmith.evaluator.tasks.files import load_task

HEAD = """
from collections import namedtuple
from dataclasses import dataclass

import torch
from torch import nn

Step = namedtuple("Step", ["state", "info"])
Pair = namedtuple("Pair", ["total", "largest"])


@dataclass
class Sums:
    total: torch.Tensor
    largest: torch.Tensor


"""
FORWARD = """
    def forward(self, x, cache, place):
        cache[:, place] = torch.sigmoid(x)
        state = cache.mean(1)
        return Step([state, None], {"sums": Sums(x.sum(1), x.amax(1)), "told": ("mean", 3, float(state.mean()))})
"""
TASK = f"""{HEAD}class Model(nn.Module):{FORWARD}

def get_inputs():
    return [torch.randn(4, 8), torch.randn(4, 6, 8), 2]


def get_init_inputs():
    return []
"""
RIGHT = f"{HEAD}class ModelNew(nn.Module):{FORWARD}"
SHAPE, INACCURATE = Status.WRONG_SHAPE, Status.INACCURATE
WRITE, STATE = "cache[:, place] = torch.sigmoid(x)", "state = cache.mean(1)"

OTHERS = {
    "right": ("", "", Status.OK, ""),
    "a tuple for a list": ("[state, None]", "(state, None)", Status.OK, ""),
    "a named tuple for a list": ("[state, None]", "Pair(state, None)", Status.OK, ""),
    "a named tuple for a dataclass": ("Sums(", "Pair(", Status.OK, ""),
    "keys in another order": (
        '{"sums": Sums(x.sum(1), x.amax(1)), "told": ("mean", 3, float(state.mean()))}',
        '{"told": ["mean", 3, float(state.mean())], "sums": Sums(x.sum(1), x.amax(1))}', Status.OK, "",
    ),
    "a plain tuple for a named one": (
        "Step(", "(", SHAPE, "forward returns a tuple or list of 2, the reference returns a named tuple with the fields state, info",
    ),
    "another named tuple": ("Step(", "Pair(", SHAPE, "the fields total, largest, the reference .* the fields state, info"),
    "a tuple for a dataclass": ("Sums(", "(", SHAPE, r"at result\.info\['sums'\], the reference returns a dataclass"),
    "another key": ('"told"', '"said"', SHAPE, r"forward returns no key 'told' at result\.info, the reference does"),
    "a further key": ('{"sums"', '{"more": 1, "sums"', SHAPE, "the key 'more' at result.info, the reference does not"),
    "a tensor for None": ("None]", "state]", SHAPE, r"returns a tensor at result\.state\[1\], the reference returns None"),
    "None left out": ("[state, None]", "[state]", SHAPE, r"a tuple or list of 1 at result\.state, the reference .* of 2"),
    "a tensor for a number": ("float(state.mean())", "state.mean()", SHAPE, r"a tensor at .*\[2\], the reference returns the number"),
    "another text": ('"mean"', '"median"', SHAPE, r"the text 'median' at .*, the reference returns the text 'mean'"),
    "another whole number": ('"mean", 3', '"mean", 4', INACCURATE, r"the number 4 at .*\['told'\]\[1\], the reference returns 3"),
    "another number": ("float(state.mean())", "float(state.mean() * 1.01)", INACCURATE, r"returns the number .*\['told'\]\[2\]"),
    "a number wrong on other inputs": (
        "float(state.mean())", "float(state.mean()) * float(x.abs().max() < 6.0)", INACCURATE,
        r"returns the number -?0.0 at .*\['told'\]\[2\]",
    ),
    "a kept output": (
        STATE, "self.out = getattr(self, 'out', torch.empty(4, 8))\n        state = torch.mean(cache, 1, out=self.out)", INACCURATE,
        "output 0 of one call is overwritten by the next one",
    ),
    "an output that is kept and not overwritten": (STATE, f"{STATE}\n        self.out = state", Status.OK, ""),
    "an argument for a tensor of its own": ("[state, None]", "[x, None]", INACCURATE, "output 0 is an argument of forward, or a view"),
    "an argument not written": (
        WRITE, f"cache = cache.clone()\n        {WRITE}", INACCURATE, r"forward does not write to input 1 \(cache\), the reference does",
    ),
    "an argument written elsewhere too": (
        STATE, f"{STATE}\n        cache[:, 0] = cache[:, 0].bfloat16().float()", INACCURATE,
        r"forward changed input 1 \(cache\) at index \[0, 0, \d\], where the reference leaves it as it was",
    ),
    "another argument written": (
        WRITE, f"{WRITE}\n        x.relu_()", Status.CHEATING, r"forward changed its input 0 \(x\); the reference does not",
    ),
    "an argument written by NumPy": (
        WRITE, "cache.numpy()[:, place] = torch.sigmoid(x).numpy()", Status.CHEATING, "done again in another process",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Task:
    path = tmp_path_factory.mktemp("tasks") / "stepped.py"
    path.write_text(TASK)
    return load_task(path)


ALIKE = {
    "a named tuple for a list", "a named tuple for a dataclass", "a plain tuple for a named one", "a further key", "None left out",
    "another text", "another whole number", "a number wrong on other inputs", "an output that is kept and not overwritten",
    "an argument written elsewhere too", "an argument written by NumPy",
}  # fmt: skip
"""Their like is among the others; they wait for `make test-all`."""
ROWS = [pytest.param(*row, id=name, marks=pytest.mark.slow if name in ALIKE else ()) for name, row in OTHERS.items()]


@pytest.mark.parametrize(("old", "new", "status", "message"), ROWS)
def test_only_results_and_arguments_like_the_references_are_right(
    evaluator: LocalEvaluator, task: Task, old: str, new: str, status: Status, message: str
) -> None:
    assert RIGHT.count(old) == 1 or not old
    verdict = evaluator.evaluate_now(task, RIGHT.replace(old, new) if old else RIGHT)
    assert verdict.status is status, f"{verdict.status}: {verdict.message}"
    if message:
        assert re.search(message, verdict.message), verdict.message


IN_PLACE = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu_(x) * 2.0


def get_inputs():
    return [torch.rand(4, 8)]


def get_init_inputs():
    return []
"""


def test_a_write_that_the_tasks_own_inputs_do_not_show_counts(evaluator: LocalEvaluator, tmp_path: Path) -> None:
    """A ReLU in place changes none of the task's own inputs, which are positive, and others of the trials."""
    path = tmp_path / "in_place.py"
    path.write_text(IN_PLACE)
    task, right = load_task(path), IN_PLACE.replace("class Model(", "class ModelNew(")
    assert evaluator.evaluate_now(task, right).status is Status.OK
    verdict = evaluator.evaluate_now(task, right.replace("relu_(", "relu("))
    assert verdict.status is Status.INACCURATE and "does not write to input 0 (x)" in verdict.message


CONJUGATED = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, y):
        return x @ y.mH, x.conj().imag * 2.0, y.conj()


def get_inputs():
    return [torch.randn(4, 8, dtype=torch.complex64).conj(), torch.randn(4, 8, dtype=torch.complex64)]


def get_init_inputs():
    return []
"""


def test_conjugated_views_are_judged_like_other_tensors(evaluator: LocalEvaluator, tmp_path: Path) -> None:
    path = tmp_path / "conjugated.py"
    path.write_text(CONJUGATED)
    right = CONJUGATED.replace("class Model(", "class ModelNew(")
    assert evaluator.evaluate_now(load_task(path), right).status is Status.OK
    assert evaluator.evaluate_now(load_task(path), right.replace("y.mH", "y.mT")).status is Status.INACCURATE


def test_a_forward_without_work_is_a_fault_of_the_task(evaluator: LocalEvaluator, tmp_path: Path) -> None:
    path = tmp_path / "idle.py"
    path.write_text(IN_PLACE.replace("torch.relu_(x) * 2.0", "x.view(-1), x"))
    with pytest.raises(TaskError, match=r"idle.py: forward runs no kernel"):
        evaluator.evaluate_now(load_task(path), path.read_text().replace("class Model(", "class ModelNew("))
