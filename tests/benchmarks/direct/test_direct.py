"""First looks at kernels without the judge: which kernels are taken, and that a fault costs one row. No card is needed."""

import json
from pathlib import Path
from typing import Any

import pytest

from tritonsmith.benchmarks.direct import script
from tritonsmith.benchmarks.direct.child import Child, ChildDied


@pytest.fixture
def folders(tmp_path: Path) -> tuple[Path, Path]:
    """Three task files, and kernels for two of them."""
    tasks, texts = tmp_path / "tasks", tmp_path / "texts"
    for folder in (tasks / "level1", texts):
        folder.mkdir(parents=True)
    for name in ("2_b", "10_c_", "1_a"):
        (tasks / "level1" / f"{name}.py").write_text("")
    for name in ("level1_10_c___regions", "level1_2_b__regions", "level1_2_b__regions__wide", "level1_2_bb__regions"):
        (texts / f"{name}.py").write_text("")
    return tasks, texts


class Answers(Child):
    """A child that answers at once; kernels with `wide` in their name kill it."""

    started: list[str] = []

    def __init__(self, module: str) -> None:
        self.started.append(module.rpartition(".")[2])

    def ask(self, question: dict[str, Any], seconds: float) -> dict[str, Any]:
        if "wide" in question["name"]:
            raise ChildDied("its process ended with -11")
        return {"kernel": question["name"], "ms": 1.0, "ref_ms": 2.0, "graph_ms": 1.5, "error": 1e-7}

    def close(self) -> None:
        pass


def test_a_fault_costs_one_row(folders: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels follow the order of the tasks, a process that dies is started anew, and every kernel has a row."""
    monkeypatch.setattr(script, "Child", Answers)
    monkeypatch.setattr(script, "card_memory_in_use", lambda: 1)
    rows = tmp_path / "rows.jsonl"
    assert script.main([str(folders[0]), "--texts", str(folders[1]), "--rows", str(rows)]) == 0
    found = [json.loads(line) for line in rows.read_text().splitlines()]
    assert [row["kernel"] for row in found] == ["level1_2_b__regions", "level1_2_b__regions__wide", "level1_10_c___regions"]
    assert [row.get("fault") for row in found] == [None, "its process ended with -11", None]
    assert Answers.started.count("timer") == 2
    assert script.main([str(folders[0]), "--texts", str(folders[1]), "--rows", str(rows), "--seconds", "-1"]) == 1


def test_what_is_missing_is_said_in_a_sentence(
    folders: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(folders[0]), "--texts", str(tmp_path)]
    monkeypatch.setattr(script, "card_memory_in_use", lambda: None)
    assert script.main(words) == 2 and "there is no CUDA card here" in capsys.readouterr().err
    monkeypatch.setattr(script, "card_memory_in_use", lambda: 1)
    assert script.main(words) == 2 and "holds no kernel TASK__NAME.py" in capsys.readouterr().err


def test_a_child_that_ends_or_is_silent_is_told() -> None:
    """`json.tool` reads to the end of its input, so it never answers; `platform` ends by itself."""
    child = Child("json.tool")
    with pytest.raises(ChildDied, match="no answer within 0.2 s"):
        child.ask({}, 0.2)
    child.close()
    child = Child("platform")
    with pytest.raises(ChildDied, match="its process ended"):
        for _ in range(3):
            child.ask({}, 20)
    child.close()
