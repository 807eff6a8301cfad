"""The built-in author over a folder of tasks: what it can write, and the figures of its page."""

import threading
from pathlib import Path

import pytest

from bench_tasks import write_task
from tritonsmith.benchmarks.kernelbench import author
from tritonsmith.benchmarks.kernelbench.author_page import summarize_author
from tritonsmith.benchmarks.kernelbench.records import JudgeRow, Ruling
from tritonsmith.evaluator.questions.describe import Description
from tritonsmith.evaluator.reference.probe import probe
from tritonsmith.evaluator.schema import Task


def test_a_plan_says_what_stays_a_call_and_what_nobody_can_write(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = threading.Lock()

    def probe_here(task: Task) -> Description:  # for a process for each task would import torch again
        with lock:
            return probe(task)

    monkeypatch.setattr(author, "run_probe", probe_here)
    for name, call in (("1_rows", "torch.softmax(x, -1)"), ("2_sorted", "torch.sort(x)[0]"), ("3_mixed", "torch.sort(x)[0] * 2")):
        path = tmp_path / "level1" / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(write_task("rows = 8", "torch.rand(rows, 40)", call))
    assert author.main([str(tmp_path), "--plan", "--rows", str(tmp_path / "rows.jsonl")]) == 0
    said = capsys.readouterr().out
    assert "level1/1_rows: regions\n" in said and "level1/3_mixed: regions, PyTorch does torch.sort" in said
    assert "level1/2_sorted: none, no recipe for torch.sort" in said
    assert "level1: 2 of 3 have kernels of their own, 1 of them without PyTorch calls" in said


def test_figures_count_right_kernels_that_are_not_the_librarys() -> None:
    def row(name: str, score: float, label: str = "kernel", ruling: Ruling = Ruling.JUDGED) -> JudgeRow:
        return JudgeRow(name=name, kind="author", ruling=ruling, label=label, score=score)

    rows = [
        row("level1/1", 1.0),
        row("level1/2", 4.0, "hybrid"),
        row("level1/3", 9.0, "library"),
        row("level1/4", 9.0, ruling=Ruling.REFUSED),
    ]
    accepted, mean = summarize_author(rows, [one.name for one in rows])
    assert (accepted.reached, accepted.passed) == ("2", False)
    assert (mean.reached, mean.passed) == ("2.00", True)
