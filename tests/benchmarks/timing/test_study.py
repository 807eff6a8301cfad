"""The timing study: honest clocks pass, biased ones do not, its kernels give one result whatever their work, and cut results are kept."""

import dataclasses
import json
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tritonsmith.benchmarks.timing import figures, plan, study
from tritonsmith.benchmarks.timing.figures import Figure, StudyRow, summarize
from tritonsmith.evaluator.caller.local import LocalEvaluator
from tritonsmith.evaluator.caller.questions.describe import run_probe
from tritonsmith.evaluator.cards.cards import named_card
from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.kernel_text import text_sha
from tritonsmith.evaluator.oracle.timing.paired import Paired, abba, compare
from tritonsmith.evaluator.reference.module import load_reference
from tritonsmith.evaluator.schema import Comparison, Correctness, Measurement, Status, Task, TaskFacts, Timing, TimingKind, Verdict

SMALL: dict[str, dict[str, int]] = {
    "chain": {"per_unit": 1, "rows": 4, "columns": 256},
    "stream": {"rows": 1, "columns": 128},
    "softmax_rows": {"rows": 1, "columns": 128},
    "product": {"rows": 64, "columns": 64},
}
PAIRS = 60
CALL_COST_MS = 0.03


class NoisyEvaluator:
    """Times synthetic kernels with the evaluator's statistics: 0.8 % jitter, 2 % outliers, drift, sometimes a step of 4 %.

    Args:
        seed: of the noise.
        raw: folder of the raw samples.
        bias: factor on the candidate's time, different processes' unfairness.
    """

    def __init__(self, seed: int, raw: Path, bias: float = 1.0) -> None:
        self._rng, self._raw, self._bias = random.Random(seed), raw, bias
        self.hardware = named_card("h200")
        self.asked: list[tuple[str, str]] = []
        self.closed = False

    def _clock(self, milliseconds: float, state: dict[str, float]) -> Callable[[], float]:
        def once() -> float:
            state["drift"] *= state["slope"]
            if self._rng.random() < 0.003:
                state["drift"] *= 1.04
            outlier = 1 + self._rng.expovariate(6) if self._rng.random() < 0.02 else 1.0
            return milliseconds * state["drift"] * outlier * self._rng.gauss(1, 0.008)

        return once

    def _measured(self, mine: float, theirs: float) -> Paired:
        state = {"drift": 1.0, "slope": 1 + self._rng.uniform(-1, 1) * 1e-4}
        return abba(self._clock(mine, state), self._clock(theirs, state), PAIRS)

    def evaluate_now(self, task: Task, source: str, profile: str = "quick") -> Verdict:
        self.asked.append((task.name, profile))
        work = re.search(r"^work = (\d+)$", source, re.MULTILINE)
        device = 0.05 + (int(text_sha(task.sha + re.sub(r"^work = .*$", "", source, flags=re.MULTILINE))[:4], 16) % 900) / 1000
        mine = device * (int(work[1]) / 103 if work else 0.5)
        pair, control = self._measured((CALL_COST_MS + mine) * self._bias, CALL_COST_MS + device), self._measured(1.0, 1.0)
        raw = self._raw / f"{len(self.asked)}-{self._rng.random()}.json"
        raw.write_text(json.dumps({"samples": {"eager": {"candidate_ms": pair.candidate, "baseline_ms": pair.baseline}}}))
        timing = Timing(
            kind=TimingKind.MEASURED, median_ms=pair.candidate_ms, baselines_ms={"eager": pair.baseline_ms}, baseline="eager",
            score=pair.ratio, score_eager=pair.ratio, interval=pair.interval(), pairs=PAIRS, raw=str(raw), device_ms=mine,
            wall_ms=pair.candidate_ms,
            comparison=compare([pair.interval()], pair.candidate_ms, control.ratio),
            control=Measurement(ratio=control.ratio, interval=control.interval(), pairs=PAIRS),
        )  # fmt: skip
        right = Correctness(max_abs_err=0, mean_abs_err=0, err_vs_oracle=0, reference_err_vs_oracle=0)
        return Verdict(status=Status.OK, timing=timing, correctness=right, environment={"card": "a card"})

    async def describe(self, task: Task) -> TaskFacts:
        return run_probe(task)[0]

    def close(self) -> None:
        self.closed = True


def run_study(tmp_path: Path, *options: str, bias: float = 1.0, truth: float = 1.03) -> tuple[int, dict[str, Figure], list[NoisyEvaluator]]:
    made: list[NoisyEvaluator] = []

    def opener() -> NoisyEvaluator:
        made.append(NoisyEvaluator(len(made), tmp_path, bias))
        return made[-1]

    out = tmp_path / "out"
    code = study.main(["--out", str(out), "--rest", "0", *options], opener, lambda: {"chain": truth})
    summary = json.loads((out / "summary.json").read_text()) if (out / "summary.json").exists() else []
    return code, {one["name"]: Figure(**one) for one in summary}, made


def test_honest_timing_reaches_every_figure(tmp_path: Path) -> None:
    code, reached, (evaluator,) = run_study(tmp_path, "--part", "equal,gain")
    assert code == 0, reached
    assert len(evaluator.asked) == 60 + 32 + 12 and evaluator.closed
    content = json.loads((tmp_path / "out" / "pairs.json").read_text())
    assert content["environment"] == {"card": "a card"} and content["truths"] == {"chain": 1.03} and content["date"]
    assert content["command"].startswith("python -m tritonsmith.benchmarks.timing.study --out")
    assert Counter(row["kind"] for row in content["rows"]) == {"equal": 60, "gain": 32, "loss": 12}
    assert all(len(row["ratios"]) == PAIRS for row in content["rows"])
    clocks = reached["the two clocks"].reached
    assert re.search(r"wall = (29|30|31) us", clocks), clocks


@pytest.mark.parametrize("bias", [0.975, 1.025])
def test_a_biased_clock_is_found_out(tmp_path: Path, bias: float) -> None:
    code, reached, _ = run_study(tmp_path, "--part", "equal,gain", "--equal", "7", "--gain", "4", "--loss", "4", bias=bias)
    assert code == 1
    assert reached["faster said of equal candidates"].passed == (bias > 1)
    assert not reached["true 3 % gain found"].passed


def test_a_gain_that_is_none_is_said(tmp_path: Path) -> None:
    code, reached, _ = run_study(tmp_path, "--part", "gain", "--gain", "4", "--loss", "4", truth=1.001)
    assert code == 1 and not reached["true gain"].passed


def test_speedups_are_repeated_by_two_evaluators(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [one for one in plan.REPEATED if one.kernel]
    kernels = [dataclasses.replace(texts[number % len(texts)], name=f"kernel {number}") for number in range(figures.REPEAT_COUNT)]
    monkeypatch.setattr(study, "REPEATED", kernels)
    code, reached, made = run_study(tmp_path, "--part", "repeat", "--kernels", "10")
    assert code == 0, reached
    assert [len(one.asked) for one in made] == [10, 10] and all(one.closed for one in made)
    assert {profile for one in made for _, profile in one.asked} == {"strict"}
    assert float(reached["speedup again in fresh processes, worst"].reached.split("%")[0]) < 2


def test_cost_counts_the_start_once_per_task(tmp_path: Path) -> None:
    code, reached, made = run_study(tmp_path, "--part", "cost")
    assert code == 0 and len(made) == len(plan.COST) and all(one.closed for one in made)
    kinds = Counter(row["kind"] for row in json.loads((tmp_path / "out" / "cost.json").read_text())["rows"])
    assert kinds == {"cold": len(plan.COST), "warm": sum(len(group) - 1 for group in plan.COST)}


def test_a_study_cut_short_keeps_its_rows_and_fails(tmp_path: Path) -> None:
    assert run_study(tmp_path, "--part", "equal", "--equal", "7")[0] == 1
    code, reached, made = run_study(tmp_path, "--part", "equal", "--report")
    assert code == 1 and not made and "of 14" in reached["faster said of equals, controls included"].reached
    assert run_study(tmp_path / "none", "--part", "equal", "--report")[0] == 1


def test_an_interrupted_study_says_where_its_rows_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    judged = NoisyEvaluator.evaluate_now

    def evaluate_now(self: NoisyEvaluator, *given: Task | str) -> Verdict:
        if len(self.asked) == 2:
            raise KeyboardInterrupt
        return judged(self, *given)  # type: ignore[arg-type]

    monkeypatch.setattr(NoisyEvaluator, "evaluate_now", evaluate_now)
    code, _, (evaluator,) = run_study(tmp_path, "--part", "equal")
    assert code == 130 and evaluator.closed and "--report" in capsys.readouterr().err
    assert len(json.loads((tmp_path / "out" / "pairs.json").read_text())["rows"]) == 2


def test_bad_input_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        study.main(["--part", "everything"])
    assert stop.value.code == 2 and "everything is not one of equal" in capsys.readouterr().err

    def no_card() -> NoisyEvaluator:
        raise UsageError("there is no CUDA card here")

    assert study.main(["--out", str(tmp_path)], no_card) == 2
    assert capsys.readouterr().err == "error: there is no CUDA card here\n"


def repeat_rows(changes: list[float]) -> list[StudyRow]:
    return [
        StudyRow(part="repeat", kernel=f"kernel {number}", kind=kind, seconds=1, status="ok", score=score)
        for number, change in enumerate(changes)
        for kind, score in (("first", 2.0), ("second", 2.0 * (1 + change)))
    ]


@pytest.mark.parametrize(
    ("changes", "passed"),
    [
        ([0.01] * 10, (True, True)),
        ([0.01] * 9, (False, False)),
        ([-0.03] * 6 + [0.0] * 4, (False, True)),
        ([0.0] * 9 + [-0.06], (True, False)),
    ],
)
def test_repeat_needs_ten_kernels_a_small_median_and_no_outlier(changes: list[float], passed: tuple[bool, bool]) -> None:
    accepted, *rest = summarize(repeat_rows(changes), {}, ["repeat"])
    assert accepted.passed and tuple(one.passed for one in rest) == passed


def test_a_refused_kernel_counts_against_the_study() -> None:
    rows = [StudyRow(part="pairs", kernel="chain", kind="equal", seconds=1, status="racy", comparison=None)]
    accepted, control, *_ = summarize(rows, {}, ["equal"])
    assert not accepted.passed and "chain (equal): racy" in accepted.reached and not control.passed
    assert not any(one.passed for one in summarize([], {}, study.PARTS))


def test_one_false_faster_in_a_hundred_is_tolerated() -> None:
    """One `faster` among a hundred controls is tolerated, and two are not."""
    def rows(wrong: int) -> list[StudyRow]:
        base = {"part": "pairs", "kernel": "chain", "kind": "loss", "seconds": 1, "status": "ok", "control": 1.0}
        return [StudyRow(**base, control_interval=(1.02, 1.03) if number < wrong else (0.99, 1.01)) for number in range(120)]

    verdicts = [figures.check_false_faster(rows(wrong))[1].passed for wrong in (0, 1, 2)]
    assert verdicts == [True, True, False]


# ---- the kernels


def test_every_site_gets_its_share_and_its_own_text() -> None:
    asked = list(plan.schedule({"equal": 60, "gain": 32, "loss": 12}))
    counts = Counter((site.name, kind) for site, kind in asked)
    assert sum(counts.values()) == 104 and {counts[site.name, "equal"] for site in plan.TASKS} <= {8, 9}
    assert {site.name for site, kind in asked if kind != "equal"} == {site.name for site in plan.TASKS if site.scalable}
    assert len({site.file for site in plan.TASKS}) >= 3
    for site in plan.TASKS:
        texts = {kind: site.candidate(kind) for kind in plan.WORK}
        for kind, text in texts.items():
            compile(text, site.name, "exec")
            assert "class ModelNew(nn.Module)" in text and f"\nwork = {plan.WORK[kind]}\n" in text
            assert all(f"\n{name} = {value}\n" in text for name, value in site.sizes.items())
        assert len({re.sub(r"\nwork = \d+\n", "", text) for text in texts.values()}) == 1


@pytest.mark.parametrize("name", SMALL)
def test_work_does_not_change_the_result(name: str) -> None:
    site = plan.StudyTask(name, name, SMALL[name])
    outputs = []
    for kind in plan.WORK:
        reference = load_reference(site.task(kind))
        outputs.append(reference.forward(reference.build(3), reference.draw_inputs(4)))
    assert all(torch.equal(outputs[0], other) for other in outputs[1:])


@pytest.mark.parametrize("name", SMALL)
def test_the_references_are_not_compiled(name: str) -> None:
    site = plan.StudyTask(name, name, SMALL[name])
    with pytest.raises(RuntimeError, match="plain launches"):
        torch.compile(load_reference(site.task()).build(0))


def test_the_repeated_kernels_are_ten_at_least_and_can_be_made() -> None:
    assert len({one.name for one in plan.REPEATED}) == len(plan.REPEATED) >= figures.REPEAT_COUNT
    made = [one.text(one.task(), NotImplemented, named_card("h200")) for one in plan.REPEATED if one.kernel]
    assert len(set(made)) == len(made)
    for group in plan.COST:
        texts = {one.text(one.task(), NotImplemented, named_card("h200")) for one in group}
        assert len(texts) == len(group) and len({one.file for one in group}) == 1


@pytest.mark.slow
def test_the_second_clock_s_process_answers() -> None:
    command = [sys.executable, "-P", "-m", "tritonsmith.benchmarks.timing.true_ratio"]
    done = subprocess.run(command, input="[]\n", capture_output=True, text=True, timeout=120)
    assert done.stdout == "[]\n", done.stderr


@pytest.mark.slow
def test_the_recipes_fit_at_the_study_s_sizes() -> None:
    for one in plan.REPEATED:
        if one.recipe:
            task = one.task()
            assert "class ModelNew" in one.text(task, lambda task=task: run_probe(task)[0], named_card("h200"))  # type: ignore[misc]


@pytest.mark.slow
@pytest.mark.parametrize("kind", plan.WORK)
@pytest.mark.parametrize("name", SMALL)
def test_the_kernels_are_right_and_compile_for_the_card(evaluator: LocalEvaluator, name: str, kind: str) -> None:
    site = plan.StudyTask(name, name, SMALL[name])
    verdict = evaluator.evaluate_now(site.task(), site.candidate(kind))
    assert verdict.status is Status.OK and verdict.facts.triton_launches == 1, verdict.message
    assert verdict.timing is not None and verdict.timing.comparison in (None, *Comparison)


def test_pairs_are_found_in_the_session_of_their_baseline(tmp_path: Path) -> None:
    milliseconds = {"compile": [2.0, 4.0], "eager": [4.0, 6.0]}
    sessions = [{"samples": {name: {"candidate_ms": [2.0, 4.0], "baseline_ms": ms}}} for name, ms in milliseconds.items()]
    raw = tmp_path / "raw.json"
    raw.write_text(json.dumps(sessions[0] | {"sessions": sessions}))
    timing = Timing(
        kind=TimingKind.MEASURED, baselines_ms={"eager": 5.0, "compile": 3.0}, baseline="compile", median_ms=3.0, score=1.0,
        score_eager=1.75, interval=(1.0, 1.0), raw=str(raw),
    )  # fmt: skip
    verdict = Verdict.model_construct(status=Status.OK, timing=timing)
    assert study.pair_ratios(verdict) == [1.0, 1.0]
    assert (study.pair_ratios(verdict, "eager"), study.pair_ratios(verdict, "cuda_graph")) == ([2.0, 1.5], [])
