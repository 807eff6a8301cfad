"""Kept answers: what makes two questions the same, two processes with one question, a store that cannot be used, and eviction."""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from tritonsmith.cli.main import run
from tritonsmith.evaluator.caller.sharing.answers import VARIABLE, AnswerStore, KeptEvaluator
from tritonsmith.evaluator.caller.sharing.views import SharedEvaluator
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.protocol import RaceReport
from tritonsmith.evaluator.reads.record import UNKEPT, TaskReads
from tritonsmith.evaluator.records.contest import Alternative, AlternativeTime, Contest, ContestReport, ContestTimes
from tritonsmith.evaluator.records.limits import Counters
from tritonsmith.evaluator.schema import LaunchFacts, Task, TaskFacts, TimingKind
from tritonsmith.nodes.evaluators.scripted import ScriptedEvaluator, scripted_verdict

TASK = Task(name="mine", path="mine.py", source="x")


def kept(store, *, fresh=False, score=1.5, **settings):
    inner = ScriptedEvaluator({"a": scripted_verdict(score), "b": scripted_verdict(0.5)})
    return inner, KeptEvaluator(inner, store, settings, fresh=fresh)


def ask(evaluator, text="a", profile="quick", task=TASK):
    return asyncio.run(evaluator.evaluate(task, KernelText.of(text), profile))


def test_what_a_task_reads_belongs_to_the_question_and_nothing_is_kept_where_nobody_knows(tmp_path, caplog):
    store = AnswerStore(tmp_path / "answers.sqlite")

    def ask_reading(task=TASK, unkept="", **reads):
        inner, evaluator = kept(store)
        inner.facts = TaskFacts(reads=TaskReads(**reads)) if reads else TaskFacts()
        inner.verdicts["a"].environment.update({UNKEPT: unkept} if unkept else {})
        ask(evaluator, task=task)
        return len(inner.calls)

    assert [ask_reading(files={"helper.py": state}) for state in ("one", "one", "two", "one")] == [1, 0, 1, 0]
    assert [ask_reading(packages={"numpy": version}) for version in ("1", "2", "1")] == [1, 1, 0]
    settled = TASK.model_copy(update={"reads": TaskReads(files={"helper.py": "two"})})
    assert ask_reading(settled, files={"helper.py": "not asked again"}) == 0, "a settled task says itself what it reads"
    late = {"files": {"helper.py": "three"}, "unkept": "it read x.txt only while it was judged"}
    for words in ({"unknown": "it uses the network"}, {}, late):
        assert [ask_reading(**words), ask_reading(**words)] == [1, 1], words
    lines = [record.getMessage() for record in caplog.records]
    for why in ("it uses the network", "the evaluator does not say what it reads", "it read x.txt only while it was judged"):
        assert f"mine.py: its verdicts are not kept for other runs: {why}" in lines


def test_one_question_is_measured_once_and_again_when_fresh(tmp_path):
    store = AnswerStore(tmp_path / "answers.sqlite")
    first, evaluator = kept(store)
    assert ask(evaluator).score == 1.5 and "kept" not in ask(evaluator, "b").environment
    second, evaluator = kept(store)
    again = ask(evaluator)
    assert (again.score, second.calls) == (1.5, []) and again.environment["kept"].startswith("20")
    other = TASK.model_copy(update={"overrides": {"N": 2}})
    for question in ({"profile": "strict"}, {"task": other}):
        ask(evaluator, **question)
    assert len(second.calls) == 2, "another profile or size is another question"
    third, evaluator = kept(store, sandbox="off")
    ask(evaluator)
    assert len(third.calls) == 1, "other settings are another question"
    fourth, evaluator = kept(store, fresh=True, score=1.7)
    assert ask(evaluator).score == 1.7 and len(fourth.calls) == 1
    assert ask(kept(store)[1]).score == 1.7, "the fresh answer takes the place of the old one"


SLOW = """
import asyncio, sys
from pathlib import Path
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.schema import Task
from tritonsmith.evaluator.caller.sharing.answers import AnswerStore, KeptEvaluator
from tritonsmith.nodes.evaluators.scripted import ScriptedEvaluator, scripted_verdict

class Slow(ScriptedEvaluator):
    async def evaluate(self, task, kernel, profile="quick"):
        with Path(sys.argv[2]).open("a") as log:
            log.write(f"{kernel.text}\\n")
        await asyncio.sleep(float(sys.argv[3]))
        return await super().evaluate(task, kernel, profile)

inner = Slow({name: scripted_verdict(1.5) for name in "abc"})
evaluator = KeptEvaluator(inner, AnswerStore(Path(sys.argv[1])), {})
async def main():
    task = Task(name="mine", path="mine.py", source="x")
    await asyncio.gather(*(evaluator.evaluate(task, KernelText.of(name)) for name in "abc"))
asyncio.run(main())
"""


def test_two_processes_measure_no_question_twice_and_a_dead_one_holds_none(tmp_path):
    store, log = tmp_path / "answers.sqlite", tmp_path / "log"

    def start(seconds):
        return subprocess.Popen([sys.executable, "-c", SLOW, str(store), str(log), str(seconds)])

    dead = start(600)
    deadline = time.monotonic() + 60
    while not log.is_file() or len(log.read_text().split()) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    dead.kill()
    dead.wait()
    log.unlink()
    both = [start(0.3), start(0.3)]
    assert [process.wait(60) for process in both] == [0, 0] and sorted(log.read_text().split()) == ["a", "b", "c"]


def test_a_store_that_cannot_be_used_costs_no_verdict(tmp_path, caplog):
    broken = tmp_path / "answers.sqlite"
    broken.write_text("this is no database, and longer than the head of one " * 20)
    assert ask(kept(AnswerStore(broken))[1]).score == 1.5 and "the verdict is not kept" in caplog.text
    if os.path.exists("/dev/full"):
        assert ask(kept(AnswerStore(tmp_path / "file" / "answers.sqlite"))[1]).score == 1.5


def test_answers_are_counted_and_evicted(tmp_path, capsys, monkeypatch):
    path = tmp_path / "answers.sqlite"
    monkeypatch.setenv(VARIABLE, str(path))
    _, evaluator = kept(AnswerStore(path))
    ask(evaluator), ask(evaluator, "b"), ask(evaluator, "b", task=TASK.model_copy(update={"name": "other", "source": "y"}))
    assert run(["answers"]) == 0 and "3 answers in" in capsys.readouterr().out

    def evict(*words):
        assert run(["answers", "--json", *words]) == 0
        told = json.loads(capsys.readouterr().out)
        return told["removed"], told["answers"]

    assert evict("--unused-days", "1") == (0, 3)
    assert evict("--task", "other") == (1, 2)
    assert evict("--most-mb", "0.002") == (1, 1) and evict("--all") == (1, 0)
    monkeypatch.setenv(VARIABLE, "off")
    assert run(["answers"]) == 2 and "no answers are kept" in capsys.readouterr().err
    with pytest.raises(Exception, match="remove the file"):
        path.write_text("no database " * 100)
        AnswerStore(path).summarize()


def test_races_and_compiled_code_come_from_the_evaluator_behind(tmp_path):
    """What is kept are verdicts alone; a search behind the store races as it would without one, also where runs share the evaluator."""
    inner, evaluator = kept(AnswerStore(tmp_path / "answers.sqlite"))
    report = RaceReport(incumbent="i", kind=TimingKind.MEASURED, rows=(), seconds=3.0)
    inner.racer = lambda incumbent, entrants, keep: report
    inner.codes, inner.counted = {"a": "c1"}, {"a": Counters(source="ncu")}
    kernel = KernelText.of("a")
    for behind in (evaluator, SharedEvaluator(evaluator).view("run")):
        assert asyncio.run(behind.race(TASK, kernel, [kernel], LaunchFacts(), 3, 1.0)).seconds == 3.0
        assert asyncio.run(behind.read_code(TASK, kernel)) == "c1" and asyncio.run(behind.count(TASK, kernel)).source == "ncu"


def contest(text: str) -> Contest:
    return Contest(inputs=(), alternatives=(Alternative(name="own", text=text),))


def test_times_of_regions_are_kept_and_only_new_ones_are_raced(tmp_path: Path) -> None:
    raced: list[str] = []

    def race(contests: Sequence[Contest]) -> ContestReport:
        raced.extend(one.alternatives[0].text for one in contests)
        times = (AlternativeTime(name="own", us=5.0),)
        return ContestReport(contests=tuple(ContestTimes(times=times if one.alternatives[0].text != "lost" else ()) for one in contests))

    inner = ScriptedEvaluator(verdicts={}, region_racer=race)
    store = AnswerStore(tmp_path / "answers.sqlite")
    asked = [contest("a"), contest("lost"), contest("b")]
    first = asyncio.run(KeptEvaluator(inner, store, {}).race_regions(TASK, asked[:2], 1.0))
    second = asyncio.run(KeptEvaluator(inner, store, {}).race_regions(TASK, asked, 1.0))
    assert raced == ["a", "lost", "lost", "b"] and len(first.contests) == 2
    assert [bool(one.times) for one in second.contests] == [True, False, True] and second.contests[0].find("own").us == 5.0
    asyncio.run(KeptEvaluator(inner, store, {"sandbox": "off"}).race_regions(TASK, asked[:1], 1.0))
    asyncio.run(KeptEvaluator(inner, store, {}, fresh=True).race_regions(TASK, asked[:1], 1.0))
    assert raced[4:] == ["a", "a"]
    store.evict(everything=True)
    asyncio.run(KeptEvaluator(inner, store, {}).race_regions(TASK, asked[:1], 1.0))
    assert raced[6:] == ["a"]
