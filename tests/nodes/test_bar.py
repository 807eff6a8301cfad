"""The bar: what the module itself takes is asked once, ahead of all kernels, where a model reads it."""

import asyncio

from tritonsmith.evaluator.cards.cards import named_card
from tritonsmith.evaluator.errors import InfrastructureError
from tritonsmith.evaluator.schema import Task, TaskFacts, TimingKind
from tritonsmith.nodes.bar import measure_bar, read_bar
from tritonsmith.nodes.evaluators.scripted import scripted_verdict

TASK = Task(name="t", path="t.py", source="class Model(nn.Module):\n    def __init__(self):\n        super(Model, self).__init__()\n")


class Judge:
    """Answers with one verdict and remembers the text."""

    def __init__(self, answer, present=True, at_once=True):
        self.answer, self.asked, self.at_once = answer, [], at_once
        self.hardware = named_card("h200").model_copy(update={"present": present})

    async def evaluate(self, task, kernel):
        self.asked.append(kernel.text)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Setting:
    """What the node reads of a context."""

    def __init__(self, judge, author=None):
        self.evaluator, self.author = judge, author


class Counting:
    computes_analyses = True


def measured(**fields):
    verdict = scripted_verdict(1.0)
    timing = verdict.timing.model_copy(update={"kind": TimingKind.MEASURED, "baselines_ms": {"eager": 0.5, "compile": 0.2}})
    facts = verdict.facts.model_copy(update={"library_ms": {"gemm": 0.3, "relu": 0.1}})
    return verdict.model_copy(update={"timing": timing, "facts": facts, **fields})


def ask(judge, author=None):
    return asyncio.run(measure_bar(Setting(judge, author), TASK, TaskFacts()))


def test_the_module_is_judged_as_a_candidate_of_its_own():
    judge = Judge(measured())
    bar = ask(judge).bar
    assert (bar.baseline, bar.baselines_ms["eager"], bar.kernels) == ("compile", 0.5, {"gemm": 0.3, "relu": 0.1})
    assert "class ModelNew(" in judge.asked[0] and "super(ModelNew, self)" in judge.asked[0] and len(judge.asked) == 1


def test_nothing_is_asked_where_nobody_reads_it_or_nothing_is_timed():
    elsewhere = Judge(measured(), at_once=False)
    for judge, author in ((Judge(measured(), present=False), None), (Judge(measured()), Counting()), (elsewhere, None)):
        assert ask(judge, author).bar is None and not judge.asked


def test_a_bar_that_cannot_be_had_is_no_fault_of_the_run():
    assert ask(Judge(InfrastructureError("busy"))).bar is None
    assert read_bar(measured(timing=None, status="inaccurate")) is None
