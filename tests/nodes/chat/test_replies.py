"""Reading replies that no server should send: loops, half characters, figures that are none."""

import json

import pytest
from langchain_core.messages import AIMessage

import chat_server as chat
from tritonsmith.nodes.chat.forms import analysis_in
from tritonsmith.nodes.chat.replies import module_in, modules_in, reason_in
from tritonsmith.nodes.chat.wire import Wire, reply_of

MODULE = chat.kernel(1)


@pytest.mark.parametrize(
    "loop",
    ["```python\n", "```python\nx = 1\n", "~~~\n```\n", "<think>", "{", '{"a": ', "[" * 50, "class ModelNew(", "` ``` "],
)
def test_a_model_that_loops_is_read_in_time(loop):
    text = loop * 40_000
    assert modules_in(text) == [] and isinstance(reason_in(text), str)
    with pytest.raises(ValueError, match="JSON"):
        analysis_in(text)


def test_fences_in_docstrings_and_forgotten_ends_are_handled():
    """A fence in a docstring stays in the module, and a forgotten end does not hide the next block."""
    documented = f'"""Use:\n\n```python\nModelNew()\n```\n"""\n{MODULE}'
    assert modules_in(f"````python\n{documented}````") == [documented]
    assert modules_in(f"```python\nx = 1\n\nBetter:\n```python\n{MODULE}```") == [MODULE]


def test_a_reply_that_was_cut_after_its_module_still_offers_it():
    whole = f"Done.\n```python\n{MODULE}```\nIt is fast bec"
    assert module_in(whole, cut=True) == MODULE
    assert module_in(f"{whole}\n```python\nclass Mod", cut=True) is None and module_in(f"{whole}\n```python\nclass Mod") == MODULE
    assert reason_in(whole) == "Done."


@pytest.mark.parametrize("field", ["expected_speedup", "bound"])
def test_a_figure_that_is_no_number_is_refused(field):
    text = chat.analysis().replace('"expected_speedup": 3.0', '"expected_speedup": NaN') if field != "bound" else chat.analysis(
        promise={"metric": "score", "before": 1, "bound": float("inf"), "at_most": False}
    )  # fmt: skip
    with pytest.raises(ValueError, match=f"{field}: .*finite"):
        analysis_in(text)


def test_long_fields_are_cut_and_unknown_keys_are_left_out():
    found = analysis_in(chat.analysis(modification_plan="x" * 100_000, confidence="high"))
    assert len(found.modification_plan) == 4000 and found.returns == "a tensor"


def test_half_characters_can_be_written():
    body = json.dumps({"choices": [{"message": {"content": "\ud800x", "reasoning_content": "\udfff"}}]})
    reply = reply_of(AIMessage(json.loads('"\\ud800x"')), [Wire(200, body)], "text")
    assert (reply.text, reply.reasoning) == ("?x", "?") and reply.model_dump_json()
