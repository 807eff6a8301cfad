"""The script that measures a first use: one row per step, wall and processor seconds of each checkout."""

import json
import subprocess
import sys
from pathlib import Path

from project import ROOT


def ask(*words: str) -> subprocess.CompletedProcess[str]:
    """The script, in a process of its own: it waits for every child that it has."""
    command = [sys.executable, "-m", "tritonsmith.benchmarks.first_use", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def test_commands_are_timed_and_tabled(tmp_path: Path) -> None:
    broken, out = tmp_path / "broken", tmp_path / "record.json"
    (broken / ".typecheck" / "tritonsmith" / "cli").mkdir(parents=True)
    (broken / ".typecheck" / "tritonsmith" / "cli" / "main.py").write_text("raise SystemExit(1)\n")
    done = ask("--steps", "help", "--repeats", "1", "--checkout", f"now={ROOT}", "--checkout", f"broken={broken}", "--out", str(out))
    head, _, row = done.stdout.splitlines()[-3:]
    assert head == "| step | now: wall s | now: CPU s | broken: wall s | broken: CPU s |", done.stderr
    assert row.split(" | ")[0] == "| help" and float(row.split(" | ")[2]) > 0 and row.endswith("| - | - |")
    kept = json.loads(out.read_text())["steps"]["help"]
    assert kept["now"]["works"] and not kept["broken"]["works"] and "replies or verdicts" in kept["now"]["samples"][0]["last_line"]


def test_a_step_that_is_none_is_named() -> None:
    done = ask("--steps", "help,nothing")
    assert done.returncode == 2 and "no such step: nothing; choose among setup," in done.stderr
