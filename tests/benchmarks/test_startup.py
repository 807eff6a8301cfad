"""The scripts that compare checkouts: what they measure, and what their records say of it."""

import json
from pathlib import Path

import pytest

from tritonsmith.benchmarks.host import spell_command
from tritonsmith.benchmarks.startup import PROMISED, main

BUSY = "import time\n\n\ndef main():\n    end = time.process_time() + 0.05\n    while time.process_time() < end:\n        pass\n"


@pytest.fixture
def busy(tmp_path: Path) -> Path:
    """A checkout whose command works for 50 ms, whatever it is asked."""
    commands = tmp_path / "busy" / ".typecheck" / "tritonsmith" / "cli"
    commands.mkdir(parents=True)
    (commands / "__init__.py").touch()
    (commands / "main.py").write_text(BUSY)
    return tmp_path / "busy"


def test_the_named_checkout_is_what_is_timed(busy: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["--repeats", "1", "--checkout", f"mine={busy}", "--out", str(tmp_path / "startup.json")])
    lines = capsys.readouterr().out.splitlines()
    record = json.loads((tmp_path / "startup.json").read_text(encoding="utf-8"))
    assert record["command"] == "python -m tritonsmith.benchmarks.startup --repeats 1 --checkout mine=busy --out startup.json"
    assert set(record["calls"]) == set(PROMISED) and all(any(line.startswith(call) for line in lines) for call in PROMISED)
    for call in record["calls"].values():
        assert len(call["mine"]["samples_wall_s"]) == len(call["mine"]["samples_cpu_s"]) == 1
        assert call["mine"]["cpu_s"] >= 0.05 and call["mine"]["wall_s"] >= 0.05, "what the process used is counted"


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("before", "'before' is not NAME=DIR; write before=../before, for example"),
        ("before=", "'before=' is not NAME=DIR"),
        ("before=nowhere", "nowhere is no checkout of this project: it has no folder .typecheck"),
    ],
)
def test_a_wrong_checkout_is_refused(word: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["--checkout", word])
    assert stopped.value.code == 2 and said in capsys.readouterr().err


def test_a_record_tells_no_path_of_this_machine() -> None:
    words = ["--out", "/a/b.json", "--repeats", "5", "--checkout", "old=/a/c", "--targets", "check,demo", "results/kept.json"]
    told = "--out b.json --repeats 5 --checkout old=c --targets check,demo results/kept.json"
    assert spell_command("startup", words) == f"python -m tritonsmith.benchmarks.startup {told}"
