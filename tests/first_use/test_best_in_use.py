"""What a user does with `best.py`: training through it, copies, changed weights, another mode, torch.compile."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from interpreted import Interpreted

HELPERS = Path(__file__).parents[1] / "helpers"
SCRIPT = HELPERS / "recipe_cases" / "best_in_use.py"
QUICK = (
    "elements:gradients,wrong use", "norm:gradients", "recurrent:gradients", "convnet:changes,copies,wrong use,gradients",
    "norm in training:gradients", "product:changes", "dropout:wrong use", "shared weights:gradients", "number:wrong use",
    "cut off:wrong use", "caching:copies,changes",
)  # fmt: skip
SLOW = (
    "elements:copies,changes,compilers", "norm:copies,changes,wrong use", "recurrent:copies,changes,wrong use",
    "convnet in training:gradients,copies,wrong use", "norm in training:copies,changes,wrong use", "product:gradients,copies",
    "shared weights:copies,changes",
)  # fmt: skip
CLOSE = 2e-5
"""Of float32 results and gradients, as a share of the largest."""
COPIES = ("deepcopy", "pickle", "torch.save", "average")
CHANGES = (
    "by .data in place", "by another .data", "once more", "by copy_", "by assignment", "by .data of what was assigned", "buffers by .data",
    "under inference_mode",
)  # fmt: skip


def ask(interpreted: Interpreted, folder: Path, *asked: str) -> dict[str, dict[str, Any]]:
    """Answers about these cases in the interpreter; one process asks for them all."""
    found: dict[str, dict[str, Any]] = json.loads(interpreted.run(SCRIPT, folder, *asked))
    return found


def ask_on_card(folder: Path, *asked: str) -> dict[str, dict[str, Any]]:
    """Answers about these cases, with compiled kernels."""
    done = subprocess.run(
        [sys.executable, SCRIPT, folder, *asked], capture_output=True, text=True, check=False,
        env=os.environ | {"TRITON_INTERPRET": "0", "PYTHONPATH": str(HELPERS)}, timeout=500,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, Any]] = json.loads(done.stdout)
    return found


def require_all(answers: dict[str, dict[str, Any]]) -> None:
    """What holds for every case, of what was asked."""
    for name, answer in answers.items():
        close = [one for one in ("as it is", "gradients", "gradients of gradients", *COPIES, *CHANGES) if one in answer]
        assert all(answer[one] <= CLOSE for one in close), (name, answer)
        assert not answer.get("a graph under no_grad") and not answer.get("a graph under inference_mode"), name
        assert not answer.get("made ready for gradients"), name
        assert answer.get("state after", 0.0) <= 1e-4 and answer.get("names", True), (name, answer)
        assert not answer.get("kept by copies"), (name, answer)


@pytest.fixture(scope="module")
def told(interpreted: Interpreted, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    return ask(interpreted, tmp_path_factory.mktemp("best"), *QUICK)


def test_gradients_are_the_reference_s_and_no_grad_is_left_alone(told: dict[str, dict[str, Any]]) -> None:
    """Upstream layers, inputs and weights; several results, some of them whole numbers; shared weights; buffers move once."""
    asked = [one.partition(":")[0] for one in QUICK if "gradients" in one]
    assert all("gradients" in told[name] and "names" in told[name] for name in asked) and len(asked) == 6
    require_all({name: told[name] for name in asked})


@pytest.mark.parametrize("name", ["convnet", "caching"])
def test_copies_are_right_and_hold_nothing_that_calls_keep(told: dict[str, dict[str, Any]], name: str) -> None:
    assert {*COPIES} <= {*told[name]}
    require_all({name: told[name]})


@pytest.mark.parametrize("name", ["convnet", "product", "caching"])
def test_changed_weights_are_seen(told: dict[str, dict[str, Any]], name: str) -> None:
    assert {*CHANGES} <= {*told[name]}
    require_all({name: told[name]})


def test_another_mode_is_refused_where_it_counts(told: dict[str, dict[str, Any]]) -> None:
    assert told["elements"]["other mode"] == ""
    for name, acts in (("dropout", "nn.Dropout at d"), ("convnet", "nn.BatchNorm2d at n")):
        said = f"ValueError: this kernel is made for evaluation mode, and the module is in the other one, where {acts} acts otherwise"
        assert told[name]["other mode"].startswith(said), name


def test_a_number_for_a_tensor_and_a_tensor_for_a_number_are_refused(told: dict[str, dict[str, Any]]) -> None:
    said = "ValueError: this kernel is made for a tensor as argument 1 of forward, and was given 3.0"
    assert told["elements"]["number for tensor"] == said
    assert told["number"]["number for tensor"].startswith("ValueError: this kernel is made for a value that is no tensor")


def test_a_reference_that_cannot_be_held_refuses_gradients(told: dict[str, dict[str, Any]]) -> None:
    said = told["cut off"]["gradients asked for"]
    assert said.startswith("RuntimeError: ModelNew computes forward only, and gradients are asked for: call it under torch.no_grad()")
    assert "global name CALLS" in said and told["elements"]["gradients asked for"] == ""


@pytest.mark.slow
def test_more_families_and_compilers(interpreted: Interpreted, tmp_path: Path) -> None:
    """`torch.compile` leaves a gap in its graph around the kernels; one graph and `torch.export` are refused with the way out."""
    answers = ask(interpreted, tmp_path, *SLOW)
    require_all(answers)
    compilers = answers["elements"]
    assert compilers["compiled"] <= 1e-5
    for question in ("one graph", "exported", "exported strictly"):
        assert "export the reference" in compilers[question], compilers[question]


@pytest.mark.gpu
def test_all_of_it_holds_on_a_card(tmp_path: Path) -> None:
    """cuDNN's recurrent layers, captured graphs and compiled kernels take part."""
    found = ask_on_card(tmp_path, *(one for one in (*QUICK, *SLOW) if not one.startswith("number")))
    assert all(found.values())
    require_all(found)
