"""The study of modules of many launches: its texts, its rows, and the figures that are required. Timing needs a card."""

import ast
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tritonsmith.benchmarks.timing import launches
from tritonsmith.benchmarks.timing.blocks import BLOCKS, TYPES
from tritonsmith.evaluator.errors import TaskError
from tritonsmith.evaluator.schema import Correctness, LaunchFacts, Measurement, Status, Task, Timing, TimingKind, Verdict

RIGHT = Correctness(max_abs_err=0.0, mean_abs_err=0.0, err_vs_oracle=0.0, reference_err_vs_oracle=0.0)


def test_every_block_has_a_task_and_a_candidate_that_are_python() -> None:
    texts = [ast.parse(text) for block in BLOCKS for dtype in TYPES for text in (block.task(dtype), block.candidate(dtype))]
    classes = [{node.name for node in text.body if isinstance(node, ast.ClassDef)} for text in texts]
    assert all("Model" in one for one in classes[::2]) and all("ModelNew" in one for one in classes[1::2])
    parts = [launches.list_jobs(f"{number}/4") for number in range(1, 5)]
    assert len({(block.name, dtype) for part in parts for block, dtype in part}) == len(BLOCKS) * 2 == sum(map(len, parts))


class Evaluator:
    """Says what a test says of each module, in turn; a library that builds a block in another way is a TaskError."""

    hardware = SimpleNamespace(present=True, name="a card")
    scores = iter(())

    def _judge(self, task: Task, kernel: object, profile: str) -> Verdict:
        score = next(self.scores)
        if score is None:
            raise TaskError("the block takes other arguments")
        sessions = (score,) if profile == "quick" else (score, 1.01 * score, 0.995 * score)
        timing = Timing(
            kind=TimingKind.MEASURED, median_ms=0.1, baselines_ms={"cuda_graph": 0.1}, baseline="cuda_graph", score=score, score_eager=2.0,
            form="cuda_graph", sessions=tuple(Measurement(ratio=ratio, interval=(ratio, ratio), pairs=40) for ratio in sessions),
        )  # fmt: skip
        return Verdict(status=Status.OK, correctness=RIGHT, timing=timing, facts=LaunchFacts(launches_per_forward=17), profile=profile)

    def close(self) -> None:
        pass


def test_rows_come_one_by_one_and_the_figures_follow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any) -> None:
    """A module that cannot be judged here is left out, and another one is taken in its place."""
    out, evaluator = tmp_path / "rows.jsonl", Evaluator()
    monkeypatch.setattr(launches, "open_evaluator", lambda raw_dir: evaluator)
    evaluator.scores = iter([1.05, 1.06, None, 2.0, 1.9])
    assert launches.main(["--out", str(out), "--count", "2"]) == 0
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert ["left_out" in row for row in rows] == [False, True, False] and rows[0]["strict"]["sessions"][0] == 1.06
    assert "2 of 2" in capsys.readouterr().out
    evaluator.scores = iter([1.0, 1.2, 1.0, 1.2, 1.0, 1.2])  # quick far from strict
    assert launches.main(["--out", str(out), "--count", "3", "--load", "0"]) == 1
    assert launches.main(["--out", str(out), "--part", "5/4"]) == 2


def test_without_a_card_it_says_so_in_a_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: Any) -> None:
    evaluator = Evaluator()
    evaluator.hardware = SimpleNamespace(present=False, name="none")
    monkeypatch.setattr(launches, "open_evaluator", lambda raw_dir: evaluator)
    assert launches.main(["--out", str(tmp_path / "rows.jsonl")]) == 2
    assert "there is no CUDA card here" in capsys.readouterr().err
