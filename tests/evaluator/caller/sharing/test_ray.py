"""A local Ray cluster on processors: killed supervisors, a cancelled question, two drivers, and the real evaluator under an actor."""

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from cards import ray_races, ray_stub
from project import HELPERS, ROOT
from search_card import KERNEL, TASK, Card, judge_with
from tritonsmith.evaluator.caller.sharing.answers import AnswerStore, KeptEvaluator
from tritonsmith.evaluator.caller.sharing.ray_cards import open_ray
from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.schema import TimingKind
from tritonsmith.evaluator.tasks.files import load_task
from tritonsmith.graph.run import optimize
from tritonsmith.nodes.authors.scripted import ScriptedAuthor

ray = pytest.importorskip("ray", reason="the extra [ray] is not installed")


@pytest.fixture(scope="module")
def cluster():
    started = ray.init(num_cpus=4, include_dashboard=False, namespace="tritonsmith", log_to_driver=False, logging_level="error")
    yield started.address_info["address"]
    ray.shutdown()


def kill_often(evaluator, times, pause, done):
    """Kill random supervisors, so many times in all."""
    left = times
    while left and not done.is_set():
        time.sleep(pause * random.random() * 2)
        try:
            os.kill(random.choice(evaluator._supervisors).pid, signal.SIGKILL)
            left -= 1
        except ProcessLookupError:
            continue
    return times - left


@pytest.mark.slow  # the next test kills one supervisor
@pytest.mark.parametrize(("kills", "count"), [(2, 12), (10, 120)])
def test_killed_supervisors_lose_no_verdict_and_none_is_asked_for_again(cluster, tmp_path, kills, count):
    log, done, killed = tmp_path / "log", threading.Event(), []

    async def play():
        evaluator = ray_stub.open_stubs("", log)
        killer = threading.Thread(target=lambda: killed.append(kill_often(evaluator, kills, 0.3, done)))
        kept = KeptEvaluator(evaluator, AnswerStore(tmp_path / "answers.sqlite"), {})
        killer.start()
        try:
            scores = await ray_stub.ask_all(kept, count)
        finally:
            done.set()
            killer.join()
        begun = log.read_text().split()
        again = await ray_stub.ask_all(kept, count)
        await evaluator.aclose()
        return scores, again, begun

    scores, again, begun = asyncio.run(play())
    assert scores == again == [1.0 + number for number in range(count)], "nothing is lost, and nothing is mixed up"
    assert log.read_text().split() == begun, "what was answered is not asked for again"
    assert killed[0] >= 1 and len(begun) <= count + killed[0], "only what a kill cut off was begun again"


def test_a_cancelled_question_ends_its_supervisor_and_the_next_is_answered(cluster, tmp_path):
    log = tmp_path / "log"

    async def play():
        evaluator = ray_stub.open_stubs("", log)
        pids = {card.pid for card in evaluator._supervisors}
        hanging = asyncio.ensure_future(evaluator.evaluate(ray_stub.TASK, KernelText.of("hang")))
        while not log.is_file():
            await asyncio.sleep(0.05)
        hanging.cancel()
        with pytest.raises(asyncio.CancelledError):
            await hanging
        deadline = time.monotonic() + 30
        while all(Path(f"/proc/{pid}").exists() for pid in pids):
            assert time.monotonic() < deadline, "the supervisor outlives the question"
            await asyncio.sleep(0.05)
        scores = await ray_stub.ask_all(evaluator, 4)
        await evaluator.aclose()
        return scores

    assert asyncio.run(play()) == [1.0, 2.0, 3.0, 4.0] and log.read_text().split().count("hang") == 1


@pytest.mark.slow
def test_two_drivers_share_supervisors_and_ask_nothing_twice(cluster, tmp_path):
    log, script = tmp_path / "log", HELPERS / "cards" / "ray_stub.py"
    words = [sys.executable, script, cluster, log, tmp_path / "answers.sqlite", "10"]
    both = [subprocess.Popen(list(map(str, words)), stdout=subprocess.PIPE, text=True) for _ in range(2)]
    told = {process.communicate(timeout=200)[0] for process in both}
    assert len(told) == 1 and sorted(map(int, log.read_text().split())) == list(range(10))


@pytest.mark.slow
def test_searches_race_on_a_cluster_as_on_a_card_here(cluster, tmp_path):
    given = {"author": ScriptedAuthor(seeds=(KERNEL,)), "seeds": 1, "checkpoints": "none"}
    here = optimize(TASK, evaluator=judge_with(Card(2)), out=str(tmp_path / "here"), **given)
    evaluator = ray_races.open_racing(tmp_path / "log")
    there = optimize(TASK, evaluator=evaluator, out=str(tmp_path / "there"), **given)
    asked = ray_stub.TASK, KernelText.of("abc")
    counted, code = asyncio.run(evaluator.count(*asked)), asyncio.run(evaluator.read_code(*asked))
    asyncio.run(evaluator.aclose())
    assert (counted.reason, code) == ("of 3 characters", "digest of 3 characters")
    assert there.searches == here.searches and {search.kind for search in there.searches} == {TimingKind.MEASURED}


def test_a_cluster_that_is_not_there_is_one_sentence():
    with pytest.raises(UsageError, match="no cluster answers there"):
        ray.shutdown()
        open_ray("127.0.0.1:1", "h200", None, "auto", "beside")


@pytest.mark.slow
def test_the_real_evaluator_judges_under_an_actor_and_its_children_die_with_it(tmp_path):
    task = load_task(ROOT / "benchmarks" / "tasks" / "26_gelu_scale_bias.py", "small")
    kernel = KernelText.of((ROOT / "benchmarks" / "hacks" / "cases" / "W01_zeros.py").read_text())

    async def play():
        evaluator = open_ray("", "h200", tmp_path, "auto", "beside", 1)
        pid = evaluator._supervisors[0].pid
        judged = asyncio.ensure_future(evaluator.evaluate(task, kernel))
        await asyncio.sleep(0.5)
        children = children_of(pid)
        assert children and not judged.done(), "the oracle is at work"
        os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + 30
        while any(is_alive(child) for child in children):
            assert time.monotonic() < deadline, "processes outlive their supervisor"
            await asyncio.sleep(0.1)
        verdict = await judged
        await evaluator.aclose()
        return verdict

    verdict = asyncio.run(play())
    assert verdict.environment["target"] == "h200" and verdict.environment["node"] == os.uname().nodename


def children_of(pid):
    """The evaluator's processes below a supervisor; the janitor, which outlives it on purpose, is not one of them."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if int((folder / "stat").read_text().rpartition(")")[2].split()[1]) == pid and "lifeline" in (folder / "cmdline").read_text():
                found.add(folder.name)
    return found


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] != "Z"
    except OSError:
        return False
