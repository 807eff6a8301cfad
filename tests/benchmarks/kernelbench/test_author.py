"""The built-in author over a folder of tasks: what it can write, and the figures of its page."""

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from bench_tasks import write_task
from tritonsmith.benchmarks.kernelbench import author, planning
from tritonsmith.benchmarks.kernelbench.rows.author_page import summarize_author
from tritonsmith.benchmarks.kernelbench.rows.records import JudgeJob, JudgeRow, Ruling
from tritonsmith.benchmarks.kernelbench.rows.sheet import RowFile
from tritonsmith.evaluator.caller.questions.describe import Description
from tritonsmith.evaluator.cards.cards import CARDS
from tritonsmith.evaluator.reference.probe import probe
from tritonsmith.evaluator.schema import Task


class Recorder:
    """A worker that finds every kernel right, and keeps what it was asked."""

    def __init__(self) -> None:
        self.jobs: list[JudgeJob] = []

    def ask(self, job: JudgeJob, after: JudgeJob | None = None) -> JudgeRow:
        self.jobs.append(job)
        return JudgeRow(name=job.name, kind=job.kind, ruling=Ruling.JUDGED, label="kernel", score=2.0)

    def close(self) -> None:
        """Nothing to end."""


def test_kernels_are_written_once_and_judged_later(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, traced = threading.Lock(), []

    def probe_here(task: Task) -> Description:  # for a process for each task would import torch again
        with lock:
            traced.append(task.path)
            return probe(task)

    monkeypatch.setattr(planning, "run_probe", probe_here)
    for name, call in (("1_rows", "torch.softmax(x, -1)"), ("2_inverted", "torch.pinverse(x)"), ("3_mixed", "torch.pinverse(x) * 2")):
        path = tmp_path / "level1" / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(write_task("rows = 8", "torch.rand(rows, 40)", call))
    files = ["--rows", str(tmp_path / "rows.jsonl"), "--plans", str(tmp_path / "plans.jsonl")]
    assert author.main([str(tmp_path), "--plan", *files]) == 0
    said = capsys.readouterr().out
    assert "level1/1_rows: regions\n" in said and "level1/3_mixed: regions, PyTorch does torch.pinverse" in said
    assert "level1/2_inverted: none, no recipe for torch.pinverse" in said
    assert "level1: 2 of 3 have kernels of their own, 1 of them without PyTorch calls" in said
    assert len(traced) == 3

    worker = Recorder()

    def open_recorder(target: str, devices: Sequence[str], limit: float) -> list[Recorder]:
        return [worker]

    assert author.main([str(tmp_path), *files], open_recorder) == 0
    assert [job.name for job in worker.jobs] == ["level1/1_rows", "level1/3_mixed"] and "class ModelNew" in worker.jobs[0].text
    rows = {row.name: row for row in RowFile(tmp_path / "rows.jsonl").read()}
    assert rows["level1/2_inverted"].ruling is Ruling.OPEN and "no recipe for torch.pinverse" in rows["level1/2_inverted"].message
    assert len(rows) == 3 and len(traced) == 3  # nothing was traced again
    capsys.readouterr()
    assert author.main([str(tmp_path), *files], open_recorder) == 0 and "each of 3 tasks has a row in" in capsys.readouterr().out

    (tmp_path / "plans.jsonl").write_text("{}\n")
    assert author.main([str(tmp_path), "--plan", *files]) == 2
    assert "plans.jsonl, line 1: is no plan; remove the line or name another file with --plans" in capsys.readouterr().err


def test_an_inaccurate_kernel_is_judged_again_with_more_exact_products(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "run_probe", probe)
    (tmp_path / "1_product.py").write_text(
        write_task("rows = 512", "torch.rand(rows, 512)", "torch.relu(self.l(x))", init="self.l = nn.Linear(512, 512)")
    )

    class Strict(Recorder):
        def ask(self, job: JudgeJob, after: JudgeJob | None = None) -> JudgeRow:
            row = super().ask(job, after)
            return row.model_copy(update={"status": "ok" if len(self.jobs) > 1 else "inaccurate", "message": "0.1 ms"})

    worker = Strict()
    author.main([str(tmp_path), "--rows", str(tmp_path / "rows.jsonl")], lambda *_: [worker])
    first, second = (job.text for job in worker.jobs)
    assert first != second
    (row,) = RowFile(tmp_path / "rows.jsonl").read()
    assert (row.status, row.message) == ("ok", "with more exact products: 0.1 ms")


def test_a_task_without_a_small_size_is_planned_at_the_one_it_is_judged_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "run_probe", probe)
    path = tmp_path / "1_rows.py"
    path.write_text(write_task("rows = 65536", "torch.rand(rows, 4096)", "torch.softmax(x, -1)"))
    plan = planning.plan_task("1_rows", path, CARDS["h200"], "small")
    assert plan.recipe and "4096" in plan.text and "65536" not in plan.text, plan.reason
    assert planning.plan_task("1_rows", path, CARDS["h200"], "full").recipe


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
