"""An experiment's plan and tables for a reader. Every heading says whether the figures are measured or ESTIMATES, and for what card."""

from collections.abc import Iterable

from rich.table import Table
from rich.text import Text

from tritonsmith.benchmarks.ablation.schema import SEED_BINS, Ablation, AblationPlan, CellRow, CellState, CostRow, Rule
from tritonsmith.benchmarks.ablation.wording import ON_SCREEN
from tritonsmith.graph.storage.outcome import count_words, digits

_REFERENCE = "default"


def plan_lines(plan: AblationPlan, finished: int, total: int) -> list[Text]:
    """What will be run, and what its runs share."""
    forked = sum(policy.base is not None and not policy.shares for policy in plan.policies) * len(plan.tasks) * plan.repeats
    policies = count_words(len(plan.policies), "policy", "policies")
    sides = (count_words(len(plan.tasks), "task"), policies, count_words(plan.repeats, "repeat"))
    size_of = f"{' x '.join(sides)}: {count_words(total, 'run')}"
    lines = [f"{size_of}, {finished} of them finished ({plan.name}; author {plan.settings.get('model')})"]
    for task in plan.tasks:
        values = ", ".join(f"{name}={value}" for name, value in task.overrides.items())
        size = task.size or "full on a card, else small"
        lines.append(f"  task {task.key}  {size}{f' with {values}' if values else ''}  {task.path}")
    for policy in plan.policies:
        seeds = f"{policy.seeds} seed{'s' if policy.seeds > 1 else ''}"
        how = "runs of its own"
        if policy.shares:
            how = f"runs of its own, with what {policy.base} has asked and judged"
        elif policy.base:
            how = f"forks from {policy.base} at {policy.at}: what comes before is shared"
        lines.append(f"  policy {policy.key}  {seeds}; {how}")
    lines.append(f"  {forked} of the {total} runs fork; within a task and repeat no kernel is judged twice with one profile")
    head, *rest = map(Text, lines)
    head.stylize("bold", 0, len(size_of))
    return [head, *rest]


def cell_line(row: CellRow, finished: int, total: int) -> str:
    """One finished run in a line."""
    named = f"[{finished}/{total}] {row.task} {row.policy} repeat {row.repeat}: "
    if row.state is CellState.FAILED:
        return f"{named}FAILED: {row.reason}"
    what = "no winner" + (f" ({row.reason})" if row.reason else "")
    if row.solved and row.score is not None:
        kind = ", ".join(part for part in ("" if row.kind == "measured" else "ESTIMATE", row.comparison.upper()) if part) or row.kind
        what = f"{digits(row.score)}x {kind} against {row.baseline} ({row.label or 'no label'})"
    shared = f", {row.shared_evaluations} shared" if row.shared_evaluations else ""
    made = f"{count_words(row.candidates, 'candidate')}, {count_words(row.evaluations, 'verdict')}"
    return f"{named}{what}; {made}{shared}, {row.seconds:.0f} s"


def tables_of(tables: Ablation) -> list[Table]:
    """Every table of the experiment."""
    found = [_policies(tables), _tasks(tables), _fast(tables)]
    if len(tables.policies) > 1:
        found.append(_pairs(tables))
    if tables.attribution:
        found.append(_attribution(tables))
    if tables.tuning:
        found.append(_tuning(tables))
    return [*found, _costs(tables), _seeds(tables)]


def heading(tables: Ablation) -> str:
    """What all figures have in common."""
    kind = "measured" if tables.kind == "measured" else "ESTIMATES"
    against = "; ".join(f"{task}: {', '.join(names)}" for task, names in tables.baselines.items() if names)
    where = f"{tables.card or 'no card yet'}, precision {tables.precision}"
    bar = "the strongest baseline" if tables.kind == "measured" else "estimates that leave torch.compile out"
    return f"Scores are {kind} for {where}, against {bar} ({against or 'none yet'})"


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for place, name in enumerate(columns):
        table.add_column(name, justify="left" if place == 0 else "right", no_wrap=True)
    return table


def _policies(tables: Ablation) -> Table:
    table = _table("Policies", "policy", "runs", "failed", "correct", "faster", "mean of winners", "mean, else 1.00x")
    for row in tables.policies:
        table.add_row(
            row.policy, f"{row.done} of {row.planned}", str(row.failed),
            ON_SCREEN.share(row.share_correct), ON_SCREEN.share(row.share_faster),
            ON_SCREEN.factor(row.geomean[Rule.SOLVED]), ON_SCREEN.factor(row.geomean[Rule.FLOOR]),
        )  # fmt: skip
    return table


def _tasks(tables: Ablation) -> Table:
    names = [policy.key for policy in tables.plan.policies]
    table = _table("Geometric mean of the winners' scores, by task", "task", *names)
    for task in tables.plan.tasks:
        cells = {row.policy: ON_SCREEN.factor(row.geomean[Rule.SOLVED]) for row in tables.tasks if row.task == task.key}
        table.add_row(task.key, *(cells.get(name, "-") for name in names))
    return table


def _fast(tables: Ablation) -> Table:
    points = [point.p for point in tables.fast[0].points] if tables.fast else []
    table = _table("fast_p: share of runs correct and faster than p", "policy", *(f"p = {p:g}" for p in points))
    for curve in tables.fast:
        table.add_row(curve.policy, *(ON_SCREEN.share(point.share) for point in curve.points))
    return table


def _pairs(tables: Ablation) -> Table:
    keys = [policy.key for policy in tables.plan.policies]
    reference = _REFERENCE if _REFERENCE in keys else keys[0]
    title = "Pairs (same task and repeat): how many times as fast; 1.00x is no difference"
    table = _table(title, "policy over policy", "winners", "else 1.00x", "better", "equal", "worse", "same kernel")
    solved = {(row.policy, row.against): row for row in tables.pairs if row.rule is Rule.SOLVED}
    floored = [pair for pair in tables.pairs if pair.rule is Rule.FLOOR]
    for row in sorted(floored, key=lambda pair: pair.against != reference):
        won = solved[row.policy, row.against]
        table.add_row(
            f"{row.policy} / {row.against}", ON_SCREEN.factor(won.ratio), ON_SCREEN.factor(row.ratio),
            str(won.better), str(won.equal), str(won.worse), str(row.same_kernel),
        )  # fmt: skip
    return table


def _attribution(tables: Ablation) -> Table:
    title = "What each part gives: default over default without it"
    table = _table(title, "part", "winners", "else 1.00x", "correct", "candidates per run")
    for row in tables.attribution:
        table.add_row(
            row.part, ON_SCREEN.factor(row.ratio_solved), ON_SCREEN.factor(row.ratio),
            f"{100 * row.solved_without:.0f} -> {100 * row.solved_with:.0f} %",
            f"{row.candidates_without:.1f} -> {row.candidates_with:.1f}",
        )  # fmt: skip
    return table


def _tuning(tables: Ablation) -> Table:
    title = "What tuning did, variant by variant: first score over that of the kernel it was made from"
    table = _table(title, "task", "kernels", "variants", "not working", "better", "worse", "lowest", "median", "highest")
    for row in tables.tuning:
        ratios = [f"{digits(value)}x" if value is not None else "-" for value in (row.lowest, row.median, row.highest)]
        counts = (row.variants, row.not_working, row.better, row.worse)
        table.add_row(row.task, "persistent" if row.persistent else "other", *map(str, counts), *ratios)
    return table


def _costs(tables: Ablation) -> Table:
    title = "Cost per solved run, as if each run had been alone"
    table = _table(title, "policy", "tokens", "US dollars", "evaluation seconds", "candidates")
    for row in tables.costs:
        table.add_row(row.policy, *_per_solved(row))
    return table


def _per_solved(row: CostRow) -> Iterable[str]:
    yield ON_SCREEN.write(row.tokens_per_solved, lambda value: f"{value:.0f}") if row.tokens else "0"
    yield ON_SCREEN.write(row.money_per_solved, lambda value: f"{value:.4f}") if row.money else "0"
    yield ON_SCREEN.write(row.evaluation_seconds_per_solved, lambda value: f"{value:.0f}")
    yield ON_SCREEN.write(row.candidates_per_solved, lambda value: f"{value:.1f}")


def _seeds(tables: Ablation) -> Table:
    table = _table("Scores of seeds as written", "task", *SEED_BINS, "not working", "lowest", "median", "highest")
    for row in tables.seeds:
        scores = [digits(value) if value is not None else "-" for value in (row.lowest, row.median, row.highest)]
        table.add_row(row.task, *map(str, row.counts), str(row.not_working), *scores)
    return table
