"""The command about the memory across runs: list, show and forget."""

import json

import pytest

from tritonsmith.cli.main import run
from tritonsmith.nodes.authors.remembered import FailedAttempt, MemoryFolder, RememberedKernel, TaskKind

ABOUT = {"task": "39_gru", "kind": TaskKind(families=("recurrent",), types="float32 ieee"), "card": "h200", "triton": "3.6.0"}


@pytest.fixture
def folder(tmp_path):
    kept = MemoryFolder(tmp_path / "memory")
    kept.make()
    text = "import triton\nBEEP = '\x1b[2J'\n"
    kept.put(RememberedKernel(
        **ABOUT, task_key="aa1", sha="k", timed="measured", score=4.5, baseline="cuda_graph", launches=1, source=text,
    ))  # fmt: skip
    kept.put(FailedAttempt(**ABOUT, task_key="aa2", sha="f", status="racy", idea="Two programs share a row.", reason="the order decides"))
    return kept.root


def test_records_are_listed_shown_and_forgotten(folder, capsys):
    assert run(["memory", str(folder)]) == 0
    listed = capsys.readouterr().out
    assert listed.startswith("1 kernel and 1 failure in ")
    assert "aa2-f  39_gru (recurrent, float32 ieee) on h200, Triton 3.6.0: racy" in listed
    assert "4.50x cuda_graph, measured, strict" in listed
    assert run(["memory", str(folder), "--show", "aa1"]) == 0
    shown = capsys.readouterr().out
    assert "import triton" in shown and "\x1b" not in shown
    assert run(["memory", str(folder), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows["kernels"] + rows["failures"]] == ["aa1-k", "aa2-f"] and rows["unreadable"] == 0
    assert run(["memory", str(folder), "--forget", "aa1"]) == 0
    assert not MemoryFolder(folder).kernels() and len(MemoryFolder(folder).failures()) == 1
    (folder / "kernels" / "odd.json").write_text("{half")
    capsys.readouterr()
    assert run(["memory", str(folder), "--forget-all", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"removed": 2} and not list(folder.rglob("*.json"))


@pytest.mark.parametrize(
    ("more", "named"),
    [
        (["--show", "zz"], "has no record of that name"), (["--show", "aa"], "2 records begin so (aa1-k, aa2-f)"),
        (["--forget", "aa1", "--forget", "zz"], "zz: "), (["--show", "aa1", "--forget-all"], "choose one of them"),
    ],
)  # fmt: skip
def test_a_name_that_fits_nothing_gets_one_sentence(folder, capsys, more, named):
    assert run(["memory", str(folder), *more]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.startswith("error: ") and named in printed.err and printed.err.count("\n") == 1
    assert len(MemoryFolder(folder).kernels()) == 1, "nothing is forgotten by half"


def test_a_folder_that_is_no_memory_gets_one_sentence(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    for name, words in (("", "no memory of runs"), ("missing", "there is no such folder"), ("file", "there is no such folder")):
        assert run(["memory", str(tmp_path / name)]) == 2
        assert words in capsys.readouterr().err
