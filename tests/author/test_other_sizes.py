"""Every recipe at sizes and arguments that its kernel was not written for: right, or refused in one sentence."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HELPERS = Path(__file__).parents[1] / "helpers"
EVERYWHERE = {"own", "arguments: own", "strided"}
"""Trials that every kernel must be right at."""
RIGHT = {
    "rows": {"fewer rows", "no row", "arguments: all"},
    "any shape": {"rank"},
    "one row": {"rows"},
    "outer": {"rows"},
    "all fixed": set(),
    "product": {"rows"},
    "residual": {"rows"},
    "states": {"steps and rows", "arguments: bare"},
    "last states": {"one step", "arguments: deep", "arguments: wide"},
    "images": {"rows", "arguments: classes"},
    "last step": {"steps and rows", "arguments: dropout"},
    "both ways": {"steps and rows", "arguments: bare"},
    "relu": {"one step", "large"},
}
"""Trials at which the kernels of a case compute what the reference does; they refuse every other one."""
TOO_WIDE = ("last states: recurrent_wavefront", "arguments: wide")
"""More programs than fit on the card at once: refused by the one kernel that needs them all there."""
RECIPES = {"pointwise", "product", "recurrent_per_step", "recurrent_persistent_batch", "recurrent_layers", "recurrent_wavefront"}
RECIPES |= {"convnet_library", "convnet_products"}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def outcomes() -> dict[str, dict[str, str]]:
    """What came of every trial, by case and recipe; one process tries them all in the interpreter."""
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [sys.executable, HELPERS / "recipe_cases" / "sizes.py"], capture_output=True, text=True, check=False, env=environment, timeout=600
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, str]] = json.loads(done.stdout)
    return found


def test_a_kernel_is_right_at_other_sizes_or_refuses_them_in_one_sentence(outcomes: dict[str, dict[str, str]]) -> None:
    assert {key.partition(": ")[2] for key in outcomes} == RECIPES
    for key, trials in outcomes.items():
        right = RIGHT[key.partition(": ")[0]] | EVERYWHERE | ({"training"} if "arguments: dropout" not in trials else set())
        for trial, outcome in trials.items():
            if trial in right and (key, trial) != TOO_WIDE:
                assert outcome == "right", (key, trial, outcome)
            else:
                assert outcome.startswith("this kernel is made for ") and "\n" not in outcome and ". " not in outcome, (key, trial, outcome)


def test_a_refusal_names_what_the_kernel_is_made_for_and_what_it_was_given(outcomes: dict[str, dict[str, str]]) -> None:
    chain = outcomes["rows: pointwise"]
    assert chain["columns"] == (
        "this kernel is made for x float32[a, 6, 7], y float32[6, 7], a of any size, on a CUDA device, "
        "and was given x float32[4, 6, 9] on cpu, y float32[6, 9] on cpu"
    )
    assert chain["arguments: limit"] == (
        "this kernel is made for ModelNew with {'rows': 6, 'limit': 0.2}, and was given {'rows': 6, 'limit': 0.4}"
    )
    assert "made for x float32[4, 6] on a CUDA device" in outcomes["all fixed: pointwise"]["rows"]
    assert outcomes[TOO_WIDE[0]][TOO_WIDE[1]].endswith("made for 4 programs at once, and was given a GRU that needs 8")
    for recipe in ("recurrent_per_step", "recurrent_persistent_batch", "recurrent_wavefront"):
        said = outcomes[f"states: {recipe}"]["width"]
        assert "x float32[steps, batch, 12] and h0 float32[2, batch, 20]" in said and "was given x float32[3, 2, 13] on cpu" in said
