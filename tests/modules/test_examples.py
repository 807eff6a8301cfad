"""The scripts of examples/modules, without a card."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from project import ROOT

SAID = {
    "gated_mlp": ("right", "largest difference"),
    "encoder_layer": ("right", "output (2, 24, 64)"),
    "small_model": ("right", "saved; loaded again: DropIn"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SAID)
def test_an_example_ends_with_a_drop_in(name: str, tmp_path: Path) -> None:
    script = ROOT / "examples/modules" / f"{name}.py"
    done = subprocess.run(
        [sys.executable, script], cwd=tmp_path, env=os.environ | {"CUDA_VISIBLE_DEVICES": ""}, text=True, capture_output=True
    )
    assert done.returncode == 0, done.stderr
    assert all(words in done.stdout for words in SAID[name]), done.stdout
