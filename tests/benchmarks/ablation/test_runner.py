"""An experiment from its options to its tables, with an author and an evaluator that answer from tables."""

import asyncio
import csv
import json
import math
import random
import subprocess
import sys
import time

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult

import ablation_driver as driver
from project import HELPERS
from tritonsmith.benchmarks.ablation.keep import keep
from tritonsmith.benchmarks.ablation.runner import ablate, retabulate
from tritonsmith.benchmarks.ablation.schema import Ablation, CellState, Rule
from tritonsmith.benchmarks.ablation.sharing import Memo, MemoEvaluator
from tritonsmith.evaluator.errors import RunStopped, UsageError
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.schema import PrecisionClass, Status, Task, Verdict
from tritonsmith.graph.runs.active import active_runs
from tritonsmith.nodes.chat.connect import Models
from tritonsmith.nodes.evaluators.scripted import ScriptedEvaluator

DRIVER = HELPERS / "ablation_driver.py"
Judge, author_of, plan_of = driver.Judge, driver.author_of, driver.plan_of


@pytest.fixture
def suite(tmp_path):
    folder = tmp_path / "suite"
    folder.mkdir()
    for name in ("fast", "slow", "other"):
        (folder / f"{name}.py").write_text(driver.TASK)
    return folder


def test_an_experiment_end_to_end(suite, tmp_path):
    out, judge, told = tmp_path / "out", Judge(tmp_path / "log"), []
    tables = ablate(plan_of(suite), out, evaluator=judge, author=author_of, parallel=3, on_row=lambda *row: told.append(row))
    assert [row.state for row in tables.cells] == [CellState.DONE] * 12 and judge.most == 1
    assert len(told) == 12 and told[-1][1:] == (12, 12)
    assert Ablation.model_validate_json((out / "ablation.json").read_text()) == tables
    assert (tables.kind, tables.card, tables.precision) == ("measured", driver.PRESENT.name, "auto")

    asked = (tmp_path / "log").read_text().splitlines()
    assert len(asked) == len(set(asked)), "nothing is judged twice within a repeat of a task"
    for row in tables.cells:
        folder = out / row.folder
        assert row.folder == f"cells/{row.task}/{row.policy}/{row.repeat}"
        assert json.loads((folder / "summary.json").read_text())["policy"] == row.policy
        best = {"default": 0.6, "no-tune": 0.3} if row.task == "slow" else {"default": 1.8, "no-tune": 1.2}
        assert (row.solved, row.score, row.faster) == (True, best[row.policy], row.task != "slow")
        assert row.seed_scores == (0.3 if row.task == "slow" else 1.2, None)

    forked = [(row.base, row.at) for row in tables.cells if row.policy == "no-tune"]
    assert forked == [("default", "after_detect")] * 6, "policies that differ after the seeds are forks"

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
    tuned = {row.task: (row.variants, row.better, row.worse, row.median) for row in tables.tuning}
    assert tuned == {"all": (6, 6, 0, 1.5), "fast": (2, 2, 0, 1.5), "slow": (2, 2, 0, 2.0), "other": (2, 2, 0, 1.5)}

    with (out / "runs.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 12 and math.isclose(float(rows[0]["score"]), tables.cells[0].score) and rows[0]["seed_scores"].endswith("-")


def test_a_task_has_the_precision_and_mode_of_its_entry(suite, tmp_path):
    entries = [{"task": "fast.py"}, {"task": "other.py", "precision": "tf32", "mode": "train"}]
    (suite / "list.json").write_text(json.dumps(entries))
    plan = plan_of(suite / "list.json", repeats=1, precision=PrecisionClass.IEEE)
    tables = ablate(plan, tmp_path / "out", evaluator=Judge(tmp_path / "log"), author=author_of)
    asked = {row.task: json.loads((tmp_path / "out" / row.folder / "summary.json").read_text()) for row in tables.cells}
    assert {task: (one["precision"], one["mode"]) for task, one in asked.items()} == {"fast": ("ieee", "eval"), "other": ("tf32", "train")}
    assert tables.precision == "ieee, tf32" and "at precision ieee, tf32," in tables.notes[0]


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


def test_a_failed_cell_is_a_row_and_is_tried_again(suite, tmp_path):
    """A cell that fails is a row, and the next command tries it again."""
    out, log = tmp_path / "out", tmp_path / "log"

    def author(cell):
        if (cell.task.key, cell.policy.key) == ("fast", "default"):
            raise ZeroDivisionError("a policy of the user's")
        return author_of(cell)

    tables = ablate(plan_of(suite, repeats=1), out, evaluator=Judge(log, broken=("other",)), author=author)
    failed = {(row.task, row.policy): row for row in tables.cells if row.state is CellState.FAILED}
    assert set(failed) == {("fast", "default"), ("other", "default"), ("other", "no-tune")}
    assert failed["fast", "default"].reason == "ZeroDivisionError: a policy of the user's"
    assert "the card is gone" in failed["other", "default"].reason, "failing machinery is no result"
    assert any("3 of 6 runs could not be made" in note for note in tables.notes)
    assert next(row for row in tables.policies if row.policy == "default").failed == 2
    assert next(row for row in tables.policies if row.policy == "no-tune").share_correct.value == 1.0

    again = ablate(plan_of(suite, repeats=1), out, evaluator=Judge(log), author=author_of)
    assert all(row.state is CellState.DONE for row in again.cells)


def process(suite, tmp_path, seconds=0.0, die_at=0, ready=1, parallel=2):
    words = [suite, tmp_path / "out", tmp_path / "log", seconds, die_at, ready, parallel]
    return subprocess.Popen([sys.executable, str(DRIVER), *map(str, words)], stdout=subprocess.PIPE, text=True)


def begun(folder):
    """The `run` events of a run's folder: whether each of its processes went on with an earlier one's work."""
    events = map(json.loads, (folder / "events.jsonl").read_text().splitlines())
    return [event["resumed"] for event in events if event["event"] == "run"]


@pytest.mark.slow
def test_kill_9_in_the_middle_repeats_no_cell_and_no_evaluation(suite, tmp_path):
    out = tmp_path / "out"
    assert process(suite, tmp_path, die_at=13).wait(timeout=120) == -9
    finished = {path.parent: path.stat().st_mtime_ns for path in out.glob("cells/*/*/*/summary.json")}
    assert 0 < len(finished) < 12
    tables = ablate(plan_of(suite, checkpoints="sqlite"), out, evaluator=Judge(tmp_path / "log"), author=author_of)

    asked = (tmp_path / "log").read_text().splitlines()
    assert len(asked) == len(set(asked)) == tables.shared.evaluations_paid, "what was judged before a kill is not judged again"
    assert all((folder / "summary.json").stat().st_mtime_ns == time for folder, time in finished.items())
    went_on = [begun(out / row.folder) for row in tables.cells]
    assert all(row.state is CellState.DONE for row in tables.cells)
    assert [False, True] in went_on and all(one[0] is False and all(one[1:]) for one in went_on), "what was begun is gone on with"

    whole = ablate(plan_of(suite, checkpoints="sqlite"), tmp_path / "whole", evaluator=Judge(tmp_path / "whole_log"), author=author_of)
    same = ("task", "policy", "repeat", "score", "winner", "winner_sha", "candidates", "evaluations", "shared_evaluations", "seed_scores")
    assert [row.model_dump(include={*same}) for row in tables.cells] == [row.model_dump(include={*same}) for row in whole.cells]


def test_an_answer_is_kept_before_the_next_question(tmp_path, monkeypatch):
    """Else a kill in the middle of the next one would lose it."""
    memo, put, kept = Memo(tmp_path), Memo.put, []

    def slow(self, *about):
        time.sleep(0.1)
        return put(self, *about)

    class Asked(ScriptedEvaluator):
        async def evaluate(self, task, source, profile):
            kept.append(len(memo.all()))
            return Verdict(status=Status.CRASHED)

    async def ask_for_three():
        shared, task = MemoEvaluator(Asked({})), Task(name="t", source=driver.TASK, path="t.py")
        await asyncio.gather(*(shared.judge("cell", memo, task, KernelText.of(source), "quick") for source in ("a = 1", "a = 2", "a = 3")))

    monkeypatch.setattr(Memo, "put", slow)
    asyncio.run(ask_for_three())
    assert kept == [0, 1, 2]


@pytest.mark.slow
def test_kill_9_at_random_moments_until_the_experiment_is_done(suite, tmp_path):
    out, moments, kills = tmp_path / "out", random.Random(5), 0

    def written():
        return sum(path.stat().st_mtime_ns for path in out.glob("cells/*/*/*/events.jsonl"))

    while True:
        one, before = process(suite, tmp_path, seconds=0.03), written()
        while one.poll() is None and written() == before:
            time.sleep(0.005)
        time.sleep(moments.random() * 0.7)
        if one.poll() is not None:
            break
        one.kill()
        kills += one.wait(timeout=60) == -9
    assert one.returncode == 0 and kills > 0
    tables = Ablation.model_validate_json((out / "ablation.json").read_text())
    whole = ablate(plan_of(suite, checkpoints="sqlite"), tmp_path / "whole", evaluator=Judge(tmp_path / "whole_log"), author=author_of)
    same = {"task", "policy", "repeat", "state", "reason", "score", "winner", "candidates", "evaluations", "shared_evaluations"}
    assert [row.model_dump(include=same) for row in tables.cells] == [row.model_dump(include=same) for row in whole.cells]
    asked = (tmp_path / "log").read_text().splitlines()
    assert len(asked) - len(set(asked)) <= kills, "at most what was just being written down when a kill came"


def test_a_policy_from_a_file_takes_part(suite, tmp_path):
    file = tmp_path / "own.py"
    file.write_text(
        "from tritonsmith.graph.policies import Default\n\n\nclass OneStage(Default):\n    name = 'one-stage'\n\n"
        "    def after_stage(self, view):\n        return 'stop', 'one stage is enough'\n"
    )
    plan = plan_of(suite / "fast.py", ("default", f"{file}:OneStage"), repeats=1)
    tables = ablate(plan, tmp_path / "out", evaluator=Judge(tmp_path / "log"), author=author_of)
    default, own = tables.cells
    assert (own.policy, own.base, own.at, own.score, default.score) == ("one-stage", "default", "after_stage", 1.2, 1.8)
    decisions = json.loads((tmp_path / "out" / own.folder / "summary.json").read_text())["decisions"]
    assert {one["policy"] for one in decisions if one["site"] == "after_detect"} == {"default"}, "what came before was the base's"
    assert {one["policy"] for one in decisions if one["site"] == "after_stage"} == {"one-stage"}


def test_a_stopped_experiment_begins_nothing_more(suite, tmp_path):
    """An experiment that is asked to stop begins nothing more, and goes on later."""
    out = tmp_path / "out"

    class Impatient(Judge):
        async def evaluate(self, task, source, profile="quick"):
            if self.asked == 5:
                active_runs()[0].stop("a signal")
            return await super().evaluate(task, source, profile)

    with pytest.raises(RunStopped, match="a signal; give the same command again"):
        ablate(plan_of(suite, checkpoints="sqlite"), out, evaluator=Impatient(tmp_path / "log"), author=author_of, parallel=2)
    assert len([*out.glob("cells/*/*/*/run.json")]) < 12
    tables = ablate(plan_of(suite, checkpoints="sqlite"), out, evaluator=Judge(tmp_path / "log"), author=author_of)
    asked = (tmp_path / "log").read_text().splitlines()
    assert all(row.state is CellState.DONE for row in tables.cells) and len(asked) == len(set(asked))


@pytest.mark.slow
def test_two_processes_work_on_one_experiment(suite, tmp_path):
    both = [process(suite / "fast.py", tmp_path, seconds=0.3, ready=2, parallel=1) for _ in range(2)]
    shares = [one.communicate(timeout=120)[0].split() for one in both]
    assert [one.returncode for one in both] == [0, 0]
    assert sorted(shares[0] + shares[1]) == sorted({*shares[0], *shares[1]}) and len(shares[0] + shares[1]) == 4
    assert all(shares), "each process did a part"
    tables = Ablation.model_validate_json((tmp_path / "out" / "ablation.json").read_text())
    assert all(row.state is CellState.DONE for row in tables.cells), "whichever process ended last wrote all tables"
    assert all(begun(tmp_path / "out" / row.folder) == [False] for row in tables.cells)


MODULE = "import triton\n# {score} {what}\n\n\nclass ModelNew:\n    pass\n"


class Writer(BaseChatModel):
    """Writes seeds of score 0.3 and, asked to tune, one of 1.4; never says the same twice, and counts its answers."""

    asked: list[str]

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        self.asked.append(messages[-1].text)
        score = 1.4 if "tune" in messages[-1].text.lower() else 0.3
        text = f"Written.\n```python\n{MODULE.format(score=score, what=len(self.asked))}```\n"
        usage = {"input_tokens": 100, "output_tokens": 10, "total_tokens": 110}
        message = AIMessage(text, usage_metadata=usage, response_metadata={"finish_reason": "stop"})
        return ChatResult(generations=[ChatGeneration(message=message)])


class Reader(Judge):
    """Finds the score in the comment of the text."""

    async def evaluate(self, task, source, profile="quick"):
        return await super().evaluate(task, KernelText.of(" ".join(source.text.splitlines()[1].split())), profile)


def test_forks_and_smaller_runs_do_not_ask_a_model_again(suite, tmp_path):
    chat = Writer(asked=[])
    plan = plan_of(suite, ("default", "no-tune", "single-seed"), repeats=1, settings={"model": "openai:writer", "tuning": "model"})
    judge = Reader(tmp_path / "log")
    tables = ablate(plan, tmp_path / "out", evaluator=judge, models=Models(author=chat), parallel=4)
    assert [row.reason for row in tables.cells if row.state is not CellState.DONE] == []
    rows = {(row.task, row.policy): row for row in tables.cells}
    assert tables.shared.calls_paid == len(chat.asked) and tables.shared.calls > tables.shared.calls_paid
    for task in ("fast", "slow", "other"):
        whole, plain, single = (rows[task, policy] for policy in ("default", "no-tune", "single-seed"))
        assert whole.shared_calls == 0 and plain.shared_calls == plain.calls > 0, "what comes before the fork was asked once"
        assert 0 < single.shared_calls <= single.calls and single.seed_shas == whole.seed_shas[:1], "one seed is the first of two"
        assert plain.seed_shas == whole.seed_shas and (whole.score, plain.score) == (1.4, 0.3)
        assert plain.input_tokens == 100 * plain.calls, "costs are told as if the run had been alone"
    cost = next(one for one in tables.costs if one.policy == "no-tune")
    assert cost.tokens == 110 * sum(rows[task, "no-tune"].calls for task in ("fast", "slow", "other"))


def test_a_damaged_run_costs_its_own_row_alone(suite, tmp_path):
    out = tmp_path / "out"
    ablate(plan_of(suite, repeats=1), out, evaluator=Judge(tmp_path / "log"), author=author_of)
    (out / "cells" / "slow" / "default" / "1" / "summary.json").write_bytes(b"\x7fELF\xff")
    (out / "cells" / "fast" / "default" / "1" / "run.json").write_text("[1]")
    next((out / "shared" / "other" / "1").glob("*.json")).write_bytes(b"\x7fELF\xff")
    rows = {(row.task, row.policy): row for row in retabulate(out).cells}
    damaged = rows.pop(("slow", "default"))
    assert damaged.state is CellState.FAILED and damaged.reason == "summary.json cannot be read (it is not UTF-8 text, byte 4)"
    assert len(rows) == 5 and all(row.state is CellState.DONE and row.solved for row in rows.values())


def test_kept_results_name_no_path_of_this_machine(suite, tmp_path):
    """What is kept of an experiment names no path of this machine."""
    out = tmp_path / "out"
    ablate(plan_of(suite, repeats=1), out, evaluator=Judge(tmp_path / "log"), author=author_of)
    with pytest.raises(UsageError, match="the folder is not empty"):
        keep(out, out)
    summary = out / "cells" / "fast" / "default" / "1" / "summary.json"
    said = json.loads(summary.read_text()) | {"stopped_because": f"benchmarks/tasks/39_gru.py and {out}/other/39_gru.py"}
    summary.write_text(json.dumps(said))
    kept = keep(out, tmp_path / "kept")
    shown = json.loads((tmp_path / "kept" / summary.relative_to(out)).read_text())["stopped_because"]
    assert shown == "benchmarks/tasks/39_gru.py and other/39_gru.py"
    told = {path.relative_to(tmp_path / "kept").as_posix() for path in kept}
    assert {"plan.json", "ablation.json", "runs.csv", "cells/fast/default/1/summary.json"} <= told
    assert len([name for name in told if name.startswith("winners/")]) == 6 and len(told) == 3 + 6 + 6
    assert all(str(tmp_path) not in path.read_text() for path in kept)
    assert Ablation.model_validate_json((tmp_path / "kept" / "ablation.json").read_text()).cells
