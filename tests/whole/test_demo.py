"""The demo's way, node by node: real evaluator without a card, real recipes, the GRU at a small size."""

import json
from pathlib import Path

import pytest

from project import ROOT
from tritonsmith.evaluator.schema import Status, TimingKind
from tritonsmith.graph.run import optimize
from tritonsmith.graph.storage.summary import Summary

pytestmark = pytest.mark.slow  # `make demo` goes the same way


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Summary, Path, list[dict[str, object]]]:
    out = tmp_path_factory.mktemp("runs") / "demo"
    summary = optimize(
        str(ROOT / "benchmarks/tasks/39_gru.py"),
        size="small",
        overrides={"num_layers": 2, "seq_len": 8},
        target="h200",
        seeds=1,
        out=str(out),
    )
    events = [json.loads(line) for line in (out / "events.jsonl").read_text().splitlines()]
    return summary, out, events


def test_the_first_seed_goes_from_many_launches_to_one(demo) -> None:  # type: ignore[no-untyped-def]
    summary, _, _ = demo
    rows = {row.id: row for row in summary.candidates}
    assert rows["seed0-01"].launches_per_forward >= 16  # 2 layers x 8 steps
    winner = summary.winner
    assert winner is not None and winner.stage == "optimize" and winner.verdict.status is Status.OK
    (kernel,) = winner.verdict.facts.kernels
    assert kernel.launches == 1 and kernel.sync_rounds
    assert winner.verdict.timing is not None and winner.verdict.timing.kind is TimingKind.ESTIMATED
    assert winner.confirmed and winner.verdict.profile == "strict"
    correctness = winner.verdict.correctness
    assert correctness is not None and correctness.err_vs_oracle <= 4 * correctness.reference_err_vs_oracle


def test_its_nodes_come_in_the_order_of_the_drawing(demo) -> None:  # type: ignore[no-untyped-def]
    _, _, events = demo
    visited = [str(event["node"]) for event in events if event["event"] == "stage" and event["branch"] in ("seed0", "main")]
    assert visited == ["describe", "seed", "evaluate", "analyze", "optimize", "evaluate", "check", "select", "detect", "confirm"]


def test_every_turn_has_its_reason_and_evidence(demo) -> None:  # type: ignore[no-untyped-def]
    summary, _, _ = demo
    way = [(one.site, one.choice) for one in summary.decisions if one.branch in ("seed0", "main")]
    assert way == [
        ("after_evaluate", "rescue"), ("worth_optimizing", "optimize"), ("after_evaluate", "check"), ("after_optimize", "kept"),
        ("after_select", "detect"), ("after_detect", "skip"), ("after_confirm", "accept"),
    ]  # fmt: skip
    assert all(one.reason and one.evidence for one in summary.decisions)
    skip = next(one for one in summary.decisions if one.choice == "skip")
    assert "persistent" in skip.reason and "persistent" in skip.evidence["labels"]


def test_the_analysis_rests_on_counted_facts(demo) -> None:  # type: ignore[no-untyped-def]
    summary, _, _ = demo
    analysis = next(iter(summary.analyses.values()))
    row = next(row for row in summary.candidates if row.id == "seed0-01")
    assert analysis["evidence"]["launches_per_forward"] == row.launches_per_forward
    assert analysis["promise"]["before"] == row.launches_per_forward


def test_the_files_are_where_the_table_says(demo) -> None:  # type: ignore[no-untyped-def]
    summary, out, _ = demo
    told = json.loads((out / "summary.json").read_text())
    assert {"task", "policy", "model", "winner", "candidates", "decisions", "usage", "stopped_because"} <= told.keys()
    best = (out / "best.py").read_text()
    assert "class ModelNew" in best and "ESTIMATE" in best.upper()
    assert len(list((out / "kernels").glob("*.py"))) == len({row.sha for row in summary.candidates})
    assert {path.stem.split(".")[0] for path in (out / "verdicts").glob("*.json")} == {row.id for row in summary.candidates}
