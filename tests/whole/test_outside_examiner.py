"""Wrong and right results that an outside examiner brought: judged by the rule of strict, computed with torch in place of a kernel."""

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tritonsmith.evaluator.cards.cards import named_card
from tritonsmith.evaluator.confined.interpreter.memory import Access, Region
from tritonsmith.evaluator.confined.interpreter.races import RaceDetector
from tritonsmith.evaluator.oracle.checks import loaded_task, trials
from tritonsmith.evaluator.oracle.checks.inputs import redraw, stress_kinds
from tritonsmith.evaluator.oracle.checks.loaded_task import LoadedTask
from tritonsmith.evaluator.oracle.checks.trials import TrialLog, judge_outputs
from tritonsmith.evaluator.tasks.files import load_task

Answer = Callable[..., Any]
TASK = """
import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, *given):
        {forward}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""


def opened(folder: Path, forward: str, inputs: str, init: str = "pass") -> LoadedTask:
    path = folder / "task.py"
    path.write_text(TASK.format(init=init, forward=forward, inputs=inputs))
    return LoadedTask(load_task(path), named_card("h200"), "cpu")


def refused_on(session: LoadedTask, answer: Answer) -> str:
    """The first kind of strict on which the answer is refused; `new weights` where only those differ; empty when it is accepted."""
    log = TrialLog(session)
    for kind in ("signed", "own", "new weights", "signed", *sorted(stress_kinds("strict"))):
        if kind == "new weights":
            session.new_weights()
            continue
        tensors = session.draw(kind)
        with torch.no_grad():
            got = answer(session.model, *(one.clone() for one in tensors))
        made = [got.to(getattr(torch, session.layout.outputs[0].dtype))]
        log.trials.append(judge_outputs(session, tensors, made, kind, log.trials))
        if not log.trials[-1].meets(session.task.precision):
            return kind
    return ""


def rms(x: Tensor, epsilon: float) -> Tensor:
    return x.float() * torch.rsqrt(x.float().pow(2).mean(-1, True) + epsilon)


def partial_sums(values: Tensor) -> Tensor:
    """As programs add their parts to one result, one after another."""
    total = torch.zeros(())
    for part in values.reshape(-1, 1024).sum(-1):
        total = total + part
    return total


WIDE = "f = given[0].to(torch.promote_types(given[0].dtype, torch.float32)); "
RMS = WIDE + "return (f * torch.rsqrt(f.pow(2).mean(-1, True) + 1e-5)).to(given[0].dtype)"
SQUARES = WIDE + "return f.pow(2).sum({axis}).to(given[0].dtype)"
ROWS = "torch.randn(12, 100)"
PAIR = "torch.randn(128, 1024), torch.randn(128, 1024)"
WRONG: dict[str, tuple[str, str, str, Answer]] = {
    "scale and shift of a norm ignored": (
        "return self.n(*given)",
        ROWS,
        "self.n = nn.LayerNorm(100)",
        lambda m, x: F.layer_norm(x, (100,)),
    ),
    "running statistics ignored": ("return self.n(*given)", ROWS, "self.n = nn.BatchNorm1d(100)", lambda m, x: x / (1 + 1e-5) ** 0.5),
    "a smaller epsilon in 16 bits": (RMS, "torch.randn(12, 100).bfloat16()", "pass", lambda m, x: rms(x, 1e-6)),
    "a norm of nothing": ("return F.normalize(*given, dim=-1)", ROWS, "pass", lambda m, x: x / x.pow(2).sum(-1, True).sqrt()),
    "a maximum without the last one": ("return given[0].amax(-1)", "torch.randn(64, 2000)", "pass", lambda m, x: x[:, :-1].amax(-1)),
    "a maximum without the first one": ("return given[0].amax(-1)", "torch.randn(64, 2000)", "pass", lambda m, x: x[:, 1:].amax(-1)),
    "a 16-bit sum without the first one": (
        SQUARES.format(axis=-1),
        "torch.randn(64, 2000).bfloat16()",
        "pass",
        lambda m, x: x[:, 1:].float().pow(2).sum(-1),
    ),
    "a 16-bit sum of columns without the last row": (
        SQUARES.format(axis=0),
        "torch.randn(2000, 64).bfloat16()",
        "pass",
        lambda m, x: x[:-1].float().pow(2).sum(0),
    ),
    "a mean of very many without the last one": (
        "return F.mse_loss(*given)",
        PAIR,
        "pass",
        lambda m, x, y: (x - y).pow(2).reshape(-1)[:-1].sum() / x.numel(),
    ),
}
RIGHT: dict[str, tuple[str, str, str, Answer]] = {
    "a norm that reads its weights": ("return self.n(*given)", ROWS, "self.n = nn.LayerNorm(100)", lambda m, x: m.n(x)),
    "the same epsilon in 16 bits": (RMS, "torch.randn(12, 100).bfloat16()", "pass", lambda m, x: rms(x, 1e-5)),
    "a mean of very many by atomic additions": (
        "return F.mse_loss(*given)",
        PAIR,
        "pass",
        lambda m, x, y: partial_sums((x - y).pow(2)) / x.numel(),
    ),
    "an exponential linear unit by exp(x) - 1": (
        "return F.elu(*given)",
        ROWS,
        "pass",
        lambda m, x: torch.where(x > 0, x, torch.exp(x) - 1),
    ),
    "a hyperbolic tangent by the sigmoid": ("return torch.tanh(*given)", ROWS, "pass", lambda m, x: 2 * torch.sigmoid(2 * x) - 1),
    "cross entropy of probabilities": (
        "return F.binary_cross_entropy(*given, reduction='none')",
        "torch.rand(12, 100), torch.rand(12, 100)",
        "pass",
        lambda m, x, y: -(y * x.log().clamp(min=-100) + (1 - y) * (1 - x).log().clamp(min=-100)),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_result_is_refused(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On draws that stay the same: a lost term may be small by chance (docs/correctness.md says how often)."""
    monkeypatch.setattr(loaded_task, "fresh_seed", itertools.count(1).__next__)
    forward, inputs, init, answer = WRONG[name]
    assert refused_on(opened(tmp_path, forward, inputs, init), answer)


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_result_is_accepted(tmp_path: Path, name: str) -> None:
    forward, inputs, init, answer = RIGHT[name]
    session = opened(tmp_path, forward, inputs, init)
    assert [refused_on(session, answer) for _ in range(2)] == ["", ""]


def test_probabilities_stay_probabilities_in_every_kind(tmp_path: Path) -> None:
    """A reference that takes probabilities gets probabilities in every kind of input."""
    session = opened(tmp_path, "return F.binary_cross_entropy(*given)", "torch.rand(12, 100), torch.rand(12, 100)")
    for kind in ("signed", *stress_kinds("strict")):
        assert all(0 <= float(one.min()) and float(one.max()) <= 1 for one in session.draw(kind))
    wide = opened(tmp_path, "return given[0] * 2", "torch.rand(12, 100)")
    assert float(wide.draw("signed")[0].min()) < 0


def test_the_ends_of_one_axis_and_holes_along_every_axis() -> None:
    (ends,), (edges,), (holes,) = (redraw(kind, [torch.rand(40, 50)], 3) for kind in ("ends", "edges", "holes"))
    assert ends[:, [0, -1]].std() > 20 > 2 > ends[:, 1:-1].std()
    assert edges[[0, -1]].std() > 20 > 2 > edges[1:-1].std()
    zero = holes == 0
    assert int(zero.all(0).sum()) >= 6 and int(zero.all(1).sum()) >= 5 and holes[~zero].abs().max() < 0.05


@pytest.mark.parametrize(("stride", "races"), [(1, False), (0, True)])
def test_programs_beyond_the_first_thousands_are_watched(stride: int, races: bool) -> None:
    """Programs beyond the first thousands that count themselves are still watched for races."""
    programs = 5000
    detector = RaceDetector([(number, 0, 0) for number in range(programs)])
    count, out = Region(0, 4, 4, ["count"], 0), Region(64, 4 * programs, 4, ["out"], 1)
    first = np.zeros(1, np.int64)
    for number in range(programs):
        detector.write(number, Access(out, first + stride * number, slice(None)), 2, lambda which: np.zeros(1, bool))
        detector.atomic(number, Access(count, first, slice(None)), 1, acquire=True, release=True, changed=True)
        detector.forget_program(number)
    assert bool(detector.races) == races


@pytest.mark.parametrize(
    ("message", "skipped"),
    [
        ("all elements of input should be between 0 and 1", True),
        ("[enforce fail at alloc_cpu.cpp:121] DefaultCPUAllocator: can't allocate memory", False),
        ("CUDA out of memory", False),
    ],
)
def test_only_a_reference_that_refuses_excuses_a_trial(
    message: str, skipped: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: Any) -> None:
        raise RuntimeError(message)

    session = opened(tmp_path, "return given[0] * 2.0", "torch.rand(4, 8)")
    log = TrialLog(session)
    monkeypatch.setattr(trials, "fresh_call", lambda *_arguments: [])
    monkeypatch.setattr(session, "oracle", refuse)
    if skipped:
        assert trials.checked_call(log, cast(Any, None), "large", 0, 1.0) == [] and not log.trials
    else:
        with pytest.raises(RuntimeError, match="memory"):
            trials.checked_call(log, cast(Any, None), "large", 0, 1.0)
