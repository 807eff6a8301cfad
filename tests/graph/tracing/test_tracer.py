"""What a trace server gets of a run: a tree that can be read, decisions with reasons, tokens and scores, and no key and no kernel."""

import asyncio
import json
import logging
import os
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import langsmith.utils
import pytest
from langchain_core.runnables import RunnableLambda
from langchain_openai import ChatOpenAI
from langsmith import Client, tracing_context
from pydantic import SecretStr

import capture_server as capture
import chat_server as chat
from tritonsmith.cli.commands.doctor import check_traces
from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.schema import Label, TaskFacts
from tritonsmith.graph.builder import build_graph
from tritonsmith.graph.run import RunConfig, make_context, optimize
from tritonsmith.graph.runs.fork import fork
from tritonsmith.graph.runs.run import Run
from tritonsmith.graph.state import Budget
from tritonsmith.graph.tracing import link, target
from tritonsmith.graph.tracing.redact import Redactor
from tritonsmith.graph.tracing.tracer import tracing
from tritonsmith.nodes.authors.model import ModelAuthor
from tritonsmith.nodes.authors.scripted import ScriptedAuthor
from tritonsmith.nodes.chat.connect import Models
from tritonsmith.nodes.chat.records import Reply
from tritonsmith.nodes.evaluators.scripted import ScriptedEvaluator, scripted_verdict

SMITH_KEY, MODEL_KEY, OWN_KEY = "lsv2_pt_plantedplanted01", "sk-local-test-key", "planted own key 77"
LONG = "    y = tl.load(x)  # and so on, line by line, until nobody reads any further than this\n" * 8
SEED = f"import torch\n\n\ndef good(x):\n{LONG}    return x  # PLANTED-IN-A-SEED\n"
WINNER = f"import torch\n\n\ndef best(x):\n{LONG}    return x  # PLANTED-IN-THE-WINNER\n"


def task_in(folder):
    path = folder / "1_relu.py"
    path.write_text(f"{chat.TASK}\n# PLANTED-IN-THE-TASK\n" + "".join(f"CONSTANT_{number} = {number}\n" for number in range(40)))
    return path


@pytest.fixture
def task(tmp_path):
    return task_in(tmp_path)


@contextmanager
def own_settings():
    """Sets the variables of a server; LangSmith's library remembers those it has read, so it is made to forget them."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(("LANGSMITH_", "LANGCHAIN_", "OTEL_"))]:
            patch.delenv(name)
        patch.setattr(link, "troubled", set())  # ports are used again
        patch.setattr(target, "troubled", link.troubled)

        def point_at(server, **more):
            settings = {"TRACING": "true", "API_KEY": SMITH_KEY, "ENDPOINT": server.url, "PROJECT": "kernels"}
            for name, value in ({f"LANGSMITH_{name}": value for name, value in settings.items()} | more).items():
                patch.setenv(name, value)

        langsmith.utils.get_env_var.cache_clear()
        yield point_at
    langsmith.utils.get_env_var.cache_clear()


@pytest.fixture(autouse=True)
def settings():
    with own_settings() as point_at:
        yield point_at


def players():
    author = ScriptedAuthor(
        seeds=("bad", SEED), repairs={"bad": "mended"}, variants={("tune_block", SEED): (WINNER,), ("tune_block", "mended"): (WINNER,)}
    )
    verdicts = {
        "bad": scripted_verdict(None, message=f"it fails at /home/someone/kernels/bad.py with {MODEL_KEY} and {OWN_KEY}"),
        "mended": scripted_verdict(0.5), SEED: scripted_verdict(0.6), WINNER: scripted_verdict(1.5, label=Label.KERNEL),
    }  # fmt: skip
    return {"author": author, "evaluator": ScriptedEvaluator(verdicts, facts=TaskFacts(returns="a tensor"))}


def traced_run(folder, point_at, **server):
    """One scripted run with a capture server of this kind: the server, the summary and the manifest."""
    with capture.CaptureServer(**server) as got:
        point_at(got, OPENAI_API_KEY=MODEL_KEY, MY_OWN=OWN_KEY)
        summary = optimize(task_in(folder), out=str(folder / "out"), size="small", key_env="MY_OWN", **players())
    return got, summary, json.loads((folder / "out" / "run.json").read_text())


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


def model_run(task, tmp_path, script, verdicts, **options):
    with chat.ChatServer(script) as server:
        given = {"author": "openai:toy", "base_url": server.url}
        evaluator = ScriptedEvaluator({chat.kernel(number): verdict for number, verdict in verdicts.items()})
        summary = optimize(
            task, models=Models(**given), evaluator=evaluator, out=str(tmp_path / "out"), seeds=1, policy="no-tune", **options
        )
    return server, summary


def llm(got):
    return [run for run in got.all_under(got.roots()[0]) if run["run_type"] == "llm"]


def test_model_calls_have_role_stage_and_tokens(task, tmp_path, settings, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", MODEL_KEY)
    first, second = chat.answer(1, reasoning=f"my key is {MODEL_KEY}"), chat.answer(2, cached=3, thought=5)
    script = [chat.busy(), first, second, chat.analysis(), chat.answer(3)]
    bad, slow, fast = scripted_verdict(None, message="no"), scripted_verdict(0.5, launches=7), scripted_verdict(1.5, launches=1)
    with capture.CaptureServer() as got:
        settings(got)
        server, summary = model_run(task, tmp_path, script, {1: bad, 2: slow, 3: fast})
    calls = [run for run in llm(got) if not run.get("error")]
    about = [run["extra"]["metadata"] for run in calls]
    assert [one["stage"] for one in about] == ["seed", "repair", "analyze", "optimize"]
    assert [one["role"] for one in about] == ["author", "repair", "analyst", "author"]
    assert [run["name"] for run in calls] == [f"{one['request']}-{one['call']}" for one in about]
    assert all({f"role:{one['role']}", f"stage:{one['stage']}"} <= set(run["tags"]) for one, run in zip(about, calls, strict=True))
    told = [run["outputs"]["llm_output"]["token_usage"] for run in calls]
    assert [one["prompt_tokens"] for one in told] == [one["prompt_tokens"] for one in server.reported]
    used = [run["extra"]["metadata"]["usage_metadata"] for run in calls]
    assert [one["output_tokens"] for one in used] == [one["completion_tokens"] for one in server.reported]
    assert used[1]["input_token_details"]["cache_read"] == 3 and used[1]["output_token_details"]["reasoning"] == 5
    parents = {run["id"]: run["name"] for run in got.runs.values()}
    assert [parents[run["parent_run_id"]] for run in calls] == ["seed", "repair", "analyze", "optimize"]
    (busy,) = [run for run in llm(got) if run.get("error")]
    assert "429" in busy["error"] and len(summary.candidates) == 3


@pytest.mark.parametrize("redacted", [True, False])
def test_what_models_are_told_and_say_is_cut_too(task, tmp_path, settings, monkeypatch, redacted):
    """Kernels in prompts and replies, a key in a reply and in a server's fault, and a module's text that a person quotes without fences."""
    monkeypatch.setenv("OPENAI_API_KEY", MODEL_KEY)
    if not redacted:
        monkeypatch.setattr(Redactor, "text", lambda _, text: text)
    one, two, three = (f"{chat.kernel(number)}\n{SEED.replace('PLANTED', f'PLANTED-{number}')}" for number in (1, 2, 3))
    said = [
        chat.fault(500, f"no luck with {MODEL_KEY}"), f"Take this:\n```python\n{one}```\nMy key is {MODEL_KEY}.", f"{two}",
        f"<think>like\n{one}</think>\n~~~\n{three}",
    ]  # fmt: skip
    with capture.CaptureServer() as got, chat.ChatServer(said) as server:
        settings(got)
        bad, fast = scripted_verdict(None, message="it fails"), scripted_verdict(1.5)
        evaluator = ScriptedEvaluator({}, strict={})
        judged = iter((bad, bad, *[fast] * 9))
        evaluator.verdicts = SimpleNamespace(get=lambda *_: next(judged))
        models = Models(author="openai:toy", base_url=server.url)
        summary = optimize(task, models=models, evaluator=evaluator, out=str(tmp_path / "out"), seeds=1, policy="no-tune")
    assert summary.winner is not None and len(llm(got)) == 4 and "it fails" in got.said().decode()
    planted = [*(f"PLANTED-{number}-IN-A-SEED" for number in (1, 2, 3)), "PLANTED-IN-THE-TASK", MODEL_KEY]
    found = [secret for secret in planted if secret.encode() in got.said()]
    assert found == ([] if redacted else planted) and SMITH_KEY.encode() not in got.said()


def test_a_key_that_a_server_repeats_does_not_leave(task, tmp_path, settings):
    """A key that only a model object holds is not sent, even if its server repeats it."""
    own = "held by the object alone"
    model = ChatOpenAI(model="toy", api_key=SecretStr(own), base_url="http://127.0.0.1:1/v1", max_retries=0)
    with capture.CaptureServer() as got, chat.ChatServer([], key="another") as server:
        settings(got)
        model.root_client.base_url = model.openai_api_base = server.url
        with pytest.raises(UsageError, match="refuses the key"):
            optimize(task, model=model, evaluator=ScriptedEvaluator({}), out=str(tmp_path / "out"), seeds=1)
    (call,) = llm(got)
    assert "Incorrect API key provided: [key]" in call["error"] and own.encode() not in got.said()


class Person:
    """A Chat that is no LangChain model."""

    name = "person:me"

    async def ask(self, request):
        usage = {"calls": 1, "input_tokens": 11, "output_tokens": 7, "stage": request.stage, "role": request.role}
        return Reply(text=chat.answer(1).text, finish_reason="stop", usage=usage, model="me-2")


def test_other_chats_are_traced_with_their_tokens(task, tmp_path, settings):
    """Chats that are no LangChain models are traced with their tokens."""
    with capture.CaptureServer() as got:
        settings(got)
        evaluator = ScriptedEvaluator({chat.kernel(1): scripted_verdict(1.5)})
        optimize(task, author=ModelAuthor(Person()), evaluator=evaluator, out=str(tmp_path / "out"), seeds=1, policy="no-tune")
    (call,) = llm(got)
    assert call["name"] == "seed0-01-seed-1" and {"role:author", "stage:seed"} <= set(call["tags"])
    told = call["extra"]["metadata"]
    assert told["usage_metadata"] == {"input_tokens": 11, "output_tokens": 7, "total_tokens": 18} and told["ls_model_name"] == "me-2"
    assert "class Model" in json.dumps(call["inputs"]) and "Kernel 1." in json.dumps(call["outputs"])


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
