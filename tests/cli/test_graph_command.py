"""`tritonsmith graph`: one drawing, with marks."""

from pathlib import Path

import pytest

from project import ROOT
from tritonsmith.cli.main import run
from tritonsmith.graph.policies.presets import PRESETS


def test_graph_is_the_same_for_every_policy_and_marks_its_ways(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["graph", "--out", str(tmp_path / "graph.mmd")]) == 0
    drawing, marked = (tmp_path / "graph.mmd").read_text(), {}
    for policy in PRESETS:
        assert run(["graph", "--policy", policy]) == 0
        plain, _, marks = capsys.readouterr().out.partition("\tclassDef taken")
        assert plain == drawing
        marked[policy] = set(marks.split("class ")[1].split()[0].replace(r"branch\3a", "").split(","))
    assert "decide_after_grid" in marked["default"] and "tune_grid" not in marked["no-tune"] | marked["best-of-n"]
    assert {"analyze", "repair"} <= marked["no-tune"] and not {"analyze", "check"} & marked["no-analysis"]
    assert "repair" not in marked["no-repair"] and "improve" not in "".join(marked["rescue-best"])
    assert run(["graph", "--policy", "rescue-best", "--format", "svg"]) == 0
    picture = capsys.readouterr().out
    assert "with the ways that a policy can take" in picture and "analysed again" in picture and "decided" not in picture


def test_the_picture_in_the_documents_is_the_graph(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["graph"]) == 0
    picture = (ROOT / "docs" / "graph.md").read_text().split("```mermaid\n", 1)[1].split("```", 1)[0]
    assert picture == capsys.readouterr().out, "paste the output of `tritonsmith graph` into docs/graph.md"
