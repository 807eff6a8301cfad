"""The table of traced tasks."""

from pathlib import Path

import pytest

from project import ROOT
from tritonsmith.benchmarks.trace_table import main


@pytest.mark.slow
def test_every_task_has_a_row_and_a_fault_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    text = (ROOT / "benchmarks" / "tasks" / "26_gelu_scale_bias.py").read_text()
    (folder / "2_right.py").write_text(text)
    (folder / "10_wrong.py").write_text(text.replace("class Model", "class Modell"))
    table = tmp_path / "table.csv"
    assert main([str(folder), "--out", str(table)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:3] for line in lines[1:3]] == [["mine/2_right", "fx", "7"], ["mine/10_wrong", "none", "0"]]
    assert "class Model" in lines[2] and lines[3].startswith("2 tasks: 1 fx, 1 none; at most ")
    assert [line.split(",")[0] for line in table.read_text().splitlines()] == ["task", "mine/2_right", "mine/10_wrong"]


def test_a_folder_without_tasks_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([str(tmp_path)])
    assert ended.value.code == 2 and "holds no task file (*.py)" in capsys.readouterr().err
