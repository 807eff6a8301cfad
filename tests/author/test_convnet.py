"""Kernels of convolution networks: as exact as their class asks for in the interpreter, without races, with the right buffers."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from interpreted import Interpreted
from tritonsmith.author.book import match
from tritonsmith.evaluator.caller.local import LocalEvaluator
from tritonsmith.evaluator.schema import Label, Status
from tritonsmith.evaluator.tasks.files import load_task

TASKS = Path(__file__).parents[2] / "benchmarks" / "tasks"
HELPERS = Path(__file__).parents[1] / "helpers"
FAST = ("residual, batch statistics",)
SLOW = (
    "residual", "channels", "residual, TF32", "deep", "residual, by the library", "residual, both", "residual, TF32 operands", "depthwise",
    "depthwise, batch statistics", "bfloat16", "float16", "channels, batch statistics", "channels, by the library", "channels, TF32",
    "pools of whole images",
)  # fmt: skip
UNIT = 2.0**-24
"""A quarter of float32's last place."""


def try_cases(interpreted: Interpreted, names: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """What came of these cases; one process tries them all."""
    found: dict[str, dict[str, Any]] = json.loads(interpreted.run(HELPERS / "recipe_cases" / "convnet.py", *names))
    return found


@pytest.fixture(scope="module")
def tried(interpreted: Interpreted) -> dict[str, dict[str, Any]]:
    return try_cases(interpreted, FAST)


def require_right(name: str, outcome: dict[str, Any]) -> None:
    """A result within the class's error, before and after a change of the weights; buffers as the reference leaves them."""
    for trial in ("error", "error with other weights"):
        errors = outcome[trial]
        most = 2e-3 if "TF32" in name else 4.0 * max(errors["reference"], UNIT)
        assert errors["kernel"] <= most, (name, trial, errors)
    assert not outcome["buffers"] or "TF32" in name, name


@pytest.mark.parametrize("name", FAST)
def test_a_network_is_as_exact_as_its_class_asks(tried: dict[str, dict[str, Any]], name: str) -> None:
    require_right(name, tried[name])


@pytest.mark.slow
def test_other_types_and_who_computes(interpreted: Interpreted) -> None:
    for name, outcome in try_cases(interpreted, SLOW).items():
        if name != "refused":
            require_right(name, outcome)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("transposed", "nn.ConvTranspose2d (line 19: "),
        ("product", "the operator * of two images (line 19: "),
        ("padding", "nn.Conv2d with padding_mode='reflect' (line 19: "),
        ("uneven parts", "F.adaptive_avg_pool2d of [7, 7] to [4, 4], whose windows have different sizes (line 19: "),
        ("all batches", "nn.BatchNorm2d with momentum=None in training mode (line 19: "),
        ("in place", "F.relu in place, on a tensor that is read again (line 19: "),
    ],
)
def test_a_network_is_refused_by_the_operator_that_no_step_does(tried: dict[str, dict[str, Any]], name: str, said: str) -> None:
    assert tried["refused"][name].startswith(said)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "mode", "launches"), [("11_vgg16", "eval", 16), ("9_resnet18", "eval", 23), ("9_resnet18", "train", 43)])
def test_the_evaluator_accepts_a_network_of_few_launches(name: str, mode: str, launches: int) -> None:
    """One launch for each step, and one more that sets the tickets to zero."""
    task = load_task(TASKS / f"{name}.py", "small", mode=mode)
    evaluator = LocalEvaluator("h200")
    try:
        found = match(task, asyncio.run(evaluator.describe(task)), evaluator.hardware)
        recipe = found.recipe("convnet_products") if found else None
        assert found is not None and recipe is not None
        settings = recipe.defaults(found.plan, evaluator.hardware, task.precision)
        verdict = asyncio.run(evaluator.evaluate(task, recipe.render(found.plan, settings)))
    finally:
        asyncio.run(evaluator.aclose())
    assert verdict.status is Status.OK, verdict.message
    assert verdict.facts.copied_outputs == ()  # the last step writes its result as PyTorch lays it out
    assert verdict.label is Label.KERNEL and not verdict.facts.races and verdict.facts.launches_per_forward == launches + 1
