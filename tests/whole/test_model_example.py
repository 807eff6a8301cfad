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


def test_the_shipped_recording_replays_bit_for_bit_in_its_decisions(tmp_path, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    given = {**SETTINGS, "replay": str(EXAMPLE / "run.jsonl"), "out": str(tmp_path / "out")}
    summary = optimize(EXAMPLE / "task.py", **given)  # a changed prompt ends here: run examples/recorded_run/record.py
    decisions = [decision.model_dump(mode="json") for decision in summary.decisions]
    assert decisions == json.loads((EXAMPLE / "decisions.json").read_text())
    assert summary.winner.id == "seed0-03" and summary.usage.calls == 4 and summary.kind == "estimated"
    assert summary.winner.verdict.facts.launches_per_forward == 1


def test_the_recording_names_no_place_of_the_machine_that_made_it():
    text = (EXAMPLE / "run.jsonl").read_text()
    assert not re.findall(r"(?<![\w./:<])/[\w.-]+/[\w./-]+", text) and str(ROOT) not in text and "sk-" not in text


@pytest.mark.slow
def test_the_replies_of_the_recording_lead_the_same_way_when_they_come_from_a_server_and_are_judged(tmp_path, monkeypatch):
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
