"""What an oracle does where the card's memory runs out under its plan: the same candidate again, under leaner plans."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from project import ROOT
from tritonsmith.evaluator.cards.cards import named_card
from tritonsmith.evaluator.errors import BaselineError, CardMemoryError, InfrastructureError, TaskError
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.oracle import server
from tritonsmith.evaluator.oracle.checks.memory import MemoryPlan, OraclePlace
from tritonsmith.evaluator.oracle.server import Oracle
from tritonsmith.evaluator.processes.requests import Evaluate
from tritonsmith.evaluator.schema import Status, Verdict
from tritonsmith.evaluator.tasks.files import load_task

PLANS = [MemoryPlan(), MemoryPlan(OraclePlace.HOST), MemoryPlan(OraclePlace.HOST, input_sets=1)]


class Judge:
    """A card's judge under one plan; it runs out of memory as often as its test says."""

    failures: list[Exception] = []
    unmade: int = 0
    """How many more judges run out of memory while they are made."""
    judged: list[MemoryPlan] = []
    left_out: list[str] = []

    def __init__(self, session: Any, names: tuple[str, ...]) -> None:
        self.session = session
        self.baselines = SimpleNamespace(leave_out=lambda error: self.left_out.append(error.name))
        if Judge.unmade:
            Judge.unmade -= 1
            raise CardMemoryError("tensors of 9.0 GB that two processes share: the card has 1.0 GB left")

    def take_trace(self, trace: object) -> None:
        """Nothing needs it."""

    def judge(self, kernel: KernelText, profile: str, raw: Path, seconds: float) -> Verdict:
        self.judged.append(self.session.plan)
        if self.failures:
            raise self.failures.pop(0)
        return Verdict(status=Status.INACCURATE, sha=kernel.sha, message="judged")

    def close(self) -> None:
        """Nothing is held."""


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Verdict]:
    """Asks an oracle for a verdict, which runs out of memory in these ways first."""

    def load(task: Any, hardware: Any, pool: Any, *, after: MemoryPlan | None = None) -> Any:
        left = [plan for plan in PLANS if after is None or plan.is_leaner(after)]
        if not left:
            raise TaskError("task.py: x float32[9] (1.0 GB) need 9.0 GB to be judged")
        return SimpleNamespace(plan=left[0], mark=None, close=lambda: None)

    def asked(*failures: Exception, unmade: int = 0, load: Callable[..., Any] = load) -> Verdict:
        Judge.failures, Judge.judged, Judge.unmade, Judge.left_out = list(failures), [], unmade, []
        monkeypatch.setattr(server, "load_on_card", load)
        monkeypatch.setattr(server, "CardJudge", Judge)
        monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
        oracle = Oracle()
        oracle._hardware = named_card("h200").model_copy(update={"present": True})
        request = Evaluate(
            task=load_task(ROOT / "benchmarks/tasks/26_gelu_scale_bias.py"), kernel=KernelText.of("x = 1"), profile="quick",
            raw=Path("raw.json"), trace=(), measuring=Path("mark"), code=Path("code"), baselines=(), call_seconds=1.0,
        )  # fmt: skip
        return cast(Verdict, oracle._judge_in_memory(request)[1])

    return asked


def test_memory_that_runs_out_is_no_end_while_a_leaner_plan_is_left(ask: Callable[..., Verdict]) -> None:
    assert ask(CardMemoryError("a baseline: out of memory"), torch.OutOfMemoryError("CUDA out of memory")).message == "judged"
    assert Judge.judged == PLANS


def test_a_judge_that_finds_no_room_gets_a_leaner_plan_too(ask: Callable[..., Verdict]) -> None:
    assert ask(torch.OutOfMemoryError("CUDA out of memory"), unmade=1).message == "judged"
    assert Judge.judged == PLANS[1:]
    with pytest.raises(InfrastructureError, match=r"9.0 GB that two processes share.* 1.0 GB left, under the plan .* no leaner one fits"):
        ask(unmade=3)


def test_the_last_plan_ends_in_a_sentence_that_says_what_ran_out(ask: Callable[..., Verdict]) -> None:
    with pytest.raises(InfrastructureError, match=r"out of memory, under the plan float64 reference on the host.* --set") as caught:
        ask(*[CardMemoryError("a baseline: out of memory")] * 3)
    assert not isinstance(caught.value, CardMemoryError) and Judge.judged == PLANS


def test_memory_that_runs_out_while_the_task_is_loaded_is_said(ask: Callable[..., Verdict]) -> None:
    def fail(task: Any, hardware: Any, pool: Any, *, after: MemoryPlan | None = None) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(InfrastructureError, match=r"while the task was loaded: stop what else uses this card, .* --set"):
        ask(load=fail)
    assert Judge.judged == []


def test_another_failure_is_not_tried_again(ask: Callable[..., Verdict]) -> None:
    with pytest.raises(InfrastructureError, match="no answer"):
        ask(InfrastructureError("no answer"))
    assert Judge.judged == PLANS[:1]


def test_a_baseline_that_fails_is_no_end_and_costs_no_plan(ask: Callable[..., Verdict]) -> None:
    error = BaselineError("compile_reduce_overhead", "its output has been overwritten")
    assert ask(CardMemoryError("a baseline: out of memory"), error).message == "judged"
    assert Judge.judged == [PLANS[0], PLANS[1], PLANS[1]] and Judge.left_out == ["compile_reduce_overhead"]
