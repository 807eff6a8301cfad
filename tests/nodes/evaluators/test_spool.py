"""Runs whose kernels are judged elsewhere: jobs and results are files, and nothing is asked or judged twice."""

import asyncio
import json
import os
import threading
from pathlib import Path

import pytest

import chat_server as chat
from project import ROOT
from tritonsmith.cli.main import run as command
from tritonsmith.evaluator.cards.cards import named_card
from tritonsmith.evaluator.errors import InfrastructureError, TaskError, UsageError
from tritonsmith.evaluator.schema import TaskFacts
from tritonsmith.graph.run import optimize, resume
from tritonsmith.graph.storage.records import write_record
from tritonsmith.nodes.evaluators.scripted import ScriptedEvaluator, scripted_verdict
from tritonsmith.nodes.evaluators.spool import Spool, WorkerCard, claim, do_job

VERDICTS = {
    chat.kernel(1): scripted_verdict(None, message="it fails"),
    chat.kernel(2): scripted_verdict(0.5, launches=7),
    chat.kernel(3): scripted_verdict(1.5, launches=1),
}
SAID = [chat.answer(1), chat.answer(2), chat.analysis(), chat.answer(3)]


@pytest.fixture
def task(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-local-test-key")
    path = tmp_path / "1_relu.py"
    path.write_text(chat.TASK)
    return path


@pytest.fixture
def spool(tmp_path):
    return Spool(tmp_path / "spool")


def play(task, server, name="run", **options):
    given = {"seeds": 1, "policy": "no-tune", "model": "openai:toy", "base_url": server.url, **options}
    return optimize(task, out=str(task.parent / name), **given)


def work(spool, judge):
    """What a worker does with everything that is there."""
    return [asyncio.run(do_job(spool, name, judge)) for name in spool.open_jobs()]


def test_a_run_that_waited_for_the_card_repeats_nothing(task, spool):
    """A run stops for the card, and goes on without asking or judging twice."""
    judge = ScriptedEvaluator(VERDICTS, facts=TaskFacts(returns="a tensor"))
    with chat.ChatServer(SAID) as server:
        summary = play(task, server, spool=str(spool.root), target="h200")
        rounds = 0
        while summary.winner is None:
            assert summary.stopped_because.startswith("waiting for ") and len(summary.waits_for) == 1 and rounds < 9
            assert len(work(spool, judge)) == 1
            summary, rounds = resume(summary.out), rounds + 1
        assert summary.winner.id == "seed0-03" and rounds == 5, "facts, three kernels, one of them confirmed"
        assert len(server.requests) == len(SAID) and len(judge.calls) == len(set(judge.calls)) == 4
        assert summary.usage.input_tokens == server.told("prompt_tokens")
    with chat.ChatServer(SAID) as server:
        live = play(task, server, "live", evaluator=ScriptedEvaluator(VERDICTS, facts=TaskFacts(returns="a tensor")), target="h200")
    assert [(one.site, one.choice) for one in summary.decisions] == [(one.site, one.choice) for one in live.decisions]


def test_every_branch_hands_in_its_kernel_before_the_run_stops(task, spool):
    judge = ScriptedEvaluator(VERDICTS)
    with chat.ChatServer(lambda body: chat.answer(2 if "variant 2" in body["messages"][0]["content"] else 1)) as server:
        summary = play(task, server, spool=str(spool.root), target="h200", seeds=2)
        work(spool, judge)
        summary = resume(summary.out)
    assert len(summary.waits_for) == len(spool.open_jobs()) == 2


def test_waiting_has_its_own_words_and_exit_code(task, spool, capsys):
    """A run that waits is no failure: screen, page, files and `watch` say what for, and no decision gives up."""
    folder, out = task.parent / "ho", task.parent / "run"
    options = ["--target", "h200", "--seeds", "2", "--policy", "no-tune", "--out", str(out)]
    way_on = f"run tritonsmith worker {spool.root} --once on the machine with the card, then: tritonsmith resume {out}"
    assert command(["optimize", str(task), "--model", f"handoff:{folder}", "--evaluator", f"spool:{spool.root}", *options]) == 3
    assert capsys.readouterr().out.splitlines()[0] == f"WAITING for the facts of the task: {way_on}"
    work(spool, ScriptedEvaluator(VERDICTS))
    assert command(["resume", str(out), "--fail-unless-faster"]) == 3
    shown = capsys.readouterr()
    assert shown.out.splitlines()[0] == f"WAITING for 2 replies: write them to {folder}, then: tritonsmith resume {out}"
    assert "give_up" not in shown.out + shown.err and "no answer" not in shown.out + shown.err
    assert "ends here, waiting for 2 replies" in shown.err
    told = json.loads((out / "summary.json").read_text())
    assert {one["choice"] for one in told["decisions"]} == {"wait"} and told["stopped_because"] == "waiting for 2 replies"
    assert (told["outcome"], told["answer"]) == ("waiting", "WAITING for 2 replies")
    page = (out / "report.html").read_text()
    assert '<div class="answer waiting">\n<h1>WAITING for 2 replies</h1>' in page and "no answer" not in page
    assert f"To go on, write them to {folder}, then: tritonsmith resume {out}" in page
    (folder / "seed0-01-seed-1.reply.md").write_text(chat.kernel(1))
    assert command(["resume", str(out)]) == 3
    assert capsys.readouterr().out.splitlines()[0] == f"WAITING for 1 reply and 1 verdict: write it to {folder}, {way_on}"
    assert command(["watch", str(out)]) == 3
    assert f"The run is waiting for 1 reply and 1 verdict; go on with: tritonsmith resume {out}" in capsys.readouterr().err


def test_a_worker_that_is_seen_at_work_is_waited_for(task, spool):
    judge, over = ScriptedEvaluator(VERDICTS), threading.Event()
    write_record(spool.root / "worker.json", WorkerCard(hardware=named_card("a100").model_copy(update={"present": True})))

    def worker():
        while not over.wait(0.05):
            os.utime(spool.root / "worker.json")
            work(spool, judge)

    thread = threading.Thread(target=worker)
    thread.start()
    try:
        with chat.ChatServer(SAID) as server:
            summary = play(task, server, spool=str(spool.root))
    finally:
        over.set()
        thread.join()
    assert summary.winner.id == "seed0-03" and summary.target == named_card("a100").name and summary.size == "full"


def test_without_a_worker_the_card_has_to_be_named(task, spool):
    with chat.ChatServer(SAID) as server, pytest.raises(UsageError, match="no worker was here yet; run `tritonsmith worker .*--target"):
        play(task, server, spool=str(spool.root))


def test_a_machine_failure_is_tried_again_and_a_task_fault_not(task, spool):
    """A failure of the worker's machinery is tried again, and a fault of the task is not."""
    class Broken(ScriptedEvaluator):
        async def evaluate(self, task, source, profile="quick"):
            raise InfrastructureError("the card is lost")

    class Faulty(ScriptedEvaluator):
        async def describe(self, task):
            raise TaskError(f"{task.path}: get_inputs is missing")

    with chat.ChatServer(SAID) as server:
        summary = play(task, server, spool=str(spool.root), target="h200")
        work(spool, ScriptedEvaluator(VERDICTS))
        summary = resume(summary.out)
        work(spool, Broken({}))
        summary = resume(summary.out)
        assert summary.winner is None and len(summary.waits_for) == 1, "the job is there again"
        work(spool, ScriptedEvaluator(VERDICTS))
        assert len(resume(summary.out).decisions) > len(summary.decisions)
    with chat.ChatServer(SAID) as server:
        task.write_text(chat.TASK + "# other\n")
        play(task, server, "faulty", spool=str(spool.root), target="h200")
        work(spool, Faulty({}))
        with pytest.raises(TaskError, match=rf"{task.name}: get_inputs is missing"):
            resume(task.parent / "faulty")


def test_a_result_that_cannot_be_read_is_named(task, spool):
    with chat.ChatServer(SAID) as server:
        summary = play(task, server, spool=str(spool.root), target="h200")
        Path(summary.waits_for[0]).write_text("{half")
        with pytest.raises(UsageError, match="results/.*: cannot be read .*remove it"):
            resume(summary.out)


def test_a_job_is_done_by_one_worker_and_freed_when_that_dies(spool):
    mine = claim(spool, "job")
    assert mine is not None and claim(spool, "job") is None
    os.utime(mine, (0, 0))
    assert claim(spool, "job") is not None


def test_wrong_names_are_refused(task, capsys):
    assert command(["optimize", str(task), "--evaluator", "slurm"]) == 2
    assert "use local, ray, ray:ADDRESS or spool:DIR" in capsys.readouterr().err
    with pytest.raises(UsageError, match="--record .*kept in its own folders"):
        optimize(task, spool="s", target="h200", record="x.jsonl")


@pytest.mark.slow
def test_the_worker_command_judges_a_real_kernel(tmp_path):
    example = ROOT / "examples" / "recorded_run"
    spool, out, folder = tmp_path / "spool", tmp_path / "run", tmp_path / "ho"
    arguments = ["--model", f"handoff:{folder}", "--evaluator", f"spool:{spool}", "--target", "h200", "--size", "small", "--seeds", "1"]
    assert command(["optimize", str(example / "task.py"), *arguments, "--out", str(out)]) == 3
    assert command(["worker", str(spool), "--once"]) == 0
    assert command(["resume", str(out)]) == 3
    (folder / "seed0-01-seed-1.reply.md").write_text((example / "replies" / "2_repair.md").read_text())
    assert command(["resume", str(out)]) == 3
    assert command(["worker", str(spool), "--once"]) == 0
    assert command(["resume", str(out)]) == 3
    (verdict,) = (out / "verdicts").glob("seed0-01.json")
    assert '"status": "ok"' in verdict.read_text() and "24" in verdict.read_text()
    assert (folder / "seed0-analysis-1-1.request.md").is_file()
