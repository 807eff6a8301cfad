"""Runs that survive: killed at any moment, stopped by signals, out of disk, in two processes at once; and what is refused."""

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

import chat_server as chat
import durable_driver as driver
from project import HELPERS, ROOT
from tritonsmith.benchmarks import kill_resume
from tritonsmith.cli.main import run as command
from tritonsmith.evaluator.errors import RunStopped, UsageError
from tritonsmith.graph.run import optimize, resume
from tritonsmith.graph.runs.config import RunConfig
from tritonsmith.graph.runs.run import Run
from tritonsmith.graph.state import Budget
from tritonsmith.graph.storage.folder import RunBusy
from tritonsmith.nodes.authors.scripted import ScriptedAuthor
from tritonsmith.nodes.chat.connect import Models
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


def test_a_run_killed_at_random_moments_ends_the_same(tmp_path):
    """A run that is killed at random moments ends as if it had not been."""
    told = driven(tmp_path, "kills", str(tmp_path), "3", "7")
    all_the_same(told["cases"])


def test_work_since_the_last_checkpoint_is_not_done_again(tmp_path):
    """What was finished after the checkpoint and before the kill is not done again."""
    told = driven(tmp_path, "lines", str(tmp_path), "4,11,22")  # a reply; a verdict; late
    all_the_same(told["cases"])
    assert [case["kills"] for case in told["cases"]] == [[[4, 9]], [[11, 9]], [[22, 9]]]
    assert [case["known"] for case in told["cases"]] == [1, 8, 19], "hardware and facts are lines too"


@pytest.mark.slow
def test_replies_to_a_passed_in_author_are_kept_too(tmp_path):
    """The replies to an author object that was passed in are kept too."""
    all_the_same(driven(tmp_path, "lines", str(tmp_path), "4,10,16,20", AUTHOR="1")["cases"])


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_benchmark_that_kills_real_runs(tmp_path):
    assert kill_resume.main(["--kills", "1", "--out", str(tmp_path / "figures.json")]) == 0
    told = json.loads((tmp_path / "figures.json").read_text())
    assert (told["same"], told["of"], told["repeated_evaluations"]) == (1, 1, 0) and told["whole"]["evaluations"] > 3


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


async def run_to_end(run):
    return [event async for event in run.stream()]


def told_by(out):
    summary = json.loads((Path(out) / "summary.json").read_text())
    return summary["decisions"], summary["winner"], summary["candidates"], summary["stopped_because"]


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
    assert again.summary.winner == whole.winner and told_by(tmp_path / "out") == told_by(tmp_path / "whole")
    lines = [json.loads(line) for line in (tmp_path / "out" / "events.jsonl").read_text().splitlines()]
    assert [line["event"] for line in lines if line["event"] in ("run", "stopped", "end")] == ["run", "stopped", "run", "end"]


def test_optimize_says_how_to_go_on_when_somebody_stops_it(task, players, tmp_path):
    def stop(event):
        if event["event"] == "candidate":
            for run in active_runs():
                run.stop("lunch")

    from tritonsmith.graph.runs.run import active_runs

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


def test_a_finished_run_is_not_run_again(task, players, tmp_path, capsys):
    first = optimize(task, out=str(tmp_path / "out"), **players)
    events, calls = (tmp_path / "out" / "events.jsonl").read_bytes(), list(players["evaluator"].calls)
    assert resume(tmp_path / "out") == first
    run = Run.of(tmp_path / "out")
    assert [event["event"] for event in asyncio.run(run_to_end(run))] == ["end"] and run.summary == first
    assert command(["resume", str(tmp_path / "out")]) == 0 and "Winner block-01" in capsys.readouterr().out
    assert (tmp_path / "out" / "events.jsonl").read_bytes() == events and players["evaluator"].calls == calls


def test_the_same_command_goes_on_with_an_unfinished_run(task, players, tmp_path):
    """The same command goes on with an unfinished run and leaves a finished one alone."""
    out = tmp_path / "out"
    begin(task, players, out)
    with pytest.raises(UsageError, match=r"a run with other settings lies there \(seeds\); name a new folder, or go on with that run: "):
        optimize(task, out=str(out), seeds=1, **players)
    assert optimize(task, out=str(out), **players).winner.id == "block-01"
    before = (out / "summary.json").read_bytes()
    with pytest.raises(UsageError, match="a finished run lies there; name a new folder, or see that one: tritonsmith resume"):
        optimize(task, out=str(out), **players)
    assert (out / "summary.json").read_bytes() == before


def test_two_processes_on_one_run(task, players, tmp_path):
    async def both():
        run = Run(RunConfig(task=str(task), out=str(tmp_path / "out")), **players)
        events = run.stream()
        await anext(events)
        with pytest.raises(RunBusy, match=rf"out: another process works on this run \(pid {os.getpid()} on .*wait for it, or stop it"):
            await run_to_end(Run.of(tmp_path / "out", **players))
        async for _ in events:
            pass
        return run.summary

    assert asyncio.run(both()).winner.id == "block-01"


def begin(task, players, out, at="verdict", **options):
    """A run that was left in the middle."""

    async def leave():
        run = Run(RunConfig(task=str(task), out=str(out), **options), **players)
        events = run.stream()
        async for event in events:
            if event["event"] == at:
                break
        await events.aclose()

    asyncio.run(leave())


@pytest.mark.parametrize("at", ["run", "stage", "verdict", "stop"])
def test_a_run_that_its_reader_leaves_goes_on_later(task, players, tmp_path, at):
    whole = optimize(task, out=str(tmp_path / "whole"), **players)
    begin(task, players, tmp_path / "out", at)
    assert not (tmp_path / "out" / "summary.json").exists()
    assert resume(tmp_path / "out", **players).winner == whole.winner and told_by(tmp_path / "out") == told_by(tmp_path / "whole")


@pytest.mark.parametrize("lost", ["checkpoints.sqlite", "tape.jsonl"])
def test_the_tape_or_the_checkpoints_alone_are_enough_to_go_on(task, players, tmp_path, lost):
    whole = optimize(task, out=str(tmp_path / "whole"), **players)
    begin(task, players, tmp_path / "out")
    for path in (tmp_path / "out").glob(f"{lost}*"):
        path.unlink()
    judged = list(players["evaluator"].calls)
    assert resume(tmp_path / "out", **players).winner == whole.winner and told_by(tmp_path / "out") == told_by(tmp_path / "whole")
    if lost != "tape.jsonl":
        before, after = judged[judged.index(("better", "strict")) + 1 :], players["evaluator"].calls[len(judged) :]
        assert before and not set(before) & set(after), "what the tape has is not judged again"


def test_a_run_without_checkpoints_goes_on_from_its_tape(task, players, tmp_path):
    begin(task, players, tmp_path / "out", checkpoints="none")
    assert not (tmp_path / "out" / "checkpoints.sqlite").exists()
    assert resume(tmp_path / "out", **players).winner.id == "block-01"


def changed(path, **fields):
    manifest = json.loads((path / "run.json").read_text())
    (path / "run.json").write_text(json.dumps({**manifest, **fields}))


def test_what_changed_since_is_refused(task, players, tmp_path, capsys):
    out = tmp_path / "out"
    begin(task, players, out)
    with pytest.raises(UsageError, match=r"from Python with its own evaluator and author; pass the same again: resume\(.*author=\.\.\."):
        resume(out)
    assert command(["resume", str(out)]) == 2 and "pass the same again" in capsys.readouterr().err
    kept = (out / "run.json").read_text()
    changed(out, graph="0123456789abcdef")
    with pytest.raises(UsageError, match=r"another version of the graph \(0123456789abcdef, tritonsmith .*resume it with that version, or"):
        resume(out, **players)
    (out / "run.json").write_text(kept)
    task.write_text(chat.TASK + "# more\n")
    with pytest.raises(UsageError, match="1_relu.py has changed since the run began; put the old text back, or begin a new run"):
        resume(out, **players)
    task.unlink()
    with pytest.raises(UsageError, match="1_relu.py: no such task file"):
        resume(out, **players)
    task.write_text(chat.TASK)
    changed(out, settings={"task": str(task), "seeds": "many"})
    with pytest.raises(UsageError, match=r"run.json: the settings of this run cannot be read \(seeds: "):
        resume(out, **players)
    (out / "run.json").write_text("{half")
    with pytest.raises(UsageError, match="run.json: this is not what a run of this version writes"):
        resume(out, **players)
    (out / "run.json").write_text(kept)
    assert resume(out, **players).winner.id == "block-01", "nothing was lost by any of it"


def test_another_card_is_refused(task, players, tmp_path):
    begin(task, players, tmp_path / "out")
    card = players["evaluator"].hardware
    players["evaluator"].hardware = card.model_copy(update={"key": "a100", "name": "NVIDIA A100", "present": True})
    with pytest.raises(UsageError, match="the run began with estimates for NVIDIA H200 and cannot go on with NVIDIA A100; resume it where"):
        resume(tmp_path / "out", **players)


def test_files_that_were_damaged_are_named(task, players, tmp_path):
    out = tmp_path / "out"
    begin(task, players, out)
    tape, whole = out / "tape.jsonl", (out / "tape.jsonl").read_text()
    with sqlite3.connect(out / "checkpoints.sqlite") as database:
        kept = "\n".join(database.iterdump())
    for path in out.glob("checkpoints.sqlite*"):
        path.unlink()
    (out / "checkpoints.sqlite").write_text("this is not a database, whatever it is called; " * 100)
    with pytest.raises(UsageError, match=r"checkpoints.sqlite: cannot be read \(.*remove it, and the run goes on from what its tape has"):
        resume(out, **players)
    (out / "checkpoints.sqlite").unlink()
    with sqlite3.connect(out / "checkpoints.sqlite") as database:
        database.executescript(kept)
        database.execute("UPDATE checkpoints SET checkpoint = x'0102030405'")
    with pytest.raises(UsageError, match=r"checkpoints.sqlite: cannot be read \(.*remove it, and the run goes on from what its tape has"):
        resume(out, **players)
    for path in out.glob("checkpoints.sqlite*"):
        path.unlink()
    tape.write_text(whole.replace('"kind": "facts"', '"kind": ', 1))
    with pytest.raises(UsageError, match="tape.jsonl: line 3 is not a line of a recording"):
        resume(out, **players)
    tape.write_text(whole)
    events = (out / "events.jsonl").read_text()
    (out / "events.jsonl").write_text(f"not an event\n{events}")
    with pytest.raises(UsageError, match="events.jsonl: line 1 is not an event .*; remove that line, and resume again"):
        resume(out, **players)
    (out / "events.jsonl").write_text(f'{events}{{"time": "cut by a ki')
    tape.write_text(whole + '{"kind": "verdict", "task": "cut by a ki')
    assert resume(out, **players).winner.id == "block-01", "a last line that a kill has cut is dropped"
    assert all(json.loads(line) for line in tape.read_text().splitlines())


def test_a_folder_that_is_removed_under_a_run(task, players, tmp_path):
    async def work():
        run = Run(RunConfig(task=str(task), out=str(tmp_path / "out")), **players)
        async for event in run.stream():
            if event["event"] == "candidate":
                (tmp_path / "out").rename(tmp_path / "elsewhere")

    with pytest.raises(UsageError, match="out: the folder of the run was removed or renamed while it went on"):
        asyncio.run(work())
    assert not (tmp_path / "out").exists(), "nothing of it comes back half"
    assert resume(tmp_path / "elsewhere", **players).winner.id == "block-01"


def test_budgets_and_seconds_go_on(task, players, tmp_path):
    begin(task, players, tmp_path / "out", budget=Budget(candidates=3))
    lines = [json.loads(line) for line in (tmp_path / "out" / "events.jsonl").read_text().splitlines()]
    lines[0]["time"] = "2020-01-01T00:00:00.000+00:00"
    lines[1:] = [{**line, "time": "2020-01-01T00:01:40.000+00:00"} for line in lines[1:]]
    (tmp_path / "out" / "events.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    summary = resume(tmp_path / "out", **players)
    assert len(summary.candidates) == 3 and "budget: 3 of 3 candidates" in summary.stopped_because
    assert 100 <= summary.seconds < 200, "the hundred seconds of the first part are in it"
    begin(task, players, tmp_path / "timed", budget=Budget(seconds=100))
    (tmp_path / "timed" / "events.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert "of 100 seconds are gone" in resume(tmp_path / "timed", **players).stopped_because


def test_a_branch_that_its_author_failed_stays_so(task, tmp_path):
    def players():
        return {"author": ScriptedAuthor(seeds=("good",)), "evaluator": ScriptedEvaluator({"good": scripted_verdict(1.5)})}

    whole = optimize(task, out=str(tmp_path / "whole"), seeds=2, **players())
    begin(task, players(), tmp_path / "out", "fault", seeds=2)
    assert resume(tmp_path / "out", **players()).decisions == whole.decisions
    stuck = [one for one in whole.decisions if one.site == "author"]
    assert len(stuck) == 1 and "no seed for branch 1" in stuck[0].reason


def test_a_recording_goes_on_with_its_run(task, players, tmp_path):
    book = driver.Book(tmp_path / "book")
    tape, judge, model = tmp_path / "tape.jsonl", driver.RuledEvaluator(book), driver.RuledModel(book=book)
    both = {"evaluator": judge, "models": Models(author=model)}
    begin(task, both, tmp_path / "out", record=str(tape), seeds=2)
    with pytest.raises(UsageError, match="from Python with its own model; pass the same again"):
        resume(tmp_path / "out", evaluator=judge)
    kept = tape.read_bytes()
    tape.unlink()
    with pytest.raises(UsageError, match="--record .*tape.jsonl: the recording that this run began is gone; put it back"):
        resume(tmp_path / "out", evaluator=judge, model=model)
    tape.write_bytes(kept)
    summary = resume(tmp_path / "out", evaluator=judge, model=model)
    replayed = optimize(task, out=str(tmp_path / "replayed"), replay=str(tape), seeds=2)
    assert [one.choice for one in replayed.decisions] == [one.choice for one in summary.decisions]
    assert replayed.winner.id == summary.winner.id


def test_a_secret_in_an_address_is_not_kept(task, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-local-test-key")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    judge = ScriptedEvaluator({chat.kernel(1): scripted_verdict(1.5)})
    with chat.ChatServer([chat.answer(1)]) as server:
        address = f"{server.url.replace('//', '//me:pass-word@')}?token=secret-token"
        begin(task, {"evaluator": judge}, tmp_path / "out", "run", seeds=1, policy="no-tune", model="openai:toy", base_url=address)
        kept = (tmp_path / "out" / "run.json").read_text()
        assert "pass-word" not in kept and "secret-token" not in kept and "me:***@" in kept
        with pytest.raises(UsageError, match=r"its secret is not kept with the run; set OPENAI_BASE_URL to the whole address"):
            resume(tmp_path / "out", evaluator=judge)
        monkeypatch.setenv("OPENAI_BASE_URL", address)
        assert Run.of(tmp_path / "out", evaluator=judge).config.base_url == address


def test_a_folder_that_cannot_be_written(task, players, tmp_path):
    begin(task, players, tmp_path / "out")
    for path in (tmp_path / "out").glob("run.lock"):
        path.unlink()
        path.mkdir()  # stands for a folder on a disk that is mounted read-only: even root cannot write it
    with pytest.raises(UsageError, match=r"out: cannot write there \(.*\); a run needs a folder that it may write to"):
        resume(tmp_path / "out", **players)


def test_the_key_is_in_no_file_of_the_run(task, tmp_path, monkeypatch):
    monkeypatch.setenv("MY_KEY", "sk-very-secret-value")
    with chat.ChatServer([chat.answer(1)], key="sk-very-secret-value") as server:
        optimize(
            task, out=str(tmp_path / "out"), seeds=1, policy="no-tune", model="openai:toy", base_url=server.url, key_env="MY_KEY",
            evaluator=ScriptedEvaluator({chat.kernel(1): scripted_verdict(1.5)}),
        )  # fmt: skip
    files = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert "MY_KEY" in (tmp_path / "out" / "run.json").read_text() and len(files) > 8
    assert not [path for path in files if b"very-secret" in path.read_bytes()]
