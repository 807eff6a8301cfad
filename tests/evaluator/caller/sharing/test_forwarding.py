"""What stands before another evaluator passes on whatever it does not change, also what the protocol gets later."""

import asyncio
import inspect
from typing import Any

import pytest

from tritonsmith.evaluator.caller.sharing.answers import AnswerStore, KeptEvaluator, list_judging_code
from tritonsmith.evaluator.caller.sharing.forwarding import ForwardingEvaluator
from tritonsmith.evaluator.caller.sharing.views import SharedEvaluator
from tritonsmith.evaluator.cards.cards import named_card
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.protocol import Evaluator
from tritonsmith.evaluator.schema import Task, TaskFacts
from tritonsmith.nodes.evaluators.tape import TapeEvaluator
from tritonsmith.nodes.tape.tape import Tape

MEMBERS = sorted(name for name in {*vars(Evaluator), *Evaluator.__annotations__} if not name.startswith("_"))
QUESTIONS = [name for name in MEMBERS if inspect.isfunction(vars(Evaluator).get(name))]
SAYINGS = sorted({*MEMBERS} - {*QUESTIONS})
TASK, KERNEL = Task(name="mine", path="mine.py", source="x"), KernelText.of("a")


class Told(Evaluator):
    """Answers every question of the protocol with its name and what it was asked."""

    hardware, parallel, admits, cards = named_card("h200"), 3, 5, 2

    async def describe(self, task: Task) -> TaskFacts:
        raise NotImplementedError

    async def evaluate(self, task: Task, kernel: KernelText, profile: str = "quick") -> Any:
        raise NotImplementedError


def answering(name: str) -> Any:
    """A method that answers with its name and what it was given."""
    if inspect.iscoroutinefunction(getattr(Evaluator, name)):

        async def later(self: Told, *given: object) -> Any:
            return name, given

        return later
    return lambda self, *given: (name, given)


for question in QUESTIONS:
    setattr(Told, question, answering(question))


def ask(evaluator: Evaluator, name: str) -> object:
    """The answer to a question with a made-up value for each of its arguments; None where the question is for nothing but its end."""
    given = tuple(f"{parameter} of {name}" for parameter in list(inspect.signature(getattr(Evaluator, name)).parameters)[1:])
    answer = getattr(evaluator, name)(*given)
    answer = asyncio.run(answer) if inspect.iscoroutine(answer) else answer
    assert answer in (None, (name, given))
    return answer


def test_the_protocol_has_questions_and_sayings() -> None:
    assert {"describe", "evaluate", "race", "count", "read_code", "write_seed", "knows", "settle", "aclose"} <= {*QUESTIONS}
    assert SAYINGS == ["admits", "at_once", "cards", "hardware", "parallel"]


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_wrapper_that_changes_nothing_passes_every_question_on(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    plain = getattr(Told, name)

    def noted(self: Told, *given: object) -> Any:
        asked.append(given)
        return plain(self, *given)

    monkeypatch.setattr(Told, name, noted)
    answer = ask(ForwardingEvaluator(Told()), name)
    assert len(asked) == 1
    returns_nothing = inspect.signature(getattr(Evaluator, name)).return_annotation == "None"
    assert (answer is None) == returns_nothing


@pytest.mark.parametrize("name", SAYINGS)
def test_a_wrapper_says_of_itself_what_the_other_says(name: str) -> None:
    assert getattr(ForwardingEvaluator(Told()), name) == getattr(Told(), name)


def test_every_wrapper_is_one_of_these(tmp_path: Any) -> None:
    """Each says what it was given to stand before, and passes on what it does not name itself."""
    wrappers = [
        KeptEvaluator(Told(), AnswerStore(tmp_path / "answers"), {}),
        SharedEvaluator(Told()).view("run"),
        TapeEvaluator(Tape([], tmp_path / "tape"), Told()),
    ]
    for wrapper in wrappers:
        assert isinstance(wrapper, ForwardingEvaluator)
        assert (wrapper.parallel, wrapper.admits, wrapper.cards) == (3, 5, 2)
    kept = wrappers[0]
    assert all(ask(kept, name) for name in ("describe", "race", "count", "read_code", "write_seed", "knows"))


class Least(Evaluator):
    """Answers what every evaluator must answer."""

    hardware = named_card("h200")

    async def describe(self, task: Task) -> TaskFacts:
        return TaskFacts()

    async def evaluate(self, task: Task, kernel: KernelText, profile: str = "quick") -> Any:
        raise NotImplementedError


def test_an_evaluator_that_can_nothing_more_says_so() -> None:
    least = Least()
    assert (least.parallel, least.admits, least.cards, least.knows(TASK, KERNEL)) == (1, 1, 1, False)
    assert asyncio.run(least.count(TASK, KERNEL)) is None and asyncio.run(least.read_code(TASK, KERNEL)) == ""
    assert asyncio.run(least.write_seed(TASK)) is None
    asyncio.run(least.settle())
    asyncio.run(least.aclose())


def test_an_answer_depends_on_all_of_the_judging_code() -> None:
    """Wherever the store's own file lies."""
    zones = {path.parts[path.parts.index("evaluator") + 1] for path in list_judging_code() if "evaluator" in path.parts}
    assert {"oracle", "confined", "reference", "cards", "schema.py"} <= zones
