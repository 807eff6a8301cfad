"""Pages of rows: what is counted, what is missed, and that an estimate never becomes a result."""

import hashlib
import threading
from pathlib import Path
from typing import Any

import pytest

from tritonsmith.benchmarks.kernelbench import large, rate
from tritonsmith.benchmarks.kernelbench.crew import CardWorker, JobAsker
from tritonsmith.benchmarks.kernelbench.rate import RATE_TASKS
from tritonsmith.benchmarks.kernelbench.rows.pages import write_copies, write_pairs
from tritonsmith.benchmarks.kernelbench.rows.rate_page import write_rate
from tritonsmith.benchmarks.kernelbench.rows.records import JudgeJob, JudgeRow, Ruling
from tritonsmith.benchmarks.kernelbench.rows.sheet import RowFile
from tritonsmith.evaluator.errors import InfrastructureError, UsageError


def row(name: str, score: float | None = 1.0, ruling: Ruling = Ruling.JUDGED, **more: Any) -> JudgeRow:
    """A measured row, or one without a score."""
    about = {"kind": "copy", "expected": "accepted", "timing": "measured" if score else "", "card": "a card", "date": "2026-01-02"}
    return JudgeRow.model_validate(about | {"name": name, "ruling": ruling, "score_eager": score, "command": "python -m x"} | more)


def numbered(count: int) -> list[JudgeRow]:
    return [row(f"level1/{number}_task", seconds=number, card_bytes_peak=10**9 * number) for number in range(1, count + 1)]


def test_copies_that_are_all_equal_reach_every_figure(tmp_path: Path) -> None:
    rows = [*numbered(20), row("level1/21_big", None, Ruling.OPEN, message="needs 200 GB | more")]
    assert write_copies(rows, [one.name for one in rows], tmp_path, "copies")
    page, data = (tmp_path / "copies.md").read_text(), tmp_path / "copies.jsonl"
    assert "| level1/21_big | needs 200 GB \\| more |" in page and "20 of 20 (100.0%)" in page and "`python -m x`" in page
    digest = hashlib.sha256(data.read_bytes()).hexdigest()
    assert RowFile(data).read() == rows and f"[copies.jsonl](copies.jsonl), SHA-256 `{digest}`" in page
    slowest = page[page.index("## The slowest") :].splitlines()[4]
    assert slowest.startswith("| level1/20_task | judged | 1.000 |") and "20.00" in slowest, "and the biggest shows its peak"


def test_what_is_too_long_for_a_cell_stands_below_its_table(tmp_path: Path) -> None:
    """A message of hundreds of characters becomes a note, and many commands one line."""
    rows = [row(f"level1/{number}_task", command=f"python -m x {number}") for number in (1, 2)]
    rows.append(row("level1/3_big", None, Ruling.OPEN, message="why " * 100))
    write_copies(rows, [one.name for one in rows], tmp_path, "copies")
    page = (tmp_path / "copies.md").read_text()
    assert f"\n\nNote 1: {'why ' * 100}\n" in page and "... (note 1) |" in page
    assert "- made by: `python -m x` in 3 calls; `command` of each row has its words\n" in page


@pytest.mark.parametrize(
    "changed",
    [
        [row("level1/1_task", 1.04), row("level1/2_task", 0.96)],
        [row("level1/1_task", None, Ruling.REFUSED, status="cheating", message="work on the card")],
        [row(f"level1/{number}_task", None, Ruling.OPEN) for number in range(1, 7)],
    ],
)
def test_copies_that_miss_a_figure_fail(tmp_path: Path, changed: list[JudgeRow]) -> None:
    rows = {one.name: one for one in numbered(20)}
    assert write_copies(list(rows.values()), list(rows), tmp_path, "copies")
    rows |= {one.name: one for one in changed}
    assert not write_copies(list(rows.values()), list(rows), tmp_path, "copies")


def test_a_task_without_a_row_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = numbered(20)
    assert not write_copies(rows, [*(one.name for one in rows), "level3/43_other"], tmp_path, "copies")
    assert "NO  tasks with a row: 20 (required: all 21)" in capsys.readouterr().out


def test_estimates_make_no_page(tmp_path: Path) -> None:
    for rows, said in (([row("a", timing="estimated")], "was estimated without a card"), ([], "there are no rows")):
        with pytest.raises(UsageError, match=said):
            write_copies(rows, ["a"], tmp_path, "copies")
    assert list(tmp_path.iterdir()) == []


def test_an_accepted_twin_and_an_unanswered_one_fail(tmp_path: Path) -> None:
    right = row("gelu", kind="right")
    wrong = row("gelu", None, Ruling.REFUSED, kind="wrong", expected="refused", status="inaccurate")
    keys = [right.key, wrong.key]
    assert write_pairs("title", "about", [right, wrong], keys, tmp_path / "large")
    assert "| gelu wrong | refused | refused inaccurate |" in (tmp_path / "large.md").read_text()
    for ruling in (Ruling.JUDGED, Ruling.OPEN):
        twin = wrong.model_copy(update={"ruling": ruling})
        assert not write_pairs("title", "about", [right, twin], keys, tmp_path / "large")
    assert not write_pairs("title", "about", [right], keys, tmp_path / "large")


class QuickWorker:
    """Accepts every kernel: a quick verdict takes 2 seconds, a strict one 10."""

    def __init__(self, log: list[str]) -> None:
        self._log = log

    def ask(self, job: JudgeJob, after: JudgeJob | None = None) -> JudgeRow:
        self._log.append(job.profile)
        return row(job.name, kind=job.kind, seconds=2.0 if job.profile == "quick" else 10.0, profile=job.profile)

    def close(self) -> None:
        self._log.append("closed")


def answer_outside(checkout: str, device: str, limit: float, reference: str, kernel: str) -> dict[str, Any]:
    assert "class Model(" in reference and "class ModelNew(" in kernel
    return {"compiled": True, "correct": True, "runtime_ms": 2.0, "reference_ms": 3.0, "metadata": ""}


def test_rates_are_taken_task_by_task_and_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []
    rows, results = tmp_path / "rate.jsonl", tmp_path / "results"

    def opener(target: str, device: str, limit: float) -> JobAsker:
        return QuickWorker(log)

    assert rate.main(["--rows", str(rows)], opener, answer_outside) == 0
    assert log == (["quick"] * 5 + ["strict"] * 4 + ["closed"]) * 5
    assert rate.main(["--rows", str(rows)], opener, answer_outside) == 0 and len(log) == 50, "nothing is measured twice"
    kept = [
        one.model_copy(update={"seconds": 8.0, "card": "a card"}) if one.kind.startswith("kernelbench") else one
        for one in RowFile(rows).read()
    ]
    keys = [key for task in RATE_TASKS for key in task.keys()]
    assert len(keys) == len(kept) == 5 * 13
    assert not write_rate(kept, keys, results / "rate"), "strict verdicts are slower than KernelBench's"
    page = (results / "rate.md").read_text()
    assert "| quick verdicts per hour, over KernelBench's | at least 3.0 times | 4.00 times (1800 and 450) | yes |" in page
    assert "| strict verdicts per hour, over KernelBench's | at least 1.0 times | 0.80 times (360 and 450) | **no** |" in page
    assert "| gelu, BLOCK 512 | 2.0 | 10.0 | 8.0 | 1.000 | 1.500 |" in page
    assert "| right kernels that were not accepted | 0 | 0 | yes |" in page
    other = {"ruling": Ruling.REFUSED, "score_eager": None}
    write_rate([one.model_copy(update=other) if one.key == keys[-1] else one for one in kept], keys, results / "rate")
    page = (results / "rate.md").read_text()
    assert "| right kernels that were not accepted | 0 | 0 | yes |" in page, "what KernelBench refuses is no refusal of ours"
    assert "| running_sum, BLOCK 4096 | 2.0 | 10.0 | 8.0 | 1.000 | refused |" in page
    slow = [one.model_copy(update={"seconds": 20.0}) if one.kind.startswith("kernelbench") else one for one in kept]
    assert write_rate(slow, keys, results / "rate") and not write_rate(slow[:-1], keys, results / "rate")


def test_what_the_other_evaluation_cannot_do_is_said(tmp_path: Path) -> None:
    job = JudgeJob(name="gelu", kind="kernelbench: BLOCK 512", task="", text="", expected="accepted")
    refused = {"compiled": True, "correct": False, "runtime_ms": -1.0, "reference_ms": -1.0, "metadata": "Output mismatch"}
    assert rate.make_outside_row(job, refused, 3.0).ruling is Ruling.REFUSED
    answer = rate.ask_outside(str(tmp_path), "", 60, "", "")
    assert "No module named 'kernelbench'" in answer["error"]
    assert rate.make_outside_row(job, answer, 3.0).ruling is Ruling.OPEN


@pytest.mark.slow
@pytest.mark.parametrize("third", range(3))
def test_large_kernels_are_accepted_and_their_twins_refused_at_small_sizes(tmp_path: Path, third: int) -> None:
    rows, names = tmp_path / "large.jsonl", sorted(path.stem for path in large.TASKS.glob("*.py"))[third::3]
    assert large.main(["--target", "h200", "--size", "small", "--rows", str(rows), "--only", ",".join(names)]) == 0
    found = RowFile(rows).read()
    assert len(found) == 8 and [one.key for one in found if not one.as_expected] == []
    assert {one.status for one in found} == {"ok", "inaccurate"}


@pytest.mark.slow
def test_a_question_that_takes_too_long_costs_one_row() -> None:
    right, wrong = large.make_jobs("gelu", "small")
    hasty, patient = CardWorker("h200", "", 0.01), CardWorker("h200", "", 120)
    try:
        late = hasty.ask(right)
        assert late.ruling is Ruling.OPEN and "no answer within" in late.message and late.seconds < 60
        assert hasty.ask(wrong).ruling is Ruling.OPEN, "it starts again and is late again"
        assert [patient.ask(job).ruling for job in (right, wrong)] == [Ruling.JUDGED, Ruling.REFUSED]
    finally:
        hasty.close()
        patient.close()


@pytest.mark.slow
def test_an_interrupted_question_has_no_row() -> None:
    """The command closes its workers when it is interrupted, while they wait for an answer."""
    worker = CardWorker("h200", "", 120)
    worker.hello()
    closing = threading.Timer(1.0, worker.close)
    closing.start()
    with pytest.raises(InfrastructureError, match="the oracle process failed"):
        worker.ask(large.make_jobs("gelu", "small")[0])
    closing.join()
