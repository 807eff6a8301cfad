"""The recorded run that is shipped: it replays bit for bit in its decisions; and its replies, judged for real."""

import json
import re
import runpy

import pytest

import chat_server as chat
from project import ROOT
from tritonsmith.cli.main import run as command
from tritonsmith.graph.run import optimize

EXAMPLE = ROOT / "examples" / "recorded_run"
SETTINGS = runpy.run_path(str(EXAMPLE / "record.py"))["SETTINGS"]


def test_the_shipped_recording_replays_its_decisions_exactly(tmp_path, monkeypatch):
    """The shipped recording replays bit for bit in its decisions."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    given = {**SETTINGS, "replay": str(EXAMPLE / "run.jsonl"), "out": str(tmp_path / "out")}
    summary = optimize(EXAMPLE / "task.py", **given)  # a changed prompt ends here: run examples/recorded_run/record.py
    decisions = [decision.model_dump(mode="json") for decision in summary.decisions]
    assert decisions == json.loads((EXAMPLE / "decisions.json").read_text())
    assert summary.winner.id == "seed0-03" and summary.usage.calls == 4 and summary.kind == "estimated"
    assert summary.winner.verdict.facts.launches_per_forward == 1


def test_the_recording_names_no_place_of_its_machine():
    """The recording names no path of the machine that made it."""
    text = (EXAMPLE / "run.jsonl").read_text()
    assert not re.findall(r"(?<![\w./:<])/[\w.-]+/[\w./-]+", text) and str(ROOT) not in text and "sk-" not in text


@pytest.mark.slow
def test_recorded_replies_from_a_server_lead_the_same_way(tmp_path, monkeypatch):
    """The recorded replies lead the same way when a server gives them and their kernels are judged."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-local-test-key")
    replies = [path.read_text() for path in sorted((EXAMPLE / "replies").glob("*.md"))]
    out = tmp_path / "out"
    with chat.ChatServer(replies) as server:
        options = [f"--{name}={value}" for name, value in SETTINGS.items()]
        arguments = ["optimize", str(EXAMPLE / "task.py"), "--model", "openai:toy", "--base-url", server.url, "--out", str(out), *options]
        assert command(arguments) == 0
        told = json.loads((out / "summary.json").read_text())
        assert told["usage"]["input_tokens"] == server.told("prompt_tokens") and told["usage"]["calls"] == 4
    recorded = json.loads((EXAMPLE / "decisions.json").read_text())
    assert [(one["site"], one["choice"]) for one in told["decisions"]] == [(one["site"], one["choice"]) for one in recorded]
