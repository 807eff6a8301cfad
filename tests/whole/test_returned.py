"""A kernel that passes the search and fails the strict profile, by the real evaluator: back to its author, repaired, confirmed."""

from pathlib import Path

import pytest

from project import ROOT
from tritonsmith.evaluator.caller.local import LocalEvaluator
from tritonsmith.evaluator.schema import Status
from tritonsmith.graph.run import optimize
from tritonsmith.nodes.authors.scripted import ScriptedAuthor

HACKS = ROOT / "benchmarks" / "hacks"


@pytest.mark.slow
def test_what_strict_finds_is_repaired_and_confirmed(tmp_path: Path) -> None:
    """Without the maximum subtracted, a softmax overflows on inputs that only the strict profile has."""
    task = tmp_path / "softmax.py"
    task.write_text((HACKS / "tasks" / "softmax.py").read_text(encoding="utf-8").replace("x * 40.0", "x"), encoding="utf-8")
    right = (HACKS / "kernels" / "softmax.py").read_text(encoding="utf-8").replace('float("-inf")) * 40.0', 'float("-inf"))')
    naive = right.replace("tl.exp(value - tl.max(value, 0))", "tl.exp(value)")
    assert naive != right
    author = ScriptedAuthor(seeds=(naive,), repairs={naive: right})
    summary = optimize(task, evaluator=LocalEvaluator("h200"), author=author, policy="no-tune", out=str(tmp_path / "out"))
    assert summary.winner is not None and (summary.winner.id, summary.winner.confirmed) == ("return1-01", True)
    first = summary.candidates[0]
    assert (first.status, first.profile) == (Status.INACCURATE.value, "strict") and first.search_score is not None
    (brief,) = [brief for kind, brief in author.briefs if kind == "repair"]
    assert brief.current is not None and brief.current.verdict is not None
    assert brief.current.verdict.message.startswith("right on inputs like the task's own, wrong on others of the same shapes")
