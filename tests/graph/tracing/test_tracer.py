"""What a trace server gets of a run: a tree that can be read, decisions with reasons, and scores, and no key and no kernel."""

import asyncio
import json
import logging
from pathlib import Path
from types import SimpleNamespace

import pytest
from langchain_core.runnables import RunnableLambda
from langsmith import Client, tracing_context

import capture_server as capture
from traced_runs import MODEL_KEY, OWN_KEY, SMITH_KEY, own_settings, players, task_in, traced_run
from tritonsmith.cli.examining import check_traces
from tritonsmith.graph.builder import build_graph
from tritonsmith.graph.run import RunConfig, make_context, optimize
from tritonsmith.graph.runs.fork import fork
from tritonsmith.graph.runs.run import Run
from tritonsmith.graph.state import Budget
from tritonsmith.graph.tracing.redact import Redactor
from tritonsmith.graph.tracing.tracer import tracing
from tritonsmith.nodes.authors.scripted import ScriptedAuthor
from tritonsmith.nodes.evaluators.scripted import ScriptedEvaluator, scripted_verdict


@pytest.fixture
def task(tmp_path):
    return task_in(tmp_path)


@pytest.fixture(autouse=True)
def settings():
    with own_settings() as point_at:
        yield point_at


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run with a server that takes everything; nobody changes it."""
    with own_settings() as point_at:
        return traced_run(tmp_path_factory.mktemp("whole"), point_at)


def named(runs, name):
    return [run for run in runs if run["name"] == name]


def test_the_root_is_named_tagged_and_part_of_a_thread(whole):
    got, summary, manifest = whole
    (root,) = got.roots()
    assert root["name"] == "1_relu/default" and root["session_name"] == "kernels" and root["end_time"]
    assert {"policy:default", "task:1_relu", f"model:{summary.model}", f"target:{summary.target}"} == set(root["tags"])
    told = root["extra"]["metadata"]
    assert told["thread_id"] == told["run"] == manifest["run"] and told["graph_version"] == manifest["graph"]
    assert told["tritonsmith_version"] and "error" not in root
    assert list(root["outputs"])[:3] == ["winner", "verdict", "stopped_because"] and root["outputs"]["verdict"]["score"] == 1.5
    assert root["outputs"]["winner"] == summary.winner.id and root["inputs"] == {"task": "1_relu (small, ieee)"}


def test_every_seed_is_a_branch_with_its_steps_below_it(whole):
    got, _, _ = whole
    tree = got.tree(got.roots()[0])
    names = [one if isinstance(one, str) else one[0] for one in tree]
    assert names[:4] == ["describe", *sorted(("seed0", "seed1")), "select"] or names[:4] == ["describe", "seed1", "seed0", "select"]
    assert names[4:6] == ["decide_after_select", "detect"] and names[-2:] == ["decide_after_confirm", "finish"]
    (seed0,) = named(got.under(got.roots()[0]), "seed0")
    steps = [run["name"] for run in got.all_under(seed0)]
    for name in ("seed", "evaluate", "evaluation seed0-01", "decide_after_evaluate", "repair", "evaluation seed0-02", "analyze"):
        assert name in steps, name
    assert not [name for name in steps if name.startswith(("choice_", "_", "RunnableLambda"))] or steps.count("__start__") == 1
    assert all(run.get("end_time") for run in got.runs.values())


def test_a_gate_that_the_budget_answers_is_told_whole(tmp_path, settings, caplog):
    with capture.CaptureServer() as got:
        settings(got)
        optimize(task_in(tmp_path), out=str(tmp_path / "out"), size="small", seeds=1, budget=Budget(candidates=1), **players())
    gates = [run for run in got.runs.values() if run["name"].startswith("decide_")]
    assert gates and all(run.get("end_time") and run["outputs"] for run in gates)
    assert any(len(run["outputs"].get("decisions", ())) == 2 for run in gates), "the stop, and what was not asked"
    assert "callback" not in caplog.text


def test_an_address_that_is_none_does_not_end_a_run(tmp_path, settings, caplog):
    settings(SimpleNamespace(url="http://[::1"))
    summary = optimize(task_in(tmp_path), out=str(tmp_path / "out"), size="small", seeds=1, **players())
    assert summary.winner is not None
    assert "LangSmith at http://[::1 cannot be used" in caplog.text


def test_decisions_are_outputs_with_choice_reason_and_evidence(whole):
    got, summary, _ = whole
    gates = [run for run in got.all_under(got.roots()[0]) if run["name"].startswith("decide_")]
    told = [(run["outputs"]["choice"], run["outputs"]["reason"]) for run in gates]
    assert sorted(told) == sorted((decision.choice, decision.reason) for decision in summary.decisions) and len(told) > 8
    (first,) = [run for run in gates if run["outputs"]["choice"] == "repair"]
    assert first["outputs"]["evidence"]["status"] == "runtime_error" and first["outputs"]["policy"] == "default"


def test_evaluations_are_spans_with_scores(whole):
    got, summary, _ = whole
    spans = [run for run in got.all_under(got.roots()[0]) if "evaluation" in run.get("tags", ())]
    assert {run["run_type"] for run in spans} == {"tool"}
    (strict,) = [run for run in spans if run["inputs"]["profile"] == "strict"]
    assert strict["inputs"]["candidate"] == summary.winner.id and len(strict["inputs"]["sha"]) == 16
    told = strict["outputs"]
    assert (told["status"], told["score"], told["baseline"], told["kind"], told["label"]) == ("ok", 1.5, "eager", "estimated", "kernel")
    assert told["median_ms"] == pytest.approx(1 / 1.5) and "message" in told
    scores = {(one["key"], one["score"]): one for one in got.feedback if one["run_id"] == strict["id"]}
    assert set(scores) == {("correct", 1.0), ("speedup", 1.5)}
    assert scores["speedup", 1.5]["comment"] == "estimated, not measured: 0.6667 ms, baseline eager (strict profile)"
    (failed,) = [run for run in spans if run["outputs"]["status"] == "runtime_error"]
    assert [(one["key"], one["score"]) for one in got.feedback if one["run_id"] == failed["id"]] == [("correct", 0.0)]
    root = got.roots()[0]
    assert {(one["key"], one["score"]) for one in got.feedback if one["run_id"] == root["id"]} == {("correct", 1.0), ("speedup", 1.5)}
    assert {one["trace_id"] for one in got.feedback} == {root["id"]}


def test_no_step_is_sent_the_whole_state(whole):
    got, _, _ = whole
    sizes = {run["name"]: len(json.dumps(run["inputs"])) for run in got.runs.values()}
    assert max(sizes.values()) < 3000, sizes


PLANTED = ("PLANTED-IN-A-SEED", "PLANTED-IN-THE-WINNER", "PLANTED-IN-THE-TASK", MODEL_KEY, OWN_KEY, SMITH_KEY, "/home/someone")


def test_no_key_no_kernel_and_no_path_leaves(whole, tmp_path_factory):
    got, _, _ = whole
    folders = (str(tmp_path_factory.getbasetemp()), str(Path.home()))
    found = [secret for secret in (*PLANTED, *folders) if secret.encode() in got.said()]
    assert not found and b".../bad.py with [key] and [key]" in got.said()
    assert got.keys == {SMITH_KEY}, "it goes where it belongs and nowhere else"


def test_without_the_redactor_the_planted_would_be_found(settings, monkeypatch, tmp_path):
    monkeypatch.setattr(Redactor, "text", lambda _, text: text)
    monkeypatch.setattr("tritonsmith.graph.tracing.tracer.summarize_inputs", lambda inputs: inputs)
    monkeypatch.setattr("tritonsmith.graph.tracing.tracer.summarize_state", lambda value: value)
    got, _, _ = traced_run(tmp_path, settings)
    found = {secret for secret in PLANTED if secret.encode() in got.said()}
    assert found >= {"PLANTED-IN-THE-TASK", MODEL_KEY, OWN_KEY, "/home/someone"} and str(tmp_path).encode() in got.said()


@pytest.mark.parametrize("server", [{"zstd": False}, {"batch_feedback": False}, {"multipart": False, "zstd": False}], ids=str)
def test_servers_of_all_kinds_get_the_same(tmp_path, settings, server, caplog):
    got, summary, _ = traced_run(tmp_path, settings, **server)
    (root,) = got.roots()
    assert root["outputs"]["winner"] == summary.winner.id and root["end_time"]
    assert {(one["key"], one["score"]) for one in got.feedback if one["run_id"] == root["id"]} == {("correct", 1.0), ("speedup", 1.5)}
    assert not [record for record in caplog.records if record.name.startswith(("langsmith", "tritonsmith"))]


def test_a_run_that_goes_on_is_a_second_trace_of_the_same_thread(task, tmp_path, settings):
    async def begin():
        run = Run(RunConfig(task=str(task), out=str(tmp_path / "out")), **players())
        async for event in run.stream():
            if event["event"] == "decision":
                run.stop("so that it can go on")
        return run

    async def go_on():
        run = Run.of(tmp_path / "out", **players())
        async for _ in run.stream():
            pass
        return run

    with capture.CaptureServer() as got:
        settings(got)
        first, second = asyncio.run(begin()), asyncio.run(go_on())
    assert first.stopped and second.summary is not None and second.summary.winner is not None
    one, two = got.roots()
    assert one["id"] != two["id"] and one["extra"]["metadata"]["thread_id"] == two["extra"]["metadata"]["thread_id"]
    assert two["outputs"]["winner"] == second.summary.winner.id


def test_a_forks_trace_names_its_parent(task, tmp_path, settings):
    """The trace of a fork names its parent and what was judged before."""
    parent = optimize(task, out=str(tmp_path / "parent"), **players())
    with capture.CaptureServer() as got:
        settings(got)
        summary = fork(tmp_path / "parent", at="after_detect", policy="no-tune", out=tmp_path / "fork", **players())
    (root,) = got.roots()
    told = root["extra"]["metadata"]
    assert root["name"] == "1_relu/no-tune" and told["parent_at"] == "after_detect" and told["parent_run"]
    spans = [run for run in got.all_under(root) if "evaluation" in run.get("tags", ())]
    known = {run["inputs"]["candidate"] for run in spans if "from:tape" in run["tags"]}
    assert known and known <= {row.id for row in parent.candidates} and summary.winner.id in {run["inputs"]["candidate"] for run in spans}
    events = [json.loads(line) for line in (tmp_path / "fork" / "events.jsonl").read_text().splitlines()]
    judged = [event["candidate"] for event in events if event["event"] == "evaluating"]
    assert sorted(judged) == sorted(run["inputs"]["candidate"] for run in spans if "from:tape" not in run["tags"])


def test_a_script_that_invokes_the_graph_itself(settings):
    author = ScriptedAuthor(seeds=("a",))
    with capture.CaptureServer() as got:
        settings(got)
        given = players() | {"author": author, "evaluator": ScriptedEvaluator({"a": scripted_verdict(1.5)})}
        trace = tracing(task="mine", policy="no-tune", metadata={"try": 3})
        with make_context(seeds=1, policy="no-tune", **given) as context, trace:
            app = build_graph().compile(name="tritonsmith")
            answer = app.invoke({"task": {"name": "mine", "path": "x.py", "source": ""}}, trace.config, context=context)
    (root,) = got.roots()
    assert root["name"] == "mine/no-tune" and root["outputs"]["winner"] == answer["winner"] == "seed0-01"
    assert root["extra"]["metadata"]["try"] == 3 and root["extra"]["metadata"]["thread_id"]


def test_nothing_is_sent_unless_it_is_asked_for(settings, monkeypatch):
    """Nothing is sent and nothing is begun when tracing is not asked for."""
    with capture.CaptureServer() as got:
        settings(got, LANGSMITH_TRACING="false")
        with tracing(task="t", policy="p") as trace:
            assert "callbacks" not in trace.config and trace.config["run_name"] == "t/p"
    assert got.paths == []


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({"LANGSMITH_TRACING": "true"}, "LANGSMITH_TRACING is set and LANGSMITH_API_KEY is not: set the key, or unset LANGSMITH_TRACING"),
        ({"LANGSMITH_OTEL_ENABLED": "true"}, "LANGSMITH_OTEL_ENABLED is set and OTEL_EXPORTER_OTLP_ENDPOINT is not"),
        ({"LANGSMITH_TRACING": "true", "LANGSMITH_ENDPOINT": "no address"}, "LangSmith at no address cannot be used"),
    ],
    ids=["no key", "no OTLP server", "no address"],
)
def test_settings_that_cannot_work_are_one_warning(monkeypatch, caplog, variables, sentence):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with tracing(task="t", policy="p"):
        pass
    (warning,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert warning.name == "tritonsmith.tracing" and sentence in warning.getMessage()


@pytest.mark.parametrize(
    ("mode", "works", "words"),
    [
        ("ok", True, "on and reachable: http"),
        ("401", False, "refuses the key (401)"),
        ("500", False, "answers 500"),
        ("gone", False, "cannot be reached"),
    ],
)
def test_doctor_says_whether_a_server_takes_traces(settings, monkeypatch, mode, works, words):
    """`doctor` says whether a server takes traces, and shows no key."""
    with capture.CaptureServer(mode) as got:
        settings(got, LANGSMITH_OTEL_ENABLED="true", OTEL_EXPORTER_OTLP_ENDPOINT=got.url.replace("://", "://me:planted-word@"))
        if mode == "gone":
            monkeypatch.setenv("LANGSMITH_ENDPOINT", capture.closed_port())
        smith, otlp = check_traces()
    assert (smith.name, smith.works) == ("LangSmith", works) and words in smith.detail
    assert works or "LANGSMITH_ENDPOINT" in smith.todo
    assert otlp.name == "OpenTelemetry" and otlp.works is (mode in ("ok", "gone"))
    assert not [secret for secret in (SMITH_KEY, "planted-word") if secret in f"{smith}{otlp}"]


def test_doctor_tells_when_tracing_is_off_or_cannot_work(monkeypatch):
    (off,) = check_traces()
    assert off.detail == "tracing is off" and "LANGSMITH_TRACING=true" in off.todo
    monkeypatch.setenv("LANGSMITH_TRACING", "true")
    (fault,) = check_traces()
    assert not fault.works and "LANGSMITH_API_KEY is not" in fault.todo


@pytest.mark.slow
def test_the_next_run_of_a_process_neither_waits_nor_warns_again(settings, caplog):
    with capture.CaptureServer("silent") as got:
        settings(got)
        waited_for = []
        for name in ("first", "second", "again"):
            if name == "again":
                got.recover()
            with tracing(task=name, policy="p") as trace:
                RunnableLambda(lambda value: value).invoke({"branch": "x"}, trace.config)
                waited_for.append(trace.is_on)
    assert waited_for == [True, False, True]
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) == 1
    assert "again/p" in [run["name"] for run in got.runs.values()], "a server that is back is used again"


def test_langchains_own_tracer_gets_small_steps_too(settings):
    """Without our tracing, LangChain's own tracer gets small steps too."""
    given = players()
    with capture.CaptureServer() as got:
        client = Client(api_url=got.url, api_key=SMITH_KEY, info={"version": "0.12.0"})
        with make_context(seeds=2, **given) as context, tracing_context(enabled=True, client=client):
            build_graph().compile().invoke({"task": {"name": "mine", "path": "x.py", "source": ""}}, context=context)
        client.flush()
        client.close()
    steps = [run for run in got.all_under(got.roots()[0]) if run["name"].startswith(("decide_", "evaluate", "select", "tune_"))]
    assert len(steps) > 15 and max(len(json.dumps(run["inputs"])) for run in steps) < 3000
    searches = [run["inputs"]["searches"] for run in steps if "searches" in run["inputs"]]
    assert searches[-1] == {"number": 3, "last": "nothing searched: the text has nothing that this stage varies"}
    gates = [run["outputs"] for run in steps if run["name"].startswith("decide_")]
    assert all({"choice", "reason", "evidence"} <= set(one) for one in gates)


@pytest.mark.parametrize(("name", "value"), [("LANGSMITH_TRACING_SAMPLING_RATE", "abc"), ("LANGSMITH_TRACING_SAMPLING_RATE", "7")])
def test_settings_that_the_library_refuses_are_one_warning_too(settings, caplog, name, value):
    with capture.CaptureServer() as got:
        settings(got, **{name: value})
        with tracing(task="t", policy="p") as trace:
            assert RunnableLambda(lambda given: given).invoke("x", trace.config) == "x" and not trace.is_on
    (warning,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert "the settings of LangSmith at 127.0.0.1 cannot be used" in warning and set(got.paths) == {"/info"}
