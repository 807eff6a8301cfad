"""What a run remembers: small frozen records merged by id, so that a resumed or repeated step changes nothing twice.

Kernel texts are not here; they lie in the content-addressed store and candidates name them by sha.
"""

from typing import Annotated, Any, TypeVar

from langgraph.channels import EphemeralValue
from pydantic import Field
from typing_extensions import TypedDict

from tritonsmith.evaluator.schema import Allow, Candidate, Record, SizeValue, Task, TaskFacts, Timing, Verdict
from tritonsmith.graph.searches import Search
from tritonsmith.prompts.analysis import Analysis
from tritonsmith.prompts.regions import RegionRow

Evidence = dict[str, float | int | bool | str | list[str] | None]
"""The numbers and labels that a decision used."""

Value = TypeVar("Value")


class Decision(Record):
    """One answer of a policy (or of the budget) with its reason."""

    id: str
    """`<branch>/<number>`: the order within a branch, the same in every repetition of a run."""
    site: str
    """The policy's method that was asked, `budget`, `author` where an author had nothing further to offer, or `graph` where the policy's
    choice could not be followed."""
    choice: str
    reason: str
    evidence: Evidence = Field(default_factory=dict)
    policy: str = ""
    branch: str = "main"
    """`seed0`, `seed1`, ..., `improve1`, `return1` or `main`."""
    candidate: str | None = None
    gate: str = ""
    """The gate's name in the drawing; several gates may ask one site (`after_stage`)."""


class Finding(Record):
    """One label that detection gave a kernel, with the line it rests on."""

    name: str
    line: int | None = None
    evidence: str = ""


class Findings(Record):
    """All labels of one candidate."""

    candidate: str
    labels: tuple[Finding, ...] = ()

    @property
    def names(self) -> frozenset[str]:
        """The labels' names alone."""
        return frozenset(finding.name for finding in self.labels)


class PromiseCheck(Record):
    """Did an optimized candidate do what its analysis promised? Checked against measured facts."""

    candidate: str
    analysis: str
    """Id of the analysis that promised."""
    metric: str = ""
    bound: float | None = None
    actual: float | None = None
    kept: bool = True
    time_loop_in_python: bool = False
    reason: str = ""


class Usage(Record):
    """What asking a language model cost; zero for the built-in author."""

    calls: int = 0
    """Replies, usable or not."""
    input_tokens: int = 0
    output_tokens: int = 0
    """Reasoning tokens among them."""
    money: float = 0.0
    """US dollars, where the model's prices are known; else 0."""
    seconds: float = 0.0
    cached_tokens: int = 0
    """Input tokens that the server had in its cache."""
    reasoning_tokens: int = 0
    retries: int = 0
    """Tries that brought no reply."""
    unreported: int = 0
    """Replies whose tokens the server did not tell; they are estimated from the length of the texts."""
    unpriced: int = 0
    """Replies of models without a known price."""
    stage: str = ""
    """seed, repair, analyze, optimize or tune; empty in a sum over several."""
    role: str = ""
    """author, analyst or repair; empty in a sum over several."""

    def __add__(self, other: "Usage") -> "Usage":
        sums: dict[str, Any] = {name: getattr(self, name) + getattr(other, name) for name in _NUMBERS}
        sums |= {name: getattr(self, name) for name in _NAMES if getattr(self, name) == getattr(other, name)}
        return Usage(**sums)

    @property
    def tokens(self) -> int:
        """Input and output tokens together."""
        return self.input_tokens + self.output_tokens


_NAMES = ("stage", "role")
_NUMBERS = tuple(name for name in Usage.model_fields if name not in _NAMES)


class Budget(Record):
    """Limits of a run; None is no limit. A spent budget ends the run with the best so far."""

    candidates: int | None = Field(default=60, ge=1)
    """Kernels written in the whole run. Seed branches may write equal parts; what they leave over is for what follows them."""
    repairs: int = Field(default=5, ge=0)
    """Repairs in a row of one failing candidate."""
    rounds: int = Field(default=2, ge=0)
    """Analyses per branch."""
    seconds: float | None = Field(default=None, gt=0)
    """Wall time, checked at every decision."""
    tokens: int | None = Field(default=None, ge=1)
    money: float | None = Field(default=None, gt=0)
    configurations: int = Field(default=96, ge=0)
    """Configurations that tuning searches may try in the whole run; each stage gets an equal part of what is left."""
    tuning_seconds: float | None = Field(default=900.0, gt=0)
    """Seconds that tuning searches may compile and race in the whole run, divided in the same way."""


def by_id(old: dict[str, Value] | None, new: dict[str, Value] | None) -> dict[str, Value]:
    """Merge two tables; a later record replaces an earlier one of the same id."""
    return {**(old or {}), **(new or {})}


def first_reason(old: str | None, new: str | None) -> str:
    """Keep the reason that came first: later stops are its consequence."""
    return old or new or ""


def latest(old: float | None, new: float | None) -> float:
    """The larger of two clock readings."""
    return max(old or 0.0, new or 0.0)


class Shared(TypedDict, total=False):
    """What branches hand back to the run."""

    candidates: Annotated[dict[str, Candidate], by_id]
    verdicts: Annotated[dict[str, Verdict], by_id]
    """The latest verdict of a candidate: the strict one, once it was confirmed or rejected."""
    searched: Annotated[dict[str, float], by_id]
    """What the search said of a candidate that was confirmed since: the score of its quick verdict."""
    analyses: Annotated[dict[str, Analysis], by_id]
    findings: Annotated[dict[str, Findings], by_id]
    checks: Annotated[dict[str, PromiseCheck], by_id]
    decisions: Annotated[dict[str, Decision], by_id]
    codes: Annotated[dict[str, str], by_id]
    """Digests of compiled code by candidate, where the policy wants none measured twice."""
    twins: Annotated[dict[str, str], by_id]
    """Candidates that were dropped before a measurement, with the earlier one whose compiled code they have."""
    usage: Annotated[dict[str, Usage], by_id]
    """Cost of each request to the author, by request."""
    stopped_because: Annotated[str, first_reason]
    elapsed: Annotated[float, latest]
    """Wall seconds of the run so far; carried over a resume."""


class RunInput(TypedDict):
    """What a run is started with."""

    task: Task


class State(Shared, total=False):
    """The run."""

    task: Task
    """What follows of a path that was given instead, with the next four, once the task is described."""
    size: Annotated[str | None, EphemeralValue]
    overrides: Annotated[dict[str, SizeValue] | None, EphemeralValue]
    precision: Annotated[str | None, EphemeralValue]
    mode: Annotated[str | None, EphemeralValue]
    run: str
    """Names this run's ledger within the context."""
    facts: TaskFacts
    seeds: int
    """Number of seed branches."""
    allow: Allow
    """Which labels may win; fixed when the run begins."""
    current: str | None
    """The candidate that the next decision is about."""
    searches: Annotated[dict[str, Search], by_id]
    """Tuning searches by stage."""
    queue: list[str]
    """Candidates of the present tuning stage that have no verdict yet."""
    unjudged: str
    """Why variants of the present tuning stage are not judged, or not even asked for; empty where all are."""
    improvements: int
    """How often the selected candidate was sent back to be analysed."""
    widenings: int
    """How often several lines of work were begun at once from the best candidates."""
    lines: Annotated[dict[str, str], by_id]
    """Lines of work that began with a chosen candidate, with that candidate."""
    opening: list[str]
    """The lines that the last decision begins."""
    returns: int
    """How often a kernel that only the strict profile refuses went back to repair."""
    choice: str
    """The last gate's answer; the edges read it."""
    winner: str | None
    behind: str | None
    """The best right kernel where a card measured it below what the policy claims: then nothing wins, and the module is best kept."""
    unwritten: str
    """Why the author writes no kernel of this task, where its forms were measured in place of that."""
    forms: Timing | None
    """What the module itself takes, by baseline, where no right kernel was measured beside it."""
    regions: tuple[RegionRow, ...]
    """What each part of the best kernel takes."""
    result: str
    """The winner's figure in words; empty without a winner."""


class RunOutput(TypedDict, total=False):
    """What a run answers."""

    winner: str | None
    behind: str | None
    unwritten: str
    forms: Timing | None
    regions: tuple[RegionRow, ...]
    result: str
    candidates: dict[str, Candidate]
    verdicts: dict[str, Verdict]
    searched: dict[str, float]
    analyses: dict[str, Analysis]
    decisions: dict[str, Decision]
    searches: dict[str, Search]
    checks: dict[str, PromiseCheck]
    twins: dict[str, str]
    usage: dict[str, Usage]
    stopped_because: str
    facts: TaskFacts


class BranchState(Shared, total=False):
    """One line of work: a seed and what becomes of it, or the selected candidate under analysis."""

    task: Task
    run: str
    facts: TaskFacts
    allow: Allow
    branch: str
    index: int | None
    """Number of the seed; None when the branch has a chosen candidate to begin with."""
    returns: int
    """Which return to repair this line is; 0 for any other line."""
    current: str | None
    analysis: str
    """Id of the analysis in force."""
    repairs: int
    """Repairs in a row of the line in hand; of a kernel that the strict profile refused, those of earlier returns too."""
    rounds: int
    """Analyses so far."""
    optimized: bool
    """Whether the line in hand stems from an analysis of this branch."""
    exhausted: bool
    """Whether the author had nothing further to offer for the line in hand."""
    choice: str


class BranchInput(TypedDict, total=False):
    """What a branch is started with. A `current` candidate is analysed; one that the strict profile refuses is repaired."""

    task: Task
    run: str
    facts: TaskFacts
    allow: Allow
    branch: str
    index: int | None
    current: str | None
    returns: int
    repairs: int
    candidates: Annotated[dict[str, Candidate], by_id]
    verdicts: Annotated[dict[str, Verdict], by_id]
    codes: Annotated[dict[str, str], by_id]
    """Those of working candidates, wherever they were written."""


Update = dict[str, Any]
"""What a node returns: only the keys it changes."""


def allow_of(state: State | BranchState) -> Allow:
    """Which labels may win this run; hybrids where a state was written before that could be chosen."""
    return Allow(state.get("allow", Allow.HYBRID))  # some checkpointers keep an enumeration as plain text


def count_returned_repairs(state: "State | BranchState") -> int:
    """Repairs so far of kernels that only the strict profile refused, the one that was just decided among them."""
    decisions = state.get("decisions", {}).values()
    return sum(one.choice == "repair" and (one.gate == "after_confirm" or one.branch.startswith("return")) for one in decisions)


def total(usage: dict[str, Usage] | None) -> Usage:
    """Sum over all requests."""
    return sum((usage or {}).values(), Usage())


def usage_by(usage: dict[str, Usage] | None, key: str) -> dict[str, Usage]:
    """Usage by `stage` or by `role`, in the order of first use."""
    table: dict[str, Usage] = {}
    for request in (usage or {}).values():
        name = str(getattr(request, key)) or "other"
        empty = Usage.model_validate({key: name})
        table[name] = table.get(name, empty) + request
    return table
