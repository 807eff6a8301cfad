"""The graph that the server loads, invoked in this process with settings as plain values: no call blocks the event loop, whoever plays."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from blockbuster import BlockBuster, blockbuster_ctx
from langgraph.checkpoint.memory import InMemorySaver

import chat_server as chat
from project import ROOT
from tritonsmith.cli.main import run as command
from tritonsmith.cli.screen.picture import read_events
from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.protocol import Evaluator
from tritonsmith.evaluator.tasks.files import load_task
from tritonsmith.graph import app
from tritonsmith.graph.builder import build_graph
from tritonsmith.graph.server import serve
from tritonsmith.graph.server.settings import RunForm, ServedError, TaskInput
from tritonsmith.nodes.evaluators.spool import Spool, do_job
from tritonsmith.nodes.evaluators.tape import TapeEvaluator
from tritonsmith.nodes.tape.tape import load_tape

EXAMPLE = ROOT / "examples" / "recorded_run"
TASK, TAPE = str(EXAMPLE / "task.py"), str(EXAMPLE / "run.jsonl")
SMALL = {"task": TASK, "size": "small"}
REPLIES = [path.read_text(encoding="utf-8") for path in sorted((EXAMPLE / "replies").glob("*.md"))]
WAY = ["repair", "rescue", "optimize", "check", "kept", "detect", "skip", "accept"]



def judge() -> Evaluator:
    """The evaluator of the recording: it knows what the example's kernels are worth."""
    return TapeEvaluator(load_tape(TAPE))


@pytest.fixture(autouse=True)
def judged_by_the_recording(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(serve, "open_evaluator", lambda *args, **kwargs: judge())
    serve._evaluator.cache_clear()
    serve._open_run.cache_clear()
    yield
    serve._evaluator.cache_clear()
    serve._open_run.cache_clear()


def ask(tmp_path: Path, given: dict[str, Any], thread: str = "t", **context: Any) -> dict[str, Any]:
    """One run as the server makes it; a call that blocks the event loop raises BlockingError."""

    async def run() -> dict[str, Any]:
        detector: BlockBuster
        with blockbuster_ctx() as detector:
            assert detector.functions
            settings = {"seeds": 1, "policy": "no-tune", "target": "h200", "out": str(tmp_path / "out"), **context}
            return await app.graph.ainvoke(given, {"configurable": {"thread_id": thread}}, context=settings)

    return asyncio.run(run())


def choices(result: dict[str, Any]) -> list[str]:
    return [decision.choice for decision in result["decisions"].values()]


def test_a_recording(tmp_path: Path) -> None:
    result = ask(tmp_path, SMALL, replay=TAPE)
    assert choices(result) == WAY and result["winner"] == "seed0-03"
    words = "3.04x ESTIMATE: AMBIGUOUS against eager (speed not known; label kernel, ieee)"
    assert result["result"] == f"{words}; search said 3.04x, confirmed 3.04x"


def test_a_served_run_leaves_a_folder_like_every_run(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    result = ask(tmp_path, SMALL, replay=TAPE)
    (folder,) = (tmp_path / "out" / "t").iterdir()
    events = list(read_events(folder / "events.jsonl"))
    kinds = [event["event"] for event in events]
    assert kinds[:2] == ["run", "stage"] and kinds[-2:] == ["stop", "end"] and kinds.count("verdict") == 4
    times = [event["time"] for event in events]
    assert times == sorted(times)
    assert [event["id"] for event in events if event["event"] == "decision"] == list(result["decisions"])
    assert (folder / "best.py").read_text(encoding="utf-8").startswith("# task (small size, ieee), written by tritonsmith")
    assert command(["watch", "--json", str(folder)]) == 0
    shown = capfd.readouterr()
    assert json.loads(shown.out)["winner"]["id"] == "seed0-03" and "begins task (small), policy no-tune" in shown.err
    assert command(["graph", "--run", str(folder)]) == 0
    assert "classDef taken" in capfd.readouterr().out


def test_a_task_record_as_scripts_give_it(tmp_path: Path) -> None:
    task = load_task(TASK, "small")
    assert choices(ask(tmp_path, {"task": task}, "one", replay=TAPE)) == WAY
    assert choices(ask(tmp_path, {"task": task.model_dump(mode="json")}, "two", replay=TAPE)) == WAY


def test_a_model_at_an_address_with_a_memory(tmp_path: Path) -> None:
    with chat.ChatServer(REPLIES, key=None, models=("toy",)) as server:
        result = ask(tmp_path, SMALL, model="openai:toy", base_url=server.url, memory=str(tmp_path / "memory"))
    assert choices(result) == WAY and len(server.requests) == 4
    folder = next((tmp_path / "out" / "t").iterdir())
    assert len(list((folder / "llm").glob("*.json"))) == 4 and (folder / "usage.csv").is_file()


def test_a_person_answers_in_files_and_the_thread_goes_on(tmp_path: Path) -> None:
    desk = tmp_path / "desk"
    for reply in REPLIES:
        with pytest.raises(ServedError, match="waiting for") as raised:
            ask(tmp_path, SMALL, model=f"handoff:{desk}")
        assert "\n" not in str(raised.value)
        (request,) = [path for path in desk.glob("*.request.md") if not path.with_name(path.name.replace("request", "reply")).exists()]
        request.with_name(request.name.replace("request", "reply")).write_text(reply, encoding="utf-8")
    assert choices(ask(tmp_path, SMALL, model=f"handoff:{desk}")) == WAY


def test_a_worker_judges_elsewhere_and_the_thread_goes_on(tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    with chat.ChatServer(REPLIES, key=None, models=("toy",)) as server:
        for _ in range(10):
            try:
                result = ask(tmp_path, SMALL, model="openai:toy", base_url=server.url, spool=str(spool))
                break
            except ServedError as wait:
                assert "worker" in str(wait)
                jobs = Spool(spool, option="worker")
                for name in jobs.open_jobs():
                    asyncio.run(do_job(jobs, name, judge()))
    assert choices(result) == WAY and len(server.requests) == 4


def test_rules_of_ones_own_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    text = "from tritonsmith.graph.policies import BestOfN\n\n\nclass Mine(BestOfN):\n    pass\n"
    file.write_text(text, encoding="utf-8")
    result = ask(tmp_path, SMALL, replay=TAPE, policy_file=f"{file}:Mine")
    assert {decision.policy for decision in result["decisions"].values()} == {"Mine"}
    assert choices(result) == ["give_up", "finish", "give_up"]


def test_a_size_of_the_last_task_is_not_kept_for_the_next_one(tmp_path: Path) -> None:
    """The form's fields belong to one run of a thread."""
    graph = build_graph(RunForm, serve.serve, TaskInput).compile(checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "t"}}
    settings = {"seeds": 1, "policy": "no-tune", "replay": TAPE, "out": str(tmp_path / "out")}

    async def both() -> None:
        first = await graph.ainvoke(SMALL, config, context=settings)
        assert first["winner"] == "seed0-03"
        with pytest.raises(ServedError, match=r"another task, size or precision than task \(full\)"):
            await graph.ainvoke({"task": TASK, "size": "full"}, config, context=settings)
        again = await graph.ainvoke({"task": TASK}, config, context=settings)  # auto: small without a card
        assert again["winner"] == "seed0-03" and len(again["decisions"]) == len(WAY)

    asyncio.run(both())


def test_an_empty_field_is_one_that_was_not_filled() -> None:
    fields = RunForm.model_fields
    texts = [name for name, field in fields.items() if "str" in str(field.annotation)]
    assert {"policy_file", "analyst_model", "base_url", "prices", "replay", "out"} <= set(texts)
    assert RunForm(**dict.fromkeys(texts, "")) == RunForm()


def test_a_setting_that_does_not_exist_is_named() -> None:
    with pytest.raises(UsageError, match="setting sedes: there is no such setting; the settings are policy, policy_file, "):
        RunForm(sedes=1)
    assert json.loads(RunForm(budget_tokens=5).model_dump_json())["budget_tokens"] == 5
    budget = RunForm(budget_tokens=5, budget_candidates=None).budget
    assert budget.tokens == 5 and budget.candidates is None
