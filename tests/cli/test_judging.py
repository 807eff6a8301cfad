"""Verdicts for single commands, by an evaluator that answers at once."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from project import ROOT
from tritonsmith.cli.main import run
from tritonsmith.nodes.evaluators.scripted import ScriptedEvaluator, scripted_verdict

TASK = str(ROOT / "benchmarks" / "tasks" / "26_gelu_scale_bias.py")
TEXT = "class ModelNew: pass"


def test_samples_are_kept_where_somebody_asks_for_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--samples` names the folder that the evaluator writes to; without it the answer names no file, since none is left."""

    @asynccontextmanager
    async def open_scripted(target: str, raw: Path | None, sandbox: str) -> AsyncIterator[ScriptedEvaluator]:
        verdict = scripted_verdict(1.5)
        assert verdict.timing
        timing = verdict.timing.model_copy(update={"raw": str((raw or Path("own")) / "samples.json")})
        yield ScriptedEvaluator({TEXT: verdict.model_copy(update={"timing": timing})})

    monkeypatch.setattr("tritonsmith.cli.judging.open_evaluator", open_scripted)
    kernel = tmp_path / "kernel.py"
    kernel.write_text(TEXT)
    for options, told in (((), None), (("--samples", str(tmp_path / "kept")), str(tmp_path / "kept" / "samples.json"))):
        assert run(["evaluate", TASK, str(kernel), *options, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["timing"]["raw"] == told
        assert run(["evaluate", TASK, str(kernel), *options]) == 0
        assert ("samples" in capsys.readouterr().out) is bool(options)
