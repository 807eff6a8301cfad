"""`tritonsmith.optimize`: a live module in, a run with its real weights and inputs, a result out."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import tritonsmith
from tritonsmith.evaluator.caller.local import LocalEvaluator
from tritonsmith.evaluator.errors import UsageError
from tritonsmith.modules.shell import tell_of_module

SETTINGS: dict[str, Any] = {"target": "h200", "seeds": 1, "policy": "best-of-n", "checkpoints": "none"}


class Norm(nn.Module):
    """Root mean square over the last axis, with a weight."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


class GatedMLP(nn.Module):
    """Two products, a gate, and a third one."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    """Attention and an MLP, each behind a norm."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        states = self.first(x)
        x = x + self.attention(states, states, states, need_weights=False)[0]
        return x + self.mlp(self.second(x))


def test_a_norm_becomes_a_kernel(evaluator: LocalEvaluator, tmp_path: Path) -> None:
    norm, events = Norm(32), list[dict[str, Any]]()
    before, imports = norm.weight.detach().clone(), [*sys.path]
    result = tritonsmith.optimize(
        norm, torch.randn(4, 32), out=tmp_path / "run", progress=events.append, evaluator=evaluator, **SETTINGS
    )
    assert isinstance(result, tritonsmith.Result) and result.original is norm and norm.training
    assert result.answer.startswith("right") and result.summary.winner is not None
    assert result.best == tmp_path / "run" / "best.py" and "self.weight" in result.best.read_text()
    assert result.task == tmp_path / "run" / "task" and {path.name for path in result.task.iterdir() if path.is_file()} == {
        "task.py", "weights.pt", "inputs.pt", "signature.pkl",
    }  # fmt: skip
    assert torch.equal(torch.load(result.task / "weights.pt")["weight"], before) and torch.equal(
        norm.weight, before
    )
    assert events[0]["event"] == "run" and events[-1]["event"] == "end"
    with torch.no_grad():  # on a CPU, where its kernel does not run
        x = torch.randn(4, 32)
        with pytest.warns(UserWarning, match="runs as the original, without its kernel"):
            assert torch.equal(result.module(x), norm(x))
    assert sys.path == imports, "the program's own imports are as before"
    assert isinstance(result.module, Norm) and result.module.weight is norm.weight
    assert result.check(x).right and "float32[4, 32]" in result.report
    saved = result.save(tmp_path / "saved")
    assert torch.equal(tritonsmith.load(saved).wrap(norm)(x), norm(x))
    with pytest.raises(UsageError, match="the folder is not empty"):
        tritonsmith.optimize(norm, torch.randn(4, 32), out=tmp_path / "run", **SETTINGS)


@pytest.mark.slow
@pytest.mark.parametrize("module", [GatedMLP(32, 64), Block(32, 2)], ids=["gated mlp", "block"])
def test_larger_modules_become_kernels(module: nn.Module, tmp_path: Path) -> None:
    async def work() -> tritonsmith.Result:
        return await tritonsmith.optimize_async(
            module, torch.randn(2, 8, 32), out=tmp_path / "run", progress=False, **SETTINGS
        )

    result = asyncio.run(work())
    assert result.answer.startswith("right") and result.best is not None


@pytest.mark.slow
def test_gradients_are_judged_where_they_are_asked_for(tmp_path: Path) -> None:
    result = tritonsmith.optimize(
        Norm(16), torch.randn(4, 16), backward=True, out=tmp_path / "run", progress=False, **SETTINGS
    )
    assert result.answer.startswith("right") and result.summary.backward and result.best is not None
    assert "BACKWARD = True" in (result.task / "task.py").read_text()
    assert result.summary.winner is not None
    assert result.summary.winner.verdict.environment["call"] == "forward and backward"
    text = result.best.read_text()
    assert "its gradients too, and times are of forward and backward together" in text
    assert "class ModelNew(ForwardByKernels)" in text and "gradients are the original's, and were judged" in result.report
    assert result.check(torch.randn(4, 16), gradients=True).right


@pytest.mark.gpu
def test_gradients_are_judged_on_a_card_and_the_drop_in_trains(tmp_path: Path) -> None:
    module, x = GatedMLP(256, 512).cuda(), torch.randn(512, 256, device="cuda")
    settings = SETTINGS | {"target": "auto", "claims_from": 0}
    result = tritonsmith.optimize(module, x, backward=True, out=tmp_path / "run", progress=False, **settings)
    assert result.best is not None, result.answer
    timing = result.summary.winner and result.summary.winner.verdict.timing
    assert timing and {"eager", "compile"} <= set(timing.baselines_ms), (result.answer, timing)
    check = result.check(torch.randn_like(x), gradients=True)
    assert check.right, str(check)


def test_wrong_options_are_told_before_anything_is_made(tmp_path: Path) -> None:
    class Unseen(Norm):
        forward = torch.no_grad()(Norm.forward)

    norm, x = Unseen(8), torch.randn(2, 8)
    for options, said in (
        ({"speed": 3}, "knows no option speed"),
        ({"backward": True}, "has a gradient: it runs under no_grad"),
        ({"budget": {"candidates": 0}}, "cannot be used"),
    ):
        with pytest.raises(UsageError, match=said):
            tritonsmith.optimize(norm, x, out=tmp_path / "run", **options)
        assert not (tmp_path / "run").exists()
    with pytest.raises(AttributeError, match="its names are"):
        tritonsmith.nothing  # noqa: B018


def test_an_error_of_a_run_names_the_module_and_no_file_that_is_gone() -> None:
    said = "runs/x/task/task.py, line 17: no recipe (by values, line 3: result = super().forward(x)); ask (line 9: y = a * b)"
    told = str(tell_of_module(UsageError(said), "runs/x/task/task.py", "Early"))
    assert told == "Early: no recipe (by values); ask (y = a * b)"


def test_nothing_heavy_is_imported_with_the_name() -> None:
    code = (
        "import sys, tritonsmith\n"
        "heavy = lambda: sorted({'torch', 'langgraph', 'pydantic', 'rich'} & sys.modules.keys())\n"
        "assert heavy() == [] and set(dir(tritonsmith)) >= {'optimize', 'optimize_async', 'Result'}\n"
        "tritonsmith.optimize\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "False", done.stderr
