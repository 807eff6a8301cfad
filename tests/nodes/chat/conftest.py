"""A run against a local server that speaks the OpenAI protocol."""

from types import SimpleNamespace

import pytest

import chat_server as chat
from tritonsmith.evaluator.errors import UsageError
from tritonsmith.graph.run import optimize
from tritonsmith.nodes.chat.connect import Models
from tritonsmith.nodes.chat.model import Patience
from tritonsmith.nodes.evaluators.scripted import ScriptedEvaluator

QUICK = Patience(first=0.01, longest=1.0, request=5.0)
kernel = chat.kernel


@pytest.fixture
def play(tmp_path, monkeypatch):
    """Runs a task against a server with this script; `result.server`, `.summary`, `.error` and `.out` tell what came of it."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-local-test-key")
    task = tmp_path / "1_relu.py"
    task.write_text(chat.TASK)

    def run(script, verdicts, *, server=None, models=None, out="out", **options):
        result = SimpleNamespace(summary=None, error=None, out=tmp_path / out)
        with chat.ChatServer(script, **(server or {})) as result.server:
            given = {"author": "openai:toy", "base_url": result.server.url, "patience": QUICK, **(models or {})}
            try:
                result.summary = optimize(
                    task, models=Models(**given), evaluator=ScriptedEvaluator({kernel(n): verdict for n, verdict in verdicts.items()}),
                    out=str(result.out), **{"seeds": 1, "policy": "no-tune", "checkpoints": "none", **options},
                )  # fmt: skip
            except UsageError as error:
                result.error = error
        return result

    return run
