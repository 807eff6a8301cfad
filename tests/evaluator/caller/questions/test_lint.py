"""The task linter: every way to pass a task without doing it is named, and the tasks that come along have none."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from project import ROOT
from tritonsmith.cli.main import run
from tritonsmith.evaluator.caller.questions.lint import LintReport, lint_task
from tritonsmith.evaluator.errors import TaskError
from tritonsmith.evaluator.oracle.lint import TaskLinter
from tritonsmith.evaluator.schema import PrecisionClass, Task
from tritonsmith.evaluator.tasks.files import load_task

TASKS = sorted((ROOT / "benchmarks/tasks").glob("*.py"))
FRAME = """
import torch
from torch import nn
from torch.nn import functional as F

rows = 16


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(24, 24)

    def forward(self, x):
        return self.linear(x)


def get_inputs():
    return [torch.rand(rows, 24)]


def get_init_inputs():
    return []
"""
BODY, DRAW = "        return self.linear(x)\n", "[torch.rand(rows, 24)]"


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def planted(body: str = BODY, draw: str = DRAW, arguments: str = "x") -> str:
    text = FRAME.replace(BODY, f"        {body.strip()}\n").replace(DRAW, draw).replace("forward(self, x)", f"forward(self, {arguments})")
    assert text != FRAME
    return text


def report(source: str, precision: PrecisionClass = PrecisionClass.IEEE) -> LintReport:
    return TaskLinter(Task(name="planted", path="planted.py", source=source, precision=precision)).report()


def names(found: LintReport) -> set[str]:
    return {finding.name for finding in found.findings}


BAD = {
    "zeros": planted("return F.relu(self.linear(x) - 50)"),
    "constant": planted("return torch.softmax(self.linear(x), -1).sum(-1)"),
    "other inputs": planted("return self.linear.weight + 1e-12 * x.mean()"),
    "other weights": planted("return torch.tanh(x) + 1e-12 * self.linear(x)"),
    "first input": planted("return F.relu(x + 0.0 * self.linear(x))"),
    "rounded": planted("return torch.round(self.linear(x) * 4)"),
    "input unused": planted("return self.linear(x)", "[torch.rand(rows, 24), torch.rand(rows, 24)]", "x, y"),
    "weight unused": planted("y = self.linear(x); return y - y.mean(0)"),
    "inputs do not vary": planted(draw="[torch.linspace(0, 1, rows * 24).view(rows, 24)]"),
    "inputs changed": planted("return self.linear(x.mul_(2.0))"),
    "random": planted("import random; return self.linear(x) * random.random()"),
    "not finite": planted("return torch.log(self.linear(x) - 2)"),
    "no float64 oracle": planted("assert x.element_size() == 4; return self.linear(x)"),
    "size": FRAME.replace("rows = 16", "rows = 16\nwide = 24\nSHAPES = [{'rows': 3}, {'wide': (23, 24)}]").replace(
        "rand(rows, 24)", "rand(rows, wide)"
    ),
    "empty": planted("return self.linear(x)[:0]"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_task_is_reported_with_the_reason(name: str) -> None:
    found = report(BAD[name])
    assert name in names(found), found
    reason = next(finding.reason for finding in found.findings if finding.name == name)
    assert len(reason.split()) > 5 and "\n" not in reason


def test_a_task_that_draws_with_torch_is_no_task() -> None:
    with pytest.raises(TaskError, match=r"planted\.py, line \d+: forward draws random numbers \(bernoulli_\)"):
        report(planted("return F.dropout(self.linear(x), 0.5, training=True)"))


@pytest.mark.parametrize("body", [
    "return torch.repeat_interleave(self.linear(x), counts, dim=0)",
    "return self.linear(x)[counts > 2]",
    "return self.linear(x)[:counts.min() + 4]",
    "return torch.bincount(counts.sum(dtype=torch.long).view(1)).float()",
    "return torch.masked_select(self.linear(x), x > 0.5)",
])  # fmt: skip
def test_a_result_whose_shape_depends_on_values_is_one_sentence(body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tritonsmith.evaluator.oracle.checks.loaded_task.fresh_seed", lambda: 1)  # no two draws are alike by chance
    with pytest.raises(TaskError, match=r"planted\.py, line \d+: forward gives output 0 another shape .*pad it to a fixed size, or make"):
        report(planted(body, "[torch.rand(rows, 24), torch.randint(0, 8, (rows // 4,)).repeat(4)]", "x, counts"))


def test_values_may_decide_what_forward_does_where_its_result_keeps_its_shape() -> None:
    body = "picked = (counts > 2).nonzero()[:, 0]; return self.linear(x).index_add(0, picked, x[picked])"
    assert not report(planted(body, "[torch.rand(rows, 24), torch.randint(0, 8, (rows,))]", "x, counts")).findings


def test_a_sound_task_has_no_finding() -> None:
    found = report(FRAME)
    assert not found.findings, found
    assert any("output 0" in note for note in found.notes)


def test_a_weight_that_forward_never_reads_is_a_note() -> None:
    found = report(FRAME.replace("nn.Linear(24, 24)\n", "nn.Linear(24, 24)\n        self.head = nn.Linear(24, 3)\n"))
    assert not found.findings, found
    assert any("head.weight" in note for note in found.notes)


def test_a_rounded_answer_counts_only_at_full_precision() -> None:
    """A rounded answer is a finding only where the task asks for full precision."""
    assert "rounded" not in names(report(BAD["rounded"], PrecisionClass.HALF))


QUICK = ("12_linear_mul_leakyrelu", "13_matmul_bias_gelu", "26_gelu_scale_bias", "37_lstm_cn", "39_gru", "76_linear_bias_relu")
"""One LSTM, one GRU, and what is no network; the others wait for `make test-all`."""


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem, marks=() if path.stem in QUICK else pytest.mark.slow) for path in TASKS])
def test_the_tasks_that_come_along_are_sound(path: Path) -> None:
    recurrent = "num_layers" in path.read_text()
    task = load_task(path, "small", {"num_layers": 2, "seq_len": 8} if recurrent else None)
    found = TaskLinter(task).report()
    assert not found.findings, found
    assert any("fc.weight" in note for note in found.notes) == (path.stem in ("36_lstm_hn", "37_lstm_cn"))


@pytest.mark.slow
def test_the_command_answers_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.py"
    path.write_text(BAD["zeros"])
    assert run(["lint", str(path)]) == 1
    said = capsys.readouterr().out
    assert "zeros" in said and "other inputs" in said
    assert "note      the task has no SMALL: judged at its own size (about 1 s a verdict in the interpreter)" in said


@pytest.mark.slow
def test_the_command_answers_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["lint", str(TASKS[2]), "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["findings"] == [] and answer["size"] == "small"


@pytest.mark.slow
def test_a_task_that_does_not_run_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text(planted("return self.nothing(x)"))
    with pytest.raises(TaskError, match="line 15: .*forward raised"):
        lint_task(load_task(path))
