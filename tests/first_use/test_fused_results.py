"""A norm and the residual that it is made of, as a user asks for them: one launch, which reads and writes everything once."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

TASK = """
import torch
import torch.nn as nn

rows, columns = 8192, 1024


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.NORM(width, dtype=torch.bfloat16)

    def forward(self, x, r):
        h = x + r
        return self.norm(h), h


def get_inputs():
    return [torch.randn(rows, columns, dtype=torch.bfloat16) for _ in range(2)]


def get_init_inputs():
    return [columns]


SMALL = {"rows": 16, "columns": 96}
"""


@pytest.mark.slow
@pytest.mark.parametrize("norm", ["LayerNorm", "RMSNorm"])
def test_a_norm_next_to_its_residual_is_one_launch(tmp_path: Path, norm: str) -> None:
    (tmp_path / "task.py").write_text(TASK.replace("NORM", norm))
    command = "optimize task.py --model offline --target h100 --seeds 1 --tuning none --out run".split()
    tool = Path(sys.executable).with_name("tritonsmith")
    done = subprocess.run([tool, *command], cwd=tmp_path, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "launches  1 per forward" in done.stdout
    kernel = (tmp_path / "run" / "best.py").read_text()
    kernel = kernel[kernel.index("@triton.jit") : kernel.index("COMPILED =")]
    assert kernel.count("tl.load(x_ptr") == kernel.count("tl.load(r_ptr") == 1 and kernel.count("tl.store(") == 2
    verdict = json.loads((tmp_path / "run" / "verdicts" / "seed0-01.json").read_text())
    (counted,) = verdict["facts"]["kernels"]
    elements, weights = 4 * 16 * 96, 96 * (2 if norm == "LayerNorm" else 1)
    assert counted["work"]["unique_bytes"] == 2 * (elements + weights), "the estimate counts each tensor once"
    assert counted["bytes_stored"] == elements, "two results of 16 bits"
