"""What a user types around the loop with a model and the ends of commands: the line on the screen and the exit code."""

import asyncio
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

import chat_server as chat
from tritonsmith.cli.main import run
from tritonsmith.evaluator.errors import RunStopped, UsageError
from tritonsmith.evaluator.records.limits import Limit
from tritonsmith.evaluator.records.operator_cost import TraceWay
from tritonsmith.evaluator.schema import Allow
from tritonsmith.evaluator.tasks.files import load_task
from tritonsmith.graph.builder import build_graph
from tritonsmith.graph.checkpoints.allowed import RECORDS
from tritonsmith.graph.run import make_context, optimize
from tritonsmith.graph.run import resume as resume_run
from tritonsmith.nodes.authors.scripted import ScriptedAuthor
from tritonsmith.nodes.evaluators.scripted import ScriptedEvaluator, scripted_verdict

SLIP = chat.kernel(1).replace("(torch.nn.Module):", "(torch.nn.Module)")


@pytest.fixture
def task(tmp_path: Path) -> Path:
    path = tmp_path / "1_relu.py"
    path.write_text(chat.TASK)
    return path


def players(score: float = 1.5) -> dict[str, object]:
    """An author that writes one kernel, and the verdict about it."""
    return {"author": ScriptedAuthor(seeds=("text",)), "evaluator": ScriptedEvaluator({"text": scripted_verdict(score)})}


@pytest.mark.parametrize("strict", [False, True], ids=["everything with a warning", "nothing of ours"])
def test_a_plain_checkpointer_reads_states_without_a_word(task: Path, caplog: pytest.LogCaptureFixture, strict: bool) -> None:
    """README: the compiled graph takes any LangGraph checkpointer."""
    saver = InMemorySaver(serde=JsonPlusSerializer(allowed_msgpack_modules=None)) if strict else InMemorySaver()
    thread = {"configurable": {"thread_id": "1"}}
    with make_context(seeds=1, policy="no-tune", **players()) as context, caplog.at_level(logging.WARNING):
        graph = build_graph().compile(checkpointer=saver)
        asyncio.run(graph.ainvoke({"task": load_task(str(task), "small")}, thread, context=context))
        state = graph.get_state(thread).values
    assert not [record for record in caplog.records if "eserializ" in record.getMessage()]
    assert state["allow"] is Allow.HYBRID and type(state["verdicts"]["seed0-01"]).__name__ == "Verdict"


def test_every_class_of_a_state_may_be_read(task: Path) -> None:
    """Wherever it is defined: these are parts of records, in files of their own."""
    assert {Allow, Limit, TraceWay} <= set(RECORDS)


def test_a_closed_context_says_so(task: Path) -> None:
    with make_context(seeds=1, policy="no-tune", **players()) as context:
        graph = build_graph().compile()
    with pytest.raises(UsageError, match="the context is closed; run the graph inside its `with` block"):
        asyncio.run(graph.ainvoke({"task": load_task(str(task), "small")}, context=context))
    with pytest.raises(UsageError, match="the context is closed"), context:
        pass


@pytest.mark.slow
def test_a_slip_and_a_lost_server_on_the_screen(
    task: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slip's line goes to repair, and nothing is said to have answered that did not."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-local-test-key")
    with chat.ChatServer([f"Done.\n```python\n{SLIP}```\n", chat.fault(403, "no credit")]) as server:
        words = ["--model", "openai:toy", "--base-url", server.url, "--seeds", "1", "--policy", "no-tune", "--target", "h200"]
        assert run(["optimize", str(task), *words, "--checkpoints", "none", "--out", str(tmp_path / "out")]) == 1
    shown = capsys.readouterr()
    assert "seed0-01 is invalid_file (quick): line 4: SyntaxError: expected ':'" in shown.err
    assert "openai:toy gave no answer to seed0-02-repair" in shown.err and "answered seed0-02" not in shown.err
    assert "The model: 1 call," in shown.out and "1 failed try." in shown.out and "for 1 candidate of" in shown.out


def test_a_resumed_run_says_which_kernels_are_gone(task: Path, tmp_path: Path) -> None:
    out, given = tmp_path / "out", players()

    def stop(event: dict[str, object]) -> None:
        if event["event"] == "verdict":
            raise RunStopped("as a kill would")

    with pytest.raises(RunStopped):
        optimize(task, out=str(out), seeds=1, policy="no-tune", on_event=stop, **given)
    shutil.rmtree(out / "kernels")
    with pytest.raises(UsageError) as told:
        resume_run(out, **given)
    assert "1 kernel of the run is missing" in str(told.value) and f"or begin anew: tritonsmith optimize {task}" in str(told.value)
    (out / "checkpoints.sqlite").unlink()
    assert resume_run(out, **given).winner is not None


def test_a_finished_run_says_that_its_best_kernel_is_gone(task: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    optimize(task, out=str(out), seeds=1, policy="no-tune", **players())
    (out / "best.py").unlink()
    assert run(["resume", str(out)]) == 0
    assert f"{out / 'best.py'} is missing: its text is in {out / 'kernels'}." in capsys.readouterr().out
    shutil.rmtree(out / "kernels")
    assert run(["resume", str(out)]) == 0
    assert "its text is gone too, so run the task again" in capsys.readouterr().out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_modules_are_loaded_is_one_line(task: Path, number: signal.Signals) -> None:
    """Sent once the command has begun, which a pipe that it holds open tells."""
    read, write = os.pipe()
    told = f"main.run = lambda words: (os.write({write}, b'x'), real(words))[1]"
    heard = "signal.signal(signal.SIGINT, signal.default_int_handler)"  # what runs in the background inherits that it ignores it
    begun = f"import os, signal; {heard}; from tritonsmith.cli import main; real = main.run; {told}; main.main()"
    words = [sys.executable, "-c", begun, "optimize", str(task)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, pass_fds=[write], cwd=task.parent)
    os.close(write)
    assert os.read(read, 1) == b"x"
    os.close(read)
    time.sleep(0.02)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number and out == "" and err.startswith("Interrupted") and err.count("\n") == 1


def test_events_tell_whether_a_model_answered(task: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-local-test-key")
    seen: list[dict[str, object]] = []
    with chat.ChatServer([chat.answer(1), chat.fault(403, "no credit")]) as server:
        optimize(
            task, out=str(tmp_path / "out"), model="openai:toy", base_url=server.url, seeds=2, policy="no-tune", checkpoints="none",
            evaluator=ScriptedEvaluator({chat.kernel(1): scripted_verdict(1.5)}), on_event=seen.append,
        )  # fmt: skip
    assert sorted(event["answered"] for event in seen if event["event"] == "usage") == [False, True]
