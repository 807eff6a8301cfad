"""An experiment from its options to its tables, with an author and an evaluator that answer from tables."""

import asyncio
import csv
import json
import math

import pytest

from tritonsmith.benchmarks.ablation.plan import make_plan
from tritonsmith.benchmarks.ablation.runner import ablate
from tritonsmith.benchmarks.ablation.schema import Ablation, CellState, Rule
from tritonsmith.evaluator.cards import named_card
from tritonsmith.evaluator.errors import InfrastructureError
from tritonsmith.evaluator.schema import Comparison
from tritonsmith.nodes.scripted import ScriptedAuthor, ScriptedEvaluator, scripted_verdict

TASK = """
import torch
from torch import nn

N = 1024
SMALL = {"N": 16}


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)


def get_inputs():
    return [torch.randn(N)]


def get_init_inputs():
    return []
"""
PRESENT = named_card("h200").model_copy(update={"present": True})


class Judge(ScriptedEvaluator):
    """Scores are part of the text (`task 1.5 ...`); every evaluation is a line of a file, so that several processes can be counted."""

    def __init__(self, log, seconds=0.0, broken=()):
        super().__init__({}, hardware=PRESENT)
        self.log, self.seconds, self.broken, self.busy, self.most = log, seconds, broken, 0, 0

    async def evaluate(self, task, source, profile="quick"):
        self.busy += 1
        self.most = max(self.most, self.busy)
        await asyncio.sleep(self.seconds)
        with self.log.open("a") as file:
            file.write(f"{task.name} {source} {profile}\n")
        self.busy -= 1
        if task.name in self.broken:
            raise InfrastructureError("the card is gone")
        score = source.split()[1]
        if score == "bad":
            return scripted_verdict(None, message="it fails")
        comparison = Comparison.FASTER if float(score) > 1.05 else Comparison.AMBIGUOUS if float(score) > 0.95 else Comparison.SLOWER
        return scripted_verdict(float(score), comparison=comparison)


def author_of(cell):
    """Two seeds per repeat, of which tuning makes one better; on `slow` nothing is fast."""
    number = cell.repeat
    seeds = tuple(f"{cell.task.key} {score} r{number}" for score in (("0.3", "bad") if cell.task.key == "slow" else ("1.2", "bad")))
    better = f"{cell.task.key} {'0.6' if cell.task.key == 'slow' else '1.8'} r{number}"
    return ScriptedAuthor(seeds=seeds, variants={("tune_block", seeds[0]): (better,)})


@pytest.fixture
def suite(tmp_path):
    folder = tmp_path / "suite"
    folder.mkdir()
    for name in ("fast", "slow", "other"):
        (folder / f"{name}.py").write_text(TASK)
    return folder


def plan_of(suite, policies=("default", "no-tune"), repeats=2, **options):
    return make_plan(str(suite), policies, repeats=repeats, size="small", **options)


def test_an_experiment_end_to_end(suite, tmp_path):
    out, judge, told = tmp_path / "out", Judge(tmp_path / "log"), []
    tables = ablate(plan_of(suite), out, evaluator=judge, author=author_of, parallel=3, on_row=lambda *row: told.append(row))
    assert [row.state for row in tables.cells] == [CellState.DONE] * 12 and judge.most == 1
    assert len(told) == 12 and told[-1][1:] == (12, 12)
    assert Ablation.model_validate_json((out / "ablation.json").read_text()) == tables
    assert (tables.kind, tables.card, tables.precision) == ("measured", PRESENT.name, "ieee")

    asked = (tmp_path / "log").read_text().splitlines()
    assert len(asked) == len(set(asked)), "nothing is judged twice within a repeat of a task"
    for row in tables.cells:
        folder = out / row.folder
        assert row.folder == f"cells/{row.task}/{row.policy}/{row.repeat}"
        assert json.loads((folder / "summary.json").read_text())["policy"] == row.policy
        best = {"default": 0.6, "no-tune": 0.3} if row.task == "slow" else {"default": 1.8, "no-tune": 1.2}
        assert (row.solved, row.score, row.faster) == (True, best[row.policy], row.task != "slow")
        assert row.seed_scores == (0.3 if row.task == "slow" else 1.2, None)

    default, plain = tables.policies
    assert default.geomean[Rule.SOLVED].value == pytest.approx((1.8 * 1.8 * 0.6) ** (1 / 3))
    assert default.geomean[Rule.FLOOR].value == pytest.approx((1.8 * 1.8 * 1.0) ** (1 / 3))
    assert (default.solved, default.faster, default.failed) == (6, 4, 0) and default.share_faster.value == pytest.approx(2 / 3)
    solved = next(pair for pair in tables.pairs if pair.rule is Rule.SOLVED)
    assert (solved.policy, solved.against, solved.worse, solved.same_kernel) == ("no-tune", "default", 6, 0)
    assert solved.ratio.value == pytest.approx(((1.2 / 1.8) ** 2 * 0.5) ** (1 / 3))
    assert solved.by_task["slow"].value == pytest.approx(0.5)
    curve = {point.p: point.share.value for point in tables.fast[0].points}
    assert curve == {0.5: 1.0, 0.8: pytest.approx(2 / 3), 1.0: pytest.approx(2 / 3), 1.5: pytest.approx(2 / 3), 2.0: 0.0}
    (part,) = tables.attribution
    assert (part.part, part.without) == ("tuning", "no-tune") and part.ratio.value == pytest.approx((1.8 / 1.2) ** (2 / 3))
    assert tables.seeds[0].counts == (0, 2, 0, 0, 4) and tables.seeds[0].not_working == 6, "seeds of both policies are the same ones"
    assert tables.shared.evaluations > tables.shared.evaluations_paid == len(asked)

    with (out / "runs.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 12 and math.isclose(float(rows[0]["score"]), tables.cells[0].score) and rows[0]["seed_scores"].endswith("-")


def test_a_finished_experiment_asks_nobody(suite, tmp_path):
    out, log = tmp_path / "out", tmp_path / "log"
    first = ablate(plan_of(suite, repeats=1), out, evaluator=Judge(log), author=author_of)
    before = log.read_text()

    def nobody(cell):
        raise AssertionError("a finished cell is not run again")

    again = ablate(plan_of(suite, repeats=1), out, author=nobody)  # not even an evaluator is opened
    assert log.read_text() == before and again.cells == first.cells
    more = ablate(plan_of(suite, repeats=2), out, evaluator=Judge(log), author=author_of)
    assert len(more.cells) == 12 and more.plan.repeats == 2
    assert {row.repeat for row in more.cells} == {1, 2} and log.read_text().startswith(before)


def test_a_cell_that_fails_is_a_row_and_is_tried_by_the_next_command(suite, tmp_path):
    out, log = tmp_path / "out", tmp_path / "log"

    def author(cell):
        if (cell.task.key, cell.policy.key) == ("fast", "default"):
            raise ZeroDivisionError("a policy of the user's")
        return author_of(cell)

    tables = ablate(plan_of(suite), out, evaluator=Judge(log, broken=("other",)), author=author)
    failed = {(row.task, row.policy): row for row in tables.cells if row.state is CellState.FAILED}
    assert set(failed) == {("fast", "default"), ("other", "default"), ("other", "no-tune")}
    assert failed["fast", "default"].reason == "ZeroDivisionError: a policy of the user's"
    assert "the card is gone" in failed["other", "default"].reason, "failing machinery is no result"
    assert any("6 of 12 runs could not be made" in note for note in tables.notes)
    assert next(row for row in tables.policies if row.policy == "default").failed == 4
    assert next(row for row in tables.policies if row.policy == "no-tune").share_correct.value == 1.0

    again = ablate(plan_of(suite), out, evaluator=Judge(log), author=author_of)
    assert all(row.state is CellState.DONE for row in again.cells)
