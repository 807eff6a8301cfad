"""Kernels with a syntax slip, and requests that are cancelled: neither passes for something else."""

import asyncio
import csv
import json

import pytest
from langchain_core.language_models.chat_models import SimpleChatModel

import chat_server as chat
from tritonsmith.nodes.evaluators.scripted import scripted_verdict

Turn, kernel, answer = chat.Turn, chat.kernel, chat.answer
FAST = scripted_verdict(1.5, launches=1)


def path(result):
    return [(decision.site, decision.choice) for decision in result.summary.decisions]


def rows(result):
    with (result.out / "usage.csv").open() as file:
        return list(csv.DictReader(file))


class ScriptedModel(SimpleChatModel):
    """A chat model that is no server's."""

    @property
    def _llm_type(self):
        return "scripted"

    def _call(self, *given, **more):
        return "no"


BROKEN = f"Done.\n```python\n{kernel(9).replace('(torch.nn.Module):', '(torch.nn.Module)')}```\n"


@pytest.mark.parametrize("text", [BROKEN, BROKEN.partition("\n")[2].strip("`\n").removeprefix("python\n"), BROKEN.rstrip("`\n")])
def test_a_kernel_with_a_syntax_slip_is_repaired_as_any_other(play, text):
    """Whatever form it comes in, and however often, it is a kernel with a verdict, and no answer without one."""
    result = play([text, text, answer(1)], {1: FAST})
    assert [request["messages"][-1]["role"] for request in result.server.requests] == ["user"] * 3
    assert path(result)[:3] == [("after_evaluate", "repair"), ("after_evaluate", "repair"), ("after_evaluate", "accept")]
    assert (result.out / "kernels").is_dir() and result.summary.winner.id == "seed0-03"


def test_a_whole_module_goes_before_one_with_a_slip(play):
    result = play([f"```python\n{kernel(1)}```\nBetter:\n{BROKEN}"], {1: FAST})
    assert result.summary.winner.id == "seed0-01" and len(result.server.requests) == 1


def test_a_variant_with_a_slip_is_asked_for_once_more(play):
    """Nobody repairs a variant: the line that is no Python is named in a second question."""
    result = play([answer(1), BROKEN, answer(2), *["no"] * 4], {1: FAST, 2: FAST}, policy="tune-model")
    assert "The module is no Python: line 4: SyntaxError: expected ':'" in result.server.requests[2]["messages"][-1]["content"]
    assert {row.stage for row in result.summary.candidates} == {"seed", "tune_grid"}


def test_a_request_that_the_server_gives_up_is_no_timeout(play):
    """It is asked again, told and kept as what it is, and what it cost is counted."""
    result = play([Turn("half of it", finish="abort"), answer(1)], {1: FAST})
    assert [row["status"] for row in rows(result)] == ["cancelled", "ok"]
    twice = play([chat.fault(499, "Request was cancelled")] * 2, {}, out="twice")
    assert "gave the request up after 2 tries" in str(twice.error) and "499: Request was cancelled" in str(twice.error)
    events = [json.loads(line) for line in (twice.out / "events.jsonl").read_text().splitlines()] if twice.out.exists() else []
    assert all(not event.get("answered") for event in events)


def test_a_request_that_its_library_cancels_is_no_timeout(play):
    """The library's cancellation must not pass for that of the run."""

    class Cancelling(ScriptedModel):
        def _generate(self, *given, **more):
            raise asyncio.CancelledError

    result = play([], {}, models={"author": Cancelling()})
    assert result.error.fault.value == "cancelled" and "was cancelled by asyncio" in str(result.error)
