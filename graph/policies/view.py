"""What a policy sees at a decision, and the policy's methods: one per site, each with a choice and a reason."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, cast

from tritonsmith.evaluator.records.limits import FloorShare
from tritonsmith.evaluator.schema import Candidate, Status, Verdict
from tritonsmith.graph.pool import is_proven, rank_working, refusal
from tritonsmith.graph.searches import Search, Tuning
from tritonsmith.graph.sites import SITES
from tritonsmith.graph.state import BranchState, Budget, Evidence, PromiseCheck, State, allow_of, count_returned_repairs
from tritonsmith.prompts.analysis import Analysis

Answer = tuple[str, str]
"""A choice of the site and the reason for it."""


@dataclass(frozen=True)
class View:
    """A run (or one branch of it) as a policy may see it; read-only."""

    site: str
    gate: str = ""
    branch: str = "main"
    current: Candidate | None = None
    """The candidate that the decision is about."""
    verdict: Verdict | None = None
    """Its verdict; None when the machinery failed."""
    refusal: str = ""
    """Why the current candidate may not win although it works; empty when it may."""
    best: Candidate | None = None
    """The best working candidate of the branch, or of the run after the branches joined."""
    best_score: float | None = None
    best_verdict: Verdict | None = None
    scores: Mapping[str, float] = field(default_factory=dict)
    """Working candidates with their scores, best first."""
    failed: int = 0
    """Candidates that do not work."""
    not_allowed: int = 0
    """Candidates that work and may not win."""
    labels: frozenset[str] = frozenset()
    """What detection says about the current candidate."""
    analysis: Analysis | None = None
    promise: PromiseCheck | None = None
    optimized: bool = False
    """Whether the current line stems from an analysis of this branch."""
    exhausted: bool = False
    """Whether the author has nothing further to offer for this line."""
    twin: str = ""
    """The earlier working candidate whose compiled code the current one has; it is then not measured."""
    open_lines: tuple[str, ...] = ()
    """At `after_select`, the best candidates (as many as the policy's `width`) that no line of work has gone on with."""
    search: Search | None = None
    """At `after_stage`, the search of that stage; None where there was none."""
    unjudged: str = ""
    """At `after_stage`, why variants were not judged, or not even asked for; empty where all were."""
    repairs: int = 0
    rounds: int = 0
    improvements: int = 0
    widenings: int = 0
    returns: int = 0
    """How often a kernel that only the strict profile refused went back to repair; in a branch, 0 unless it is such a line."""
    stop: str = ""
    """Why the run may write no more kernels; empty while it may."""
    budget: Budget = field(default_factory=Budget)
    claims_from: float = 1.0
    """The measured score from which on a kernel is the result of the run."""
    step: int = 0
    """How many decisions were recorded in this branch before."""

    @property
    def works(self) -> bool:
        """Whether the current candidate has an ok verdict and may win."""
        return self.verdict is not None and self.verdict.status is Status.OK and not self.refusal

    @property
    def score(self) -> float | None:
        """The current candidate's score; None when it does not work."""
        return self.verdict.score if self.verdict else None

    @property
    def status(self) -> str:
        """The current verdict's status, `none` without one, `not allowed to win` for one that works and may not."""
        if self.refusal:
            return "not allowed to win"
        return self.verdict.status.value if self.verdict else "none"

    @property
    def proven_rival(self) -> bool:
        """Whether the current candidate, once confirmed, is not faster beyond the noise while one that is waits to be confirmed."""
        if not self.works or self.verdict is None or is_proven(self.verdict) or self.best_verdict is None:
            return False
        return self.best_verdict.profile != "strict" and is_proven(self.best_verdict)

    @property
    def best_floor(self) -> FloorShare | None:
        """How near the best working candidate is to its floor; None where nobody knows."""
        timing = self.best_verdict.timing if self.best_verdict else None
        return timing.floor if timing else None

    @property
    def repairs_left(self) -> int:
        """Repairs that the line in hand may still use; none once a budget is spent."""
        return 0 if self.stop else max(0, self.budget.repairs - self.repairs)

    @property
    def rounds_left(self) -> int:
        """Analyses that this branch may still use."""
        return max(0, self.budget.rounds - self.rounds)

    def left(self, allowance: str) -> int:
        """What is left of `repairs`, `rounds`, `improvements` or `widenings`."""
        if allowance == "widenings":
            return max(0, self.budget.rounds - self.widenings)
        if allowance == "improvements":
            return max(0, min(1, self.budget.rounds) - self.improvements)
        return self.repairs_left if allowance == "repairs" else self.rounds_left

    def lacks(self, choice: str) -> str:
        """What is missing to follow a choice of this gate, as a sentence; empty where it can be followed."""
        need = SITES[self.gate].needs.get(choice) if self.gate in SITES else None
        if need == "analysis" and self.analysis is None:
            return "there is no analysis"
        if need == "refused" and (self.works or self.verdict is None or self.verdict.profile != "strict"):
            return "the strict profile refuses nothing"
        if need == "open" and not self.open_lines:
            return "every one of the best candidates was gone on with"
        if need in ("best", "unconfirmed") and self.best is None:
            return "nothing works that may win"
        if need == "unconfirmed" and self.best and self.best_verdict and self.best_verdict.profile == "strict":
            return f"{self.best.id} is confirmed already"
        return ""

    def offers(self) -> tuple[str, ...]:
        """The choices of this gate that can be followed now."""
        site = SITES[self.gate]
        return tuple(
            choice for choice in site.choices
            if not self.lacks(choice) and (choice not in site.spends or self.left(site.spends[choice]))
        )  # fmt: skip

    def evidence(self) -> Evidence:
        """The numbers and labels of this decision, for the record."""
        facts, timing = (self.verdict.facts, self.verdict.timing) if self.verdict else (None, None)
        found: Evidence = {
            "status": self.status if self.current else None,
            "score": self.score,
            "comparison": timing.comparison.value if timing and timing.comparison else None,
            "refusal": self.refusal or None,
            "best": self.best.id if self.best else None,
            "best_score": self.best_score,
            "launches_per_forward": facts.launches_per_forward if facts and self.works else None,
            "labels": sorted(self.labels) or None,
            "floor_share": timing.floor.share if timing and timing.floor and self.works else None,
            "floor_limit": timing.floor.limit.value if timing and timing.floor and self.works else None,
        }
        if self.site in ("after_evaluate", "after_optimize"):
            found |= {"repairs": self.repairs, "rounds": self.rounds}
        if self.site == "worth_optimizing" and self.analysis:
            found |= {"expected_speedup": self.analysis.expected_speedup, "worth_optimizing": self.analysis.worth_optimizing}
            found |= {"category": self.analysis.category.value, **self.analysis.evidence}
        if self.site == "after_optimize" and self.promise:
            found |= {"metric": self.promise.metric or None, "bound": self.promise.bound, "actual": self.promise.actual}
            found |= {"promise_kept": self.promise.kept, "time_loop_in_python": self.promise.time_loop_in_python}
        if self.site in ("after_select", "after_confirm"):
            found |= {"working": len(self.scores), "failed": self.failed, "not_allowed": self.not_allowed or None}
        if self.site == "after_select" and (self.open_lines or self.widenings):
            found |= {"open_lines": list(self.open_lines) or None, "widenings": self.widenings}
        if self.site == "after_evaluate":
            found |= {"twin": self.twin or None}
        if self.site == "after_confirm":
            found |= {"repairs": self.repairs or None}
        if self.site == "after_stage":
            found |= {"stage": self.gate.removeprefix("after_"), "unjudged": self.unjudged or None}
            found |= {"search": self.search.sentence() if self.search else None}
        return {key: value for key, value in found.items() if value is not None}


class Policy(Protocol):
    """Decides at every site. A method per site; the choices are those of `graph/sites.py`."""

    name: str
    seeds: int | None
    """Number of seed branches that the policy insists on; None leaves it to the run."""
    tuning: Tuning
    """Who finds the variants of a tuning stage."""
    joint: bool
    """Whether one search covers all three stages."""
    width: int
    """How many lines of work `widen` begins."""
    race_below: float
    """The score below which regions of a kernel are raced against the library when it is analysed; 0: never."""
    drop_twins: bool
    """Whether a candidate whose compiled code is that of an earlier working one is dropped before it is measured."""
    claims_from: float
    """The measured score from which on the best kernel is the run's result; below it the module is best kept."""

    def after_evaluate(self, view: View) -> Answer:
        """`repair`, `rescue`, `check`, `accept` or `give_up`."""
        ...

    def worth_optimizing(self, view: View) -> Answer:
        """`optimize` or `stop`."""
        ...

    def after_optimize(self, view: View) -> Answer:
        """`kept`, `again`, `broken` or `stop`."""
        ...

    def after_select(self, view: View) -> Answer:
        """`detect`, `rescue`, `widen` or `finish`."""
        ...

    def after_detect(self, view: View) -> Answer:
        """`tune` or `skip`."""
        ...

    def after_stage(self, view: View) -> Answer:
        """`next` or `stop`."""
        ...

    def after_confirm(self, view: View) -> Answer:
        """`accept`, `repair`, `next_best` or `give_up`."""
        ...


def view_of(
    gate: str, state: State | BranchState, budget: Budget, *, stop: str = "", width: int = 1, claims_from: float = 1.0
) -> View:
    """The view that a gate's policy gets, from the state and from what the run may still spend; `width` is the policy's."""
    candidates, verdicts = state.get("candidates", {}), state.get("verdicts", {})
    branch = str(state.get("branch", "main"))
    allow = allow_of(state)
    ranked = rank_working(candidates, verdicts, allow)
    scores = {candidate.id: verdicts[candidate.id].score or 0.0 for candidate in ranked}
    current = candidates.get(state.get("current") or "")
    verdict = verdicts.get(current.id) if current else None
    findings = state.get("findings", {}).get(current.id) if current else None
    return View(
        site=SITES[gate].asks,
        gate=gate,
        branch=branch,
        current=current,
        verdict=verdict,
        refusal=refusal(verdict, allow) if verdict else "",
        best=ranked[0] if ranked else None,
        best_score=scores[ranked[0].id] if ranked else None,
        best_verdict=verdicts[ranked[0].id] if ranked else None,
        scores=scores,
        failed=sum(judged.status is not Status.OK for judged in verdicts.values()),
        not_allowed=sum(bool(refusal(judged, allow)) for judged in verdicts.values()),
        labels=findings.names if findings else frozenset(),
        analysis=state.get("analyses", {}).get(str(state.get("analysis", ""))),
        promise=state.get("checks", {}).get(current.id) if current else None,
        optimized=bool(state.get("optimized", False)),
        exhausted=bool(state.get("exhausted", False)),
        twin=state.get("twins", {}).get(current.id, "") if current else "",
        open_lines=_open_lines(gate, ranked, state, width),
        search=_search_of(gate, state),
        unjudged=str(state.get("unjudged", "")) if SITES[gate].asks == "after_stage" else "",
        repairs=count_returned_repairs(state) if gate == "after_confirm" else int(str(state.get("repairs", 0))),
        rounds=int(str(state.get("rounds", 0))),
        improvements=int(str(state.get("improvements", 0))),
        widenings=int(str(state.get("widenings", 0))),
        returns=int(str(state.get("returns", 0))),
        stop=stop,
        budget=budget,
        claims_from=claims_from,
        step=sum(decision.branch == branch for decision in state.get("decisions", {}).values()),
    )


def _open_lines(gate: str, ranked: Sequence[Candidate], state: State | BranchState, width: int) -> tuple[str, ...]:
    """The best candidates that no line has gone on with; none for a policy that keeps one line."""
    if SITES[gate].asks != "after_select" or width < 2:
        return ()
    begun = set(cast("dict[str, str]", state.get("lines", {})).values())
    return tuple(candidate.id for candidate in ranked[:width] if candidate.id not in begun)


def _search_of(gate: str, state: State | BranchState) -> Search | None:
    """The search of the stage that the gate comes after."""
    searches = cast("dict[str, Search]", state.get("searches", {}))
    return searches.get(gate.replace("after_", "tune_")) if SITES[gate].asks == "after_stage" else None
