"""Another size of a task on a card: what is timed there, against what, and what becomes of trouble. Processes are stand-ins."""

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tritonsmith.evaluator.errors import InfrastructureError
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.oracle.checks.memory import MemoryPlan
from tritonsmith.evaluator.oracle.handles.runner import RunnerFault
from tritonsmith.evaluator.oracle.judge import other_size
from tritonsmith.evaluator.oracle.judge.other_size import judge_other_size
from tritonsmith.evaluator.schema import Correctness, Status, Task, Timing, TimingKind, Verdict

RIGHT = Correctness(max_abs_err=0.0, mean_abs_err=0.0, err_vs_oracle=0.0, reference_err_vs_oracle=0.0)
TIMED = Timing(
    kind=TimingKind.MEASURED, median_ms=2.0, baselines_ms={"eager": 1.8, "compile": 1.0}, baseline="compile", score=0.5, score_eager=0.9
)


class Card:
    """A card whose processes are stand-ins, and what was asked of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, together: bool = True, fault: Exception | None = None) -> None:
        self.made: list[str] = []
        made = self.made

        class Baselines:
            modes = {"eager": 0, "compile": 2}
            notes: tuple[str, ...] = ()

            def __init__(self, session: Any, build_seconds: float) -> None:
                assert build_seconds < 120.0, "a share of what a strict verdict takes"

            def start(self, names: tuple[str, ...]) -> None:
                made.append(f"start {' '.join(names)}")

            def close(self) -> None:
                made.append("close baselines")

        class Session:
            def __init__(self, timer: Any, runner: Any, profile: str, limit: float, names: tuple[str, ...]) -> None:
                made.append(f"time {profile} {' '.join(names)}")
                if fault is not None:
                    raise fault
                self.paired, self.strongest, self.clocks = {"compile": SimpleNamespace(candidate_ms=2.0)}, "compile", (2.0, 2.0)

            def compare_alone(self) -> None:
                made.append("alone")

        loaded = SimpleNamespace(
            plan=MemoryPlan(together=together), device="cuda", use_weights=lambda number: None, close=lambda: made.append("close"),
            runner=lambda kernel, environment: nullcontext(SimpleNamespace(wait_ready=lambda: made.append("candidate"))),
        )  # fmt: skip
        floor = SimpleNamespace(require_above=lambda ms: made.append("floor"), ms=0.1)
        timer = SimpleNamespace(set_candidate=lambda runner: None, open_baselines=lambda: None)
        log = SimpleNamespace(loaded=loaded, correctness=RIGHT, require_accurate=lambda: None)
        for name, stand_in in (
            ("load_on_card", lambda *_, **__: loaded), ("BaselineProcess", Baselines), ("TimingSession", Session),
            ("Floor", lambda _: floor),
            ("CallTimer", lambda _: timer), ("TrialLog", lambda _: log), ("checked_call", lambda *_: made.append("check")),
            ("make_timing", lambda *_: TIMED),
        ):  # fmt: skip
            monkeypatch.setattr(other_size, name, stand_in)

    def judge(self, *, timed: bool = True) -> Verdict:
        """The verdict about some kernel at another size."""
        task, hardware = Task(name="t", path="t.py", source=""), cast(Any, SimpleNamespace(present=True))
        self.made.clear()
        return judge_other_size(task, hardware, KernelText.of("kernel"), 1.0, timed=timed, mark=Path("mark"))


def test_a_right_kernel_is_timed_against_eager_and_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    card = Card(monkeypatch)
    verdict = card.judge()
    assert verdict.status is Status.OK and verdict.timing is TIMED
    steps = [step for step in card.made if step != "check"]
    assert steps == ["start eager compile", "candidate", "time size eager compile", "floor", "alone", "close baselines", "close"]
    assert card.made.index("time size eager compile") > max(n for n, step in enumerate(card.made) if step == "check")
    assert card.judge(timed=False).timing is None and not any(step.startswith("time") for step in card.made)


def test_a_size_that_cannot_be_timed_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """Baselines that cannot be had are no fault of the candidate's, and neither is a small card."""
    fault = InfrastructureError("the baselines' process did not start")
    for together, words in ((True, "did not start"), (False, "memory")):
        card = Card(monkeypatch, together=together, fault=fault)
        verdict = card.judge()
        assert verdict.status is Status.OK and verdict.timing is None
        assert verdict.message.startswith("not timed: ") and words in verdict.message
        assert card.made[-2:] == ["close baselines", "close"]


def test_a_kernel_that_is_wrong_in_a_timed_call_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    card = Card(monkeypatch, fault=RunnerFault(Status.INACCURATE, "a timed call is wrong"))
    verdict = card.judge()
    assert (verdict.status, verdict.timing) == (Status.INACCURATE, None) and card.made[-1] == "close"
