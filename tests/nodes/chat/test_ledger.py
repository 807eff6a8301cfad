"""Prices, and what a call costs by them; models that are passed in as objects."""

import csv
import json
from pathlib import Path

import pytest
from langchain_core.language_models import BaseChatModel, GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_openai import ChatOpenAI

import chat_server as chat
from tritonsmith.evaluator.errors import UsageError
from tritonsmith.graph.run import make_context, optimize
from tritonsmith.graph.state import Budget, Usage, usage_by
from tritonsmith.nodes.chat.connect import Models
from tritonsmith.nodes.chat.ledger import Price, dollars, load_prices
from tritonsmith.nodes.chat.model import Patience
from tritonsmith.nodes.evaluators.scripted import ScriptedEvaluator, scripted_verdict

FAST = {chat.kernel(1): scripted_verdict(1.5)}
PRICES = '[models."toy"]\ninput = 2.0\ncached = 0.5\noutput = 8.0\n'


@pytest.fixture
def task(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-local-test-key")
    path = tmp_path / "1_relu.py"
    path.write_text(chat.TASK)
    return path


def run(task, name="out", **options):
    return optimize(task, evaluator=ScriptedEvaluator(FAST), seeds=1, policy="no-tune", out=str(task.parent / name), **options)


def test_money_by_the_users_prices(task, tmp_path):
    file = tmp_path / "prices.toml"
    file.write_text(PRICES)
    with chat.ChatServer([chat.answer(1, cached=10, thought=100)]) as server:
        summary = run(task, model="openai:toy", base_url=server.url, prices=str(file))
    used = summary.usage
    expected = ((used.input_tokens - 10) * 2.0 + 10 * 0.5 + used.output_tokens * 8.0) / 1e6
    (row,) = csv.DictReader((Path(summary.out) / "usage.csv").open())
    assert used.money == pytest.approx(expected) == pytest.approx(float(row["dollars"])) and used.unpriced == 0


def test_a_budget_of_money_stops_the_run_and_needs_a_price(task, tmp_path):
    file = tmp_path / "prices.json"
    file.write_text(json.dumps({"models": {"toy": {"input": 1000, "output": 1000}}}))
    with chat.ChatServer([chat.answer(1)]) as server:
        budget = Budget(money=0.01)
        summary = run(task, model="openai:toy", base_url=server.url, prices=str(file), budget=budget)
        assert summary.stopped_because.startswith("budget: ") and "dollars are spent" in summary.stopped_because
        with pytest.raises(UsageError, match="no price is known for openai:toy; give it with --prices FILE"):
            run(task, "other", model="openai:toy", base_url=server.url, budget=budget)


@pytest.mark.parametrize(
    ("name", "text", "fault"),
    [
        ("p.toml", "models = [", "not readable as TOML"),
        ("p.json", "{", "not readable as JSON"),
        ("p.toml", '[models."toy"]\ninput = 1.0\n', "models.toy.output: Field required"),
        ("p.toml", '[models."toy"]\ninput = -1.0\noutput = 1.0\n', "models.toy.input"),
        ("missing.toml", None, "cannot be read"),
    ],
)
def test_a_price_table_that_cannot_be_used_is_named(tmp_path, name, text, fault):
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match=rf"--prices .*{name}: .*{fault}"):
        load_prices(tmp_path / name)


def test_prices_are_found_by_the_names_that_servers_use():
    prices = load_prices()
    assert prices.as_of and prices.of("gpt-4o-2024-08-06") == prices.of("openai/gpt-4o") == prices.of("gpt-4o") is not None
    assert prices.of("gpt-4o-mini") != prices.of("gpt-4o") and prices.of("gpt-4o-other") is None and prices.of("qwen3:8b") is None
    assert dollars(Usage(input_tokens=10), Price(input=1e6, output=0)) == 10 and dollars(Usage(), None) is None


def test_usage_by_stage_is_the_whole_usage_once():
    usage = {"a": Usage(calls=1, input_tokens=3, stage="seed", role="author"), "b": Usage(calls=2, stage="repair", role="author")}
    assert {name: one.calls for name, one in usage_by(usage, "stage").items()} == {"seed": 1, "repair": 2}
    assert usage_by(usage, "role")["author"].input_tokens == 3 and (usage["a"] + usage["b"]).stage == ""


class Toy(BaseChatModel):
    """Answers with one text, and tells tokens in LangChain's words alone."""

    text: str

    @property
    def _llm_type(self) -> str:
        return "toy"

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        from langchain_core.outputs import ChatGeneration, ChatResult

        usage = {
            "input_tokens": 30, "output_tokens": 20, "total_tokens": 50,
            "input_token_details": {"cache_read": 4}, "output_token_details": {"reasoning": 9},
        }  # fmt: skip
        message = AIMessage(self.text, usage_metadata=usage, response_metadata={"stop_reason": "end_turn"})
        return ChatResult(generations=[ChatGeneration(message=message)])


def test_any_langchain_model_or_a_function_that_makes_one(task):
    answer = chat.answer(1).text
    made = []

    def factory():
        made.append(Toy(text=answer))
        return made[-1]

    summary = run(task, model=Toy(text=answer))
    assert summary.winner and (summary.model, summary.usage.input_tokens, summary.usage.cached_tokens) == ("Toy", 30, 4)
    assert summary.usage.reasoning_tokens == 9
    assert run(task, "second", model=factory).winner and len(made) == 1
    untold = run(task, "third", model=GenericFakeChatModel(messages=iter([AIMessage(answer)])))
    assert untold.winner and untold.usage.unreported == 1 and untold.usage.tokens > 0
    with make_context(model=Toy(text=answer), analyst_model=Toy(text="{}"), evaluator=ScriptedEvaluator(FAST)) as context:
        assert context.author.name.startswith("Toy")


class Foreign(Exception):
    """As the libraries of other providers raise them."""

    def __init__(self, text, status_code=None):
        super().__init__(text)
        if status_code:
            self.status_code = status_code


class ConnectFault(Exception):
    pass


@pytest.mark.parametrize(
    ("error", "sentence", "tries"),
    [
        (Foreign("bad key", 401), "Toy refuses the key", 1),
        (Foreign("overloaded", 529), "Toy fails after 4 tries", 4),
        (Foreign("slow down", 429), "Toy is too busy after 6 tries", 6),
        (ConnectFault("no route"), r"Toy cannot be reached after 3 tries .*no route", 3),
        (ConnectionResetError("reset"), "Toy cannot be reached after 3 tries", 3),
        (AssertionError("odd"), r"Toy sends no chat completion after 2 tries .*AssertionError: odd", 2),
    ],
    ids=["401", "529", "429", "connect", "reset", "anything"],
)
def test_whatever_another_library_raises_ends_in_a_sentence(task, monkeypatch, error, sentence, tries):
    asked = []

    def fail(self, messages, stop=None, run_manager=None, **kwargs):
        asked.append(messages)
        raise error

    monkeypatch.setattr(Toy, "_generate", fail)
    with pytest.raises(UsageError, match=sentence):
        run(task, models=Models(Toy(text=""), patience=Patience(first=0.001)))
    assert len(asked) == tries


def test_a_factory_that_makes_something_else_is_named(task):
    with pytest.raises(UsageError, match="the factory made str; it must make a LangChain BaseChatModel"):
        run(task, model=lambda: "gpt")
    with pytest.raises(UsageError, match="the factory failed .ZeroDivisionError: division by zero"):
        run(task, model=lambda: 1 / 0)


def test_a_model_with_its_own_retries_keeps_them(task):
    """A model with retries of its own keeps them, and ours are off."""
    with chat.ChatServer([chat.fault(503, "down")] * 9) as server:
        own = ChatOpenAI(model="toy", base_url=server.url, api_key="sk-local-test-key", max_retries=1)
        with pytest.raises(UsageError, match=r"toy fails \(503: down\)"):
            run(task, models=Models(own, patience=Patience(first=0.01)))
    assert len(server.requests) == 2, "one layer: the library's two tries, not its two for each of ours"


def test_a_model_of_the_responses_api(task):
    cut = chat.Turn("```python\nhalf", finish="length", thought=60)
    with chat.ChatServer([cut, chat.answer(1, cached=5, thought=40)]) as server:
        model = ChatOpenAI(model="toy", base_url=server.url, api_key="sk-local-test-key", max_retries=0, use_responses_api=True)
        summary = run(task, model=model)
    assert summary.winner and "cut off" in str(server.requests[1]["input"])
    used = summary.usage
    assert (used.input_tokens, used.output_tokens) == (server.told("prompt_tokens"), server.told("completion_tokens"))
    assert (used.cached_tokens, used.reasoning_tokens) == (5, 100)


def test_model_and_key_names_are_checked_first(task, monkeypatch):
    """Names of models and keys are checked before anything is written."""
    monkeypatch.delenv("OPENAI_API_KEY")
    for options, fault in (
        ({"model": "openai:toy"}, "--model openai:toy: set OPENAI_API_KEY"),
        ({"model": "openai:toy", "key_env": "MY_KEY"}, "set MY_KEY to your key"),
        ({"model": "openai:toy", "base_url": "localhost:8000"}, "--base-url localhost:8000: write the whole address"),
        ({"model": "openai:toy", "base_url": "http://localhost:1/v1", "analyst_model": "gpt"}, "--analyst-model gpt: no such author"),
        ({"repair_model": "openai:toy"}, "--repair-model openai:toy: the built-in author asks no model"),
    ):
        with pytest.raises(UsageError, match=fault):
            run(task, **options)
    assert not (task.parent / "out").exists()


def test_a_server_of_ones_own_needs_no_key(task, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY")
    with chat.ChatServer([chat.answer(1)], key=None) as server:
        assert run(task, model="openai:toy", base_url=server.url).winner
