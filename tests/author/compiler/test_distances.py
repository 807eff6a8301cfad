"""Distances of all pairs and sums over pairs' products: by products of matrices as exact as PyTorch, with what follows on the tiles."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tritonsmith.author.book import match
from tritonsmith.evaluator.cards.cards import CARDS
from tritonsmith.evaluator.oracle.checks.correctness import MAX_FACTOR, RMS_FACTOR
from tritonsmith.evaluator.reference.probe import probe
from tritonsmith.evaluator.schema import Task

FORMS = Path(__file__).parent / "distance_forms.py"
NEAREST = """
import torch
from torch import nn
class Model(nn.Module):
    def __init__(self, k, d):
        super().__init__()
        self.centres = nn.Parameter(torch.randn(k, d))
    def forward(self, x):
        {body}
def get_inputs():
    return [torch.randn(100000, 64)]
def get_init_inputs():
    return [1024, 64]
"""


@pytest.fixture(scope="module")
def forms() -> dict[str, Any]:
    """Errors and texts by form; one process computes them all in the interpreter."""
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    command = [sys.executable, "-W", "ignore", str(FORMS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=600)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.slow
def test_every_form_is_as_exact_as_pytorch_on_every_kind_of_inputs(forms: dict[str, Any]) -> None:
    for form, found in forms.items():
        assert found["calls"] == [], form
        for kind, error in found["kinds"].items():
            assert error["rms"] <= RMS_FACTOR and error["max"] <= MAX_FACTOR, (form, kind, error)
            assert error["others"] == 0 and error["places"] <= 0.02, (form, kind, error)


@pytest.mark.slow
def test_equal_vectors_have_no_distance_at_all(forms: dict[str, Any]) -> None:
    """What a product leaves of two lengths would be rounding, far above PyTorch's own error where that sums differences."""
    for form in ("written out", "all distances"):
        assert forms[form]["kinds"]["equal"]["max"] < MAX_FACTOR / 2, form


def write(body: str) -> tuple[str, str]:
    """The author's text of assigning vectors to the nearest of 1,024 centres, and what stays a call."""
    task = Task(name="kmeans", path="kmeans.py", source=NEAREST.format(body=body))
    found = match(task, probe(task)[0], CARDS["h200"])
    assert found is not None
    recipe = found.recipes[-1]
    settings = recipe.defaults(found.plan, CARDS["h200"], task.precision)
    assert settings is not None
    return recipe.render(found.plan, settings), ", ".join(found.plan.calls)


@pytest.mark.parametrize("body", [
    "return torch.cdist(x, self.centres).min(dim=1)[0]", "return torch.cdist(x, self.centres).argmin(1)",
    "return torch.cdist(x, self.centres).topk(1, largest=False)", "return (x[:, None] - self.centres).square().sum(-1).min(1)[1]",
])  # fmt: skip
def test_the_matrix_of_distances_never_reaches_memory(body: str) -> None:
    text, calls = write(body)
    assert calls == "" and "tl.dot(" in text and "(100000, 1024)" not in text
    assert "torch.empty((1, 100000, 8)" in text, "a number for each row and each of eight tiles beside each other"


def test_distances_that_are_returned_are_stored_once() -> None:
    text, calls = write("d = torch.cdist(x, self.centres)\n        return d, d.min(1)[0]")
    assert calls == "" and text.count("torch.empty((100000, 1024)") == 1
