"""Suites of tasks, with an author and an evaluator that answer from tables: rows, failures, kills, stops and turns."""

import asyncio
import json
import os
import subprocess
import sys

import pytest

import ablation_driver
from project import HELPERS
from suites import driver
from tritonsmith.cli.main import run
from tritonsmith.cli.report.write import write_report
from tritonsmith.evaluator.caller.sharing.turns import PATIENCE, FairTurns
from tritonsmith.evaluator.errors import RunStopped, UsageError
from tritonsmith.graph.runs.active import active_runs
from tritonsmith.graph.suites.folder import SUITE, begin_suite
from tritonsmith.graph.suites.records import RowState
from tritonsmith.graph.suites.run import optimize_suite, plan_suite
from tritonsmith.graph.suites.tasks import find_tasks

NAMES = ("fast", "other", "slow")


@pytest.fixture
def tasks(tmp_path):
    folder = tmp_path / "tasks"
    folder.mkdir()
    for name in NAMES:
        (folder / f"{name}.py").write_text(ablation_driver.TASK)
    return folder


def test_a_task_that_fails_does_not_stop_the_others(tasks, tmp_path):
    (tasks / "broken.py").write_text("def get_inputs(:\n")
    out, log = tmp_path / "out", tmp_path / "log"

    def author(task):
        if task.key == "other":
            raise ZeroDivisionError("a fault of the author's")
        return driver.author_of(task)

    told = []
    judge = ablation_driver.Judge(log)
    results = optimize_suite(driver.plan_of(tasks), out, evaluator=judge, author=author, on_row=lambda row: told.append(row.task))
    rows = {row.task: row for row in results.rows}
    assert sorted(told) == sorted(rows) == ["broken", *NAMES] and judge.most == 1
    assert (rows["fast"].outcome, rows["fast"].score, rows["slow"].outcome) == ("faster", 1.8, "kept")
    assert rows["other"].reason == "ZeroDivisionError: a fault of the author's"
    assert rows["broken"].state is rows["other"].state is RowState.FAILED and "broken.py: line 1" in rows["broken"].reason.replace(",", ":")
    assert results.faster == 1 and results.mean == pytest.approx((1.8 * 1.0) ** 0.5)

    before = log.read_text()
    again = optimize_suite(driver.plan_of(tasks), out, evaluator=ablation_driver.Judge(log), author=driver.author_of)
    assert {row.task: row.state.value for row in again.rows} == {"broken": "failed", "fast": "done", "other": "done", "slow": "done"}
    assert {line.split()[0] for line in log.read_text().removeprefix(before).splitlines()} == {"other"}, "finished tasks are left alone"
    write_report(out)
    assert "2 of 4 tasks FASTER" in (out / "report.html").read_text() and (out / "report.md").is_file()
    with pytest.raises(UsageError, match="another suite lies there .it differs in settings"):
        optimize_suite(driver.plan_of(tasks, seeds=3), out, evaluator=judge, author=author)


def test_a_kill_repeats_no_verdict(tasks, tmp_path):
    out, log = tmp_path / "out", tmp_path / "log"
    words = [sys.executable, str(HELPERS / "suites" / "driver.py"), *map(str, (tasks, out, log, 0.0, 6))]
    assert subprocess.run(words, timeout=120, env={**os.environ, "PYTHONPATH": str(HELPERS)}).returncode == -9
    given, kept = log.read_text().splitlines(), list(out.glob("tasks/*/verdicts/*.json"))
    assert 0 <= len(given) - len(kept) <= 1, "the kill can fall between the answer to one other task and its file"
    plan = driver.plan_of(tasks, checkpoints="sqlite")
    results = optimize_suite(plan, out, evaluator=ablation_driver.Judge(log), author=driver.author_of)
    asked = log.read_text().splitlines()
    assert len(asked) - len(set(asked)) <= len(given) - len(kept), "no verdict that was kept is asked for again"
    assert {row.score for row in results.rows} == {1.8, 0.6}


def test_a_stop_ends_every_run_and_the_suite_goes_on(tasks, tmp_path):
    out, log = tmp_path / "out", tmp_path / "log"

    def stop(task, event):
        if event["event"] == "verdict":
            for active in active_runs():
                active.stop("SIGINT")

    with pytest.raises(RunStopped, match="tritonsmith resume"):
        optimize_suite(driver.plan_of(tasks), out, evaluator=ablation_driver.Judge(log), author=driver.author_of, on_event=stop)
    results = optimize_suite(driver.plan_of(tasks), out, evaluator=ablation_driver.Judge(log), author=driver.author_of)
    asked = log.read_text().splitlines()
    assert all(row.state is RowState.DONE for row in results.rows) and len(asked) == len(set(asked))


def test_the_command_takes_folders_patterns_and_lists(tasks, tmp_path, capsys):
    for file in tasks.iterdir():
        file.write_text("x = 1\n")  # no tasks: every row fails, and nothing is started
    out = tmp_path / "out"
    assert run(["optimize", str(tasks), str(tasks / "f*.py"), "--out", str(out), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert [(row["task"], row["state"]) for row in told["rows"]] == [(name, "failed") for name in NAMES]
    assert run(["resume", str(out)]) == 1 and "0 of 3 tasks FASTER, 3 failed" in capsys.readouterr().out
    assert run(["optimize", str(tasks / "none*.py")]) == 2 and "no Python file matches" in capsys.readouterr().err
    assert [task.key for task in find_tasks(["39,40", "39"])] == ["39_gru", "40_gru_hidden"]
    with pytest.raises(UsageError, match="--record tape.jsonl: a recording holds one run"):
        plan_suite(["39", "40"], settings={"record": "tape.jsonl"})


def test_an_entry_has_its_own_precision_and_mode(tasks, tmp_path):
    suite = tmp_path / "list.toml"
    entries = ('precision = "tf32"', 'precision = "split"', 'precision = "split"', 'mode = "train"', "")
    suite.write_text("".join(f'[[tasks]]\ntask = "tasks/fast.py"\n{entry}\n' for entry in entries))
    plan = plan_suite([str(suite)], size="small", precision="tf32", settings={"checkpoints": "none"})
    assert [(task.key, task.precision, task.mode) for task in plan.tasks] == [
        ("fast", "tf32", None), ("fast-2", "split", None), ("fast-3", None, "train"),
    ], "what would be the same run is there once"  # fmt: skip
    results = optimize_suite(plan, tmp_path / "out", evaluator=ablation_driver.Judge(tmp_path / "log"), author=driver.author_of)
    assert [row.state for row in results.rows] == [RowState.DONE] * 3
    summaries = [json.loads((tmp_path / "out" / "tasks" / task.key / "summary.json").read_text()) for task in plan.tasks]
    assert [(one["precision"], one["mode"]) for one in summaries] == [("tf32", "eval"), ("split", "eval"), ("tf32", "train")]
    assert optimize_suite(plan, tmp_path / "out", evaluator=ablation_driver.Judge(tmp_path / "none")).rows == results.rows
    suite.write_text(suite.read_text().replace("split", "ieee"))
    with pytest.raises(UsageError, match="another suite lies there .it differs in tasks"):
        optimize_suite(plan_suite([str(suite)], size="small", precision="tf32", settings={"checkpoints": "none"}), tmp_path / "out")


def test_a_plan_from_before_entries_had_a_precision_is_the_same(tasks, tmp_path):
    plan = driver.plan_of(tasks)
    stored = plan.model_dump(mode="json")
    for task in stored["tasks"]:
        del task["precision"], task["mode"]
    (tmp_path / SUITE).write_text(json.dumps(stored))
    assert begin_suite(plan, tmp_path) == plan


def test_what_names_no_task_is_said_of_the_argument(tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    (tmp_path / "list.toml").write_text("[[tasks]]\nsize = 1\n")
    (tmp_path / "class.toml").write_text('[[tasks]]\ntask = 39\nprecision = "fp8"\n')
    said = {
        ",": "TASK is empty; name a folder", "none*.py": "TASK none*.py: no Python file matches",
        str(tmp_path / "empty"): "has no task files",
        "no.toml": "TASK no.toml: there is no such file", str(tmp_path / "list.toml"): "may have name, size, set, precision, mode",
        str(tmp_path / "class.toml"): "class.toml: tasks.0.precision: Input should be 'ieee', 'split', 'tf32' or '16-bit'; an entry is",
        "99,39": "TASK 99,39: no task that comes along has number 99",
    }  # fmt: skip
    for word, sentence in said.items():
        assert run(["optimize", word]) == 2
        fault = capsys.readouterr().err
        assert sentence in fault and "TASK" in fault and "SUITE" not in fault, word


def test_turns_go_round():
    async def play():
        shared, order = FairTurns(1), []

        async def ask(owner):
            async with shared.turn(owner):
                order.append(owner)
                await asyncio.sleep(0)

        asked = [asyncio.ensure_future(ask(owner)) for owner in "aaaabc"]
        await asyncio.sleep(0)
        asked[2].cancel()
        await asyncio.gather(*asked, return_exceptions=True)
        return "".join(order)

    assert asyncio.run(play()) == "abcaa"


def test_newcomers_do_not_overtake_who_waits_since_earlier():
    async def play():
        shared, order = FairTurns(1), []

        async def ask(owner):
            async with shared.turn(owner):
                order.append(owner)
                await asyncio.sleep(0)

        await ask("old")
        asked = [asyncio.ensure_future(ask("a")), asyncio.ensure_future(ask("old"))]
        for newcomer in "bcd":
            await asyncio.sleep(0)
            asked.append(asyncio.ensure_future(ask(newcomer)))
        await asyncio.gather(*asked)
        return order

    assert asyncio.run(play()).index("old", 1) <= 2


def play_turns(questions, cards, places, *, patience=PATIENCE, leave=True):
    """The tasks that each card judges, in their order: each task asks its questions at once, and one more a moment after the last."""

    async def play():
        shared, order = FairTurns(places, cards, patience), [[] for _ in range(cards)]

        async def ask(name):
            async with shared.turn(name, name) as card:
                order[card].append(name)
                await asyncio.sleep(0.001)

        async def run(name, count):
            await asyncio.gather(*[ask(name) for _ in range(count - 1)])
            await asyncio.sleep(0.001)
            await ask(name)
            if leave:
                shared.leave(name)

        await asyncio.gather(*[run(name, count) for name, count in questions.items()])
        return sorted("".join(names) for names in order)

    return asyncio.run(play())


def test_a_card_goes_on_with_a_task_but_not_for_ever():
    assert play_turns({"a": 7, "b": 7}, 1, 2) == ["aaaaaaabbbbbbb"], "it waits for the question that follows the others"
    assert play_turns({"a": 20, "b": 3}, 1, 1) == ["a" * 16 + "bbb" + "aaaa"]
    assert play_turns({"a": 3, "b": 3, "c": 3, "d": 3}, 2, 2) == ["aaaccc", "bbbddd"], "no reference is made ready twice"
    first, second = play_turns({"a": 20}, 2, 4)
    assert len(first) + len(second) == 20 and min(len(first), len(second)) >= 8, "an idle card helps with a task of many questions"
    assert play_turns({"a": 3, "b": 3}, 1, 1, patience=0.5, leave=False) == ["aaabbb"]
    assert play_turns({"a": 3, "b": 3}, 1, 1, patience=0.0) == ["aabbab"], "where nothing is made ready, nobody waits"
    assert play_turns({"a": 3, "b": 3}, 1, 1, patience=1e-6) == ["aabbab"], "a task that takes its time is not waited for"


@pytest.mark.slow
def test_a_full_disk_loses_nothing(tasks, tmp_path):
    """A limit on the size of files stands for the full disk, in the middle of every run."""
    out, log = tmp_path / "out", tmp_path / "log"
    words = [sys.executable, str(HELPERS / "suites" / "driver.py"), *map(str, (tasks, out, log, 0.0, 0))]

    def play(kilobytes):
        environment = {**os.environ, "PYTHONPATH": str(HELPERS), "FILE_KILOBYTES": str(kilobytes), "CHECKPOINTS": "none"}
        return subprocess.run(words, timeout=120, env=environment, capture_output=True, text=True)

    assert "3 failed" in play(8).stdout
    reasons = [path.read_text() for path in out.glob("tasks/*.failed.json")]
    before = log.read_text().splitlines()
    assert len(before) >= 6 and all("no space is left on the disk; what was finished is kept" in reason for reason in reasons)
    assert "2 of 3 tasks FASTER" in play(0).stdout
    asked = log.read_text().splitlines()
    assert len(asked) == 11, "every verdict of the three tasks; the slow one has none by the strict profile"
    assert len(asked) - len(set(asked)) <= 3, "only a verdict whose own line found no room is asked for again"
