"""What a checkpoint, a tape or a spool gives back is what was written, also in the order of its keys."""

import asyncio
import math

import pytest

import unsorted_tasks as tasks
from tritonsmith.evaluator.kernel_text import KernelText, text_sha
from tritonsmith.evaluator.schema import OpNode, Status, Task, Verdict
from tritonsmith.graph.checkpoints.allowed import serializer
from tritonsmith.graph.storage.records import read_record, write_record
from tritonsmith.graph.storage.store import Store
from tritonsmith.nodes.evaluators.spool import JobResult
from tritonsmith.nodes.evaluators.tape import TapeEvaluator
from tritonsmith.nodes.tape.recorder import RunTape

TASK = Task(name="7_scorer", path="7_scorer.py", source=tasks.SCORER, overrides={"width": 8, "rows": 4})
GIVEN = {"z": {"b": (1,), "a": 2.0}, "a": Status.OK}
PAD = OpNode(name="pad", op="call_function", target="pad", args=((1, (2, 3)), -math.inf), kwargs=GIVEN)
FACTS = tasks.SCORER_FACTS.model_copy(update={"ops": (*tasks.SCORER_FACTS.ops, PAD)})


def odd_verdict():
    """A verdict with tables in no order, tuples within values of no fixed type, and an error that JSON has no number for."""
    found = tasks.verdict_of(2)
    wide = found.correctness.model_copy(update={"max_abs_err": math.inf, "err_vs_oracle": 0.1 + 0.2})
    odd = {"z": (1, ("two", 3.0)), "a": {3: math.inf, "last": None}}
    return Verdict.model_validate({**dict(found), "correctness": wide, "environment": odd})


def through_checkpoint(facts, verdict, folder):
    read = serializer().loads_typed(serializer().dumps_typed({"verdicts": {"b": verdict, "a": verdict}, "facts": facts}))
    assert list(read) == ["verdicts", "facts"] and list(read["verdicts"]) == ["b", "a"]
    return read["facts"], read["verdicts"]["b"]


def through_spool(facts, verdict, folder):
    write_record(folder / "facts.json", JobResult(facts=facts))
    write_record(folder / "verdict.json", JobResult(verdict=verdict))
    return read_record(JobResult, folder / "facts.json").facts, read_record(JobResult, folder / "verdict.json").verdict


def through_tape(facts, verdict, folder):
    async def play(judge):
        tape, recorder = RunTape().open(folder / "tape.jsonl", "x")
        evaluator = TapeEvaluator(tape, judge, recorder)
        return await evaluator.describe(TASK), await evaluator.evaluate(TASK, KernelText.of("text"))

    class Judge(tasks.Judge):
        async def evaluate(self, *asked):
            self.calls.append(asked)
            return verdict

    judge = Judge(facts)
    asyncio.run(play(judge))
    read = asyncio.run(play(judge))
    assert judge.described == len(judge.calls) == 1
    return read


@pytest.mark.parametrize("way", [through_checkpoint, through_spool, through_tape])
def test_a_record_comes_back_as_it_was(tmp_path, way):
    verdict = odd_verdict()
    facts, found = way(FACTS, verdict, tmp_path)
    assert facts == FACTS and found == verdict
    assert repr(facts) == repr(FACTS) and repr(found) == repr(verdict), "a text tells the order of keys and every digit"


def test_a_kernel_comes_back_with_its_line_ends(tmp_path):
    text = "a = 1\rb = '\u2028'\r\nc = 3\n"
    store = Store(tmp_path)
    assert text_sha(store.get(store.put(text))) == text_sha(text)


def test_a_run_goes_on_with_the_card_of_its_first_prompt(tmp_path):
    """Two drivers may tell of the same card in different figures."""
    first, other = tasks.Judge(), tasks.Judge()
    other.hardware = first.hardware.model_copy(update={"memory_bytes": 1, "clock_hz": 1e9})
    for judge in (first, other):
        tape, recorder = RunTape().open(tmp_path / "tape.jsonl", "x")
        assert TapeEvaluator(tape, judge, recorder).hardware == first.hardware
