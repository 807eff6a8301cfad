"""Memory across runs: what is kept, what is found again, and what may never enter."""

from pathlib import Path

import pytest

import chat_server as chat
from tritonsmith.evaluator.cards.cards import named_card
from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.schema import Status, Task, TaskFacts, TensorSpec
from tritonsmith.graph.run import optimize, resume
from tritonsmith.graph.state import Budget
from tritonsmith.graph.storage.records import write_record
from tritonsmith.nodes.authors.memory import Memory, RememberedKernel
from tritonsmith.nodes.evaluators.scripted import ScriptedEvaluator, scripted_verdict

FACTS = TaskFacts(returns="a tensor", inputs=(TensorSpec(shape=(1024,)),))
HIDDEN = scripted_verdict(None, status=Status.INACCURATE, message="differs with seed 987654")
BROKEN = scripted_verdict(None, status=Status.COMPILE_ERROR, message="there is no tl.tanh\nat line 987654")
FAST = scripted_verdict(1.5, launches=1)
VERDICTS = {chat.kernel(1): HIDDEN, chat.kernel(2): BROKEN, chat.kernel(3): FAST, chat.kernel(4): scripted_verdict(1.1)}


@pytest.fixture
def play(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-local-test-key")
    task = tmp_path / "1_relu.py"
    task.write_text(chat.TASK)

    def run(name, script, strict=None, **options):
        with chat.ChatServer(script) as server:
            judge = ScriptedEvaluator(VERDICTS, strict or {}, facts=FACTS)
            given = {"seeds": 1, "policy": "no-tune", "evaluator": judge, "model": "openai:toy", "base_url": server.url, **options}
            summary = optimize(task, out=str(tmp_path / name), **given)
        return summary, server

    return run


def everything(folder):
    return "\n".join(path.read_text() for path in Path(folder).rglob("*.json"))


def test_the_next_run_hears_of_winners_and_failures(play, tmp_path):
    """The next run hears of a confirmed kernel and of what failed."""
    folder = str(tmp_path / "memory")
    first, _ = play("first", [chat.answer(1), chat.answer(2), chat.answer(3)], memory=folder)
    assert first.winner.id == "seed0-03"
    _, server = play("second", [chat.answer(3)], memory=folder)
    told = server.requests[0]["messages"][0]["content"]
    assert chat.kernel(3).strip() in told and "Confirmed in an earlier run at 1.50x eager" in told
    assert "compile_error: there is no tl.tanh" in told and "inaccurate: Kernel 1." in told
    _, without = play("third", [chat.answer(3)])
    assert chat.kernel(3).strip() not in without.requests[0]["messages"][0]["content"], "off unless asked for"


def test_nothing_of_the_checks_enters(play, tmp_path):
    folder = tmp_path / "memory"
    play("first", [chat.answer(1), chat.answer(2), chat.answer(3)], memory=str(folder), size="small")
    kept = everything(folder)
    assert "987654" not in kept and "SMALL" not in kept and "class Model(" not in kept
    assert '"shapes": []' in kept, "the small size is a part of the checks"
    play("second", [chat.answer(3)], memory=str(tmp_path / "other"), size="full")
    assert "1024" in everything(tmp_path / "other")


@pytest.mark.parametrize(
    "strict",
    [scripted_verdict(1.5).model_copy(update={"quarantine": "odd"}), scripted_verdict(None, status=Status.RACY, message="races")],
    ids=["quarantined", "rejected"],
)
def test_a_kernel_that_was_not_confirmed_is_not_remembered(play, tmp_path, strict):
    folder = tmp_path / "memory"
    refused = {chat.kernel(3): strict.model_copy(update={"profile": "strict"})}
    play("first", [chat.answer(3)], memory=str(folder), strict=refused, budget=Budget(repairs=0))
    assert not list((folder / "kernels").glob("*.json"))


def test_the_nearest_kernel_is_shown_first(tmp_path):
    """The nearest kernel of the family for the card is shown first."""
    memory, card = Memory(tmp_path), named_card("h200")
    base = {
        "families": ("pointwise",), "shapes": ((1024,),), "card": card.key, "precision": "ieee", "kind": "measured", "score": 1.2,
        "baseline": "eager", "launches": 1,
    }  # fmt: skip
    others = {
        "far": {"shapes": ((10**9,),)}, "near": {"shapes": ((2048,),)}, "guess": {"kind": "estimated"}, "other card": {"card": "a100"},
        "gemm": {"families": ("gemm",)}, "two inputs": {"shapes": ((1024,), (1024,))},
    }  # fmt: skip
    for name, fields in others.items():
        write_record(memory._kernels / f"{name}.json", RememberedKernel.model_validate({**base, "task": name, "source": name, **fields}))
    (tmp_path / "kernels" / "broken.json").write_text("{half")
    found = memory.recall(Task(name="t", path="t.py", source=""), FACTS, card)
    assert [one.source for one in found] == ["near", "far"]


def test_a_run_with_a_memory_replays_without_it(play, tmp_path):
    folder, tape = str(tmp_path / "memory"), str(tmp_path / "tape.jsonl")
    play("first", [chat.answer(3)], memory=folder)
    live, _ = play("live", [chat.answer(2), chat.answer(4)], memory=folder, record=tape)
    again = optimize(tmp_path / "1_relu.py", replay=tape, out=str(tmp_path / "again"), seeds=1, policy="no-tune")
    assert again.decisions == live.decisions and again.winner.id == "seed0-02"
    with pytest.raises(UsageError, match="drop --memory"):
        optimize(tmp_path / "1_relu.py", replay=tape, memory=folder)


def test_a_run_that_goes_on_is_told_what_it_was_told_before(play, tmp_path):
    folder, answers = str(tmp_path / "memory"), tmp_path / "ho"
    options = {"memory": folder, "model": f"handoff:{answers}"}
    play("waits", [], **options)
    asked = (answers / "seed0-01-seed-1.request.md").read_text()
    play("between", [chat.answer(3)], memory=folder)
    summary = resume(tmp_path / "waits", evaluator=ScriptedEvaluator(VERDICTS, facts=FACTS))
    assert (answers / "seed0-01-seed-1.request.md").read_text() == asked and len(summary.waits_for) == 1


def test_a_memory_that_cannot_be_made_is_named(play, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="--memory .*file: cannot make the folder"):
        play("first", [chat.answer(3)], memory=str(tmp_path / "file"))
