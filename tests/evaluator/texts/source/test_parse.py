"""Python text is read from many threads at once: branches of a run are judged side by side."""

import ast
import gc
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tritonsmith.evaluator.texts.source.parse import parse, parse_expression

TEXT = "\n".join(f"def f{i}(a, b=[{i}, (1, {{2: 3}})]):\n    return (lambda x: [y for y in x if a])(b)[{i}:]" for i in range(40))


@pytest.fixture
def busy_collector() -> Iterator[None]:
    """A collector that lets other threads go on in the middle of making a tree."""

    def turn(_phase: str, _about: dict[str, int]) -> None:
        time.sleep(0)

    before = gc.get_threshold()
    gc.callbacks.append(turn)
    gc.set_threshold(50)
    yield
    gc.set_threshold(*before)
    gc.callbacks.remove(turn)


def faults_of(read: Callable[[str], ast.Module]) -> list[BaseException]:
    faults: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(10):
                assert len(read(TEXT).body) == 40
        except BaseException as error:  # noqa: BLE001 - reported by the main thread
            faults.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    return faults


def test_trees_can_be_made_in_many_threads(busy_collector: None) -> None:
    assert not faults_of(parse)


def test_what_is_no_python_says_so() -> None:
    for wrong in ("def f(:", "\0"):
        with pytest.raises((SyntaxError, ValueError)):
            parse(wrong)
    with pytest.raises(SyntaxError):
        parse_expression("a = 1")
    assert isinstance(parse_expression("(1, [2, {3: 4}])"), ast.Tuple)
