"""A family beside the compiler: every task is one, parts share them out, rows tell who is faster, and bad words get a sentence."""

from pathlib import Path

import pytest

from tritonsmith.benchmarks import families
from tritonsmith.benchmarks.family_tasks import TASKS
from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.reference.module import load_reference
from tritonsmith.evaluator.tasks.files import declared_shapes, load_task


@pytest.mark.parametrize("folder", TASKS)
def test_every_task_runs_at_its_small_size_and_has_no_other_one(folder: str, tmp_path: Path) -> None:
    for named in TASKS[folder]:
        task = load_task(named.place(tmp_path), "small", precision=named.precision or None)
        assert not declared_shapes(task)
        reference = load_reference(task)
        assert reference.build(0)(*reference.draw_inputs(0, "cpu")) is not None


def test_parts_share_the_tasks_out() -> None:
    parts = [families.select_tasks("chain", f"{number}/3", "") for number in (1, 2, 3)]
    assert sorted(task.name for part in parts for task in part) == sorted(task.name for task in TASKS["chain"])
    assert [task.name for task in families.select_tasks("chain", "1/1", "deep,square")] == ["deep", "square"]
    wrong = (("3/2", "", "write K/N"), ("one", "", "write K/N"), ("1/1", "wide", "no such task; choose from gelu_scale_bias"))
    for part, only, said in wrong:
        with pytest.raises(UsageError, match=said):
            families.select_tasks("chain", part, only)


def test_a_pair_says_how_much_of_the_familys_time_the_compiler_takes() -> None:
    row = {"task": "deep", "side": "pair", "texts": {"chain": "product", "regions": "regions"}, "ratio_of_medians": 0.75}
    assert families.describe_row(row) == "deep: the compiler takes 0.750 of the family's time"
    assert families.describe_row(row | {"ratio": 0.8, "interval": (0.7, 0.9)}).endswith(", in turn 0.800 (0.7, 0.9)")
    assert families.describe_row({"task": "deep", "side": "pair", "texts": {"chain": "product"}}) == "deep: no pair, works: chain"


def test_a_folder_that_is_not_there_gets_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert families.main(["chain", "--out", str(tmp_path / "none" / "rows.jsonl")]) == 2
    assert "there is no such folder" in capsys.readouterr().err
