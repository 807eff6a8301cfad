"""Candidates that are made from texts."""

import ast

import pytest

from tritonsmith.benchmarks.kernelbench.large import KERNELS, make_jobs
from tritonsmith.benchmarks.kernelbench.rate import RATE_TASKS
from tritonsmith.benchmarks.kernelbench.texts import STORE, WRONG_EVERY, WRONG_PLACE, copy_reference, make_wrong, set_constants
from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.tasks.files import load_task

TEXT = '''"""The Model of a test, with an umlaut: ä."""
import torch
from torch import nn


class ModelPart(nn.Module):
    pass


class Model(nn.Module):  # Model
    """A Model."""

    def __init__(self):
        ä = "Model"; super(Model, self).__init__(); self.Model = Model.__name__

    def forward(self, x):
        return x
'''


def test_a_copy_renames_the_class_and_every_use_of_its_name() -> None:
    copy = copy_reference(TEXT, "task.py")
    changed = [(old, new) for old, new in zip(TEXT.splitlines(), copy.splitlines(), strict=True) if old != new]
    assert changed == [
        ("class Model(nn.Module):  # Model", "class ModelNew(nn.Module):  # Model"),
        (
            '        ä = "Model"; super(Model, self).__init__(); self.Model = Model.__name__',
            '        ä = "Model"; super(ModelNew, self).__init__(); self.Model = ModelNew.__name__',
        ),
    ]


@pytest.mark.parametrize(
    ("text", "said"), [("class Other: pass\n", "has no class Model"), ("class Model(:\n", "line 1: Python cannot read it")]
)
def test_a_text_that_is_no_task_is_named(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=rf"broken\.py.*{said}"):
        copy_reference(text, "broken.py")


def test_every_large_task_has_a_right_kernel_and_a_twin_that_stores_otherwise() -> None:
    jobs = make_jobs(size="small")
    assert len(jobs) == 24 and {path.stem for path in KERNELS.glob("*.py")} == {job.name for job in jobs}
    for right, wrong in zip(jobs[::2], jobs[1::2], strict=True):
        assert (right.kind, right.expected, wrong.kind, wrong.expected) == ("right", "accepted", "wrong", "refused")
        differing = [line for line, other in zip(wrong.text.splitlines(), right.text.splitlines(), strict=True) if line != other]
        assert len(differing) == 1 and f"% {WRONG_EVERY} == {WRONG_PLACE}, value * 1.01" in differing[0]
        ast.parse(wrong.text)
        assert load_task(right.task, "small").overrides, "it has a size for a machine without a card"


def test_a_kernel_that_stores_twice_has_no_twin() -> None:
    with pytest.raises(UsageError, match="kernel.py: .* 2 times"):
        make_wrong(f"{STORE}\n{STORE}\n", "kernel.py")


def test_constants_are_set_where_they_stand_once() -> None:
    assert set_constants("rows = 4_096\ncolumns = 3\n", {"rows": 8}, "task.py") == "rows = 8\ncolumns = 3\n"
    with pytest.raises(UsageError, match="task.py: sets depth to a whole number 0 times"):
        set_constants("rows = 4\n", {"depth": 8}, "task.py")


def test_twenty_kernels_are_rated_at_sizes_under_a_gigabyte() -> None:
    texts = [text for task in RATE_TASKS for text in task.kernels().values()]
    assert len(set(texts)) == 20
    for task in RATE_TASKS:
        sizes = list(task.sizes.values())
        elements = sizes[0] * sizes[1] * (sizes[2] if len(sizes) > 2 else 1)
        assert 2 * 4 * elements < 1e9
        assert all(f"{name} = {value}\n" in task.reference() for name, value in task.sizes.items())
