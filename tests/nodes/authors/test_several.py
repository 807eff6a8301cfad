"""Several authors in one run, over real HTTP to a local server: side by side, in turn, and next to the built-in author."""

import pytest

import chat_server as chat
from tritonsmith.evaluator.errors import UsageError
from tritonsmith.graph.run import optimize
from tritonsmith.nodes.authors.make import make_author
from tritonsmith.nodes.chat.connect import Models
from tritonsmith.nodes.chat.model import Patience
from tritonsmith.nodes.evaluators.scripted import ScriptedEvaluator, scripted_verdict

kernel, answer = chat.kernel, chat.answer
VERDICTS = {kernel(1): scripted_verdict(None, message="it fails"), kernel(2): scripted_verdict(1.5), kernel(3): scripted_verdict(1.2)}


@pytest.fixture
def play(tmp_path, monkeypatch):
    """Runs a task with the given authors; each model has a list of answers of its own."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-local-test-key")
    task = tmp_path / "1_relu.py"
    task.write_text(chat.TASK)

    def run(model, answers, seeds=2, **options):
        left = {name: list(turns) for name, turns in answers.items()}
        with chat.ChatServer(lambda body: left[body["model"]].pop(0), models=tuple(answers)) as server:
            models = Models(author=model, base_url=server.url, patience=Patience(first=0.01, longest=1.0, request=5.0))
            summary = optimize(
                task, models=models, evaluator=ScriptedEvaluator(VERDICTS), seeds=seeds, policy="no-tune", out=str(tmp_path / "out"),
                **options,
            )  # fmt: skip
        return summary, [body["model"] for body in server.requests]

    return run


def test_authors_side_by_side_repair_their_own_kernels(play, tmp_path):
    """Each goes on with what it wrote, and a recording plays with both."""
    record = tmp_path / "run.jsonl"
    summary, asked = play("openai:a,openai:b", {"a": [answer(1), answer(2)], "b": [answer(3)]}, record=str(record))
    assert sorted(asked) == ["a", "a", "b"] and summary.model == "openai:a,openai:b"
    assert {row.id: row.author for row in summary.candidates} == {
        "seed0-01": "openai:a", "seed0-02": "openai:a", "seed1-01": "openai:b",
    }  # fmt: skip
    again = optimize(tmp_path / "1_relu.py", replay=str(record), seeds=2, policy="no-tune", out=str(tmp_path / "again"))
    assert [decision.reason for decision in again.decisions] == [decision.reason for decision in summary.decisions]
    assert [row.author for row in again.candidates] == [row.author for row in summary.candidates]


def test_authors_in_turn_repair_each_others_kernels(play):
    summary, asked = play("turns:openai:a,openai:b", {"a": [answer(1)], "b": [answer(2)]}, seeds=1)
    assert asked == ["a", "b"]
    assert [row.author for row in summary.candidates] == ["openai:a", "openai:b"]


def test_a_model_writes_what_the_built_in_author_cannot(play):
    """The scripted facts of the task are empty, so no recipe fits; the model gets both seeds."""
    summary, asked = play("offline,openai:a", {"a": [answer(2), answer(3)]})
    assert asked == ["a", "a"] and {row.author for row in summary.candidates} == {"openai:a"}


def test_each_model_may_have_a_server_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-local-test-key")
    task = tmp_path / "1_relu.py"
    task.write_text(chat.TASK)
    with chat.ChatServer([answer(2)], models=("m",)) as first, chat.ChatServer([answer(3)], models=("m",)) as second:
        summary = optimize(
            task, models=Models(author=f"openai:m@{first.url},openai:m@{second.url}"), evaluator=ScriptedEvaluator(VERDICTS), seeds=2,
            policy="no-tune", out=str(tmp_path / "out"),
        )  # fmt: skip
    assert [len(server.requests) for server in (first, second)] == [1, 1]
    assert [row.author for row in summary.candidates] == [f"openai:m@{first.url}", f"openai:m@{second.url}"]


@pytest.mark.parametrize(("model", "says"), [
    ("offline,", "name every author once"), ("offline,offline", "name every author once"),
    ("turns:offline", "one author cannot take turns"),
    ("offline,openai:m@http://me:secret@host/v1", "an address in a name is kept with the run"),
    ("offline,nobody", "--model nobody: no such author"),
])  # fmt: skip
def test_a_wrong_list_is_refused_in_a_sentence(model, says):
    with pytest.raises(UsageError, match=says):
        make_author(model)
