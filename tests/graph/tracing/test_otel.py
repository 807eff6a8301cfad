"""Spans for any OpenTelemetry server: parents, names, tokens and scores, with no LangSmith key asked for and none sent."""

import json
import os
from pathlib import Path
from types import SimpleNamespace

import langsmith.utils
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

import capture_server as capture
import chat_server as chat
from tritonsmith.graph.run import optimize
from tritonsmith.graph.tracing import link, target
from tritonsmith.graph.tracing.target import target_of
from tritonsmith.graph.tracing.tracer import tracing
from tritonsmith.nodes.chat.connect import Models
from tritonsmith.nodes.evaluators.scripted import ScriptedEvaluator, scripted_verdict

SMITH_KEY, MODEL_KEY = "lsv2_pt_plantedplanted01", "sk-local-test-key"


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    for name in [name for name in os.environ if name.startswith(("LANGSMITH_", "LANGCHAIN_", "OTEL_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("OPENAI_API_KEY", MODEL_KEY)
    monkeypatch.setattr(link, "troubled", set())  # ports are used again
    monkeypatch.setattr(target, "troubled", link.troubled)
    langsmith.utils.get_env_var.cache_clear()
    yield
    monkeypatch.undo()
    langsmith.utils.get_env_var.cache_clear()


@pytest.fixture
def play(tmp_path):
    def run():
        task = tmp_path / "1_relu.py"
        task.write_text(chat.TASK)
        planted = f"{chat.kernel(1)}\n" + "".join(f"CONSTANT_{number} = {number}\n" for number in range(40)) + "# PLANTED\n"
        with chat.ChatServer([f"Here:\n```python\n{planted}```\n", chat.answer(2)]) as server:
            evaluator = ScriptedEvaluator({planted: scripted_verdict(None, message="it fails"), chat.kernel(2): scripted_verdict(1.5)})
            models = Models(author="openai:toy", base_url=server.url)
            summary = optimize(task, models=models, evaluator=evaluator, out=str(tmp_path / "out"), seeds=1, policy="no-tune")
        return summary, server

    return run


def spans_in(got):
    """All spans by name, each with its parent's name and its attributes."""
    found = []
    for body in got.spans:
        sent = ExportTraceServiceRequest.FromString(body)
        found += [span for one in sent.resource_spans for scope in one.scope_spans for span in scope.spans]
    names = {span.span_id: span.name for span in found}
    return [
        SimpleNamespace(
            name=span.name, parent=names.get(span.parent_span_id), trace=span.trace_id,
            ended=span.end_time_unix_nano > span.start_time_unix_nano,
            about={one.key: one.value.string_value or one.value.int_value for one in span.attributes},
        )  # fmt: skip
        for span in sorted(found, key=lambda span: span.start_time_unix_nano)
    ]


def test_spans_have_parents_tokens_and_verdicts(play, monkeypatch):
    """Spans have parents, tokens and verdicts, and no key is needed."""
    with capture.CaptureServer() as got:
        monkeypatch.setenv("LANGSMITH_OTEL_ENABLED", "true")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", got.url)
        summary, server = play()
    spans = spans_in(got)
    parents = {(span.name, span.parent) for span in spans}
    root = "1_relu/no-tune"
    assert {
        (root, None), ("describe", root), ("seed0", root), ("branch", "seed0"), ("seed", "branch"), ("seed0-01-seed-1", "seed"),
        ("evaluation seed0-01", "evaluate"), ("decide_after_evaluate", "branch"), ("seed0-02-repair-1", "repair"), ("finish", root),
    } <= parents  # fmt: skip
    assert len({span.trace for span in spans}) == 1 and all(span.ended for span in spans)
    calls = [span for span in spans if span.about["gen_ai.operation.name"] == "chat"]
    assert [span.about["gen_ai.usage.input_tokens"] for span in calls] == [one["prompt_tokens"] for one in server.reported]
    assert [span.about["gen_ai.usage.output_tokens"] for span in calls] == [one["completion_tokens"] for one in server.reported]
    assert {span.about["gen_ai.request.model"] for span in calls} == {"toy"}
    assert ["role:author" in span.about["langsmith.span.tags"] for span in calls] == [True, False]
    (strict,) = [span for span in spans if span.name == "evaluation seed0-02" and "strict" in span.about["gen_ai.prompt"]]
    assert json.loads(strict.about["gen_ai.completion"])["score"] == 1.5 and summary.winner.id == "seed0-02"
    assert not [secret for secret in ("PLANTED", MODEL_KEY, str(Path.home())) if secret.encode() in got.said()]
    assert set(got.paths) == {"/v1/traces"} and got.keys == set()


def test_both_may_be_told_and_the_key_goes_to_one_of_them_alone(play, monkeypatch):
    with capture.CaptureServer() as smith, capture.CaptureServer() as otlp:
        monkeypatch.setenv("LANGSMITH_TRACING", "true")
        monkeypatch.setenv("LANGSMITH_API_KEY", SMITH_KEY)
        monkeypatch.setenv("LANGSMITH_ENDPOINT", smith.url)
        monkeypatch.setenv("LANGSMITH_OTEL_ENABLED", "true")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", otlp.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-team=kernels")
        play()
    (root,) = smith.roots()
    names = sorted(run["name"] for run in [root, *smith.all_under(root)])
    assert sorted(span.name for span in spans_in(otlp)) == names and smith.feedback and smith.keys == {SMITH_KEY}
    assert SMITH_KEY.encode() not in otlp.said() and otlp.keys == set() and b"'x-team': 'kernels'" in otlp.said()


def test_a_dead_one_of_two_leaves_the_other(play, monkeypatch, caplog):
    with capture.CaptureServer() as smith:
        monkeypatch.setenv("LANGSMITH_TRACING", "true")
        monkeypatch.setenv("LANGSMITH_ENDPOINT", smith.url)
        monkeypatch.setenv("LANGSMITH_OTEL_ENABLED", "true")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", f"{capture.closed_port()}/own/path")
        play()
    assert smith.roots()[0]["end_time"] and smith.feedback
    (warning,) = [record.getMessage() for record in caplog.records if record.name == "tritonsmith.tracing"]
    assert warning.startswith("the OTLP server at 127.0.0.1 cannot be reached") and "OTEL_EXPORTER_OTLP_ENDPOINT" in warning


def test_without_the_extra_one_sentence_says_what_to_install(monkeypatch, caplog):
    monkeypatch.setattr("tritonsmith.graph.tracing.target.has_otel", lambda: False)
    monkeypatch.setenv("LANGSMITH_OTEL_ENABLED", "true")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    with tracing(task="t", policy="p"):
        pass
    (record,) = [record for record in caplog.records if record.name == "tritonsmith.tracing"]
    assert "OpenTelemetry is not installed: pip install 'tritonsmith[otel]'" in record.getMessage()


@pytest.mark.parametrize(
    ("variables", "address"),
    [
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a:4318"}, "http://a:4318/v1/traces"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a:4318/"}, "http://a:4318/v1/traces"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://a", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://b/x"}, "http://b/x"),
        ({}, ""),
    ],
)
def test_the_address_is_the_standard_variables(variables, address):
    assert target_of(variables).otlp == address
