"""Rows of measured results: what they hold, what replaces what, and that an estimate never becomes one."""

import json
from pathlib import Path

import pytest

from tritonsmith.benchmarks import bench
from tritonsmith.benchmarks.bench import record
from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.schema import Correctness, Label, PrecisionClass, Status, Timing, TimingKind, Verdict
from tritonsmith.graph.storage.summary import Summary, Winner


def summary(raw: Path, score: float, kind: TimingKind = TimingKind.MEASURED, precision: PrecisionClass = PrecisionClass.IEEE) -> Summary:
    """A finished run with one winner."""
    raw.write_text(json.dumps({"samples": [score]}))
    timing = Timing(
        kind=kind, median_ms=7.0, baselines_ms={"eager": 70.0, "cuda_graph": 7.0 * score}, baseline="cuda_graph", score=score,
        score_eager=10.0, interval=(score - 0.1, score + 0.1), raw=str(raw),
    )  # fmt: skip
    errors = Correctness(max_abs_err=1e-6, mean_abs_err=1e-7, err_vs_oracle=2e-7, reference_err_vs_oracle=2e-7, precision_class=precision)
    environment = {"card": "Test Card", "date": "2026-01-02T03:04:05+00:00", "versions": {"torch": "2"}}
    verdict = Verdict(status=Status.OK, label=Label.KERNEL, correctness=errors, timing=timing, environment=environment, profile="strict")
    return Summary(task="39_gru", policy="default", model="offline", size="full", winner=Winner(id="a", stage="optimize", verdict=verdict))


def test_a_later_row_replaces_the_earlier_of_its_kind(tmp_path: Path) -> None:
    results = tmp_path / "results"
    record(summary(tmp_path / "1.json", 2.0), "tritonsmith optimize x", results)
    record(summary(tmp_path / "2.json", 5.0, precision=PrecisionClass.TF32), "tritonsmith optimize x", results)
    record(summary(tmp_path / "3.json", 3.0), "tritonsmith optimize x", results)
    rows = json.loads((results / "summary.json").read_text())
    assert {(row["precision_class"], row["score"]) for row in rows} == {("ieee", 3.0), ("tf32", 5.0)}
    promised = "task card precision_class label median_ms baselines_ms score score_eager interval date versions command raw".split()
    assert all(set(promised) <= set(row) and (results / row["raw"]).read_text() == json.dumps({"samples": [row["score"]]}) for row in rows)


def test_an_estimate_is_no_result(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="measurements only"):
        record(summary(tmp_path / "1.json", 2.0, TimingKind.ESTIMATED), "tritonsmith optimize x", tmp_path / "results")
    assert not (tmp_path / "results" / "summary.json").exists()


def test_a_run_without_winner_is_no_result(tmp_path: Path) -> None:
    lost = Summary(task="39_gru", policy="default", model="offline", stopped_because="no candidate works")
    with pytest.raises(UsageError, match="no candidate works"):
        record(lost, "tritonsmith optimize x", tmp_path)


def test_an_interrupted_run_says_where_its_rows_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(target: str, raw: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(bench, "open_evaluator", interrupted)
    monkeypatch.setattr("sys.argv", ["bench", "--results", str(tmp_path / "results"), "--runs", str(tmp_path / "runs")])
    assert bench.main() == 130
    assert capsys.readouterr().err == f"Interrupted; rows of finished runs are in {tmp_path / 'results' / 'summary.json'}\n"
