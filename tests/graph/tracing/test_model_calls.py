"""What a trace says of calls to models: role, stage and tokens, and no key and no kernel."""

import json
from types import SimpleNamespace

import pytest
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

import capture_server as capture
import chat_server as chat
from traced_runs import MODEL_KEY, SEED, SMITH_KEY, own_settings, task_in
from tritonsmith.evaluator.errors import UsageError
from tritonsmith.graph.run import optimize
from tritonsmith.graph.tracing.redact import Redactor
from tritonsmith.nodes.authors.model import ModelAuthor
from tritonsmith.nodes.chat.connect import Models
from tritonsmith.nodes.chat.records import Reply
from tritonsmith.nodes.evaluators.scripted import ScriptedEvaluator, scripted_verdict


@pytest.fixture
def task(tmp_path):
    return task_in(tmp_path)


@pytest.fixture(autouse=True)
def settings():
    with own_settings() as point_at:
        yield point_at


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


@pytest.mark.parametrize("redacted", [True, pytest.param(False, marks=pytest.mark.slow)])
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
