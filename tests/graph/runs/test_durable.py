"""Runs that survive: killed at any moment, stopped by signals, or out of disk."""

import asyncio
import json
import os
import subprocess
import sys

import pytest

import chat_server as chat
from durable_driver import outcome_of, run_to_end
from project import HELPERS, ROOT
from tritonsmith.benchmarks import kill_resume
from tritonsmith.cli.main import run as command
from tritonsmith.evaluator.errors import RunStopped
from tritonsmith.graph.run import optimize, resume
from tritonsmith.graph.runs.config import RunConfig
from tritonsmith.graph.runs.run import Run
from tritonsmith.nodes.authors.scripted import ScriptedAuthor
from tritonsmith.nodes.evaluators.scripted import ScriptedEvaluator, scripted_verdict

EXAMPLE = ROOT / "examples" / "recorded_run"
DRIVER = HELPERS / "durable_driver.py"


@pytest.fixture
def task(tmp_path):
    path = tmp_path / "1_relu.py"
    path.write_text(chat.TASK)
    return path


@pytest.fixture
def players():
    author = ScriptedAuthor(seeds=("bad", "good"), variants={("tune_block", "good"): ("better",)})
    verdicts = {"bad": scripted_verdict(None, message="it fails"), "good": scripted_verdict(0.6), "better": scripted_verdict(1.5)}
    return {"author": author, "evaluator": ScriptedEvaluator(verdicts)}


def driven(tmp_path, *arguments, inside=(), **environment):
    line = [*inside, sys.executable, str(DRIVER), *arguments]
    done = subprocess.run(line, capture_output=True, text=True, env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["status"] == 0 and told["whole"]["decisions"] > 10 and told["whole"]["lines"] > 20
    return told


def all_the_same(cases):
    """Decisions, winner, candidates and paid tries are those of a run that nobody killed, and nothing was done twice."""
    for case in cases:
        assert case["differs"] == [] and case["repeated"] == 0 and case["twice"] == 1, case
        assert case["status"] == 0 and case["last"] == "end", case
        assert case["starts"][0] is False and all(case["starts"][1:]), case


@pytest.mark.slow
def test_a_run_killed_at_random_moments_ends_the_same(tmp_path):
    """A run that is killed at random moments ends as if it had not been."""
    told = driven(tmp_path, "kills", str(tmp_path), "3", "7")
    all_the_same(told["cases"])


@pytest.mark.slow
@pytest.mark.parametrize(
    "lines", [(11,), (4, 22)], ids=["after a verdict", "after a reply, and late"]
)
def test_work_since_the_last_checkpoint_is_not_done_again(tmp_path, lines):
    """What was finished after the checkpoint and before the kill is not done again."""
    told = driven(tmp_path, "lines", str(tmp_path), ",".join(map(str, lines)))
    all_the_same(told["cases"])
    assert [case["kills"] for case in told["cases"]] == [[[line, 9]] for line in lines]
    assert [case["known"] for case in told["cases"]] == [line - 3 for line in lines], "hardware and facts are lines too"


@pytest.mark.slow
def test_replies_to_a_passed_in_author_are_kept_too(tmp_path):
    """The replies to an author object that was passed in are kept too."""
    all_the_same(driven(tmp_path, "lines", str(tmp_path), "4,10,16,20", AUTHOR="1")["cases"])


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_benchmark_that_kills_real_runs(tmp_path):
    assert kill_resume.main(["--kills", "1", "--out", str(tmp_path / "figures.json")]) == 0
    told = json.loads((tmp_path / "figures.json").read_text())
    assert (told["same"], told["of"], told["repeated_evaluations"]) == (1, 1, 0)
    assert told["whole"]["evaluations"] == 3  # two seeds and the winner's confirmation; variants with equal estimates are not judged


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_run_killed_at_every_line_of_its_tape_ends_the_same(tmp_path):
    """A run that is killed at many moments, and at every line of its tape, ends the same."""
    all_the_same(driven(tmp_path, "kills", str(tmp_path), "40", "11")["cases"])
    (tmp_path / "lines").mkdir()
    all_the_same(driven(tmp_path, "lines", str(tmp_path / "lines"), ",".join(map(str, range(1, 27))))["cases"])


def test_a_full_disk_is_told_and_nothing_is_lost(tmp_path):
    namespace = ("unshare", "--user", "--map-root-user", "--mount")
    small = ("disk", str(tmp_path), "400,700")
    if subprocess.run([*namespace, "true"], capture_output=True).returncode:
        namespace, small = (), ("limit", str(tmp_path), "30,60")  # this machine lets nobody mount: a limit on files stands for it
    told = driven(tmp_path, *small, inside=namespace)
    for case in told["cases"]:
        assert case["said"].startswith("RunError: RUN: no space is left on the disk; what was finished is kept; make space, then go on")
        assert case["said"].endswith("tritonsmith resume RUN") and case["differs"] == [] and case["repeated"] == 0
    assert max(case["known"] for case in told["cases"]) > 2


class Stopping(ScriptedEvaluator):
    """Asks the run to stop while it judges a text, and notes what is judged after that."""

    run = None
    at = "good"

    async def evaluate(self, task, source, profile="quick"):
        if source.text == self.at and self.run is not None:
            self.run.stop("enough")
            await asyncio.sleep(0.05)  # the other branch comes to its next step meanwhile
        return await super().evaluate(task, source, profile)


@pytest.mark.parametrize("at", ["bad", "good", "better"])
def test_a_stopped_run_finishes_its_step_and_goes_on_later(task, players, tmp_path, at):
    """A run that is asked to stop finishes what it does, and goes on later."""
    whole = optimize(task, out=str(tmp_path / "whole"), **players)
    judge = Stopping(players["evaluator"].verdicts)
    judge.at = at
    config = RunConfig(task=str(task), out=str(tmp_path / "out"))
    run = judge.run = Run(config, author=players["author"], evaluator=judge)
    events = asyncio.run(run_to_end(run))
    assert (events[-1]["event"], events[-1]["reason"]) == ("stopped", "enough") and run.stopped == "enough" and run.summary is None
    judged, judge.run = list(judge.calls), None
    again = run if at == "bad" else Run.of(tmp_path / "out", author=players["author"], evaluator=judge)
    events = asyncio.run(run_to_end(again))
    assert (events[0]["event"], events[0]["resumed"], events[-1]["event"]) == ("run", True, "end")
    assert (at, "quick") in judged and len(judge.calls) == len(set(judge.calls)), "nothing is judged twice"
    assert again.summary.winner == whole.winner and outcome_of(tmp_path / "out") == outcome_of(tmp_path / "whole")
    lines = [json.loads(line) for line in (tmp_path / "out" / "events.jsonl").read_text().splitlines()]
    assert [line["event"] for line in lines if line["event"] in ("run", "stopped", "end")] == ["run", "stopped", "run", "end"]


def test_optimize_says_how_to_go_on_when_somebody_stops_it(task, players, tmp_path):
    def stop(event):
        if event["event"] == "candidate":
            for run in active_runs():
                run.stop("lunch")

    from tritonsmith.graph.runs.active import active_runs

    with pytest.raises(RunStopped, match=r"Stopped at a safe point \(lunch\). Go on with: tritonsmith resume .*out"):
        optimize(task, out=str(tmp_path / "out"), on_event=stop, **players)
    assert not active_runs() and resume(tmp_path / "out", **players).winner.id == "block-01"


SIGNALS = """
import os, signal
from pathlib import Path
from tritonsmith.graph.policies.load import load_policy

class Interrupting(type(load_policy("no-tune"))):
    def after_evaluate(self, view):
        left = Path(__file__).with_name("signals")
        for number in left.read_text().split():
            left.write_text("")
            os.kill(os.getpid(), int(number))
        return super().after_evaluate(view)
"""


@pytest.mark.parametrize(
    ("signals", "code", "says"),
    [("2", 130, "Stopped at a safe point (SIGINT)"), ("15", 143, "Stopped at a safe point (SIGTERM)"),
     ("2 2", 130, "Interrupted; what was finished is kept"), ("15 15", 143, "Interrupted; what was finished is kept")],
    ids=["SIGINT", "SIGTERM", "SIGINT twice", "SIGTERM twice"],
)  # fmt: skip
def test_signals_stop_the_command_and_it_goes_on_later(tmp_path, capfd, signals, code, says):
    (tmp_path / "policy.py").write_text(SIGNALS)
    (tmp_path / "signals").write_text(signals)
    out = tmp_path / "out"
    settings = ["--seeds", "1", "--size", "small", "--target", "h200", "--policy", f"{tmp_path / 'policy.py'}:Interrupting"]
    given = [str(EXAMPLE / "task.py"), "--replay", str(EXAMPLE / "run.jsonl"), *settings, "--out", str(out)]
    assert command(["optimize", *given]) == code
    told = capfd.readouterr().err
    assert told.count("Stops at the next safe point") == 1 and "A second signal stops at once." in told
    assert says in told and f"tritonsmith resume {out}" in told and "Traceback" not in told
    assert command(["resume", str(out), "--json"]) == 0
    decisions = json.loads(capfd.readouterr().out)["decisions"]
    recorded = json.loads((EXAMPLE / "decisions.json").read_text())
    assert [(one["site"], one["choice"]) for one in decisions] == [(one["site"], one["choice"]) for one in recorded]
