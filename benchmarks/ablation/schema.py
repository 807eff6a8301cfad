"""The records of an experiment: its plan (`plan.json`), one row per run (`runs.csv`), and every table (`ablation.json`).

An experiment has one card and one kind of figures (measured or estimated), so no table can mix them. Each task has one precision.
"""

from enum import StrEnum
from typing import Any, Literal

from pydantic import Field

from tritonsmith.evaluator.schema import PrecisionClass, Record
from tritonsmith.graph.suites.tasks import PlannedTask

FORMAT = 1


class CellState(StrEnum):
    """How far one run of the experiment is."""

    DONE = "done"
    """The run is over, with or without a winner: an observation."""
    FAILED = "failed"
    """The run could not be made; `reason` says why. No observation, and never counted as a kernel that was not found."""
    OPEN = "open"
    """Not run yet, or not to its end."""


class Rule(StrEnum):
    """What a run counts as in a mean of scores."""

    SOLVED = "solved"
    """Only runs with a winner count, each with its score; the share of solved runs counts the others."""
    FLOOR = "floor"
    """What a user has afterwards: the score where it is proven faster, else 1.0, because the baseline is kept."""


class PlannedPolicy(Record):
    """One policy."""

    key: str
    """Its folder below a task's, and its name in every table."""
    given: str
    """A preset, or `path/to/file.py:ClassName`."""
    seeds: int
    """Seed branches of its runs."""
    base: str | None = None
    """The policy whose run (same task and repeat) this one's forks from; None: a run of its own."""
    at: str = ""
    """The first site where the two may differ."""
    shares: bool = False
    """A run of its own that is given what the base run has asked and judged, so that equal questions have equal answers."""
    sha: str = ""
    """Of the text of a policy's file; empty for a preset."""


class AblationPlan(Record):
    """What is compared with what, fixed when the experiment begins."""

    format: int = FORMAT
    name: str
    """`custom`, or the experiment of the notes: `abc`, `leave-one-out` or `seeds`."""
    tasks: tuple[PlannedTask, ...]
    policies: tuple[PlannedPolicy, ...]
    repeats: int
    settings: dict[str, Any] = Field(default_factory=dict)
    """Fields of RunConfig that all runs have in common."""
    precision: PrecisionClass | None = None
    """The class that is asked of every task whose entry names none; None: what each one's types mean."""
    mode: Literal["eval", "train"] | None = None
    """What modules are put into where the task's entry says nothing; None: what each file's MODE says, else evaluation."""
    seed_step: int = 0
    """How many seeds further on in the built-in author's list each repeat begins, since it always writes the same; 0 for models."""
    card: str = ""
    """The card that the figures are for; set by the first process."""
    kind: str = ""
    """`measured` or `estimated`; set by the first process."""
    date: str = ""
    versions: dict[str, str] = Field(default_factory=dict)

    def precision_of(self, task: PlannedTask) -> str:
        """The class that is asked of a task, or `auto`."""
        asked = task.precision or self.precision
        return asked.value if asked else "auto"


class CellRow(Record):
    """One run: a row of `runs.csv`."""

    task: str
    policy: str
    repeat: int
    """1, 2, ..."""
    state: CellState = CellState.OPEN
    reason: str = ""
    """Why it failed, or why it stopped early."""
    folder: str = ""
    """The run's folder, relative to the experiment's."""
    base: str = ""
    """The policy whose run it was forked from; empty for a run of its own."""
    at: str = ""
    """The site where it was forked."""
    solved: bool = False
    """Whether it has a confirmed winner."""
    faster: bool = False
    """Whether that winner is faster: beyond the noise of its measurement, or the band of its estimate. SAME and AMBIGUOUS are not."""
    score: float | None = None
    """The confirmed score against the strongest baseline; None without a winner."""
    score_eager: float | None = None
    low: float | None = None
    """Lower end of the measurement's 95 % interval."""
    high: float | None = None
    comparison: str = ""
    kind: str = ""
    baseline: str = ""
    median_ms: float | None = None
    baseline_ms: float | None = None
    precision: str = ""
    size: str = ""
    card: str = ""
    label: str = ""
    winner: str = ""
    winner_stage: str = ""
    winner_sha: str = ""
    recipe: str = ""
    seed_scores: tuple[float | None, ...] = ()
    """The first verdict of each seed as it was written; None for a seed that does not work."""
    seed_shas: tuple[str, ...] = ()
    candidates: int = 0
    working: int = 0
    analysed: int = 0
    """Analyses asked for."""
    tuned: int = 0
    """Variants that tuning wrote."""
    evaluations: int = 0
    """Verdicts that the run rests on."""
    evaluation_seconds: float = 0.0
    """Their time, also where another run paid for it."""
    shared_evaluations: int = 0
    """Those of them that another run of the experiment had paid for."""
    shared_seconds: float = 0.0
    """The time of those."""
    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    money: float = 0.0
    """US dollars as if the run had been alone."""
    shared_calls: int = 0
    """Replies that another run of the experiment had paid for."""
    seconds: float = 0.0
    """Wall time of the run in this experiment."""


class IntervalEstimate(Record):
    """A figure with its 95 % interval: bootstrap over tasks, then over repeats within each."""

    value: float | None = None
    low: float | None = None
    high: float | None = None
    tasks: int = 0
    runs: int = 0


class PolicyRow(Record):
    """One policy over all tasks."""

    policy: str
    planned: int
    done: int
    failed: int
    solved: int
    faster: int
    share_correct: IntervalEstimate
    """Share of runs with a confirmed, correct winner."""
    share_faster: IntervalEstimate
    geomean: dict[Rule, IntervalEstimate]
    """Geometric mean of scores over tasks (each task's runs averaged first), by rule."""


class TaskRow(Record):
    """One policy on one task."""

    task: str
    policy: str
    done: int
    failed: int
    solved: int
    faster: int
    geomean: dict[Rule, IntervalEstimate]
    lowest: float | None = None
    median: float | None = None
    highest: float | None = None
    baselines: tuple[str, ...] = ()
    """The baselines that the winners' scores are against."""
    reasons: tuple[str, ...] = ()
    """Why runs failed or ended without a winner, each once."""


class FastPoint(Record):
    """The share of runs that are correct and faster than p times the baseline; from p = 1 on, proven faster."""

    p: float
    share: IntervalEstimate


class FastCurve(Record):
    """fast_p of one policy."""

    policy: str
    points: tuple[FastPoint, ...]


class PairRow(Record):
    """Two policies compared on the same task and repeat: score of `policy` over score of `against`."""

    policy: str
    against: str
    rule: Rule
    ratio: IntervalEstimate
    """Geometric mean of the ratios; 1 is no difference. Each task weighs the same."""
    better: int = 0
    worse: int = 0
    equal: int = 0
    """Pairs within 1 % of each other."""
    same_kernel: int = 0
    """Pairs whose winner is the same text; their ratio says nothing but noise, or is 1 where the verdict was shared."""
    by_task: dict[str, IntervalEstimate] = Field(default_factory=dict)
    """The ratio on each task, with an interval over repeats."""


class CostRow(Record):
    """What a policy costs as if its runs had been alone; per solved run, the unsolved ones paid along."""

    policy: str
    runs: int
    solved: int
    tokens: float
    money: float
    evaluation_seconds: float
    candidates: float
    tokens_per_solved: IntervalEstimate
    money_per_solved: IntervalEstimate
    evaluation_seconds_per_solved: IntervalEstimate
    candidates_per_solved: IntervalEstimate


class Histogram(Record):
    """Scores of seeds as they were written, in the notes' bins; a seed that several runs share counts once."""

    task: str
    """A task's key, or `all`."""
    counts: tuple[int, ...]
    """One per bin of `SEED_BINS`."""
    not_working: int
    lowest: float | None = None
    median: float | None = None
    highest: float | None = None


class AttributionRow(Record):
    """What one mechanism gives: `default` over the policy without it."""

    part: str
    """analysis, repair, detection, tuning or seeds."""
    without: str
    """The policy that lacks it."""
    ratio: IntervalEstimate
    """Score with over score without, paired, by the rule `floor`."""
    ratio_solved: IntervalEstimate
    """The same by the rule `solved`: only pairs in which both have a winner."""
    solved_with: float
    """Share of runs solved, in the pairs."""
    solved_without: float
    candidates_with: float
    """Candidates per run."""
    candidates_without: float


class TuningRow(Record):
    """What tuning did to kernels, variant by variant: a variant's first score over that of the kernel it was made from."""

    task: str
    """A task's key, or `all`."""
    persistent: bool
    """Whether the kernels that went into tuning were persistent."""
    variants: int
    not_working: int
    better: int
    """By more than 1 %, as the search measured it."""
    worse: int
    lowest: float | None = None
    median: float | None = None
    highest: float | None = None


class SharedCost(Record):
    """What the experiment really cost, and what its pairing saved."""

    evaluations: int = 0
    """Verdicts that runs rest on."""
    evaluations_paid: int = 0
    evaluation_seconds: float = 0.0
    evaluation_seconds_paid: float = 0.0
    calls: int = 0
    calls_paid: int = 0


SEED_EDGES = (0.2, 0.5, 0.8, 1.0)
SEED_BINS = ("0-0.2", "0.2-0.5", "0.5-0.8", "0.8-1.0", "1.0 and above")
FAST_P = (0.5, 0.8, 1.0, 1.5, 2.0)


class Ablation(Record):
    """All tables of an experiment."""

    format: int = FORMAT
    plan: AblationPlan
    card: str = ""
    kind: str = ""
    """`measured` or `estimated`; empty before anything was run."""
    precision: str = ""
    """Every class that is asked for, or `auto`: `ieee, tf32`."""
    baselines: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """By task: the strongest baselines, which the scores are against."""
    cells: tuple[CellRow, ...] = ()
    policies: tuple[PolicyRow, ...] = ()
    tasks: tuple[TaskRow, ...] = ()
    fast: tuple[FastCurve, ...] = ()
    pairs: tuple[PairRow, ...] = ()
    costs: tuple[CostRow, ...] = ()
    seeds: tuple[Histogram, ...] = ()
    attribution: tuple[AttributionRow, ...] = ()
    """Empty unless `default` and at least one policy without a part of it were run."""
    tuning: tuple[TuningRow, ...] = ()
    shared: SharedCost = Field(default_factory=SharedCost)
    notes: tuple[str, ...] = ()
    """Sentences that belong to the tables: what is missing, what the intervals cover."""
    date: str = ""
