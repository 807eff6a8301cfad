"""The compiled graph answers alike however it is called, streams its events, survives checkpoints and draws one picture."""

import asyncio
import sqlite3

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from tritonsmith.evaluator.schema import Candidate, Status, Verdict
from tritonsmith.graph.builder import build_graph
from tritonsmith.graph.checkpoints.allowed import serializer
from tritonsmith.graph.drawing import graph_mermaid
from tritonsmith.graph.policies.load import load_policy
from tritonsmith.graph.policies.presets import PRESETS
from tritonsmith.graph.sites import QUESTIONS, SITES
from tritonsmith.graph.state import Decision
from tritonsmith.nodes.evaluators.scripted import scripted_verdict

THREAD = {"configurable": {"thread_id": "one"}}


@pytest.fixture
def run(script, analysis):
    return script(
        {"slow": scripted_verdict(0.1, launches=3000), "broken": None, "mended": 0.5, "wave": 2.0, "tuned": 2.5},
        seeds=("slow", "broken"), repairs={"broken": "mended"}, analyses={"slow": analysis()}, optimized={"slow": ("wave",)},
        variants={("tune_block", "wave"): ("tuned",)},
    )  # fmt: skip


def check(run, result):
    assert run.context.store.get(result["candidates"][result["winner"]].sha) == "tuned"
    assert all(isinstance(verdict, Verdict) for verdict in result["verdicts"].values())
    assert {decision.branch for decision in result["decisions"].values()} == {"seed0", "seed1", "main"}


@pytest.mark.parametrize("saver", [None, InMemorySaver], ids=["no saver", "memory"])
@pytest.mark.parametrize("mode", ["invoke", "stream", "ainvoke", "astream"])
def test_every_mode_gives_the_same_answer(run, mode, saver):
    app = build_graph().compile(checkpointer=saver(serde=serializer()) if saver else None)
    given = ({"task": run.task}, THREAD)

    async def streamed():
        return [part async for part in app.astream(*given, context=run.context, stream_mode="values")][-1]

    if mode == "invoke":
        result = app.invoke(*given, context=run.context)
    elif mode == "stream":
        result = list(app.stream(*given, context=run.context, stream_mode="values"))[-1]
    elif mode == "ainvoke":
        result = asyncio.run(app.ainvoke(*given, context=run.context))
    else:
        result = asyncio.run(streamed())
    check(run, result)


def test_a_checkpoint_in_sqlite_gives_back_the_records(run, tmp_path, recwarn):
    connection = sqlite3.connect(tmp_path / "run.sqlite", check_same_thread=False)
    app = build_graph().compile(checkpointer=SqliteSaver(connection, serde=serializer()))
    check(run, app.invoke({"task": run.task}, THREAD, context=run.context, durability="sync"))
    values = app.get_state(THREAD).values
    connection.close()
    assert isinstance(values["candidates"]["seed0-01"], Candidate) and isinstance(values["decisions"]["main/00"], Decision)
    assert values["verdicts"]["seed1-01"].status is Status.RUNTIME_ERROR
    assert not [warning for warning in recwarn if "unregistered" in str(warning.message)]


def test_an_asynchronous_sqlite_saver_works_too(run, tmp_path):
    async def main():
        async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "run.sqlite")) as saver:
            saver.serde = serializer()
            app = build_graph().compile(checkpointer=saver)
            return await app.ainvoke({"task": run.task}, THREAD, context=run.context)

    check(run, asyncio.run(main()))


def test_events_name_their_node_branch_and_candidate(run):
    events = [
        data
        for _, data in build_graph().compile().stream({"task": run.task}, context=run.context, stream_mode="custom", subgraphs=True)
    ]
    assert all({"event", "node", "branch", "candidate"} <= set(event) for event in events)
    kinds = {"stage", "candidate", "evaluating", "verdict", "analysis", "findings", "decision", "stop"}
    assert {event["event"] for event in events} == kinds
    asked = [(event["candidate"], event["profile"]) for event in events if event["event"] == "evaluating"]
    judged = [(event["candidate"], event["profile"]) for event in events if event["event"] == "verdict"]
    assert set(judged) <= set(asked)
    assert [event["status"] for event in events if event["event"] == "verdict" and event["branch"] == "seed1"] == ["runtime_error", "ok"]


def test_a_state_that_crossed_json_may_start_a_run(run):
    check(run, build_graph().compile().invoke({"task": run.task.model_dump(mode="json")}, context=run.context))


def test_the_drawing_does_not_depend_on_the_policy(script):
    drawings = set()
    for name in PRESETS:
        app = build_graph().compile()
        before = app.get_graph(xray=1).draw_mermaid()
        app.invoke({"task": script({}).task}, context=script({"a": 0.5, "b": 0.5, "c": 0.5}, seeds=("a", "b", "c"), policy=name).context)
        drawings |= {before, app.get_graph(xray=1).draw_mermaid()}
    assert len(drawings) == 1


def test_the_open_drawing_shows_the_branch_once():
    text = graph_mermaid()
    assert text.count("subgraph ") == 1 and "improve" not in text
    assert r"decide_after_select -. &nbsp;rescue / widen&nbsp; .-> branch\3a__start__;" in text
    rescued = Decision(id="improve1/01", site="worth_optimizing", gate="worth_optimizing", choice="optimize", reason="", branch="improve1")
    names = graph_mermaid(decisions=[rescued]).splitlines()[-1].split()[1].split(",")
    assert {r"branch\3a__start__", r"branch\3aanalyze", r"branch\3aoptimize"} <= set(names) and r"branch\3aseed" not in names


def test_every_choice_of_every_site_is_drawn():
    text = graph_mermaid()
    for gate, site in SITES.items():
        assert f"decide_{gate}(" in text
        for choice, target in site.choices.items():
            assert choice == target or any(f"decide_{gate} -." in line and choice in line for line in text.splitlines()), (gate, choice)


def test_the_path_of_a_run_is_highlighted(run):
    result = build_graph().compile().invoke({"task": run.task}, context=run.context)
    taken = graph_mermaid(decisions=result["decisions"].values()).splitlines()[-1]
    names = taken.split()[1].split(",")
    assert {"describe", "detect", "tune_grid", "evaluate_block", "confirm", "finish"} <= set(names)
    assert {r"branch\3arepair", r"branch\3aoptimize"} <= set(names)
    assert not {name for name in names if name.startswith("improve")}
    assert graph_mermaid(xray=False, decisions=result["decisions"].values()).splitlines()[-1].startswith("\tclass ")


def test_every_preset_answers_every_site():
    for name in PRESETS:
        policy = load_policy(name)
        assert policy.name == name and all(callable(getattr(policy, question)) for question in QUESTIONS)
