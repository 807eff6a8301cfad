"""The command that compares the author's texts with their digests."""

import json

import pytest

from project import ROOT
from tritonsmith.benchmarks.kernelbench.digests import compare, main, read_digests
from tritonsmith.evaluator.errors import UsageError

TASK = (ROOT / "benchmarks" / "tasks" / "26_gelu_scale_bias.py").read_text()


@pytest.mark.slow
def test_a_text_that_differs_is_named_and_a_new_one_is_told(tmp_path, capsys):
    folder, kept = tmp_path / "tasks", tmp_path / "kept.json"
    folder.mkdir()
    (folder / "26_gelu.py").write_text(TASK)
    assert main([str(folder), "--digests", str(kept), "--write"]) == 0 and main([str(folder), "--digests", str(kept)]) == 0
    assert "1 as kept, 0 different" in capsys.readouterr().out
    kept.write_text(json.dumps({"26_gelu": "another"}))
    assert main([str(folder), "--digests", str(kept)]) == 1 and "26_gelu: another text" in capsys.readouterr().out


def test_names_are_sorted_into_different_and_new():
    assert compare({"a": "1", "b": "2"}, {"a": "1", "b": "3", "c": "4"}) == (["b"], ["c"])


@pytest.mark.parametrize("text", ["", "[]"])
def test_a_file_without_digests_is_refused(tmp_path, text):
    (tmp_path / "kept.json").write_text(text)
    with pytest.raises(UsageError, match="holds no digests by name; write it with --write"):
        read_digests(tmp_path / "kept.json")
