"""The author that asks a model, on scripted replies: fences, cut-off answers, analyses that do not parse, and what they cost."""

import asyncio
import json
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from tritonsmith.author.examples import prompt_for
from tritonsmith.evaluator.cards.cards import named_card
from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.schema import Candidate, KernelFacts, LaunchFacts, Stage, Task, TaskFacts, TensorSpec
from tritonsmith.nodes.authors.make import make_author
from tritonsmith.nodes.authors.model import ModelAuthor
from tritonsmith.nodes.chat.replies import modules_in, reason_in
from tritonsmith.nodes.evaluators.scripted import scripted_verdict
from tritonsmith.prompts.analysis import Analysis, Category
from tritonsmith.prompts.author import Attempt, AuthorError, Brief

MODULE = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    pass\n"
ANSWER = f"Fuses everything.\n```python\n{MODULE}```\n"


class ScriptedChat(BaseChatModel):
    """Answers with the given replies in turn; a reply is a text, a (text, finish reason) pair or an exception."""

    replies: list[Any]
    asked: list[str] = []

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        self.asked.append(messages[-1].text)
        reply = self.replies[len(self.asked) - 1]
        if isinstance(reply, Exception):
            raise reply
        text, finish = reply if isinstance(reply, tuple) else (reply, "stop")
        usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
        message = AIMessage(text, usage_metadata=usage, response_metadata={"finish_reason": finish})
        return ChatResult(generations=[ChatGeneration(message=message)])


def author(*replies):
    chat = ScriptedChat(replies=list(replies), asked=[])
    return ModelAuthor(chat, "openai:scripted"), chat


def brief(**fields):
    task = Task(name="t", path="t.py", source="class Model: ...", overrides={"T": 8})
    facts = TaskFacts(inputs=(TensorSpec(shape=(2, 3)), None), returns="a tensor", parameters={"w": TensorSpec(shape=(3,))})
    base = {"task": task, "facts": facts, "hardware": named_card("h200")}
    return Brief(**{**base, **fields})


def attempt(source="kernel text", score=0.2):
    facts = LaunchFacts(launches_per_forward=7, kernels=(KernelFacts(name="step_kernel", launches=7),))
    verdict = scripted_verdict(score, message="too slow").model_copy(update={"facts": facts})
    return Attempt(candidate=Candidate(id="c", sha="s", stage=Stage.SEED), source=source, verdict=verdict)


def test_a_kernel_is_the_last_block_that_defines_the_module():
    """A kernel is the last complete block of code that defines the module."""
    blocks = [f"```python\n{MODULE}# thought\n```", "```python\nx = 1\n```", f"```python\n{MODULE}# last\n```", f"```python\n{MODULE}# cut"]
    reply = f"<think>{blocks[0]}</think>First\n" + "\n".join(blocks[1:])
    assert modules_in(reply) == [MODULE + "# last\n"]
    assert reason_in(ANSWER) == "Fuses everything."
    assert modules_in("```python\nclass ModelNew(:\n```") == []


def test_a_seed_is_the_module_in_the_fence():
    writer, chat = author(ANSWER)
    draft = asyncio.run(writer.seed(brief(branch=1)))
    assert (draft.source, draft.rationale) == (MODULE, "Fuses everything.")
    assert "variant 2" in chat.asked[0] and "w (3,)" in chat.asked[0] and "132 processors" in chat.asked[0]


@pytest.mark.parametrize("first", ["no code at all", (ANSWER[:-4], "length"), ("", "length")], ids=["no block", "cut off", "only thoughts"])
def test_an_unusable_answer_is_asked_for_once_more(first):
    writer, chat = author(first, ANSWER)
    assert asyncio.run(writer.repair(brief(current=attempt()))).source == MODULE
    assert len(chat.asked) == 2 and "Answer again" in chat.asked[1]


def test_two_unusable_answers_end_the_line_and_refuse_a_seed():
    assert asyncio.run(author("no", "no")[0].repair(brief(current=attempt()))) is None
    with pytest.raises(AuthorError, match="wrote no complete module"):
        asyncio.run(author("no", "no")[0].seed(brief()))


def test_an_analysis_is_read_from_json_and_asked_for_once_more():
    good = {
        "returns": "a tensor", "bottleneck": "launches", "optimisation_method": "one launch", "modification_plan": "loop inside",
        "category": "launch_reduction", "expected_speedup": "3x", "worth_optimizing": True,
        "promise": {"metric": "launches_per_forward", "before": 7, "bound": 1},
    }  # fmt: skip
    writer, chat = author('{"bottleneck": 3}', f"```json\n{json.dumps(good)}\n```")
    analysis = asyncio.run(writer.analyze(brief(current=attempt())))
    assert analysis.category is Category.LAUNCHES and analysis.promise.bound == 1 and analysis.expected_speedup == 3
    assert "worth_optimizing: Field required" in chat.asked[1]


def test_an_analysis_that_cannot_be_read_is_not_worth_optimizing():
    analysis = asyncio.run(author("hm", "hm")[0].analyze(brief(current=attempt())))
    assert not analysis.worth_optimizing and "could not be used" in analysis.reason


def test_tuning_takes_every_variant():
    variants = asyncio.run(author(ANSWER + ANSWER.replace("pass", "x = 2"))[0].tune(brief(current=attempt(), stage=Stage.TUNE_BLOCK)))
    assert len(variants) == 2 and variants[0].source != variants[1].source


def test_a_server_that_fails_is_named_with_the_way_out():
    with pytest.raises(AuthorError, match=r"openai:scripted sends no chat completion after 2 tries .*bad gateway.*--base-url"):
        asyncio.run(author(ValueError("bad gateway"), ValueError("bad gateway"))[0].seed(brief()))


def test_a_missing_key_is_named(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(UsageError, match="set OPENAI_API_KEY"):
        make_author("openai:some-model")


def test_a_kernel_that_may_not_win_goes_back_with_the_reason():
    """A kernel that may not win goes back to the model with the reason and the advice."""
    held = attempt().model_copy(update={"refusal": "the library does the work (label library: aten::gru x1); write Triton kernels"})
    held = held.model_copy(update={"verdict": held.verdict.model_copy(update={"advice": ("line 3: torch.matmul computes in a library",)})})
    prompt = prompt_for("repair", brief(current=held)).text
    assert "may not win: the library does the work (label library: aten::gru x1)" in prompt and "This kernel fails" not in prompt
    assert "- line 3: torch.matmul computes in a library" in prompt and "hints, not findings" in prompt
    assert "This kernel fails" in prompt_for("repair", brief(current=attempt())).text
    assert "for any part of it loses" in prompt_for("seed", brief(allow="kernel")).text


def test_every_prompt_renders_with_all_it_may_use():
    change = Analysis(bottleneck="b", optimisation_method="m", modification_plan="p", category=Category.FUSION)
    whole = brief(current=attempt(), history=(attempt("older"),), analysis=change, stage=Stage.TUNE_GRID)
    for name in ("seed", "repair", "analyze", "optimize", "tune"):
        text = prompt_for(name, whole).text
        assert "class Model: ..." in text and "{{" not in text
        assert name == "seed" or ("kernel text" in text and "step_kernel: 7 launches" in text and "Earlier attempt 1" in text)


def test_what_a_run_with_a_model_costs_is_counted_and_kept(script):
    run = script({MODULE: 1.4}, seeds=("unused",), policy="no-tune")
    chat = ScriptedChat(replies=[("```python\ncut", "length"), ANSWER], asked=[])
    object.__setattr__(run.context, "author", ModelAuthor(chat, "openai:scripted"))
    result = run.run()
    cost = result["usage"]["seed0-01-seed"]
    assert (cost.calls, cost.input_tokens, cost.output_tokens) == (2, 20, 10)
    kept = json.loads((run.context.store.root / "llm" / "seed0-01-seed-2.json").read_text())
    assert kept["reply"].startswith("Fuses") and "Your answer was cut off" in kept["messages"][-1]["content"]
    assert kept["prompt"]["stage"] == "seed" and kept["prompt"]["digest"] and kept["tries"][0]["status"] == "ok"
