"""A drop-in in a user's program: results, copies, gradients, fallbacks, compilers, larger models and files."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from interpreted import Interpreted
from tritonsmith.evaluator.schema import Comparison, SizeScore, Timing, TimingKind
from tritonsmith.evaluator.tasks.files import load_task
from tritonsmith.modules.dropin.finished import list_cases
from tritonsmith.modules.dropin.runtime.proof import describe_case

HELPERS = Path(__file__).parents[1] / "helpers"
CLOSE = 2e-5
"""Of float32 results and gradients, as a share of the largest."""
RUNTIME = (
    "best.py",
    "engine.py",
    "form.py",
    "graphs.py",
    "guard.py",
    "kernel.json",
    "kernel.py",
    "launches.py",
    "layers.py",
    "module.py",
    "operator.py",
    "package.py",
    "proof.py",
    "records.py",
    "straight.py",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("drop_in")


@pytest.fixture(scope="module")
def told(folder: Path, interpreted: Interpreted) -> dict[str, Any]:
    """Answers to all questions, from one process under Triton's interpreter."""
    answers: dict[str, Any] = json.loads(interpreted.run(HELPERS / "drop_in_use.py", folder, seconds=250))
    return answers


def require_close(told: dict[str, Any], *names: str) -> None:
    assert all(told[name] <= CLOSE for name in names), {name: told[name] for name in names}


def test_the_kernel_runs_with_the_weights_of_the_moment(told: dict[str, Any]) -> None:
    assert told["kernels ran"] and told["told"] == [] and told["shared"] and told["same class"]
    require_close(told, *(name for name in told if name.startswith("close")))


def test_copies_have_kernels_and_weights_of_their_own(told: dict[str, Any]) -> None:
    for name in ("deepcopy", "pickle", "torch.save", "copy"):
        require_close(told, name)
        assert told[f"{name} told"] == []
    require_close(told, "original after copies")


def test_gradients_are_the_original_s(told: dict[str, Any]) -> None:
    require_close(told, "gradients", "gradients of gradients")
    assert told["frozen"]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("size", "has the shape [54, 16], and the kernel is proven for [2 to 8, 16]"), ("layout", "lies in memory in another way"),
        ("type", "is float64, and the kernel is proven for float32"), ("autocast", "autocast is on"), ("transform", "inside a transform"),
        ("hook", "a has a hook"), ("replaced", "another module stands at a"), ("made otherwise", "its n.eps is 0.5 and not 1e-05"),
    ],
)  # fmt: skip
def test_what_is_not_proven_runs_as_the_original_and_is_told_once(
    told: dict[str, Any], name: str, words: str
) -> None:
    (sentence,) = told[name]
    assert words in sentence
    assert told.get(f"{name} same", True)


def test_hooks_and_parametrisations_work(told: dict[str, Any]) -> None:
    assert told["own hook"] == [1]
    for number in range(2):
        warned, difference = told[f"parametrised {number}"]
        assert warned == [] and difference <= CLOSE


def test_compilers_see_one_operator_in_one_graph(told: dict[str, Any]) -> None:
    assert told["operators"] == 2 and told["graphs for three sizes"] == 1
    assert told["operators beyond"] == 0 and told["compiled beyond"]
    require_close(told, "compiled")


@pytest.mark.slow
def test_opcheck_export_and_a_compiled_backward_take_the_operator(folder: Path, interpreted: Interpreted) -> None:
    traces = json.loads(interpreted.run(HELPERS / "drop_in_use.py", folder, "traces"))
    assert traces["opcheck"] == ["SUCCESS"]
    require_close(traces, "exported", "compiled gradients")


def test_drop_ins_are_put_into_larger_models_and_taken_out(told: dict[str, Any]) -> None:
    assert (
        told["found"] == ["blocks.0"] and told["by pattern"] == ["blocks.0", "blocks.1"] == told["reverted"]
    )
    assert told["plain again"] and "first is another module" in told["refused"]
    require_close(told, "applied")


def test_check_finds_a_wrong_kernel_by_the_judge_s_rule(told: dict[str, Any]) -> None:
    assert told["check"] == [True, ""] and told["check of a wrong one"] is False
    assert "[18, 16]" in told["check beyond"]
    assert "float32[2 to 8, 16]" in told["report"] and "proven for a test" in told["report"]


def test_a_saved_folder_has_the_layout_of_hugging_face_kernels(told: dict[str, Any], folder: Path) -> None:
    files = set(told["files"])
    assert {
        "build.toml",
        "pyproject.toml",
        "CARD.md",
        "tests/test_fast_block.py",
        "build/torch-cuda/metadata.json",
    } <= files
    for place in ("torch-ext/fast_block", "build/torch-cuda"):
        assert {f"{place}/{name}" for name in ("__init__.py", "_ops.py", *RUNTIME)} <= files
    build = tomllib.loads((folder / "saved" / "build.toml").read_text())
    assert (
        build["general"]["name"] == "fast-block"
        and build["general"]["edition"] == 5
        and build["torch-noarch"]["pyext"] == ["json", "py"]
    )
    metadata = json.loads((folder / "saved" / "build" / "torch-cuda" / "metadata.json").read_text())
    assert (
        metadata["name"] == "fast-block"
        and metadata["python-depends"] == []
        and metadata["backend"] == {"type": "cuda"}
    )
    for path in (folder / "saved" / "torch-ext").rglob("*.py"):
        assert "import tritonsmith" not in path.read_text() and "from tritonsmith" not in path.read_text()


def test_a_saved_folder_is_loaded_imported_and_used_as_a_layer(told: dict[str, Any]) -> None:
    require_close(told, "loaded", "imported", "layer compiled")
    assert told["layer"][0] <= CLOSE and told["layer"][1] == []
    assert told["stateless"] and told["operator"]


def test_kernelize_takes_a_saved_folder(told: dict[str, Any]) -> None:
    if "kernelized" not in told:
        pytest.skip("the package kernels of Hugging Face is not installed")
    assert told["validated"] == ["cuda", "torch-cuda", "fast-block"]
    difference, warned, module = told["kernelized"]
    assert difference <= CLOSE and warned == [] and module.startswith("_fast_block_cpu_")


SIZED = """
import torch
from torch import nn

rows = 4
SHAPES = [{"rows": 128}, {"rows": 7}, {"rows": (9, 64)}]


class Model(nn.Module):
    def forward(self, x):
        return x + 1.0


def get_inputs():
    return [torch.rand(rows, 3)]


def get_init_inputs():
    return []
"""


def test_a_single_size_that_is_measured_slower_is_left_to_the_original(tmp_path: Path) -> None:
    """A range stays the kernel's, and so does a size that is slower than torch.compile alone."""
    path = tmp_path / "task.py"
    path.write_text(SIZED)
    facts = {"inputs": [{"dtype": "float32", "shape": [4, 3]}]}

    def list_proven(*eager: float) -> list[str]:
        timings = (
            Timing(
                kind=TimingKind.MEASURED, median_ms=1.0, baselines_ms={"compile": 0.5}, baseline="compile", score=0.5, score_eager=score,
                comparison=Comparison.SLOWER,
            )
            for score in eager
        )  # fmt: skip
        scores = [SizeScore(entry=entry, sizes={"rows": 9}, timing=timing) for entry, timing in enumerate(timings)]
        return [
            describe_case(case) for case in list_cases(load_task(path), facts, judged_elsewhere=True, scores=scores)
        ]

    every = ["float32[4, 3]", "float32[128, 3]", "float32[7, 3]", "float32[9 to 64, 3]"]
    assert list_proven() == every == list_proven(1.1, 1.1, 0.9)
    assert list_proven(0.9, 1.1, 0.9) == [every[0], *every[2:]]
