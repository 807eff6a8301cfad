"""Nothing is asked twice: what a run reads back is what it wrote, so its next request is the same text, byte for byte."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import chat_server as chat
import unsorted_tasks as tasks
from durable_driver import begin
from project import HELPERS
from tritonsmith.graph.run import optimize, resume
from tritonsmith.graph.runs.fork import fork

SETTINGS = {"seeds": 2, "policy": "no-tune"}
STEPS = ("01-seed", "02-repair", "analysis-1", "03-optimize", "04-repair")
REQUESTS = sorted(f"seed{branch}-{step}-1" for branch in (0, 1) for step in STEPS)
"""Every request of a whole run."""


def asked_in(out):
    """The messages of every request of a run, by name."""
    return {path.stem: json.loads(path.read_text())["messages"] for path in sorted((Path(out) / "llm").glob("*.json"))}


def texts_of(bodies):
    """Bodies of requests as text."""
    return [json.dumps(body) for body in bodies]


def answered_in(out):
    """The messages of every request whose reply a run has kept."""
    lines = map(json.loads, (out / "tape.jsonl").read_text().splitlines())
    return [line["messages"] for line in lines if line["kind"] == "reply"]


def nothing_was_paid_twice(live, known, bodies):
    """No request was sent whose reply was known. What a kill has cut off may be sent again, as the same text."""
    repeated = [body for body in bodies if any(messages_of(body) == messages for messages in known)]
    return repeated == [] and set(texts_of(bodies)) <= live.sent


def messages_of(body):
    return [{"role": message["role"], "content": message["content"]} for message in body["messages"]]


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    """An uninterrupted run with a live model, recorded: its folder, recording, summary, requests, and the server, which goes on."""
    folder = tmp_path_factory.mktemp("asked")
    task, tape = folder / "7_scorer.py", folder / "whole.jsonl"
    task.write_text(tasks.SCORER)
    with pytest.MonkeyPatch.context() as patch, chat.ChatServer(tasks.answer_body) as server:
        patch.setenv("OPENAI_API_KEY", "sk-local-test-key")
        given = {"model": "openai:toy", "base_url": server.url}
        whole = optimize(task, out=str(folder / "whole"), evaluator=tasks.Judge(), record=str(tape), **given, **SETTINGS)
        assert sorted(asked_in(whole.out)) == REQUESTS, "each branch has its analysis and its repairs"
        assert whole.winner.id == "seed0-04" and len(server.requests) == len(REQUESTS)
        sent = set(texts_of(server.requests))
        assert len(sent) == len(REQUESTS)
        yield SimpleNamespace(task=task, folder=folder, tape=tape, given=given, whole=whole, sent=sent, server=server)


def test_a_handoff_uses_every_reply(live, tmp_path):
    """Replies that are written one by one, with a resume between them, are all used, and nothing is laid aside."""
    desk, judge, written = tmp_path / "desk", tasks.Judge(), []
    summary = optimize(live.task, out=str(tmp_path / "run"), model=f"handoff:{desk}", evaluator=judge, **SETTINGS)
    while summary.waits_for:
        reply = Path(summary.waits_for[-1])
        assert not reply.exists() and reply.name not in written, "a question that was answered is asked again"
        written.append(reply.name)
        reply.write_text(tasks.say(reply.with_name(reply.name.replace(".reply.", ".request.")).read_text()))
        summary = resume(summary.out, evaluator=judge)
    assert sorted(written) == [f"{name}.reply.md" for name in REQUESTS] and not list(desk.glob("*.stale.md"))
    assert asked_in(summary.out) == asked_in(live.whole.out) and summary.winner.id == "seed0-04"
    assert judge.described == 1 and len(judge.calls) == len(set(judge.calls))


def test_a_recording_of_ones_own_run_replays(live, tmp_path):
    again = optimize(live.task, out=str(tmp_path / "again"), replay=str(live.tape), **SETTINGS)
    assert again.decisions == live.whole.decisions and asked_in(again.out) == asked_in(live.whole.out)
    assert again.usage == live.whole.usage


@pytest.mark.parametrize("at", ["after_evaluate", "after_detect"])
def test_a_fork_asks_nothing_that_its_parent_has_asked(live, tmp_path, at):
    before, judge = len(live.server.requests), tasks.Judge()
    made = fork(live.whole.out, at=at, policy="no-tune", out=str(tmp_path / "fork"), evaluator=judge)
    assert len(live.server.requests) == before and judge.calls == [] and made.decisions == live.whole.decisions


def test_a_fork_with_other_rules_asks_only_what_is_new(live, tmp_path):
    before = len(live.server.requests)
    made = fork(live.whole.out, at="after_detect", policy="default", out=str(tmp_path / "fork"), evaluator=tasks.Judge())
    new = set(asked_in(made.out)) - set(REQUESTS)
    assert new and all(name.startswith("tune_") for name in new) and len(live.server.requests) == before + len(new)
    assert asked_in(live.whole.out).items() <= asked_in(made.out).items()


@pytest.mark.parametrize(
    ("place", "checkpoints"),
    [(6, "sqlite"), *(pytest.param(*other, marks=pytest.mark.slow) for other in ((1, "sqlite"), (4, "none"), (8, "none")))],
)
def test_a_resumed_run_pays_no_request_twice(live, tmp_path, place, checkpoints):
    """However many replies had come when a run was left, its requests are those of a run that nobody left."""
    out, tape, before = tmp_path / "out", tmp_path / "tape.jsonl", len(live.server.requests)
    options = {**live.given, **SETTINGS, "checkpoints": checkpoints, "record": str(tape)}
    begin(live.task, {"evaluator": tasks.Judge()}, out, "usage", count=place, **options)
    known, left = answered_in(out), len(live.server.requests)
    assert place <= len(known)
    again = resume(out, evaluator=tasks.Judge())
    assert nothing_was_paid_twice(live, known, live.server.requests[left:])
    assert set(texts_of(live.server.requests[before:])) == live.sent and again.decisions == live.whole.decisions
    assert asked_in(out) == asked_in(live.whole.out) and len(answered_in(out)) == len(REQUESTS)
    replayed = optimize(live.task, out=str(tmp_path / "replayed"), replay=str(tape), **SETTINGS)
    assert replayed.decisions == again.decisions


@pytest.mark.slow  # runs that were left and resumed in one process pay nothing twice in every run
@pytest.mark.parametrize("kills", [(11,), (11, 5)], ids=["once", "twice"])
def test_a_killed_run_pays_no_request_twice(live, tmp_path, kills):
    """The same for processes that are killed, the first one after a verdict that no checkpoint has; each has other hashes."""
    out, before, known = tmp_path / "out", len(live.server.requests), []
    for seed, lines in enumerate((*kills, 0)):
        environment = {**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONPATH": str(HELPERS), "OPENAI_API_KEY": "sk-local-test-key"}
        line = [sys.executable, "-m", "unsorted_tasks", str(live.task), str(out), live.server.url, str(lines)]
        left, status = len(live.server.requests), subprocess.run(line, env=environment, check=False).returncode
        assert status == (-signal.SIGKILL if lines else 0)
        assert nothing_was_paid_twice(live, known, live.server.requests[left:])
        known = answered_in(out)
    assert set(texts_of(live.server.requests[before:])) == live.sent and len(known) == len(REQUESTS)
    assert asked_in(out) == asked_in(live.whole.out)
