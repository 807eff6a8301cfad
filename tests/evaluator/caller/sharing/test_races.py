"""Races behind everything that stands before an evaluator: a search finds there what it finds without it."""

import asyncio

import pytest

from search_card import KERNEL, TASK, Card, judge_with
from tritonsmith.benchmarks.ablation.sharing import CellEvaluator, Memo, MemoEvaluator
from tritonsmith.evaluator.caller.sharing.answers import AnswerStore, KeptEvaluator
from tritonsmith.evaluator.caller.sharing.devices import DeviceEvaluator
from tritonsmith.evaluator.caller.sharing.views import SharedEvaluator
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.protocol import Evaluator
from tritonsmith.evaluator.records.limits import Counters
from tritonsmith.evaluator.schema import LaunchFacts, Task, TaskFacts, TimingKind
from tritonsmith.graph.run import optimize
from tritonsmith.nodes.authors.scripted import ScriptedAuthor


class OneCard:
    """A card of the host with a scripted evaluator, which does one thing at a time."""

    parallel = admits = 1

    def __init__(self, judge):
        self.judge, self.hardware, self.busy = judge, judge.hardware, 0

    def describe_ahead(self, task):
        pass

    async def describe(self, task):
        return TaskFacts()

    def evaluate_now(self, task, kernel, profile="quick"):
        return self.answer(self.judge.evaluate(task, kernel, profile))

    def race_now(self, task, incumbent, entrants, facts, keep, seconds):
        race = getattr(self.judge, "race", None)
        return race and self.answer(race(task, incumbent, entrants, facts, keep, seconds))

    async def count(self, task, kernel):
        return await self.judge.count(task, kernel) if hasattr(self.judge, "count") else None

    async def read_code(self, task, kernel):
        return await self.judge.read_code(task, kernel) if hasattr(self.judge, "read_code") else ""

    def answer(self, question):
        async def wait():
            self.busy += 1
            assert self.busy == 1, "it has one place"
            await asyncio.sleep(0.002)
            self.busy -= 1
            return await question

        return asyncio.run(wait())

    def close(self):
        pass


class Raceless(Evaluator):
    """Judges as a scripted evaluator does, and has no races."""

    def __init__(self):
        self.inner = judge_with(Card(2))
        self.hardware = self.inner.hardware

    async def describe(self, task):
        return await self.inner.describe(task)

    async def evaluate(self, task, kernel, profile="quick"):
        return await self.inner.evaluate(task, kernel, profile)


class Counted(Raceless):
    """And a card whose counters can be read, and a compiler."""

    async def count(self, task, kernel):
        return Counters(source="compiled", reason=f"{task.name} {kernel.text}")

    async def read_code(self, task, kernel):
        return f"code of {kernel.text}"


WRAPPERS = {
    "kept": lambda inner, folder: KeptEvaluator(inner, AnswerStore(folder / "answers.sqlite"), {}),
    "devices": lambda inner, folder: DeviceEvaluator([OneCard(inner)]),
    "shared": lambda inner, folder: SharedEvaluator(inner).view("run"),
    "ablation": lambda inner, folder: CellEvaluator(MemoEvaluator(inner), Memo(folder / "memo"), "cell"),
}


def search_with(evaluator, out):
    return optimize(TASK, evaluator=evaluator, author=ScriptedAuthor(seeds=(KERNEL,)), seeds=1, checkpoints="none", out=str(out)).searches


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """The searches of a run whose evaluator nothing stands before."""
    return search_with(judge_with(Card(2)), tmp_path_factory.mktemp("bare") / "run")


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_searches_race_through_every_wrapper(wrapper, bare, tmp_path):
    card = Card(2)
    searches = search_with(WRAPPERS[wrapper](judge_with(card), tmp_path), tmp_path / "run")
    assert searches == bare and len(card.races) > 3 and {search.kind for search in searches} == {TimingKind.MEASURED}


def test_without_races_inside_there_are_none(tmp_path):
    """Through all of them at once; each passes on what it gets."""
    evaluator = Raceless()
    for wrap in (WRAPPERS["devices"], WRAPPERS["kept"], WRAPPERS["shared"], WRAPPERS["ablation"]):
        evaluator = wrap(evaluator, tmp_path)
    searches = search_with(evaluator, tmp_path / "run")
    assert {search.kind for search in searches} == {None} and any(search.finalists for search in searches)


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_counters_and_code_come_through_every_wrapper(wrapper, tmp_path):
    task, kernel = Task(name="t", source="x", path="t.py"), KernelText.of("y = x")

    def ask(inner):
        evaluator = WRAPPERS[wrapper](inner, tmp_path)
        return asyncio.run(evaluator.count(task, kernel)), asyncio.run(evaluator.read_code(task, kernel))

    counters, code = ask(Counted())
    assert counters.reason == "t y = x" and code == "code of y = x"
    assert ask(Raceless()) == (None, "")


def test_a_race_waits_for_the_card_and_runs_of_one_repeat_share_it(tmp_path):
    """What comes at once waits for the card; runs of an experiment with the same question have the same answer."""
    card = Card(2)
    shared, memo = MemoEvaluator(DeviceEvaluator([OneCard(judge_with(card))])), Memo(tmp_path)
    task, texts = Task(name="t", source="x", path="t.py"), [KernelText.of(KERNEL.replace("BK = 64", f"BK = {rows}")) for rows in (32, 128)]

    async def ask_at_once():
        cells = [CellEvaluator(shared, memo, name) for name in ("one", "two")]
        questions = [cell.race(task, KernelText.of(KERNEL), texts, LaunchFacts(), 1, 10.0) for cell in cells]
        return await asyncio.gather(*questions, shared.inner.race(task, texts[0], texts[1:], LaunchFacts(), 1, 10.0))

    first, second, other = asyncio.run(ask_at_once())
    assert first == second and first.incumbent == KernelText.of(KERNEL).sha and other.incumbent == texts[0].sha
    assert len(card.races) == 2, "equal questions are raced once"
