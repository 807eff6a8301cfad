"""What a second card gives: verdicts are read from the runs of a suite, and equal texts count once. No card is needed."""

import json
from pathlib import Path

import pytest

from tritonsmith.benchmarks import two_cards
from tritonsmith.evaluator.errors import UsageError


class EndedSuite:
    """A suite that has ended."""

    pid, returncode = 0, 0

    def poll(self) -> int:
        return 0

    def wait(self) -> int:
        return 0


def write_verdict(folder: Path, task: str, candidate: str, time: str, seconds: float) -> None:
    events = folder / "run" / "tasks" / task / "events.jsonl"
    events.parent.mkdir(parents=True, exist_ok=True)
    with events.open("a") as file:
        verdict = {"event": "verdict", "candidate": candidate, "profile": "quick", "status": "ok", "seconds": seconds}
        file.write(json.dumps({"time": time, **verdict}) + "\n")
        file.write(json.dumps({"time": time, "event": "stage", "node": "select"}) + "\n")


def test_a_part_counts_answers_and_questions_with_two_verdicts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_verdict(tmp_path, "b", "seed0-01", "2026-01-01T00:00:02", 1.25)
    write_verdict(tmp_path, "b", "seed1-01", "2026-01-01T00:00:02.003", 1.25)
    write_verdict(tmp_path, "a", "seed0-01", "2026-01-01T00:00:01", 2.5)
    write_verdict(tmp_path, "a", "seed0-01", "2026-01-01T00:00:03", 2.75)
    (tmp_path / "log").write_text("")
    monkeypatch.setattr(two_cards, "start_suite", lambda *_: EndedSuite())
    told = two_cards.run_suite("two", tmp_path, two_cards.LIST, "", 1.0)
    assert [row["task"] for row in told["rows"]] == ["a", "b", "b", "a"] and told["ended"]
    assert (told["verdicts"], told["different_answers"], told["twice"]) == (4, 3, 1)


def test_an_unknown_part_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        two_cards.main(["--parts", "one,three"])
    assert stop.value.code == 2 and "--parts three: choose among one, two, alone, ray, killed, neighbour" in capsys.readouterr().err


def test_what_is_missing_is_said_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(two_cards, "visible_cards", lambda: ["0"])
    words = ["--parts", "two", "--out", str(tmp_path / "out.json")]
    assert two_cards.main(words) == 2 and "2 cards are needed, and this host shows 1;" in capsys.readouterr().err
    assert two_cards.main([*words, "--list", str(tmp_path / "no.toml")]) == 2
    assert "no.toml: there is no such file" in capsys.readouterr().err
    (tmp_path / "log").write_text("error: it did not start\n")
    monkeypatch.setattr(two_cards, "start_suite", lambda *_: EndedSuite())
    with pytest.raises(UsageError, match="the part two has no verdict; its last words: error: it did not start"):
        two_cards.run_suite("two", tmp_path, two_cards.LIST, "", 1.0)
