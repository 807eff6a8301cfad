"""Which baselines a verdict has: four in quick, six in strict, autotuned ones ahead of the candidate, and no wrong ones."""

from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from tritonsmith.evaluator.cards.cards import named_card
from tritonsmith.evaluator.channel.doorbell import BASELINES, QUICK_BASELINES, Command
from tritonsmith.evaluator.errors import BaselineError
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.oracle.checks.loaded_task import LoadedTask
from tritonsmith.evaluator.oracle.checks.memory import MemoryPlan
from tritonsmith.evaluator.oracle.judge import on_card
from tritonsmith.evaluator.oracle.judge.further import FurtherBaselines
from tritonsmith.evaluator.oracle.judge.on_card import CardJudge
from tritonsmith.evaluator.oracle.judge.score import describe_score
from tritonsmith.evaluator.oracle.timing.known_baselines import KnownBaselines
from tritonsmith.evaluator.oracle.timing.result_check import ResultCheck
from tritonsmith.evaluator.schema import Comparison, LaunchFacts, Timing, TimingKind
from tritonsmith.evaluator.tasks.files import load_task

AUTOTUNE, NO_GRAPHS = BASELINES[len(QUICK_BASELINES) :]


class Judged:
    """A judge whose processes are stand-ins, and what they were asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...] = ()) -> None:
        self.made: list[str] = []
        self.left_out: set[str] = set()
        """Names of baselines whose autotuner takes too long."""
        self.strongest = AUTOTUNE
        made, judged = self.made, self

        class Baselines:
            def __init__(self, session: Any, known: KnownBaselines | None = None) -> None:
                self.known = known or KnownBaselines()
                self.modes, self.notes = self.known.modes, self.known.notes
                self.unbuilt: tuple[str, ...] = ()
                self.undecided = ()

            def start(self, names: tuple[str, ...]) -> None:
                made.append(f"start {' '.join(names)}")
                self.unbuilt = tuple(name for name in self.known.list_usable(names) if self.known.must_autotune(name))
                self.modes |= dict.fromkeys(self.known.list_usable(set(names) - set(self.unbuilt)), 0)

            def wait_ready(self) -> None:
                made.append("wait")
                for name in self.unbuilt:
                    if name in judged.left_out:
                        self.known.leave_out(name, f"{name} takes too long")
                    else:
                        self.modes[name] = 0
                self.unbuilt = ()

        class Session:
            def __init__(self, timer: Any, runner: Any, profile: str, limit: float, names: tuple[str, ...], form: str = "") -> None:
                made.append(f"time {' '.join(names)}")
                self.strongest = judged.strongest if judged.strongest in names else names[0]
                self.paired, self.clocks, self.far_slower = {}, (1.0, 1.0), False
                self.forms = SimpleNamespace(facts_of=lambda report: report, chosen="as_called")

            def compare_alone(self) -> None:
                """Nothing is measured."""

        runner = SimpleNamespace(facts=lambda limit: {})
        plan = MemoryPlan(together=True)
        session = cast(Any, SimpleNamespace(plan=plan, pool=None, hardware=SimpleNamespace(l2_bytes=1, memory_bytes=1.0)))
        timer = SimpleNamespace(set_candidate=lambda runner: None, open_baselines=lambda: None)
        monkeypatch.setattr(on_card, "BaselineProcess", Baselines)
        monkeypatch.setattr(on_card, "CallTimer", lambda baselines: timer)
        monkeypatch.setattr(on_card, "TimingSession", Session)
        monkeypatch.setattr(on_card, "has_room", lambda session: False)
        monkeypatch.setattr(on_card, "find_other_forward", lambda facts, clocks: "")
        monkeypatch.setattr(on_card, "_read_facts", lambda report, kernel, order: LaunchFacts())
        monkeypatch.setattr(on_card, "FurtherBaselines", lambda *_: SimpleNamespace(wait_ready=lambda: None, strongest={}))
        monkeypatch.setattr(CardJudge, "_check", lambda self, log, runner, kernel, profile: False)
        monkeypatch.setattr(CardJudge, "_runner", self._start_candidate(runner))
        self.judge = CardJudge(session, names)

    def _start_candidate(self, runner: Any) -> Any:
        def start(judge: CardJudge, kernel: KernelText, witness: object = None) -> Any:
            self.made.append("candidate")
            return nullcontext(runner)

        return start

    def ask(self, profile: str) -> list[str]:
        self.made.clear()
        watch = cast(Any, SimpleNamespace(look=lambda: None))
        self.judge._time_together(cast(Any, None), watch, KernelText.of(""), profile)
        return self.made


def test_strict_verdicts_have_six_baselines_and_quick_ones_four(monkeypatch: pytest.MonkeyPatch) -> None:
    """An autotuner is done before a candidate's process is there that could disturb it; later verdicts find it done."""
    judged = Judged(monkeypatch)
    four, six = " ".join(QUICK_BASELINES), " ".join(BASELINES)
    assert judged.made == [f"start {four}"]
    assert judged.ask("quick") == [f"start {four}", "candidate", f"time {four}"]
    assert judged.ask("strict") == [f"start {six}", "wait", "candidate", f"time {six}"]
    assert judged.ask("strict") == [f"start {six}", "candidate", f"time {six}"]
    assert judged.ask("quick") == [f"start {four}", "candidate", f"time {four}"]


def test_names_that_were_asked_for_hold_in_both_profiles(monkeypatch: pytest.MonkeyPatch) -> None:
    judged = Judged(monkeypatch, BASELINES)
    six = " ".join(BASELINES)
    assert judged.ask("quick") == [f"start {six}", "wait", "candidate", f"time {six}"]
    assert Judged(monkeypatch, ("eager",)).ask("strict") == ["start eager", "candidate", "time eager"]


def test_a_verdict_goes_on_without_an_autotuner_that_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    judged = Judged(monkeypatch)
    judged.left_out = {AUTOTUNE}
    others = " ".join((*QUICK_BASELINES, NO_GRAPHS))
    assert judged.ask("strict")[-1] == f"time {others}" and judged.judge.baselines.notes == [f"{AUTOTUNE} takes too long"]


def test_a_strongest_baseline_that_is_wrong_with_other_weights_ends_the_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oracle then makes the verdict again without it."""
    judged = Judged(monkeypatch)
    judge = judged.judge
    judge.session.use_weights = lambda number: None  # type: ignore[method-assign]

    @contextmanager
    def lend(number: int, name: str) -> Any:
        judge.baselines.known.leave_out(name, "its result breaks the rule")
        yield judge.baselines

    judge._further = cast(Any, SimpleNamespace(lend=lend))
    with pytest.raises(BaselineError, match="breaks the rule") as raised:
        judge._further_sessions(KernelText.of(""), "strict", AUTOTUNE)
    assert raised.value.name == AUTOTUNE


def test_further_processes_begin_with_the_strongest_of_the_last_strict_verdict() -> None:
    started: list[tuple[str, ...]] = []
    pool = cast(Any, SimpleNamespace(fill=lambda **counts: started.append(("nothing known",))))

    class Waiting:
        is_running = False
        start = staticmethod(started.append)

    further = FurtherBaselines(cast(Any, SimpleNamespace(plan=MemoryPlan(together=False))), cast(Any, None), 1)
    further._processes = [cast(Any, Waiting())]
    further.start("strict", pool)
    further.strongest = {"quick": "compile"}
    further.start("strict", pool)
    further.strongest["strict"] = AUTOTUNE
    further.start("strict", pool)
    assert started == [("nothing known",), ("compile",), (AUTOTUNE,)]


class Answers:
    """Stands for the baselines' process: delivers the eager result, off by a factor in some settings."""

    def __init__(self, session: LoadedTask, factors: dict[int, float]) -> None:
        self.session, self.factors = session, factors
        self.inputs = [torch.empty_like(tensor) for tensor in session.draw("own")]
        self.results = [slot.clone() for slot in self.inputs[:1]]
        self.runner = self
        self._mode = 0

    def poison(self) -> None:
        self.results[0].fill_(float("nan"))

    def command(self, command: Command, argument: int = 0, *, timeout: float) -> float:
        if command is Command.CALL:
            self._mode = argument
        else:
            self.results[0].copy_(torch.clamp(self.inputs[0] * 2.0, -1.0, 1.0) * self.factors.get(self._mode, 1.0))
        return 0.0


def test_a_baselines_result_is_held_against_the_rule_of_candidates(tmp_path: Any) -> None:
    path = tmp_path / "double.py"
    path.write_text(
        "import torch\nfrom torch import nn\nclass Model(nn.Module):\n"
        "    def forward(self, x):\n        return torch.clamp(x * 2.0, -1.0, 1.0)\n"
        "def get_inputs():\n    return [torch.randn(64, 64)]\ndef get_init_inputs():\n    return []\n"
    )
    session = LoadedTask(load_task(path), named_card("h200"), "cpu")
    try:
        check = ResultCheck(session, cast(Any, Answers(session, {4: 1.001})))
        assert check.find_wrong(2) == "" and "expected" in check.find_wrong(4) and check.find_wrong(6) == ""
        alike = ResultCheck(session, cast(Any, Answers(session, {0: 1.001, 4: 1.001})))
        assert alike.find_wrong(4) == "", "eager execution is as far from the reference"
    finally:
        session.close()


@pytest.mark.parametrize(("names", "words"), [(QUICK_BASELINES, "four"), (BASELINES, "six"), (BASELINES[1:], "five")])
def test_a_verdict_says_how_many_baselines_were_measured(names: tuple[str, ...], words: str) -> None:
    """Rows of older runs have four, and say so."""
    timing = Timing(
        kind=TimingKind.MEASURED, median_ms=1.0, baselines_ms=dict.fromkeys(names, 2.0), baseline="compile", score=2.0, score_eager=2.0,
        comparison=Comparison.FASTER,
    )  # fmt: skip
    assert describe_score(timing) == f"1.000 ms, 2.00x the strongest of {words} baselines (compile; faster), 2.00x eager"
    alone = timing.model_copy(update={"baselines_ms": {"compile": 2.0}})
    assert "2.00x the only baseline (compile; faster)" in describe_score(alone)
