"""Rows of measured results: what they hold, what replaces what, and that an estimate never becomes one."""

import json
from pathlib import Path

import pytest

from tritonsmith.benchmarks import bench
from tritonsmith.benchmarks.bench import record, record_suite
from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.schema import Correctness, Label, PrecisionClass, Status, Timing, TimingKind, Verdict
from tritonsmith.graph.storage.summary import Summary, Winner
from tritonsmith.graph.suites.records import SuitePlan
from tritonsmith.graph.suites.tasks import PlannedTask


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
    def interrupted(target: str, raw: Path, baselines: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(bench, "open_evaluator", interrupted)
    monkeypatch.setattr("sys.argv", ["bench", "--results", str(tmp_path / "results"), "--runs", str(tmp_path / "runs")])
    assert bench.main() == 130
    assert capsys.readouterr().err == f"Interrupted; rows of finished runs are in {tmp_path / 'results' / 'summary.json'}\n"


def lay_suite(root: Path, told: dict[str, Summary | None], gone: Path, **sizes: object) -> None:
    """A suite's folder as another machine left it: summaries name their samples below `gone`, and None is a task that was not run."""
    tasks = tuple(PlannedTask(key=key, path="x.py", overrides=sizes if key in ("sized", "named") else {}) for key in told)
    (root / "raw" / "1-1").mkdir(parents=True)
    (root / "suite.json").write_text(SuitePlan(tasks=tasks).model_dump_json())
    for key, one in told.items():
        if one is None:
            continue
        folder = root / "tasks" / key
        folder.mkdir(parents=True)
        (folder / "best.py").write_text(f"# {key}\n")
        if one.winner is not None and one.winner.verdict.timing is not None:
            raw = Path(str(one.winner.verdict.timing.raw))
            there = raw.rename(root / "raw" / "1-1" / raw.name)
            timing = one.winner.verdict.timing.model_copy(update={"raw": str(gone / there.relative_to(root))})
            one = one.model_copy(update={"winner": with_timing(one.winner, timing), "out": str(gone / "tasks" / key)})
        one.write(folder)


def with_timing(winner: Winner, timing: Timing) -> Winner:
    return winner.model_copy(update={"verdict": winner.verdict.model_copy(update={"timing": timing})})


def call(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    monkeypatch.setattr("sys.argv", ["bench", *map(str, words)])
    return bench.main()


def test_a_suite_is_recorded_as_far_as_it_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root, gone, results = tmp_path / "suite", Path("/gone/suite"), tmp_path / "results"
    told = {
        "loose": summary(tmp_path / "1.json", 9.0).model_copy(update={"precision": "tf32"}),
        "gru": summary(tmp_path / "2.json", 2.0).model_copy(update={"precision": "ieee"}),
        "tf32": summary(tmp_path / "3.json", 5.0, precision=PrecisionClass.TF32).model_copy(update={"mode": "train", "precision": "tf32"}),
        "guess": summary(tmp_path / "4.json", 2.0, TimingKind.ESTIMATED).model_copy(update={"task": "guess"}),
        "lost": Summary(task="lost", policy="default", model="offline", stopped_because="no candidate works"),
        "sized": summary(tmp_path / "5.json", 2.0).model_copy(update={"task": "sized"}),
        "named": summary(tmp_path / "6.json", 3.0),
        "open": None,
    }  # fmt: skip
    lay_suite(root, told, gone, seq_len=8)
    (root / "raw" / "2-2").mkdir()
    (root / "raw" / "2-2" / "2.json").write_text("of another process")
    assert call(monkeypatch, "--suite", root, "--command", "tritonsmith optimize notes.toml", "--results", results) == 1
    said = capsys.readouterr()
    faults = {line.split(": ")[1]: line for line in said.err.splitlines()}
    assert sorted(faults) == ["guess", "loose", "lost", "open", "sized"] and "gru has reached the same class, ieee" in faults["loose"]
    assert "measurements only" in faults["guess"] and "give the entry a name" in faults["sized"]
    assert "no candidate works" in faults["lost"] and "not over (open)" in faults["open"]
    assert "39_gru (tf32, train): 5.000x cuda_graph" in said.out
    rows = json.loads((results / "summary.json").read_text())
    assert {(row["task"], row["precision_class"], row["mode"], row["score"]) for row in rows} == {
        ("39_gru", "ieee", "eval", 2.0), ("39_gru", "tf32", "train", 5.0), ("named", "ieee", "eval", 3.0),
    }  # fmt: skip
    assert [(row["file"], row["set"], row["run"]) for row in rows if "set" in row] == [("x.py", {"seq_len": 8}, "runs/named.summary.json")]
    assert all((results / row["raw"]).read_text() == json.dumps({"samples": [row["score"]]}) for row in rows)
    assert {row["command"] for row in rows} == {"tritonsmith optimize notes.toml"}
    kept = {path.name: path.read_text() for path in (results / "runs").iterdir()}
    ends = ("best.txt", "summary.json")
    assert sorted(kept) == [f"{name}.{end}" for name in ("39_gru", "39_gru_tf32_train", "named") for end in ends]
    assert kept["39_gru.best.txt"] == "# gru\n" and not any("/gone" in text for text in kept.values())
    assert Summary.model_validate_json(kept["39_gru.summary.json"]).out == "gru"


def test_a_whole_suite_is_recorded_without_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root, results = tmp_path / "suite", tmp_path / "results"
    lay_suite(root, {"gru": summary(tmp_path / "1.json", 2.0)}, root)
    assert call(monkeypatch, "--suite", root, "--results", results) == 0 and not capsys.readouterr().err
    assert [row["command"] for row in json.loads((results / "summary.json").read_text())] == [f"tritonsmith optimize {root}"]


@pytest.mark.parametrize("words", [["{tmp}/none"], ["{tmp}"], ["{tmp}", "39.py"]])
def test_what_is_no_suite_is_said_in_a_sentence(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [word.replace("{tmp}", str(tmp_path)) for word in words]
    assert call(monkeypatch, "--suite", *given, "--results", tmp_path / "results") == 2
    told = capsys.readouterr().err
    assert told.startswith(f"error: --suite {given[0]}: ") and told.count("\n") == 1 and not (tmp_path / "results").exists()


def test_samples_that_are_there_twice_or_not_at_all_are_not_guessed(tmp_path: Path) -> None:
    root, gone = tmp_path / "suite", Path("/gone/other")
    lay_suite(root, {"gru": summary(tmp_path / "1.json", 2.0)}, gone)
    (root / "raw" / "1-1").rename(root / "raw" / "3-3")
    (root / "raw" / "2-2").mkdir()
    (root / "raw" / "2-2" / "1.json").write_text("of another process")
    assert "are there twice" in record_suite(root, "x", tmp_path / "results")[1][0]
    for path in root.rglob("1.json"):
        path.unlink()
    assert record_suite(root, "x", tmp_path / "results") == ([], [
        f"gru: its samples, 1.json, are neither at /gone/other/raw/1-1/1.json nor below {root}; copy the whole folder of the suite"
    ])  # fmt: skip
