"""A kept verdict is for what was judged, and real files load: as a user types it."""

import os
import sqlite3
import subprocess
import sys

import pytest

from tritonsmith.cli.main import run

TASK = """
import torch
import torch.nn as nn
from pathlib import Path
{imports}

rows, columns = 16, 32
WEIGHTS = {weights}

class Model(nn.Module):
    def forward(self, x):
        return x * {factor} * WEIGHTS

def get_inputs():
    return [torch.randn(rows, columns)]

def get_init_inputs():
    return []
"""
LOAD = "float((Path(__file__).parent / 'weights.txt').read_text())"
"""What needs no torch.load, and so no torch in the test."""
RUN = ("--size", "full", "--seeds", "1", "--policy", "no-tune", "--checkpoints", "none")


def write(folder, imports="import hh", factor="hh.K", weights=LOAD):
    folder.mkdir()
    (folder / "task.py").write_text(TASK.format(imports=imports, factor=factor, weights=weights))
    (folder / "hh.py").write_text("K = 2.0\n")
    (folder / "weights.txt").write_text("1.5")
    return folder


def type_command(*words, cwd, answers="off"):
    """Output and exit code of the command."""
    environment = {**os.environ, "TRITONSMITH_ANSWERS": str(answers), "COLUMNS": "300"}
    command = [sys.executable, "-c", "import sys; from tritonsmith.cli.main import main; main()", *words]
    found = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=280, check=False)
    return found.stdout + found.stderr, found.returncode


def test_a_helper_and_data_beside_the_task_load_by_a_relative_path_from_another_folder(tmp_path, monkeypatch, capsys):
    write(tmp_path / "mine")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    code, output = run(["lint", "../mine/task.py"]), "".join(capsys.readouterr())
    assert (code, "fit to judge kernels by" in output) == (0, True), output


def test_a_missing_import_names_the_folder_that_was_looked_in(tmp_path, monkeypatch, capsys):
    folder = write(tmp_path / "mine", imports="import gone")
    monkeypatch.chdir(tmp_path)
    code, output = run(["lint", "mine/task.py"]), "".join(capsys.readouterr()).replace("\n", "")
    assert code == 2 and f"looked in {folder}, on PYTHONPATH and among the installed packages; put gone.py there" in output, output
    assert "Traceback" not in output


@pytest.mark.slow  # three runs with verdicts
def test_the_verdicts_of_an_earlier_run_count_until_the_helper_changes(tmp_path):
    folder, answers = write(tmp_path / "mine"), tmp_path / "answers.sqlite"

    def optimize(out):
        output, code = type_command("optimize", "mine/task.py", "--out", out, *RUN, cwd=tmp_path, answers=answers)
        assert code == 0, output
        with sqlite3.connect(answers) as database:
            return "measured before" in output, database.execute("select count(*) from answers").fetchone()[0]

    kept, count = optimize("one")
    assert not kept and count
    assert optimize("two") == (True, count)
    (folder / "hh.py").write_text("K = 3.0\n")
    kept, more = optimize("three")
    assert not kept and more > count


@pytest.mark.slow  # a run with verdicts
def test_a_task_that_starts_processes_has_no_verdict_kept_and_a_line_says_so(tmp_path):
    write(tmp_path / "mine", imports="import subprocess, hh", weights="float(subprocess.check_output(['echo', '2']))")
    output, code = type_command("optimize", "mine/task.py", "--out", "out", *RUN, cwd=tmp_path, answers=tmp_path / "answers.sqlite")
    assert code == 0 and output.count("its verdicts are not kept for other runs: it starts processes") == 1, output
    assert not (tmp_path / "answers.sqlite").exists()
