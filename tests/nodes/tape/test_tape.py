"""Recordings that replay without a model, and runs in which a person answers in files."""

import json
from pathlib import Path

import pytest

import chat_server as chat
from tritonsmith.cli.main import run as command
from tritonsmith.evaluator.errors import UsageError
from tritonsmith.graph.run import optimize, resume
from tritonsmith.nodes.chat.records import Message, Request
from tritonsmith.nodes.evaluators.scripted import ScriptedEvaluator, scripted_verdict
from tritonsmith.nodes.tape.recorder import RunTape, TapeRecorder
from tritonsmith.nodes.tape.tape import load_tape

VERDICTS = {
    chat.kernel(1): scripted_verdict(None, message="it fails"),
    chat.kernel(2): scripted_verdict(0.5, launches=7),
    chat.kernel(3): scripted_verdict(1.5, launches=1),
}
SAID = [chat.answer(1).text, "hm", chat.answer(2).text, chat.analysis(), chat.answer(3).text]
"""A seed that fails, a repair that is asked for twice, an analysis, an optimized kernel."""


@pytest.fixture
def task(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-local-test-key")
    path = tmp_path / "1_relu.py"
    path.write_text(chat.TASK)
    return path


def play(task, name, **options):
    given = {"seeds": 1, "policy": "no-tune", "evaluator": ScriptedEvaluator(VERDICTS), **options}
    return optimize(task, out=str(task.parent / name), **given)


@pytest.fixture
def recorded(task):
    tape = task.parent / "tape.jsonl"
    with chat.ChatServer(SAID) as server:
        summary = play(task, "live", model="openai:toy", base_url=server.url, record=str(tape))
    return summary, tape


def test_a_replay_needs_no_key_network_or_evaluator(task, recorded, monkeypatch):
    """A run replays without key, network or evaluator, and decides the same."""
    live, tape = recorded
    monkeypatch.delenv("OPENAI_API_KEY")
    again = play(task, "again", evaluator=None, replay=str(tape))
    assert again.decisions == live.decisions and again.candidates == live.candidates and again.model == live.model == "openai:toy"
    assert again.usage == live.usage and again.usage_by_stage == live.usage_by_stage and again.winner == live.winner
    assert (Path(again.out) / "usage.csv").read_text() == (Path(live.out) / "usage.csv").read_text()
    assert "sk-local" not in tape.read_text() and "Authorization" not in tape.read_text()


def test_parallel_branches_replay_whatever_order_they_came_in(task):
    def script(body):
        text = body["messages"][0]["content"]
        if "variant 2" in text:
            return chat.answer(3, delay=0.2)
        return chat.Turn(chat.analysis()) if "worth_optimizing" in text else chat.answer(1 if "variant 1" in text else 2)

    tape = task.parent / "tape.jsonl"
    with chat.ChatServer(script) as server:
        live = play(task, "live", model="openai:toy", base_url=server.url, record=str(tape), seeds=2)
    again = play(task, "again", evaluator=None, replay=str(tape), seeds=2)
    assert again.decisions == live.decisions and len({one.branch for one in live.decisions}) == 3 and again.usage == live.usage


def test_failures_of_the_model_are_recorded_too(task):
    tape = task.parent / "tape.jsonl"
    with chat.ChatServer([chat.answer(2), chat.fault(401, "revoked")]) as server:
        live = play(task, "live", model="openai:toy", base_url=server.url, record=str(tape))
    again = play(task, "again", evaluator=None, replay=str(tape))
    assert again.decisions == live.decisions and again.stopped_because == live.stopped_because and "revoked" in live.stopped_because


def replay_fault(task, tape, **options):
    with pytest.raises(UsageError) as caught:
        play(task, "differs", evaluator=None, replay=str(tape), **options)
    return str(caught.value)


def test_a_request_that_differs_is_shown_with_the_place(task, recorded):
    _, tape = recorded
    text = tape.read_text()
    words = json.loads(next(line for line in text.splitlines() if '"kind": "reply"' in line))["messages"][0]["content"]
    word = next(word for word in words.split() if len(word) > 8 and word.isalpha() and words.count(word) == 1)
    # the key of a recorded request is made from its words, so a changed prompt is a request that was never recorded
    tape.write_text(text.replace(word, word.upper()).replace('"key": "', '"key": "other'))
    fault = replay_fault(task, tape)
    assert "request seed0-01-seed-1 differs in line " in fault and word.upper() in fault and word in fault and "\n" not in fault


def test_a_run_that_decides_otherwise_is_noticed(task, recorded):
    """A run that decides otherwise is distinguished from the recorded one."""
    _, tape = recorded
    assert "has no request seed1-01-seed-1, so an earlier decision differs" in replay_fault(task, tape, seeds=2)


def test_another_task_is_not_what_was_recorded(task, recorded):
    _, tape = recorded
    task.write_text(chat.TASK + "# changed\n")
    assert "of another task, size or precision than 1_relu (small)" in replay_fault(task, tape)


def test_a_line_end_within_a_reply_ends_no_line(tmp_path):
    """JSON leaves U+2028 in a text as it is, and Python's splitlines() would cut the line there."""
    reply = {"kind": "reply", "key": "k", "name": "seed0-01-seed", "call": 1, "messages": [], "reply": {"text": "one\u2028two\x85three"}}
    TapeRecorder(tmp_path / "tape.jsonl", model="x").write(reply)
    again = TapeRecorder(tmp_path / "tape.jsonl", model="x", more=True)
    again.write(reply)  # it is there already
    (line,) = load_tape(tmp_path / "tape.jsonl").requests
    assert line == reply


def test_a_run_names_its_own_broken_tape_without_an_option(tmp_path):
    (tmp_path / "tape.jsonl").write_text("{}\n")
    with pytest.raises(UsageError, match=r"^/.*tape.jsonl: this is not a recording; remove the file and go on with the run"):
        RunTape().open(tmp_path / "tape.jsonl", "x")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (None, "cannot be read"),
        ("", "this is not a recording"),
        ('{"kind": "tape", "format": 99}\n', "format 99 is not 1"),
        ('{"kind": "tape", "format": 1}\n{"kind": "reply"}\n', "line 2 is not a line of a recording .no key, name, call, messages"),
        ('{"kind": "tape", "format": 1}\nhalf', "line 2 is not a line of a recording"),
        ('{"kind": "tape", "format": 1, "model": "x"}\n', "the recording has no evaluations"),
    ],
    ids=["missing", "empty", "format", "line", "cut", "no evaluations"],
)
def test_a_recording_that_cannot_be_played_is_named(task, text, fault):
    tape = task.parent / "other.jsonl"
    if text is not None:
        tape.write_text(text)
    with pytest.raises(UsageError, match=f"--replay .*other.jsonl: .*{fault}"):
        play(task, "out", evaluator=None, replay=str(tape))


def test_settings_that_contradict_each_other_are_refused(task, recorded):
    _, tape = recorded
    for options, fault in (
        ({"record": str(tape), "model": "openai:toy"}, "the file is there already"),
        ({"record": "x.jsonl", "replay": str(tape)}, "choose one of them"),
        ({"replay": str(tape), "model": "openai:other"}, "speaks for openai:toy; drop --model"),
        ({"record": "x.jsonl", "model": f"handoff:{task.parent / 'ho'}"}, "drop --record"),
    ):
        with pytest.raises(UsageError, match=fault):
            play(task, "out", **options)


def test_a_person_may_answer_in_files(task):
    """A person answers in files, and the run goes on where it stopped."""
    folder, judged = task.parent / "run" / "ho", ScriptedEvaluator(VERDICTS)  # within the run's folder: why not
    options = {"model": f"handoff:{folder}", "evaluator": judged}
    summary = play(task, "run", **options)
    for number, said in enumerate(SAID):
        assert summary.winner is None and summary.stopped_because.startswith("waiting for ") and len(summary.waits_for) == 1
        (reply,) = map(Path, summary.waits_for)
        request = reply.with_name(reply.name.replace(".reply.", ".request."))
        assert f"Write your whole answer to `{reply.name}`" in request.read_text() and "class Model(nn.Module)" in request.read_text()
        reply.write_text(said)
        summary = resume(summary.out, evaluator=judged) if number % 2 else play(task, "run", **options)
    assert summary.winner.id == "seed0-03" and not summary.waits_for
    assert len(judged.calls) == len(set(judged.calls)) == 4, "no kernel is judged twice, however often the run goes on"
    with chat.ChatServer(SAID) as server:
        live = play(task, "live", model="openai:toy", base_url=server.url)
    assert [(one.site, one.choice) for one in summary.decisions] == [(one.site, one.choice) for one in live.decisions]


def test_every_branch_goes_as_far_as_it_can_before_the_run_waits(task):
    folder = task.parent / "ho"
    summary = play(task, "run", model=f"handoff:{folder}", seeds=2)
    assert [Path(path).name for path in summary.waits_for] == ["seed0-01-seed-1.reply.md", "seed1-01-seed-1.reply.md"]
    (folder / "seed0-01-seed-1.reply.md").write_text(SAID[0])
    summary = resume(summary.out, evaluator=ScriptedEvaluator(VERDICTS))
    assert [Path(path).name for path in summary.waits_for] == ["seed0-02-repair-1.reply.md", "seed1-01-seed-1.reply.md"]


def test_a_run_that_is_over_does_not_wait_for_what_others_asked(task):
    folder = task.parent / "ho"
    folder.mkdir()
    (folder / "of-another-run.request.md").write_text("a question")
    options = {"model": f"handoff:{folder}", "policy": "best-of-n", "evaluator": ScriptedEvaluator(VERDICTS)}
    play(task, "run", **options)
    (folder / "seed0-01-seed-1.reply.md").write_text(SAID[0])  # it does not work
    summary = play(task, "run", **options)
    assert (summary.outcome, summary.waits_for) == ("no_kernel", ()) and summary.stopped_because.startswith("no candidate works")


def test_tuning_and_the_rescue_of_the_best_wait_too(task):
    folder = task.parent / "ho"
    summary = play(task, "tuned", model=f"handoff:{folder / 't'}", policy="no-analysis")
    assert summary.winner is None and [Path(path).name for path in summary.waits_for] == ["seed0-01-seed-1.reply.md"]
    (folder / "t" / "seed0-01-seed-1.reply.md").write_text(SAID[2])
    summary = resume(summary.out, evaluator=ScriptedEvaluator(VERDICTS))
    assert summary.winner is None and [Path(path).name for path in summary.waits_for] == ["tune_grid-seed0-01-1.reply.md"]
    Path(summary.waits_for[0]).write_text(SAID[4])
    summary = resume(summary.out, evaluator=ScriptedEvaluator(VERDICTS))
    assert [Path(path).name for path in summary.waits_for] == ["tune_block-grid-01-1.reply.md"]

    rescued = {"model": f"handoff:{folder / 'r'}", "policy": "rescue-best"}
    play(task, "rescued", **rescued)
    for number in range(3):
        (folder / "r" / f"seed{number}-01-seed-1.reply.md").write_text(SAID[2])
    summary = play(task, "rescued", **rescued)
    assert [Path(path).name for path in summary.waits_for] == ["improve1-analysis-1-1.reply.md"]


def test_a_reply_to_an_earlier_question_is_laid_aside(task):
    folder = task.parent / "ho"
    options = {"model": f"handoff:{folder}"}
    play(task, "run", **options)
    (folder / "seed0-01-seed-1.reply.md").write_text(SAID[0])
    task.write_text(chat.TASK.replace("N = 1024", "N = 4096"))
    summary = play(task, "other", **options)
    assert (folder / "seed0-01-seed-1.stale.md").read_text() == SAID[0]
    assert [Path(path).name for path in summary.waits_for] == ["seed0-01-seed-1.reply.md"]


def test_a_run_of_other_settings_is_not_continued(task):
    """A folder with a run of other settings is not continued."""
    play(task, "run", model=f"handoff:{task.parent / 'ho'}")
    with pytest.raises(UsageError, match=r"a run with other settings lies there \(seeds\)"):
        play(task, "run", model=f"handoff:{task.parent / 'ho'}", seeds=2)


def test_what_cannot_go_on_says_why(tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    assert command(["resume", str(tmp_path / "empty")]) == 2
    assert "no run lies there (it has no run.json)" in capsys.readouterr().err
    assert command(["resume", str(tmp_path / "none")]) == 2
    assert "there is no such folder" in capsys.readouterr().err


def test_the_command_line_replays_and_tells_what_the_model_cost(task, recorded, capsys):
    live, tape = recorded
    code = command(["optimize", str(task), "--replay", str(tape), "--seeds", "1", "--policy", "no-tune", "--out", str(task.parent / "cli")])
    shown = capsys.readouterr().out
    assert code == 0 and f"Winner {live.winner.id}" in shown
    assert f"The model: 5 calls, {live.usage.input_tokens:,} tokens read" in shown and "  repair: 2 calls" in shown
    assert "usage.csv" in shown and "5 without a known price" in shown


def test_a_reply_that_came_after_a_failure_is_played(tmp_path):
    """A run that failed, was left and asked again replays with the answer that it went on with."""
    request = Request(name="seed0-01-seed", stage="seed", role="author", messages=(Message(role="user", content="?"),))
    recorder = TapeRecorder(tmp_path / "tape.jsonl", model="x")
    line = {"kind": "reply", "key": request.key, **request.model_dump(mode="json")}
    recorder.write({**line, "fault": "timeout", "error": "too late"})
    recorder.write({**line, "reply": {"text": "yes"}})
    assert load_tape(tmp_path / "tape.jsonl").reply(request)["reply"] == {"text": "yes"}
