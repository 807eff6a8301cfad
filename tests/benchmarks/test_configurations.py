"""Random configurations: equal seeds draw equal tasks, every task can be made, and bad words are told."""

import random
from pathlib import Path

import pytest

from tritonsmith.benchmarks import configurations
from tritonsmith.evaluator.reference.module import load_reference
from tritonsmith.evaluator.schema import Task


@pytest.mark.parametrize("family", configurations.FAMILIES)
def test_every_draw_is_a_task_of_its_own(family: str) -> None:
    draw = configurations.FAMILIES[family]
    texts = [draw(random.Random(seed), False) for seed in range(24)]
    assert texts == [draw(random.Random(seed), False) for seed in range(24)] and len(set(texts)) > 20
    for text in texts[:6]:
        reference = load_reference(Task(name="drawn", path="drawn.py", source=text))
        assert reference.build(0)(*reference.draw_inputs(0, "cpu")) is not None


def test_bad_words_get_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    there = tmp_path / "rows.jsonl"
    there.touch()
    for words, said in (
        (["--families", "tree"], "--families tree: no such family"), (["--count", "0"], "--count 0: give 1 or more"),
        ([], "something lies there"),
    ):  # fmt: skip
        assert configurations.main(["--out", str(there), *words]) == 2
        assert said in capsys.readouterr().err
