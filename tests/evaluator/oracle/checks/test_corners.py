"""Where infinities, zeros, large values and NaN must go, and which modules are asked for that."""

from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
import torch

from tritonsmith.evaluator.cards.cards import named_card
from tritonsmith.evaluator.oracle.checks import corners
from tritonsmith.evaluator.oracle.checks.corners import asks_for_corners, check_corners, put_corners
from tritonsmith.evaluator.oracle.checks.loaded_task import LoadedTask
from tritonsmith.evaluator.oracle.checks.trials import TrialLog
from tritonsmith.evaluator.oracle.handles.runner import RunnerFault, RunnerHandle
from tritonsmith.evaluator.tasks.files import load_task

TASK = """
import torch
from torch import nn
from torch.nn import functional as F


class Model(nn.Module):
    def forward(self, x):
        return FORWARD


def get_inputs():
    return [torch.randn(24, 40)]


def get_init_inputs():
    return []
"""
Forward = Callable[[torch.Tensor], torch.Tensor]


@pytest.fixture
def load(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[[str], LoadedTask]:
    def read(forward: str, more: str = "") -> LoadedTask:
        (tmp_path / "task.py").write_text(TASK.replace("FORWARD", forward) + more)
        loaded = LoadedTask(load_task(tmp_path / "task.py"), named_card("h200"), "cpu")
        request.addfinalizer(loaded.close)
        return loaded

    return read


def judge(loaded: LoadedTask, forward: Forward, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask a candidate that computes this. Raises RunnerFault where a corner is another one."""
    monkeypatch.setattr(corners, "fresh_call", lambda loaded, runner, tensors, mode, timeout: [forward(tensors[0].clone())])
    check_corners(TrialLog(loaded), cast("RunnerHandle", None), "strict", 1.0)


def softmax_online(x: torch.Tensor) -> torch.Tensor:
    """Softmax along rows in blocks, whose maximum drops NaN as Triton's does."""
    top, total = torch.full((len(x), 1), float("-inf")), torch.zeros(len(x), 1)
    for part in x.split(16, 1):
        higher = torch.fmax(top, part.nan_to_num(float("-inf"), float("inf"), float("-inf")).amax(1, keepdim=True))
        total, top = total * torch.exp(top - higher) + torch.exp(part - higher).sum(1, keepdim=True), higher
    return torch.exp(x - top) / total


HONEST: dict[str, tuple[str, Forward]] = {
    "softmax in blocks": ("torch.softmax(x, 1)", softmax_online),
    "variance of squares": ("F.layer_norm(x, (40,))", lambda x: (x - x.mean(1, keepdim=True)) * torch.rsqrt(
        (x * x).mean(1, keepdim=True) - x.mean(1, keepdim=True) ** 2 + 1e-5)),
    "gelu by erf": ("F.gelu(x)", lambda x: 0.5 * x * (1 + torch.erf(x * 0.7071067811865476))),
    "silu by exp": ("F.silu(x)", lambda x: x / (1 + torch.exp(-x))),
    "relu by where": ("torch.relu(x)", lambda x: torch.where(x < 0, 0.0, x)),
    "sums in another order": ("x.sum(1)", lambda x: x.flip(1).reshape(24, 8, 5).sum(1).sum(1)),
    "standard deviation": ("x.std(0)", lambda x: ((x - x.mean(0)).square().sum(0) / 23).sqrt()),
    "powers": ("torch.exp(x) / x", lambda x: torch.exp2(x * 1.4426950408889634) * (1 / x)),
}  # fmt: skip
WRONG: dict[str, tuple[str, Forward, str]] = {
    "relu that drops NaN": ("torch.relu(x)", lambda x: torch.fmax(x, torch.zeros(())), "only NaN is lost"),
    "negation by a difference": ("1 / -x", lambda x: 1 / (0.0 - x), "PyTorch gives -inf"),
    "softplus without a threshold": ("F.softplus(x)", lambda x: torch.log(1 + torch.exp(x)), "PyTorch gives a finite value"),
    "mask by a product": ("x.masked_fill(x.abs() > 9, 0.0)", lambda x: x * (x.abs() <= 9), "PyTorch gives a finite value"),
    "extreme that drops NaN": ("x.amax(1)", lambda x: x.nan_to_num(float("-inf"), float("inf"), float("-inf")).amax(1),
                               "PyTorch gives NaN"),
    "logsumexp of an infinity": ("torch.logsumexp(x, 1)", lambda x: x.amax(1) + (x - x.amax(1, keepdim=True)).exp().sum(1).log(),
                                 "PyTorch gives inf"),
    "truth": ("torch.isfinite(x)", lambda x: x.abs() < float("inf") if bool(x.isnan().sum() < 0) else x == x, "PyTorch gives false"),
}  # fmt: skip


@pytest.mark.parametrize("name", HONEST)
def test_honest_arithmetic_in_another_order_is_right(name: str, load: Callable[[str], LoadedTask], monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load(HONEST[name][0])
    assert asks_for_corners(loaded)
    for _ in range(5):
        judge(loaded, HONEST[name][1], monkeypatch)


@pytest.mark.parametrize("name", WRONG)
def test_a_corner_in_another_place_refuses_a_kernel(name: str, load: Callable[[str], LoadedTask], monkeypatch: pytest.MonkeyPatch) -> None:
    forward, candidate, says = WRONG[name]
    loaded = load(forward)
    with pytest.raises(RunnerFault, match=says):
        for _ in range(20):  # where corners lie is drawn: one may stand on another, or on the side where it makes no difference
            judge(loaded, candidate, monkeypatch)


@pytest.mark.parametrize(
    ("forward", "more", "asked"),
    [
        ("torch.tanh(x[:, ::2]).sum(0)", "", True),
        ("F.batch_norm(x, torch.zeros(40), torch.ones(40))", "", True),
        ("F.hardswish(x) + F.logsigmoid(x)", "", True),
        ("torch.var_mean(x, 1)", "", False),
        ("x @ x.t()", "", False),
        ("F.conv1d(x[None], torch.ones(3, 24, 3))", "", False),
        ("x.argmax(1)", "", False),
        ("x[:, x[0].long().clamp(0, 39)]", "", False),
        ("torch.relu(x)", 'DOMAINS = {"x": (-9.0, 9.0)}', False),
        ("F.binary_cross_entropy(x.sigmoid(), x)", "", False),
    ],
)
def test_modules_are_asked_where_every_operator_has_a_meaning(
    load: Callable[..., LoadedTask], forward: str, more: str, asked: bool
) -> None:
    if "cross_entropy" in forward:
        more += "\n\ndef get_inputs():\n    return [torch.rand(24, 40)]\n"
    assert asks_for_corners(load(forward, more)) is asked


def test_corners_stand_at_few_places_and_keep_the_layout() -> None:
    turned, ids = torch.randn(30, 50).t(), torch.arange(20)
    changed, whole, few = put_corners([turned, ids, torch.ones(3)], 7)
    assert changed.stride() == turned.stride() and whole is ids and torch.equal(few, torch.ones(3))
    assert 0 < int((changed != turned).sum()) <= 7 and changed.isnan().any() and changed.isinf().sum() == 2
