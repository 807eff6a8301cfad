"""Verdicts for single commands, by an evaluator that answers at once."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from project import HELPERS, ROOT
from tritonsmith.cli.main import run
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.schema import Status, Task, Verdict
from tritonsmith.nodes.evaluators.scripted import ScriptedEvaluator, scripted_verdict

TASK = str(ROOT / "benchmarks" / "tasks" / "26_gelu_scale_bias.py")
TEXT = "class ModelNew: pass"
Judge = Callable[[Task, Path | None], Verdict]


@pytest.fixture
def kernel(tmp_path: Path) -> str:
    path = tmp_path / "kernel.py"
    path.write_text(TEXT)
    return str(path)


@pytest.fixture
def judge_by(monkeypatch: pytest.MonkeyPatch) -> Callable[[Judge], None]:
    """Lets commands have their verdicts from a function of the task and the folder for samples."""

    def install(judge: Judge) -> None:
        class Judging(ScriptedEvaluator):
            def __init__(self, raw: Path | None) -> None:
                super().__init__({})
                self._raw = raw

            async def evaluate(self, task: Task, kernel: KernelText, profile: str = "quick") -> Verdict:
                return judge(task, self._raw)

        @asynccontextmanager
        async def open_scripted(target: str, raw: Path | None, sandbox: str, baselines: str) -> AsyncIterator[ScriptedEvaluator]:
            assert baselines == "four"
            yield Judging(raw)

        monkeypatch.setattr("tritonsmith.cli.judging.open_evaluator", open_scripted)

    return install


def test_samples_are_kept_where_somebody_asks_for_them(
    kernel: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], judge_by: Callable[[Judge], None]
) -> None:
    """`--samples` names the folder that the evaluator writes to; without it the answer names no file, since none is left."""

    def judge(task: Task, raw: Path | None) -> Verdict:
        verdict = scripted_verdict(1.5)
        assert verdict.timing
        timing = verdict.timing.model_copy(update={"raw": str((raw or Path("own")) / "samples.json")})
        return verdict.model_copy(update={"timing": timing})

    judge_by(judge)
    for options, told in (((), None), (("--samples", str(tmp_path / "kept")), str(tmp_path / "kept" / "samples.json"))):
        assert run(["evaluate", TASK, kernel, *options, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["timing"]["raw"] == told
        assert run(["evaluate", TASK, kernel, *options]) == 0
        assert ("samples" in capsys.readouterr().out) is bool(options)


def test_the_number_of_baselines_is_passed_on(kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    @asynccontextmanager
    async def open_scripted(target: str, raw: Path | None, sandbox: str, baselines: str) -> AsyncIterator[ScriptedEvaluator]:
        asked.append(baselines)
        yield ScriptedEvaluator({})

    monkeypatch.setattr("tritonsmith.cli.judging.open_evaluator", open_scripted)
    run(["evaluate", TASK, kernel, "--baselines", "six"])
    assert asked == ["six"] and run(["evaluate", TASK, kernel, "--baselines", "one"]) == 2


def test_a_refused_kernel_is_exit_code_1(kernel: str, capsys: pytest.CaptureFixture[str], judge_by: Callable[[Judge], None]) -> None:
    """In words and in JSON; and what is judged is the task in the size and with the values that were asked for."""
    asked: list[Task] = []

    def judge(task: Task, raw: Path | None) -> Verdict:
        asked.append(task)
        return scripted_verdict(None, message="wrong at output 0", status=Status.INACCURATE)

    judge_by(judge)
    line = ["evaluate", TASK, kernel, "--target", "h200", "--size", "full", "--set", "batch_size=16"]
    assert run([*line, "--json"]) == 1
    refused = json.loads(capsys.readouterr().out)
    assert (refused["status"], refused["advice"], refused["timing"]) == ("inaccurate", [], None)
    assert run(line) == 1
    said = capsys.readouterr().out
    assert "status    inaccurate" in said and "wrong at output 0" in said
    assert [(task.size, task.overrides) for task in asked] == [("custom", {"batch_size": 16})] * 2


def test_labels_rest_on_the_verdict_too(capsys: pytest.CaptureFixture[str], judge_by: Callable[[Judge], None]) -> None:
    """`detect --task` adds what only a verdict shows; a kernel that is refused shows nothing but its text."""
    verdict = scripted_verdict(1.5, launches=3)
    judge_by(lambda task, raw: verdict)
    line = ["detect", str(HELPERS / "kernels" / "gelu_chain.py")]
    assert run(line) == 0
    by_text = capsys.readouterr().out
    judged = [*line, "--task", TASK, "--target", "h200", "--size", "full", "--set", "batch_size=16"]
    assert run(judged) == 0
    by_verdict = capsys.readouterr().out
    assert "measured or estimated" in by_verdict and "3 launches" in by_verdict and "3 launches" not in by_text
    verdict = scripted_verdict(None, status=Status.INACCURATE)
    assert run(judged) == 0
    refused = capsys.readouterr()
    assert refused.out == by_text and "is rejected (inaccurate), so the labels rest on its text alone." in " ".join(refused.err.split())
