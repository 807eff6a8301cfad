"""What a policy may meet: named situations for every gate, each a view that a real run can produce.

They are made from states by `view_of`, as the gates make theirs, so no situation contradicts itself.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

from tritonsmith.evaluator.schema import Candidate, Comparison, Label, Stage, Status, Verdict
from tritonsmith.graph.policies.view import Policy, View, view_of
from tritonsmith.graph.sites import SITES
from tritonsmith.graph.state import Budget, Finding, Findings, PromiseCheck, State
from tritonsmith.graph.storage.outcome import count_words
from tritonsmith.nodes.evaluators.scripted import scripted_verdict
from tritonsmith.prompts.analysis import Analysis, Category

_SCORES = (0.05, 0.6, 0.999, 1.0, 3.0)
"""Scores far below, just below, at and above the baseline's."""
_LABELS = ((), ("persistent",), ("persistent", "one_axis_grid"), ("high_complexity",), ("persistent", "high_complexity"), ("launch_bound",))
_FEW = Budget(candidates=3, repairs=0, rounds=0)
"""Budgets that leave nothing over after the seeds."""


@dataclass(frozen=True)
class Situation:
    """One question to a policy, with what it would see."""

    gate: str
    name: str
    view: View

    @property
    def site(self) -> str:
        """The policy's method that is asked."""
        return SITES[self.gate].asks


@cache
def situations() -> tuple[Situation, ...]:
    """Every situation, gate by gate in the order of a run."""
    return tuple(
        Situation(view.gate, name, view)
        for made in (_after_evaluate, _worth_optimizing, _after_optimize, _after_select, _after_detect, _after_stage, _after_confirm)
        for name, view in made()
    )


def differing_sites(first: Policy, second: Policy) -> dict[str, int]:
    """The number of situations in which two policies choose differently, by site. A sample, not a proof."""
    counts: dict[str, int] = {}
    for situation in situations():
        answers = [getattr(policy, situation.site)(situation.view)[0] for policy in (first, second)]
        counts[situation.site] = counts.get(situation.site, 0) + (answers[0] != answers[1])
    return {site: count for site, count in counts.items() if count}


def _verdicts() -> dict[str, Verdict]:
    """Everything that an evaluation may answer, by what a reader would call it."""
    fails = {status.value: scripted_verdict(None, status=status, message="why it failed") for status in Status if status is not Status.OK}
    works = {f"works at {score:g}": scripted_verdict(score) for score in _SCORES}
    odd = {
        "works as a library call": scripted_verdict(1.7, label=Label.LIBRARY, library={"aten::gru": 1}),
        "works, gain within the noise": scripted_verdict(1.1, comparison=Comparison.AMBIGUOUS),
        "works at 1.2, far from its floor": scripted_verdict(1.2, floor=0.4),
        "works at 1.2, near its floor": scripted_verdict(1.2, floor=0.9),
        "works, suspiciously fast": scripted_verdict(80.0, quarantine="far above the strongest baseline"),
    }
    return fails | works | odd


def _after_evaluate() -> Iterator[tuple[str, View]]:
    gate = "after_evaluate"
    seed, second = _candidate("seed0-01"), _candidate("seed0-02", Stage.OPTIMIZE, "seed0-01")
    slow = scripted_verdict(0.3)
    for name, verdict in _verdicts().items():
        pool = {seed.id: (seed, verdict)}
        yield f"seed: {name}", _view(gate, pool, seed.id)
        yield f"seed: {name}; repairs are spent", _view(gate, pool, seed.id, repairs=5)
        yield f"seed: {name}; no allowance at all", _view(gate, pool, seed.id, budget=_FEW)
        yield f"kernel that the strict profile refused, repaired: {name}", _view(gate, pool, seed.id, repairs=2, returns=1)
        two = {seed.id: (seed, slow), second.id: (second, verdict)}
        line: dict[str, Any] = {"optimized": True, "rounds": 1, "analysis": _analysis()}
        yield f"optimized kernel: {name}", _view(gate, two, second.id, **line)
        yield f"optimized kernel: {name}; repairs and rounds are spent", _view(gate, two, second.id, **{**line, "repairs": 5, "rounds": 2})
    failing = {seed.id: (seed, scripted_verdict(None))}
    for repairs in range(1, 5):
        yield f"seed: runtime_error after {count_words(repairs, 'repair')}", _view(gate, failing, seed.id, repairs=repairs)
    yield "seed: runtime_error; the author has no repair", _view(gate, failing, seed.id, repairs=1, exhausted=True)
    base = {seed.id: (seed, slow)}
    again: dict[str, Any] = {"twins": {second.id: seed.id}, "unjudged_candidates": (second,)}
    yield "a seed that compiles to another's code", _view(gate, base, second.id, **again)
    line = {"optimized": True, "rounds": 1, "analysis": _analysis()}
    yield "an optimized kernel that compiles to its seed's code", _view(gate, base, second.id, **again, **line)
    yield "the author cannot write what was proposed", _view(gate, base, seed.id, rounds=1, exhausted=True, analysis=_analysis())


def _worth_optimizing() -> Iterator[tuple[str, View]]:
    seed = _candidate("seed0-01")
    for score in _SCORES:
        pool = {seed.id: (seed, scripted_verdict(score))}
        for gain in (1.0, 1.05, 1.1, 4.0):
            yield f"{gain:g}x promised, best {score:g}", _view("worth_optimizing", pool, seed.id, rounds=1, analysis=_analysis(gain))
        no = _analysis(2.0, worth_optimizing=False, reason="the hardware is the limit")
        yield f"the analyst says no, best {score:g}", _view("worth_optimizing", pool, seed.id, rounds=2, analysis=no)


def _after_optimize() -> Iterator[tuple[str, View]]:
    gate = "after_optimize"
    seed, second = _candidate("seed0-01"), _candidate("seed0-02", Stage.OPTIMIZE, "seed0-01")
    for rounds, left in ((1, "a round is left"), (2, "no round is left")):
        line: dict[str, Any] = {"rounds": rounds, "optimized": True, "analysis": _analysis()}
        for score in _SCORES:
            two = {seed.id: (seed, scripted_verdict(0.3)), second.id: (second, scripted_verdict(score))}
            for name, check in _checks(second.id).items():
                yield f"works at {score:g}, {name}; {left}", _view(gate, two, second.id, check=check, **line)
        two = {seed.id: (seed, scripted_verdict(0.3)), second.id: (second, scripted_verdict(1.2))}
        labels = ("persistent", "one_axis_grid")
        view = _view(gate, two, second.id, check=_checks(second.id)["promise kept"], labels=labels, **line)
        yield f"works at 1.2 with a grid over one axis; {left}", view
        for share in (0.4, 0.9):
            two = {seed.id: (seed, scripted_verdict(0.3)), second.id: (second, scripted_verdict(1.2, floor=share))}
            view = _view(gate, two, second.id, check=_checks(second.id)["promise kept"], **line)
            yield f"works at 1.2 and {share:.0%} of its floor; {left}", view
        two = {seed.id: (seed, scripted_verdict(0.3)), second.id: (second, scripted_verdict(None))}
        yield f"the optimized kernel fails; {left}", _view(gate, two, second.id, repairs=5, **line)


def _after_select() -> Iterator[tuple[str, View]]:
    gate = "after_select"
    first, second = _candidate("seed0-01"), _candidate("seed1-01")
    for score in _SCORES:
        pool = {first.id: (first, scripted_verdict(score)), second.id: (second, scripted_verdict(None))}
        yield f"best of one at {score:g}", _view(gate, pool, first.id)
        yield f"best of one at {score:g}, analysed once more already", _view(gate, pool, first.id, improvements=1)
        yield f"best of one at {score:g}, no allowance at all", _view(gate, pool, first.id, budget=_FEW)
        yield f"best of one at {score:g}, after a return from the confirmation", _view(gate, pool, first.id, returns=1)
        both = {first.id: (first, scripted_verdict(score)), second.id: (second, scripted_verdict(0.9 * score))}
        yield f"best of two at {score:g}", _view(gate, both, first.id)
        yield f"best of two at {score:g}, both to go on with", _view(gate, both, first.id, width=3)
        begun: dict[str, Any] = {"lines": {"improve1": first.id, "improve2": second.id}, "improvements": 2, "widenings": 1}
        yield f"best of two at {score:g}, gone on with", _view(gate, both, first.id, width=3, **begun)
    nothing = {first.id: (first, scripted_verdict(None)), second.id: (second, scripted_verdict(None, status=Status.INACCURATE))}
    yield "nothing works", _view(gate, nothing, None)
    library = {first.id: (first, _verdicts()["works as a library call"])}
    yield "only a library call works", _view(gate, library, None)


def _after_detect() -> Iterator[tuple[str, View]]:
    seed = _candidate("seed0-01")
    for score in _SCORES:
        for labels in _LABELS:
            pool = {seed.id: (seed, scripted_verdict(score))}
            yield f"{' and '.join(labels) or 'no label'} at {score:g}", _view("after_detect", pool, seed.id, labels=labels)


def _after_stage() -> Iterator[tuple[str, View]]:
    for gate in (name for name, site in SITES.items() if site.asks == "after_stage"):
        seed, tuned = _candidate("seed0-01"), _candidate("grid-01", Stage.TUNE_GRID, "seed0-01")
        for name, verdict in {"better": scripted_verdict(1.4), "worse": scripted_verdict(0.4), "failing": scripted_verdict(None)}.items():
            pool = {seed.id: (seed, scripted_verdict(0.9)), tuned.id: (tuned, verdict)}
            yield f"{gate}: a {name} variant", _view(gate, pool, tuned.id if name == "better" else seed.id)
        for name, unjudged in {"no variant": "", "variants that are not judged": "3 of 3 variants are not judged: why"}.items():
            yield f"{gate}: {name}", _view(gate, {seed.id: (seed, scripted_verdict(0.9))}, seed.id, unjudged=unjudged)


def _after_confirm() -> Iterator[tuple[str, View]]:
    gate = "after_confirm"
    first, second = _candidate("seed0-01"), _candidate("seed1-01")
    for name, verdict in _verdicts().items():
        strict = verdict.model_copy(update={"profile": "strict"})
        yield f"confirmation: {name}; nothing else works", _view(gate, {first.id: (first, strict)}, first.id)
        for other, rival in (("waits", scripted_verdict(0.5)), ("is a proven gain", scripted_verdict(1.05, comparison=Comparison.FASTER))):
            pool = {first.id: (first, strict), second.id: (second, rival)}
            yield f"confirmation: {name}; another {other}", _view(gate, pool, first.id)
        yield f"confirmation: {name}; no allowance at all", _view(gate, {first.id: (first, strict)}, first.id, budget=_FEW)
        known = {first.id: (first, strict), second.id: (second, scripted_verdict(0.5).model_copy(update={"profile": "strict"}))}
        yield f"confirmation: {name}; another is confirmed already", _view(gate, known, first.id)
    yield "the strict measurement failed", _view(gate, {first.id: (first, scripted_verdict(1.2))}, first.id)
    yield "nothing to confirm", _view(gate, {first.id: (first, scripted_verdict(None))}, None)


def _candidate(name: str, stage: Stage = Stage.SEED, parent: str | None = None) -> Candidate:
    return Candidate(id=name, sha=name, stage=stage, parent=parent)


def _analysis(expected_speedup: float = 2.0, **fields: Any) -> Analysis:
    return Analysis(
        bottleneck="launches", optimisation_method="one launch", modification_plan="move the loop into the kernel",
        category=Category.LAUNCHES, expected_speedup=expected_speedup, **fields,
    )  # fmt: skip


def _checks(candidate: str) -> dict[str, PromiseCheck | None]:
    fields: dict[str, Any] = {"candidate": candidate, "analysis": "a", "metric": "launches_per_forward", "bound": 2.0}
    return {
        "nothing promised": None,
        "promise kept": PromiseCheck(**fields, actual=1.0, reason="one launch"),
        "promise broken": PromiseCheck(**fields, actual=3000.0, kept=False, reason="3000 launches"),
        "time loop in Python": PromiseCheck(**fields, actual=3000.0, kept=False, time_loop_in_python=True, reason="a loop"),
    }


def _view(
    gate: str,
    pool: dict[str, tuple[Candidate, Verdict]],
    current: str | None,
    *,
    labels: tuple[str, ...] = (),
    analysis: Analysis | None = None,
    check: PromiseCheck | None = None,
    budget: Budget | None = None,
    width: int = 1,
    unjudged_candidates: tuple[Candidate, ...] = (),
    **line: Any,
) -> View:
    judged = {name: candidate for name, (candidate, _) in pool.items()}
    shared: dict[str, Any] = {
        "candidates": judged | {candidate.id: candidate for candidate in unjudged_candidates},
        "verdicts": {name: verdict for name, (_, verdict) in pool.items()},
        "current": current,
        **line,
    }
    if labels and current:
        shared["findings"] = {current: Findings(candidate=current, labels=tuple(Finding(name=label, line=1) for label in labels))}
    if analysis:
        shared |= {"analyses": {"a": analysis}, "analysis": "a"}
    if check and current:
        shared["checks"] = {current: check}
    inside = gate in ("after_evaluate", "worth_optimizing", "after_optimize")
    state = {**shared, "branch": "seed0", "index": 0} if inside else shared
    return view_of(gate, cast(State, state), budget or Budget(), width=width)
