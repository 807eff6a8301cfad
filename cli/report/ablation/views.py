"""An experiment as sheets: each a table with what it says, for a page, for Markdown and for CSV."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tritonsmith.benchmarks.ablation.schema import SEED_BINS, Ablation, CellState, IntervalEstimate, PairRow, Rule
from tritonsmith.benchmarks.ablation.wording import ON_PAGE
from tritonsmith.cli.report.run.views import seconds_text
from tritonsmith.evaluator.schema import Record
from tritonsmith.graph.storage.outcome import digits

_NONE = ON_PAGE.missing


@dataclass(frozen=True)
class Sheet:
    """One table."""

    key: str
    title: str
    text: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: int = 1
    """How many columns from the left are words; the others are figures."""


def sheets(tables: Ablation) -> list[Sheet]:
    """Every table that has rows."""
    found = [_policies(tables), _tasks(tables), _fast(tables), _pairs(tables), _attribution(tables)]
    found += [_tuning(tables), _seeds(tables), _costs(tables)]
    return [sheet for sheet in found if sheet.rows]


def headline(tables: Ablation) -> str:
    """What the experiment shows about its policies, in a few words."""
    ranked = [row for row in tables.policies if row.done and row.geomean[Rule.FLOOR].value is not None]
    if not ranked:
        return "No run of this experiment is finished"
    best = max(ranked, key=lambda row: row.geomean[Rule.FLOOR].value or 0.0)
    mean = f"{digits(best.geomean[Rule.FLOOR].value or 0.0)}x on average" + ("" if tables.kind == "measured" else " (ESTIMATE)")
    if len(tables.policies) == 1:
        return f"{best.policy}: {mean}"
    others = [pair for pair in tables.pairs if pair.rule is Rule.FLOOR and best.policy in (pair.policy, pair.against)]
    decided = [pair for pair in others if _differs(pair.ratio)]
    if not decided:
        return f"No difference between the policies is shown; {mean}"
    if len(decided) == len(others):
        return f"{best.policy} is ahead of every other policy: {mean}"
    behind = [pair.against if pair.policy == best.policy else pair.policy for pair in decided]
    named = " and ".join(behind) if len(behind) < 3 else f"{len(behind)} of {len(tables.policies)} policies"
    return f"{named} {'is' if len(behind) == 1 else 'are'} behind the best, which reaches {mean}"


def sentences(tables: Ablation) -> list[str]:
    """What the pairs of the first policy with the others say; no more than their intervals allow."""
    first = tables.policies[0].policy if tables.policies else ""
    pairs = [pair for pair in tables.pairs if pair.rule is Rule.FLOOR and pair.against == first]
    return [_compare_in_words(pair) for pair in pairs]


def size(tables: Ablation) -> str:
    """How large the experiment is."""
    plan = tables.plan
    counts = ((len(plan.tasks), "task", "tasks"), (len(plan.policies), "policy", "policies"), (plan.repeats, "repeat", "repeats"))
    return ", ".join(f"{count} {singular if count == 1 else plural}" for count, singular, plural in counts)


def facts(tables: Ablation) -> list[tuple[str, str]]:
    """What all figures have in common."""
    done = sum(row.state is CellState.DONE for row in tables.cells)
    failed = sum(row.state is CellState.FAILED for row in tables.cells)
    planned = len(tables.plan.tasks) * len(tables.plan.policies) * tables.plan.repeats
    against = "; ".join(f"{task}: {', '.join(names)}" for task, names in tables.baselines.items() if names)
    shared = tables.shared
    rows = [
        ("Runs", f"{done} of {planned} done" + (f", {failed} could not be made" if failed else "")),
        ("Tasks", ", ".join(task.key for task in tables.plan.tasks)),
        ("Repeats", str(tables.plan.repeats)),
        ("Card", tables.card or "not known yet"),
        ("Figures", "measured" if tables.kind == "measured" else "ESTIMATES" if tables.kind else "none yet"),
        ("Precision", tables.precision),
        ("Author", str(tables.plan.settings.get("model") or "unknown")),
        ("Baselines", against),
        ("Evaluations", f"{shared.evaluations_paid} made for {shared.evaluations}, in {seconds_text(shared.evaluation_seconds_paid)}"),
        ("Versions", ", ".join(f"{name} {version}" for name, version in tables.plan.versions.items())),
    ]
    return [(name, value) for name, value in rows if value]


def flatten(records: Iterable[Record]) -> list[dict[str, object]]:
    """Records as rows of CSV; a figure with an interval becomes four columns, what is a table in itself stays out."""
    rows: list[dict[str, object]] = []
    for record in records:
        row: dict[str, object] = {}
        for name in type(record).model_fields:
            value = getattr(record, name)
            parts = {f"{name}_{rule}": part for rule, part in value.items()} if isinstance(value, dict) else {name: value}
            for key, part in parts.items():
                row |= _make_cells(key, part)
        rows.append(row)
    return rows


def _make_cells(key: str, value: object) -> dict[str, object]:
    if isinstance(value, IntervalEstimate):
        return {key: value.value, f"{key}_low": value.low, f"{key}_high": value.high, f"{key}_runs": value.runs}
    if isinstance(value, tuple):
        return {key: " ".join(map(str, value))}
    return {key: value}


def _compare_in_words(pair: PairRow) -> str:
    """One pair in words."""
    ratio = pair.ratio
    if ratio.value is None:
        return f"{pair.policy} cannot be compared with {pair.against} yet."
    said = f"{pair.policy} against {pair.against}: {ON_PAGE.factor(ratio)}"
    if ratio.low is None or ratio.high is None:
        return f"{said}; too few runs for an interval."
    if _differs(ratio):
        return f"{said}; the interval leaves out 1, so the difference is {'a gain' if ratio.low > 1 else 'a loss'} on tasks like these."
    return f"{said}; the interval includes 1, so no difference is shown."


def _differs(ratio: IntervalEstimate) -> bool:
    """Whether the interval of a ratio leaves out 1."""
    return ratio.low is not None and ratio.high is not None and (ratio.low > 1.0 or ratio.high < 1.0)


def _policies(tables: Ablation) -> Sheet:
    rows = (
        (
            row.policy, f"{row.done} of {row.planned}", ON_PAGE.share(row.share_correct), ON_PAGE.share(row.share_faster),
            ON_PAGE.factor(row.geomean[Rule.FLOOR]), ON_PAGE.factor(row.geomean[Rule.SOLVED]),
        )
        for row in tables.policies
    )  # fmt: skip
    return Sheet(
        "policies", "Policies",
        "Geometric means over tasks with 95 % intervals. What a user has afterwards counts 1.0 where no kernel is proven faster.",
        ("policy", "runs", "correct", "faster", "what a user has", "solved runs alone"), tuple(rows),
    )  # fmt: skip


def _tasks(tables: Ablation) -> Sheet:
    rows = (
        (
            row.task, row.policy, str(row.done), str(row.solved), str(row.faster), ON_PAGE.factor(row.geomean[Rule.FLOOR]),
            *(f"{digits(value)}x" if value is not None else _NONE for value in (row.lowest, row.median, row.highest)),
        )
        for row in tables.tasks
    )  # fmt: skip
    columns = ("task", "policy", "done", "solved", "faster", "what a user has", "lowest", "median", "highest")
    return Sheet("tasks", "Each task", "Scores of confirmed winners.", columns, tuple(rows), words=2)


def _fast(tables: Ablation) -> Sheet:
    points = [point.p for point in tables.fast[0].points] if tables.fast else []
    rows = tuple((curve.policy, *(ON_PAGE.share(point.share) for point in curve.points)) for curve in tables.fast)
    text = "fast_p: the share of runs that are correct and faster than p times the baseline; from p = 1 on, proven faster."
    return Sheet("fast", "How often how fast", text, ("policy", *(f"p = {p:g}" for p in points)), rows)


def _pairs(tables: Ablation) -> Sheet:
    rows = (
        (
            pair.policy, pair.against, ON_PAGE.factor(pair.ratio),
            str(pair.better), str(pair.equal), str(pair.worse), str(pair.same_kernel),
            *(ON_PAGE.factor(pair.by_task[task.key]) if task.key in pair.by_task else _NONE for task in tables.plan.tasks),
        )
        for pair in tables.pairs
        if pair.rule is Rule.FLOOR
    )  # fmt: skip
    columns = ("policy", "against", "ratio", "better", "within 1 %", "worse", "same kernel", *(task.key for task in tables.plan.tasks))
    text = "The same task and repeat under two policies: score of the one over the other's. An interval with 1 in it shows no difference."
    return Sheet("pairs", "Paired differences", text, columns, tuple(rows), words=2)


def _attribution(tables: Ablation) -> Sheet:
    rows = (
        (
            row.part, row.without, ON_PAGE.factor(row.ratio), ON_PAGE.factor(row.ratio_solved),
            f"{100 * row.solved_with:.0f} %", f"{100 * row.solved_without:.0f} %",
            f"{row.candidates_with:.1f}", f"{row.candidates_without:.1f}",
        )
        for row in tables.attribution
    )  # fmt: skip
    columns = ("part", "left out by", "gives", "in solved runs", "solved with", "without", "candidates with", "without it")
    return Sheet("attribution", "What each part gives", "Score with a part over score without it, paired.", columns, tuple(rows), words=2)


def _tuning(tables: Ablation) -> Sheet:
    rows = (
        (
            row.task, "persistent" if row.persistent else "other", str(row.variants), str(row.not_working), str(row.better), str(row.worse),
            *(f"{digits(value)}x" if value is not None else _NONE for value in (row.lowest, row.median, row.highest)),
        )
        for row in tables.tuning
    )  # fmt: skip
    columns = ("task", "kernels", "variants", "not working", "better", "worse", "lowest", "median", "highest")
    text = "First score of each variant over that of the kernel it was made from; the lines go from the lowest to the highest variant."
    return Sheet("tuning", "What tuning did, variant by variant", text, columns, tuple(rows), words=2)


def _seeds(tables: Ablation) -> Sheet:
    rows = (
        (
            row.task, *map(str, row.counts), str(row.not_working),
            *(f"{digits(value)}x" if value is not None else _NONE for value in (row.lowest, row.median, row.highest)),
        )
        for row in tables.seeds
    )  # fmt: skip
    columns = ("task", *SEED_BINS, "not working", "lowest", "median", "highest")
    return Sheet("seeds", "First kernels", "Scores of seeds as they were written, before any repair or analysis.", columns, tuple(rows))


def _costs(tables: Ablation) -> Sheet:
    asked = any(row.tokens for row in tables.costs)
    rows = (
        (
            row.policy, f"{row.solved} of {row.runs}", _amount(row.candidates_per_solved, "{:.1f}"),
            _amount(row.evaluation_seconds_per_solved, "{:.0f}"),
            *((_amount(row.tokens_per_solved, "{:,.0f}"), _amount(row.money_per_solved, "{:.4f}")) if asked else ()),
        )
        for row in tables.costs
    )  # fmt: skip
    columns = ("policy", "solved", "candidates", "seconds of evaluation", *(("tokens", "dollars") if asked else ()))
    return Sheet("costs", "Cost per solved run", "As if each run had been alone; unsolved runs are paid along.", columns, tuple(rows))


def _amount(figure: IntervalEstimate, form: str) -> str:
    return ON_PAGE.write(figure, form.format)


def series(tables: Ablation) -> Sequence[str]:
    """Policies in the order of their colours."""
    return [policy.key for policy in tables.plan.policies]
