"""Questions become rows, rows are kept and not asked for again, and what breaks costs one row."""

import asyncio
import json
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from bench_tasks import write_task
from tritonsmith.benchmarks.kernelbench import copies, pairs
from tritonsmith.benchmarks.kernelbench.crew import share_work
from tritonsmith.benchmarks.kernelbench.folder import find_tasks
from tritonsmith.benchmarks.kernelbench.held_memory import count_held
from tritonsmith.benchmarks.kernelbench.judging import count_bytes, judge_job
from tritonsmith.benchmarks.kernelbench.rows.records import JudgeJob, JudgeRow, Ruling
from tritonsmith.benchmarks.kernelbench.rows.sheet import RowFile, select_open
from tritonsmith.benchmarks.kernelbench.texts import copy_reference
from tritonsmith.evaluator.errors import InfrastructureError, TaskError, UsageError
from tritonsmith.evaluator.schema import Comparison, Status, TaskFacts, TensorSpec, Verdict
from tritonsmith.nodes.evaluators.scripted import ScriptedEvaluator, scripted_verdict

TASK = write_task("rows = 8", "torch.rand(rows, 4)", "torch.relu(x)")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder like KernelBench's, with three tasks."""
    for name in ("level1/2_two", "level1/10_ten", "level2/1_one"):
        path = tmp_path / "bench" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# {name}\n{TASK}")
    return tmp_path / "bench"


def measured(score: float, raw: Path | None = None, **environment: object) -> Verdict:
    """A measured verdict, with what else stands in its environment."""
    verdict = scripted_verdict(score, comparison=Comparison.SAME)
    assert verdict.timing
    timing = verdict.timing.model_copy(update={"raw": str(raw) if raw else None, "baseline": "compile", "score": 0.5, "score_eager": score})
    return verdict.model_copy(update={"timing": timing, "environment": {"card": "a card", **environment}})


class ScriptedWorker:
    """Answers jobs by a scripted evaluator."""

    def __init__(self, evaluator: ScriptedEvaluator) -> None:
        self.evaluator, self.closed = evaluator, 0

    def ask(self, job: JudgeJob, after: JudgeJob | None = None) -> JudgeRow:
        return asyncio.run(judge_job(self.evaluator, job))

    def close(self) -> None:
        self.closed += 1


def scripted(folder: Path, answers: dict[str, Verdict | Exception]) -> ScriptedEvaluator:
    """An evaluator with an answer per task of the folder."""
    texts = {name: copy_reference((folder / f"{name}.py").read_text(), name) for name in answers}
    return ScriptedEvaluator({texts[name]: answer for name, answer in answers.items()})


def ask(job: JudgeJob, answer: Verdict | Exception, facts: TaskFacts | None = None) -> JudgeRow:
    return ScriptedWorker(ScriptedEvaluator({job.text: answer}, facts=facts or TaskFacts())).ask(job)


@pytest.fixture
def job(folder: Path) -> JudgeJob:
    return copies.make_jobs({"level1/2_two": folder / "level1" / "2_two.py"})[0]


def test_a_row_holds_score_interval_plan_and_bytes(job: JudgeJob, tmp_path: Path) -> None:
    raw = tmp_path / "raw.json"
    raw.write_text(json.dumps({"samples": {"eager": {"candidate_ms": [1.0, 2.0, 4.0], "baseline_ms": [1.0, 2.02, 3.96]}}}))
    facts = TaskFacts(
        inputs=(TensorSpec(shape=(8, 4)), None, TensorSpec(shape=(3,), dtype="bool")), outputs=(TensorSpec(shape=(5,), dtype="bfloat16"),)
    )
    row = ask(job, measured(1.0, raw, memory={"plan": "in parts", "peak_bytes": 7}, mode="train"), facts)
    assert row.ruling is Ruling.JUDGED and row.as_expected
    assert (row.score_eager, row.score, row.baseline, row.baselines_ms) == (1.0, 0.5, "compile", {"eager": 1.0})
    assert row.ratios_eager == (1.0, 1.01, 0.99)
    assert row.interval_eager is not None and 0.99 <= row.interval_eager[0] <= 1.0 <= row.interval_eager[1] <= 1.01
    assert (row.memory, row.mode, row.card, row.precision) == ({"plan": "in parts", "peak_bytes": 7}, "train", "a card", "ieee")
    assert row.task_bytes == count_bytes(facts) == 8 * 4 * 4 + 3 + 5 * 2
    assert row.versions["tritonsmith"] and row.date


def test_a_verdict_without_a_memory_plan_is_a_row_too(job: JudgeJob) -> None:
    row = ask(job, measured(1.0))
    assert row.memory == {} and row.interval_eager is None and row.ratios_eager == ()


@pytest.mark.parametrize(
    ("answer", "ruling", "said"),
    [
        (scripted_verdict(None, status=Status.CHEATING, message="work on the card"), Ruling.REFUSED, "work on the card"),
        (scripted_verdict(None, status=Status.UNSUPPORTED, message="does not fit"), Ruling.OPEN, "does not fit"),
        (TaskError("/home/me/tasks/2_two.py: needs 200 GB"), Ruling.OPEN, "2_two.py: needs 200 GB"),
        (InfrastructureError("the oracle died"), Ruling.OPEN, "the oracle died"),
    ],
)
def test_only_a_verdict_against_the_candidate_is_a_refusal(job: JudgeJob, answer: Verdict | Exception, ruling: Ruling, said: str) -> None:
    row = ask(job, answer)
    assert (row.ruling, row.message, row.as_expected) == (ruling, said, False)


def judge(folder: Path, rows: Path, evaluator: ScriptedEvaluator, *options: str) -> int:
    def open_scripted(target: str, devices: Sequence[str], limit: float) -> list[ScriptedWorker]:
        return [ScriptedWorker(evaluator) for _ in devices or [""]]

    return copies.main([str(folder), "--rows", str(rows), *options], open_scripted)


def test_finished_tasks_are_skipped_and_unanswered_ones_asked_again_on_demand(folder: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    evaluator = scripted(
        folder, {"level1/2_two": measured(1.0), "level1/10_ten": InfrastructureError("died"), "level2/1_one": measured(1.01)}
    )
    assert judge(folder, rows, evaluator, "--only", "level1/2,level1/10", "--devices", "0,1") == 0
    assert len(evaluator.calls) == 2
    assert judge(folder, rows, evaluator) == 0
    assert [row.name for row in RowFile(rows).read()].count("level2/1_one") == 1 and len(evaluator.calls) == 3
    evaluator = scripted(folder, {"level1/10_ten": measured(0.99)})
    assert judge(folder, rows, evaluator, "--again", "not judged") == 0
    again = {row.name: row for row in RowFile(rows).read()}
    assert len(evaluator.calls) == 1 and again["level1/10_ten"].score_eager == 0.99 and len(again) == 3
    assert all(row.command.startswith("python -m tritonsmith.benchmarks.kernelbench.copies") for row in again.values())
    assert str(tmp_path) not in rows.read_text()


def test_no_task_is_taken_after_the_time(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evaluator = scripted(folder, {})
    assert judge(folder, tmp_path / "rows.jsonl", evaluator, "--seconds", "0") == 1
    assert evaluator.calls == [] and "3 tasks are left; the same command goes on" in capsys.readouterr().out


def test_half_a_line_is_passed_over_and_replaced(job: JudgeJob, tmp_path: Path) -> None:
    rows = RowFile(tmp_path / "rows.jsonl")
    rows.add(ask(job, measured(1.0)))
    whole = rows.path.read_bytes()
    rows.path.write_bytes(whole + whole[:40])
    assert [row.name for row in rows.read()] == [job.name] and select_open([job], rows.read()) == []
    rows.add(ask(job.model_copy(update={"name": "other"}), measured(1.0)))
    assert [row.name for row in rows.read()] == [job.name, "other"]


def test_a_line_that_is_no_row_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"name": 1}\n')
    with pytest.raises(UsageError, match=r"rows\.jsonl, line 1: is no row"):
        RowFile(path).read()
    path.write_bytes(b"\xff\xfe\n")
    with pytest.raises(UsageError, match=r"rows\.jsonl, line 1: is no row"):
        RowFile(path).read()
    with pytest.raises(UsageError, match=r"is a folder; name a file with --rows"):
        RowFile(tmp_path).read()


def test_work_is_shared_and_an_unexpected_error_ends_it() -> None:
    done: list[int] = []
    both = threading.Barrier(2, timeout=10)

    def worker(number: int) -> None:
        if number < 2:
            both.wait()  # passes only if the two items are done at the same time
        done.append(number)

    assert share_work([worker, worker], range(5), 60) == 0 and sorted(done) == [0, 1, 2, 3, 4]
    with pytest.raises(ZeroDivisionError):
        share_work([lambda number: done.append(1 // number)], range(5), 60)
    assert len(done) == 5


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--only", "level9/1"], "--only level9/1: no such task"),
        (["--again", "wrong"], "--again wrong: is not one of judged, refused, not judged"),
    ],
)
def test_bad_options_are_said_in_a_sentence(
    folder: Path, tmp_path: Path, options: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert judge(folder, tmp_path / "rows.jsonl", scripted(folder, {}), *options) == 2
    assert said in capsys.readouterr().err


def test_tasks_come_in_the_order_of_their_numbers(folder: Path) -> None:
    (folder / "level4").mkdir()
    (folder / "level4" / "1_beyond.py").write_text(TASK)
    assert list(find_tasks(folder)) == ["level1/2_two", "level1/10_ten", "level2/1_one"]
    assert list(find_tasks(folder / "level1")) == ["2_two", "10_ten"]


def test_a_folder_without_tasks_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert judge(tmp_path, tmp_path / "rows.jsonl", ScriptedEvaluator({})) == 2
    assert "holds no task files" in capsys.readouterr().err


def test_the_largest_come_first_by_what_is_known(folder: Path, tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.with_suffix(".sizes.json").write_text(json.dumps({"level1/2_two": 5, "level1/10_ten": 9, "level2/1_one": None}))
    evaluator = scripted(folder, {"level1/2_two": measured(1.0), "level1/10_ten": measured(1.0)})
    assert judge(folder, rows, evaluator, "--largest", "2") == 0
    assert [row.name for row in RowFile(rows).read()] == ["level1/10_ten", "level1/2_two"]


def test_pairs_name_files(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    task, kernel = folder / "level1" / "2_two.py", tmp_path / "half.py"
    kernel.write_text("class ModelNew: pass\n")
    (job,) = pairs.read_pairs([f"{task}={kernel}"], "refused")
    assert (job.name, job.kind, job.expected, job.text) == ("2_two", "half", "refused", kernel.read_text())
    assert pairs.main(["--refused", str(task), "--rows", str(tmp_path / "rows.jsonl")]) == 2
    assert "write TASK=KERNEL" in capsys.readouterr().err


def test_baselines_are_chosen_by_name(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[JudgeJob] = []

    class Recorder(ScriptedWorker):
        def ask(self, job: JudgeJob, after: JudgeJob | None = None) -> JudgeRow:
            asked.append(job)
            return super().ask(job)

    evaluator = scripted(folder, {"level1/2_two": measured(1.0)})
    options = [str(folder), "--only", "level1/2", "--rows", str(tmp_path / "rows.jsonl")]
    assert copies.main([*options, "--baselines", "eager, compile"], lambda *_: [Recorder(evaluator)]) == 0
    assert [job.baselines for job in asked] == [("eager", "compile")]
    assert copies.main([*options, "--baselines", "eagle"], lambda *_: []) == 2
    assert "eagle: is not one of eager, cuda_graph" in capsys.readouterr().err


def test_a_smaller_card_holds_what_is_over(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert count_held(140_000_000_000, 80_000_000_000) == 60_000_000_000
    with pytest.raises(UsageError, match=r"--card-gb 80: only 24\.0 GB of the card are free"):
        count_held(24_000_000_000, 80_000_000_000)
    rows, evaluator = tmp_path / "rows.jsonl", scripted(folder, {"level1/2_two": measured(1.0)})
    assert judge(folder, rows, evaluator, "--only", "level1/2", "--card-gb", "0") == 2
    assert "--card-gb 0: is no size" in capsys.readouterr().err
    assert judge(folder, rows, evaluator, "--only", "level1/2", "--card-gb", "80") == 2
    assert "no CUDA card here whose memory could be held" in capsys.readouterr().err and not evaluator.calls
