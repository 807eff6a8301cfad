"""What a verdict is worth: `evaluate` proves, says where it does not, and names whose fault a failure is."""

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tritonsmith.cli.main import run
from tritonsmith.cli.screen.answer import show
from tritonsmith.cli.screen.progress import PlainProgress
from tritonsmith.evaluator.caller.local import LocalEvaluator, open_evaluator
from tritonsmith.evaluator.errors import InfrastructureError
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.processes import following
from tritonsmith.evaluator.processes.following import tell_step
from tritonsmith.evaluator.schema import Status, Task, Verdict
from tritonsmith.evaluator.tasks.files import load_task
from tritonsmith.graph.run import RunConfig
from tritonsmith.graph.runs.run import Run
from tritonsmith.nodes.authors.scripted import ScriptedAuthor
from tritonsmith.nodes.evaluators.scripted import ScriptedEvaluator, scripted_verdict

COMMAND = str(Path(sys.executable).parent / "tritonsmith")
NO_PROOF = "none: --profile quick is a first look that passes some wrong kernels"

NORM = """
import torch
from torch import nn

rows, columns = 64, 48
SMALL = {"rows": 4}


class Model(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.norm = nn.LayerNorm(columns)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return [columns]
"""
RIGHT_NORM = """
import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def norm_rows(x, scale, shift, y, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    value = tl.load(x + row * columns + at, at < columns, other=0.0)
    apart = tl.where(at < columns, value - tl.sum(value, 0) / columns, 0.0)
    normed = apart * tl.rsqrt(tl.sum(apart * apart, 0) / columns + 1e-5)
    normed = normed * tl.load(scale + at, at < columns) + tl.load(shift + at, at < columns)
    tl.store(y + row * columns + at, normed, at < columns)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.norm = nn.LayerNorm(columns)

    def forward(self, x):
        y = torch.empty_like(x)
        norm_rows[(x.shape[0],)](x, self.norm.weight, self.norm.bias, y, x.shape[1], BLOCK=64)
        return y
"""
UNREAD = {
    "scale": RIGHT_NORM.replace("normed * tl.load(scale + at, at < columns) +", "normed +"),
    "shift": RIGHT_NORM.replace(" + tl.load(shift + at, at < columns)", ""),
}
RELU = """
import os, signal
import ctypes
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)


def get_inputs():
    return [torch.randn(8, 8)]


def get_init_inputs():
    return []
"""
ENDS = {  # what a file does, and what is said of it
    "crash": ("return torch.relu(x)", "ctypes.string_at(0)", "task.py, line 10: forward crashed the process that ran it (SIGSEGV)"),
    "crash in the file": ("import torch\n", "ctypes.string_at(0)\n", "task.py, line 4: the file crashed the process that ran it (SIGSEGV)"),
    "exit": ("return torch.relu(x)", "os._exit(3)", "task.py: the process that ran the file ended in the middle of it (exit code 3)"),
    "kill": ("return torch.relu(x)", "os.kill(os.getpid(), signal.SIGKILL)", "was killed, as happens where memory runs out"),
    "a card": ("return torch.relu(x)", "return x.to('cuda')", "there is no CUDA card here: name no device (inside forward x.device)"),
    "a card's inputs": ("torch.randn(8, 8)", "torch.randn(8, 8, device='cuda')", "there is no CUDA card here: name no device"),
}
Judge = Callable[[str, str], Verdict]


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a task, and kernels in a folder below it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "norm.py").write_text(NORM)
    (tmp_path / "kernels").mkdir()
    for name in ("first", "second", "third"):
        (tmp_path / "kernels" / f"{name}.py").write_text(f"class ModelNew: '''{name}'''\n")
    (tmp_path / "kernels" / "helper.py").write_text("SIZE = 3\n")
    return tmp_path


@pytest.fixture
def judge_by(monkeypatch: pytest.MonkeyPatch) -> Callable[[Judge], list[str]]:
    """Lets commands have verdicts from a function of text and profile; gives the profiles that were asked for."""

    def install(judge: Judge) -> list[str]:
        asked: list[str] = []

        class Judging(ScriptedEvaluator):
            async def evaluate(self, task: Task, kernel: KernelText, profile: str = "quick") -> Verdict:
                asked.append(profile)
                tell_step("further inputs, 2 of 13")
                await asyncio.sleep(0.05)
                return judge(kernel.text, profile).model_copy(update={"profile": profile})

        @asynccontextmanager
        async def open_scripted(*args: object, **options: object) -> AsyncIterator[ScriptedEvaluator]:
            yield Judging({})

        monkeypatch.setattr("tritonsmith.cli.judging.open_evaluator", open_scripted)
        return asked

    return install


def by_name(text: str, profile: str) -> Verdict:
    """The second kernel is wrong."""
    if "second" in text:
        return scripted_verdict(None, message="maximum error 1 at output 0", status=Status.INACCURATE)
    return scripted_verdict(1.5)


@pytest.mark.parametrize("unread", ["scale", pytest.param("shift", marks=pytest.mark.slow)])
def test_a_quick_verdict_refuses_a_kernel_that_never_reads_a_parameter(unread: str, evaluator: LocalEvaluator, tmp_path: Path) -> None:
    """A fresh LayerNorm has ones and zeros, which would hide that."""
    (tmp_path / "norm.py").write_text(NORM)
    verdict = evaluator.evaluate_now(load_task(str(tmp_path / "norm.py"), size="small"), UNREAD[unread], "quick")
    assert verdict.status is Status.INACCURATE, verdict.message


@pytest.mark.slow
def test_a_quick_verdict_accepts_the_kernel_that_reads_them(evaluator: LocalEvaluator, tmp_path: Path) -> None:
    (tmp_path / "norm.py").write_text(NORM)
    verdict = evaluator.evaluate_now(load_task(str(tmp_path / "norm.py"), size="small"), RIGHT_NORM, "quick")
    assert verdict.status is Status.OK, verdict.message


@pytest.mark.gpu
@pytest.mark.parametrize("unread", ["", *UNREAD])
def test_a_quick_verdict_of_a_card_refuses_it_too(unread: str, tmp_path: Path) -> None:
    (tmp_path / "norm.py").write_text(NORM)
    with open_evaluator("auto", tmp_path / "raw") as opened:
        verdict = opened.evaluate_now(load_task(str(tmp_path / "norm.py")), UNREAD.get(unread, RIGHT_NORM), "quick")
    assert verdict.status is (Status.INACCURATE if unread else Status.OK), verdict.message


def test_a_verdict_is_strict_unless_another_is_asked_for(
    desk: Path, judge_by: Callable[[Judge], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    """A quick one says, in words and in JSON, that it is no proof."""
    asked = judge_by(by_name)
    assert run(["evaluate", "norm.py", "kernels/first.py"]) == 0
    assert "proof" not in capsys.readouterr().out
    assert run(["evaluate", "norm.py", "kernels/first.py", "--json"]) == 0
    strict = json.loads(capsys.readouterr().out)
    assert (strict["status"], strict["kernel"], strict["proven"]) == ("ok", "kernels/first.py", True)
    assert asked == ["strict", "strict"]
    assert run(["evaluate", "norm.py", "kernels/first.py", "--profile", "quick"]) == 0
    assert f"proof     {NO_PROOF}" in capsys.readouterr().out
    assert run(["evaluate", "norm.py", "kernels/first.py", "--profile", "quick", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["proven"] is False
    assert run(["evaluate", "norm.py", "kernels/second.py", "--profile", "quick"]) == 1
    assert "proof" not in capsys.readouterr().out, "a refusal needs none"


@pytest.mark.parametrize("words", [["kernels"], ["kernels/*.py"], ["kernels/first.py", "kernels/second.py", "kernels/t*.py", "kernels"]])
def test_several_kernels_end_with_a_table(
    words: list[str], desk: Path, judge_by: Callable[[Judge], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    """Files, folders and patterns; each file once, and what is no kernel is left out and named."""
    asked = judge_by(by_name)
    assert run(["evaluate", "norm.py", *words]) == 1
    told = capsys.readouterr()
    rows = told.out.splitlines()[-5:]
    assert [row.split()[:2] for row in rows[:4]] == [
        ["kernel", "verdict"], ["kernels/first.py", "ok"], ["kernels/second.py", "inaccurate"], ["kernels/third.py", "ok"],
    ]  # fmt: skip
    assert "maximum error 1 at output 0" in rows[2] and rows[4] == "2 of 3 kernels are right."
    assert "left out helper.py (no ModelNew)" in told.err and len(asked) == 3
    assert run(["evaluate", "norm.py", *words, "--json"]) == 1
    verdicts = json.loads(capsys.readouterr().out)["verdicts"]
    assert {one["kernel"]: one["status"] for one in verdicts} == {
        "kernels/first.py": "ok", "kernels/second.py": "inaccurate", "kernels/third.py": "ok",
    }  # fmt: skip


def test_several_right_kernels_are_exit_code_0(
    desk: Path, judge_by: Callable[[Judge], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    judge_by(by_name)
    assert run(["evaluate", "norm.py", "kernels/first.py", "kernels/third.py", "--profile", "quick"]) == 0
    assert f"2 of 2 kernels are right; proof {NO_PROOF}" in capsys.readouterr().out


def test_a_failure_of_ours_is_no_verdict_and_stops_no_other(
    desk: Path, judge_by: Callable[[Judge], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    def judge(text: str, profile: str) -> Verdict:
        if "second" in text:
            raise InfrastructureError("the oracle process failed")
        return scripted_verdict(1.5)

    judge_by(judge)
    assert run(["evaluate", "norm.py", "kernels"]) == 1
    out = capsys.readouterr().out
    assert "2 of 3 kernels are right." in out
    assert re.search(r"kernels/second.py +not judged .* the evaluator failed, not the kernel: the oracle process failed", out)
    assert run(["evaluate", "norm.py", "kernels/second.py"]) == 1
    assert "the evaluator failed, not the kernel" in capsys.readouterr().err


def test_a_folder_without_kernels_is_wrong_usage(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """So are the task's own folder, and a pattern that fits nothing."""
    for word in (".", "kernels/h*.py", "nothing/*.py"):
        assert run(["evaluate", "norm.py", word]) == 2
        assert f"{word}: no Python file there has a class ModelNew" in capsys.readouterr().err


def test_a_long_verdict_shows_its_steps(
    desk: Path, judge_by: Callable[[Judge], list[str]], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tritonsmith.cli.judging.EVERY_SECONDS", 0.01)
    judge_by(by_name)
    assert run(["evaluate", "norm.py", "kernels"]) == 1
    told = capsys.readouterr().err
    assert all(f"Evaluating {number} of 3, 0 s so far: further inputs, 2 of 13" in told for number in (1, 2, 3))


def test_a_long_confirmation_shows_its_steps(desk: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """As lines where the progress goes to a file, which had nothing to show until the verdict came."""

    class Judging(ScriptedEvaluator):
        async def evaluate(self, task: Task, kernel: KernelText, profile: str = "quick") -> Verdict:
            if profile == "strict":
                await asyncio.to_thread(tell_step, "further inputs, 2 of 13")
                await asyncio.sleep(0.1)
            return await super().evaluate(task, kernel, profile)

    async def follow() -> list[dict[str, Any]]:
        settings = {"task": "norm.py", "size": "small", "seeds": 1, "policy": "best-of-n", "out": str(desk / "out")}
        run = Run(RunConfig(**settings), author=ScriptedAuthor(seeds=["a"]), evaluator=Judging({"a": scripted_verdict(1.5)}))
        return [event async for event in run.stream()]

    monkeypatch.setattr(following, "EVERY_SECONDS", 0.01)
    events = asyncio.run(follow())
    steps = [event for event in events if event["event"] == "step" and event["profile"] == "strict"]
    assert steps and {(step["node"], step["step"]) for step in steps} == {("confirm", "further inputs, 2 of 13")}
    progress = PlainProgress(Console(stderr=True))
    for event in events:
        progress(event)
    assert "main: confirm judges seed0-01 (strict), 0 s so far: further inputs, 2 of 13" in capsys.readouterr().err


def test_the_answer_of_a_run_without_a_kernel_repeats_why(desk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def go() -> None:
        settings = {"task": "norm.py", "size": "small", "seeds": 1, "policy": "best-of-n", "out": str(desk / "out")}
        fails = scripted_verdict(None, message="line 13: RuntimeError: shape '[7, -1]'\nis invalid", status=Status.RUNTIME_ERROR)
        config = RunConfig(**settings, budget={"candidates": 1})
        run = Run(config, author=ScriptedAuthor(seeds=["a"]), evaluator=ScriptedEvaluator({"a": fails}))
        async for _ in run.stream():
            pass
        assert run.summary is not None
        show(run.summary)

    asyncio.run(go())
    first = capsys.readouterr().out.splitlines()[0]
    assert first == (
        "NO KERNEL: no candidate was accepted; the latest, seed0-01, is runtime_error: line 13: RuntimeError: shape '[7, -1]' is invalid"
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", ENDS)
def test_a_task_that_ends_its_process_is_at_fault_itself(kind: str, desk: Path) -> None:
    """`make test` has processes without torch in evaluator/processes/test_crash.py."""
    old, new, said = ENDS[kind]
    (desk / "task.py").write_text(RELU.replace(old, new))
    done = subprocess.run([COMMAND, "lint", "task.py"], cwd=desk, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2, done.stderr
    assert said in done.stderr and "the evaluator failed" not in done.stderr and "Traceback" not in done.stderr


@pytest.mark.slow
def test_real_kernels_end_with_a_table(desk: Path) -> None:
    """Strict, without a card: one right, two that never read a parameter."""
    (desk / "norms").mkdir()
    for name, text in {"right": RIGHT_NORM, **UNREAD}.items():
        (desk / "norms" / f"{name}.py").write_text(text)
    line = [COMMAND, "evaluate", "norm.py", "norms", "--target", "h200"]
    done = subprocess.run(line, cwd=desk, capture_output=True, text=True, timeout=400)
    assert done.returncode == 1, done.stderr
    assert "1 of 3 kernels are right." in done.stdout and "proof" not in done.stdout
    assert re.search(r"^norms/right.py +ok \(kernel\) ", done.stdout, re.MULTILINE)
