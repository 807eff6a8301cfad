"""From rows to tables: every figure of an experiment with its interval, and the sentences that belong to it."""

import csv
import io
import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import numpy as np

from tritonsmith.benchmarks.ablation.bootstrap import (
    Array,
    Statistic,
    geometric,
    histogram,
    interval,
    mean_of_tasks,
    point,
    ratio_of_totals,
    wilson,
)
from tritonsmith.benchmarks.ablation.notes import notes_of
from tritonsmith.benchmarks.ablation.policies import PARTS
from tritonsmith.benchmarks.ablation.schema import (
    FAST_P,
    SEED_EDGES,
    Ablation,
    AblationPlan,
    AttributionRow,
    CellRow,
    CellState,
    CostRow,
    FastCurve,
    FastPoint,
    Histogram,
    IntervalEstimate,
    PairRow,
    PolicyRow,
    Rule,
    SharedCost,
    TaskRow,
)
from tritonsmith.benchmarks.ablation.tuning import Variant, tuning_rows
from tritonsmith.evaluator.errors import UsageError

Rows = Sequence[CellRow]
_EQUAL = math.log(1.01)
"""Two scores of a pair within 1 % are called equal."""


def tabulate(plan: AblationPlan, rows: Rows, variants: Sequence[Variant] = ()) -> Ablation:
    """Every table of the experiment, from its runs and from what tuning made in them."""
    keys = [policy.key for policy in plan.policies]
    by_policy = {key: [row for row in rows if row.policy == key] for key in keys}
    done = {key: [row for row in found if row.state is CellState.DONE] for key, found in by_policy.items()}
    tables = Ablation(
        plan=plan,
        card=plan.card,
        kind=plan.kind,
        precision=", ".join(dict.fromkeys(map(plan.precision_of, plan.tasks))),
        baselines={task.key: _find_baselines([row for row in rows if row.task == task.key]) for task in plan.tasks},
        cells=tuple(rows),
        policies=tuple(_policy_row(key, by_policy[key], done[key]) for key in keys),
        tasks=tuple(
            _task_row(task.key, key, [row for row in by_policy[key] if row.task == task.key]) for task in plan.tasks for key in keys
        ),
        fast=tuple(FastCurve(policy=key, points=tuple(_fast_point(p, done[key]) for p in FAST_P)) for key in keys),
        pairs=tuple(_pair_row(key, against, rule, done) for place, key in enumerate(keys) for against in keys[:place] for rule in Rule),
        costs=tuple(_cost_row(key, done[key]) for key in keys),
        seeds=_seed_histograms(plan, rows),
        attribution=tuple(_attribution_row(key, done) for key in keys if key in PARTS and "default" in keys),
        tuning=tuning_rows([task.key for task in plan.tasks], variants),
        shared=_sum_shared(rows),
        date=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    return tables.model_copy(update={"notes": notes_of(tables)})


def write_tables(tables: Ablation, root: Path) -> None:
    """Write `ablation.json` and `runs.csv`. Raises UsageError where that is not allowed."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(CellRow.model_fields), lineterminator="\n")
    writer.writeheader()
    for row in tables.cells:
        fields = row.model_dump(mode="json")
        for name in ("seed_scores", "seed_shas"):
            fields[name] = " ".join("-" if value is None else str(value) for value in fields[name])
        writer.writerow(fields)
    try:
        for name, content in (("ablation.json", tables.model_dump_json(indent=1) + "\n"), ("runs.csv", text.getvalue())):
            partial = root / f"{name}.{datetime.now(UTC).timestamp()}.part"
            partial.write_text(content, encoding="utf-8")
            partial.replace(root / name)  # whole, whichever process writes last
    except OSError as error:
        raise UsageError(f"--out {root}: cannot write there ({error.strerror}); name a folder that you may write to") from error


def estimate(rows: Rows, columns: Callable[[CellRow], tuple[float, float]], statistic: Statistic) -> IntervalEstimate:
    """A statistic of runs with its interval; `columns` gives what each run adds, (0, 0) for one that does not count."""
    groups = _group_by_task([(row.task, columns(row)) for row in rows])
    return _estimate_groups(groups, statistic)


def estimate_share(rows: Rows, holds: Callable[[CellRow], bool]) -> IntervalEstimate:
    """The share of runs for which something holds; where it is all or none, a task counts as one try (with one task, a run does)."""
    found = estimate(rows, lambda row: (float(holds(row)), 1.0), mean_of_tasks)
    if found.value not in (0.0, 1.0):
        return found
    tries = found.tasks if found.tasks > 1 else found.runs
    low, high = wilson(tries if found.value else 0, tries)
    return found.model_copy(update={"low": low, "high": high})


def _group_by_task(pairs: Sequence[tuple[str, tuple[float, float]]]) -> list[Array]:
    tasks = dict.fromkeys(task for task, _ in pairs)
    return [np.array([values for found, values in pairs if found == task], dtype=np.float64) for task in tasks]


def _estimate_groups(groups: list[Array], statistic: Statistic) -> IntervalEstimate:
    found = interval(groups, statistic)
    return IntervalEstimate(
        value=point(groups, statistic), low=found[0] if found else None, high=found[1] if found else None,
        tasks=sum(bool(group[:, 1].any()) for group in groups), runs=sum(map(len, groups)),
    )  # fmt: skip


def _log_of_score(row: CellRow, rule: Rule) -> float | None:
    """The logarithm of what a run counts as; None where it does not count."""
    if rule is Rule.FLOOR:
        return math.log(row.score) if row.faster and row.score else 0.0
    return math.log(row.score) if row.solved and row.score else None


def _log_columns(rule: Rule) -> Callable[[CellRow], tuple[float, float]]:
    def columns(row: CellRow) -> tuple[float, float]:
        value = _log_of_score(row, rule)
        return (0.0, 0.0) if value is None else (value, 1.0)

    return columns


def _policy_row(key: str, rows: Rows, done: Rows) -> PolicyRow:
    return PolicyRow(
        policy=key,
        planned=len(rows),
        done=len(done),
        failed=sum(row.state is CellState.FAILED for row in rows),
        solved=sum(row.solved for row in done),
        faster=sum(row.faster for row in done),
        share_correct=estimate_share(done, lambda row: row.solved),
        share_faster=estimate_share(done, lambda row: row.faster),
        geomean={rule: estimate(done, _log_columns(rule), geometric) for rule in Rule},
    )


def _task_row(task: str, key: str, rows: Rows) -> TaskRow:
    done = [row for row in rows if row.state is CellState.DONE]
    scores = [row.score for row in done if row.solved and row.score is not None]
    why = [row.reason for row in rows if row.reason and not row.solved]
    return TaskRow(
        task=task,
        policy=key,
        done=len(done),
        failed=sum(row.state is CellState.FAILED for row in rows),
        solved=sum(row.solved for row in done),
        faster=sum(row.faster for row in done),
        geomean={rule: estimate(done, _log_columns(rule), geometric) for rule in Rule},
        lowest=min(scores, default=None),
        median=median(scores) if scores else None,
        highest=max(scores, default=None),
        baselines=_find_baselines(rows),
        reasons=tuple(dict.fromkeys(why)),
    )


def _find_baselines(rows: Rows) -> tuple[str, ...]:
    return tuple(sorted({row.baseline for row in rows if row.baseline}))


def _fast_point(p: float, done: Rows) -> FastPoint:
    """KernelBench's fast_p: correct and faster than p times the baseline; from 1 on, the difference must be proven."""

    def fast(row: CellRow) -> bool:
        return row.solved and row.score is not None and row.score > p and (row.faster or p < 1.0)

    return FastPoint(p=p, share=estimate_share(done, fast))


def _pair_runs(rows: Rows, others: Rows) -> list[tuple[CellRow, CellRow]]:
    known = {(row.task, row.repeat): row for row in others}
    return [(row, known[row.task, row.repeat]) for row in rows if (row.task, row.repeat) in known]


def _log_ratios(rows: Rows, others: Rows, rule: Rule) -> list[tuple[str, tuple[float, float]]]:
    """Log ratios by task, of the pairs that count."""
    found = []
    for row, against in _pair_runs(rows, others):
        above, below = _log_of_score(row, rule), _log_of_score(against, rule)
        if above is not None and below is not None:
            found.append((row.task, (above - below, 1.0)))
    return found


def _pair_row(key: str, against: str, rule: Rule, done: dict[str, list[CellRow]]) -> PairRow:
    ratios = _log_ratios(done[key], done[against], rule)
    logs = [values[0] for _, values in ratios]
    pairs = _pair_runs(done[key], done[against])
    return PairRow(
        policy=key,
        against=against,
        rule=rule,
        ratio=_estimate_groups(_group_by_task(ratios), geometric),
        better=sum(log > _EQUAL for log in logs),
        worse=sum(log < -_EQUAL for log in logs),
        equal=sum(abs(log) <= _EQUAL for log in logs),
        same_kernel=sum(bool(row.winner_sha) and row.winner_sha == other.winner_sha for row, other in pairs),
        by_task={
            task: _estimate_groups(_group_by_task([ratio for ratio in ratios if ratio[0] == task]), geometric)
            for task in dict.fromkeys(name for name, _ in ratios)
        },
    )


def _cost_row(key: str, done: Rows) -> CostRow:
    def per_solved(value: Callable[[CellRow], float]) -> IntervalEstimate:
        return estimate(done, lambda row: (value(row), float(row.solved)), ratio_of_totals)

    def tokens(row: CellRow) -> float:
        return row.input_tokens + row.output_tokens

    return CostRow(
        policy=key,
        runs=len(done),
        solved=sum(row.solved for row in done),
        tokens=sum(map(tokens, done)),
        money=sum(row.money for row in done),
        evaluation_seconds=round(sum(row.evaluation_seconds for row in done), 3),
        candidates=sum(row.candidates for row in done),
        tokens_per_solved=per_solved(tokens),
        money_per_solved=per_solved(lambda row: row.money),
        evaluation_seconds_per_solved=per_solved(lambda row: row.evaluation_seconds),
        candidates_per_solved=per_solved(lambda row: row.candidates),
    )


def _seed_histograms(plan: AblationPlan, rows: Rows) -> tuple[Histogram, ...]:
    """Every seed once: forked and sharing runs have the seeds of the run that they estimate_share them with."""
    seeds = {
        (row.task, row.repeat, place, sha): score
        for row in rows
        for place, (sha, score) in enumerate(zip(row.seed_shas, row.seed_scores, strict=True))
    }
    return tuple(
        _make_histogram(name, [score for key, score in seeds.items() if name in ("all", key[0])])
        for name in ("all", *(task.key for task in plan.tasks))
    )


def _make_histogram(name: str, scores: list[float | None]) -> Histogram:
    known = [score for score in scores if score is not None]
    return Histogram(
        task=name,
        counts=histogram(known, SEED_EDGES),
        not_working=len(scores) - len(known),
        lowest=min(known, default=None),
        median=median(known) if known else None,
        highest=max(known, default=None),
    )


def _attribution_row(key: str, done: dict[str, list[CellRow]]) -> AttributionRow:
    pairs = _pair_runs(done["default"], done[key])
    count = max(1, len(pairs))
    return AttributionRow(
        part=PARTS[key],
        without=key,
        ratio=_estimate_groups(_group_by_task(_log_ratios(done["default"], done[key], Rule.FLOOR)), geometric),
        ratio_solved=_estimate_groups(_group_by_task(_log_ratios(done["default"], done[key], Rule.SOLVED)), geometric),
        solved_with=sum(row.solved for row, _ in pairs) / count,
        solved_without=sum(other.solved for _, other in pairs) / count,
        candidates_with=sum(row.candidates for row, _ in pairs) / count,
        candidates_without=sum(other.candidates for _, other in pairs) / count,
    )


def _sum_shared(rows: Rows) -> SharedCost:
    evaluations, seconds = sum(row.evaluations for row in rows), sum(row.evaluation_seconds for row in rows)
    return SharedCost(
        evaluations=evaluations,
        evaluations_paid=evaluations - sum(row.shared_evaluations for row in rows),
        evaluation_seconds=round(seconds, 3),
        evaluation_seconds_paid=round(seconds - sum(row.shared_seconds for row in rows), 3),
        calls=sum(row.calls for row in rows),
        calls_paid=sum(row.calls - row.shared_calls for row in rows),
    )
