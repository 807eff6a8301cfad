"""The statistics of experiments against closed forms and simulated truths, and what rows may be called in tables."""

import math

import numpy as np
import pytest

from tritonsmith.benchmarks.ablation.bootstrap import (
    geometric,
    histogram,
    interval,
    mean_of_tasks,
    point,
    ratio_of_totals,
    student_t,
    wilson,
)
from tritonsmith.benchmarks.ablation.schema import AblationPlan, CellRow, CellState, PlannedPolicy, Rule
from tritonsmith.benchmarks.ablation.tables import tabulate
from tritonsmith.graph.suites.tasks import PlannedTask


def groups(*tasks):
    """Values by task as columns `value, 1`."""
    return [np.array([[value, 1.0] for value in values]) for values in tasks]


@pytest.mark.parametrize(("freedom", "quantile"), [(1, 12.7062), (2, 4.3027), (9, 2.2622), (29, 2.0452), (1000, 1.9600)])
def test_quantiles_of_student_t(freedom, quantile):
    assert student_t(0.975, freedom) == pytest.approx(quantile, abs=2e-3 if freedom > 400 else 1e-4)


def test_each_task_weighs_the_same_however_many_runs_it_has():
    assert point(groups([1.0], [3.0, 5.0, 4.0]), mean_of_tasks) == pytest.approx((1 + 4) / 2)
    logs = [[math.log(value) for value in task] for task in ([2.0], [4.0, 1.0])]
    assert point(groups(*logs), geometric) == pytest.approx(math.sqrt(2.0 * 2.0))
    assert point([np.array([[10.0, 1.0], [20.0, 0.0]]), np.array([[30.0, 1.0]])], ratio_of_totals) == pytest.approx(60 / 2)


def test_runs_that_do_not_count_are_left_out():
    """Runs that do not count are left out, and no runs at all give no figure."""
    unsolved = np.array([[0.0, 0.0], [0.0, 0.0]])
    assert point([unsolved, groups([2.0])[0]], mean_of_tasks) == pytest.approx(2.0)
    assert point([unsolved], mean_of_tasks) is None and point([], geometric) is None
    assert point([unsolved], ratio_of_totals) is None
    assert interval([unsolved], mean_of_tasks) is None and interval(groups([1.0]), mean_of_tasks) is None


def test_the_interval_of_a_mean_of_tasks_is_student_s():
    values = np.random.default_rng(3).normal(5.0, 2.0, 40)
    low, high = interval(groups(*([value] for value in values)), mean_of_tasks, draws=20000)
    half = student_t(0.975, 39) * values.std(ddof=1) / math.sqrt(40)
    assert (low, high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.06 * half)


def test_intervals_are_wider_where_tasks_differ():
    """The interval is wider where tasks differ than where runs do."""
    runs = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
    between = interval(groups(*([value] * 8 for value in runs)), mean_of_tasks)
    within = interval(groups(*(runs for _ in range(8))), mean_of_tasks)
    assert between[1] - between[0] > 1.8 * (within[1] - within[0]), "64 runs of 8 tasks are not 64 independent runs"


def test_the_same_rows_have_the_same_interval():
    found = [interval(groups([1.0, 2.0], [2.0, 3.0], [0.5]), geometric) for _ in range(2)]
    assert found[0] == found[1]


def test_wilson():
    assert wilson(10, 10) == pytest.approx((0.7225, 1.0), abs=1e-4) and wilson(0, 10) == pytest.approx((0.0, 0.2775), abs=1e-4)
    assert wilson(5, 10) == pytest.approx((0.2366, 0.7634), abs=1e-4)


def test_bins_begin_at_their_edge():
    assert histogram([0.0, 0.19, 0.2, 0.5, 0.79, 0.8, 0.99, 1.0, 7.0], (0.2, 0.5, 0.8, 1.0)) == (2, 1, 2, 2, 2)


def plan_of(*policies, tasks=("a", "b")):
    return AblationPlan(
        name="custom", repeats=2, card="NVIDIA H200", kind="measured",
        tasks=tuple(PlannedTask(key=task, path=f"{task}.py") for task in tasks),
        policies=tuple(PlannedPolicy(key=policy, given=policy, seeds=2) for policy in policies),
    )  # fmt: skip


def row(task, policy, repeat, score, comparison="faster", **fields):
    solved = score is not None
    return CellRow(
        task=task, policy=policy, repeat=repeat, state=CellState.DONE, solved=solved, score=score, kind="measured",
        **{"faster": solved and comparison == "faster", "comparison": comparison if solved else "", "winner_sha": f"{score}",
           "baseline": "cuda_graph" if solved else "", **fields},
    )  # fmt: skip


def test_noise_above_one_is_not_called_faster():
    rows = [row("a", "p", 1, 1.3, "ambiguous"), row("a", "p", 2, 1.04, "same"), row("b", "p", 1, 0.7, "slower"), row("b", "p", 2, 1.6)]
    tables = tabulate(plan_of("p"), rows)
    curve = {one.p: one.share.value for one in tables.fast[0].points}
    assert curve == {0.5: 1.0, 0.8: 0.75, 1.0: 0.25, 1.5: 0.25, 2.0: 0.0}
    (policy,) = tables.policies
    assert policy.share_faster.value == 0.25 and policy.share_correct.value == 1.0
    assert policy.share_correct.low == pytest.approx(wilson(2, 2)[0]), "four runs of two tasks are two tries, not four"
    assert policy.geomean[Rule.FLOOR].value == pytest.approx(1.6 ** (1 / 4))
    assert any("2 winners score above 1" in note for note in tables.notes)


def test_a_run_without_a_winner_counts_by_its_rule():
    rows = [row("a", "p", 1, 2.0), row("a", "p", 2, None), row("b", "p", 1, None), row("b", "p", 2, None)]
    (policy,) = tabulate(plan_of("p"), rows).policies
    assert policy.share_correct.value == 0.25
    assert policy.geomean[Rule.SOLVED].value == pytest.approx(2.0), "a mean of winners alone"
    assert policy.geomean[Rule.FLOOR].value == pytest.approx(2.0 ** (1 / 4)), "who has no winner keeps the baseline"


def test_cost_of_unsolved_runs_is_paid_by_the_solved_ones():
    rows = [row("a", "p", 1, 2.0, candidates=4, input_tokens=100), row("b", "p", 1, None, candidates=16, output_tokens=300)]
    (cost,) = tabulate(plan_of("p"), rows).costs
    assert cost.candidates_per_solved.value == 20 and cost.tokens_per_solved.value == 400 and cost.solved == 1


def test_pairs_compare_the_same_task_and_repeat_only():
    rows = [row("a", "default", 1, 2.0), row("a", "default", 2, 4.0), row("b", "default", 1, 3.0), row("b", "default", 2, 3.0)]
    rows += [row("a", "no-tune", 1, 1.0, "same"), row("a", "no-tune", 2, 2.0), row("b", "no-tune", 1, 3.0)]
    rows.append(row("b", "no-tune", 2, 9.0).model_copy(update={"state": CellState.FAILED}))
    tables = tabulate(plan_of("default", "no-tune"), rows)
    solved = next(one for one in tables.pairs if one.rule is Rule.SOLVED)
    assert (solved.better, solved.equal, solved.worse, solved.same_kernel) == (0, 1, 2, 1) and solved.ratio.runs == 3
    assert solved.ratio.value == pytest.approx(0.5**0.5) and solved.by_task["a"].value == pytest.approx(0.5)
    (part,) = tables.attribution
    assert part.ratio_solved.value == pytest.approx(2**0.5) and part.solved_with == part.solved_without == 1.0


def simulated(tasks, runs, count, seed):
    """How often the interval covers the true mean of tasks that differ (deviation 1) in runs that differ (deviation 0.5)."""
    random, hits = np.random.default_rng(seed), 0
    for number in range(count):
        means = random.normal(0.0, 1.0, tasks)
        low, high = interval(groups(*(random.normal(mean, 0.5, runs) for mean in means)), mean_of_tasks, draws=1000, seed=number)
        hits += low <= 0.0 <= high
    return hits / count


@pytest.mark.slow
@pytest.mark.parametrize(("tasks", "least", "most"), [(3, 0.78, 0.98), (5, 0.89, 0.98), (20, 0.92, 0.985)])
def test_intervals_cover_the_truth_as_often_as_they_say(tasks, least, most):
    assert least <= simulated(tasks, runs=3, count=600, seed=tasks) <= most


@pytest.mark.slow
def test_intervals_of_one_task_cover_its_mean():
    random, hits = np.random.default_rng(1), 0
    for number in range(600):
        low, high = interval(groups(random.normal(1.0, 0.3, 10)), mean_of_tasks, draws=1000, seed=number)
        hits += low <= 1.0 <= high
    assert 0.91 <= hits / 600 <= 0.98


@pytest.mark.slow
def test_naive_intervals_over_runs_would_not_cover():
    """Why whole tasks are drawn: runs taken as independent cover the truth far too seldom."""
    random, hits = np.random.default_rng(2), 0
    for number in range(300):
        runs = np.concatenate([random.normal(mean, 0.1, 5) for mean in random.normal(0.0, 1.0, 8)])
        low, high = interval(groups(runs), mean_of_tasks, draws=1000, seed=number)
        hits += low <= 0.0 <= high
    assert hits / 300 < 0.75
