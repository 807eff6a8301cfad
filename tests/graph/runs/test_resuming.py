"""Runs that go on later: from what is left of them, with what has changed since, and what is refused."""

import asyncio
import json
import os
import sqlite3

import pytest

import chat_server as chat
import durable_driver as driver
from durable_driver import begin, outcome_of, run_to_end
from tritonsmith.cli.main import run as command
from tritonsmith.evaluator.errors import UsageError
from tritonsmith.graph.run import optimize, resume
from tritonsmith.graph.runs.config import RunConfig
from tritonsmith.graph.runs.run import Run
from tritonsmith.graph.state import Budget
from tritonsmith.graph.storage.folder import RunBusy
from tritonsmith.nodes.authors.scripted import ScriptedAuthor
from tritonsmith.nodes.chat.connect import Models
from tritonsmith.nodes.evaluators.scripted import ScriptedEvaluator, scripted_verdict


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


def test_a_finished_run_is_not_run_again(task, players, tmp_path, capsys):
    first = optimize(task, out=str(tmp_path / "out"), **players)
    events, calls = (tmp_path / "out" / "events.jsonl").read_bytes(), list(players["evaluator"].calls)
    assert resume(tmp_path / "out") == first
    run = Run.of(tmp_path / "out")
    assert [event["event"] for event in asyncio.run(run_to_end(run))] == ["end"] and run.summary == first
    assert command(["resume", str(tmp_path / "out"), "--fail-unless-faster"]) == 0 and "Winner block-01" in capsys.readouterr().out
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


@pytest.mark.parametrize("at", ["run", "stage", "verdict", "stop"])
def test_a_run_that_its_reader_leaves_goes_on_later(task, players, tmp_path, at):
    whole = optimize(task, out=str(tmp_path / "whole"), **players)
    begin(task, players, tmp_path / "out", at)
    assert not (tmp_path / "out" / "summary.json").exists()
    assert resume(tmp_path / "out", **players).winner == whole.winner and outcome_of(tmp_path / "out") == outcome_of(tmp_path / "whole")


@pytest.mark.parametrize("lost", ["checkpoints.sqlite", "tape.jsonl"])
def test_the_tape_or_the_checkpoints_alone_are_enough_to_go_on(task, players, tmp_path, lost):
    whole = optimize(task, out=str(tmp_path / "whole"), **players)
    begin(task, players, tmp_path / "out")
    for path in (tmp_path / "out").glob(f"{lost}*"):
        path.unlink()
    judged = list(players["evaluator"].calls)
    tape = tmp_path / "out" / "tape.jsonl"
    kept = tape.read_text().count('"kind": "verdict"') if tape.exists() else 0
    assert resume(tmp_path / "out", **players).winner == whole.winner and outcome_of(tmp_path / "out") == outcome_of(tmp_path / "whole")
    if lost != "tape.jsonl":
        # A verdict that was asked for as the reader left need not be on the tape.
        start, after = judged.index(("better", "strict")) + 1, players["evaluator"].calls[len(judged) :]
        before = judged[start : start + kept]
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
    assert "of 100 seconds gone" in resume(tmp_path / "timed", **players).stopped_because


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
