"""docs/watching.md and docs/studio.md hold what they say: their scripts run, their table of events is the one that runs write."""

import ast
import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from project import ROOT
from search_card import KERNEL, Card, Verdicts, speed_of
from tritonsmith.graph.run import RunConfig
from tritonsmith.graph.runs.run import Run
from tritonsmith.nodes.authors.scripted import ScriptedAuthor
from tritonsmith.nodes.evaluators.scripted import ScriptedEvaluator, scripted_verdict

EXAMPLE = ROOT / "examples" / "recorded_run"
CONFIG = {"task": str(EXAMPLE / "task.py"), "replay": str(EXAMPLE / "run.jsonl"), "size": "small", "seeds": 1, "policy": "no-tune"}
COMMON = {"time", "event", "node", "branch", "candidate"}


def script(page: str) -> str:
    """The Python block of a page."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text(encoding="utf-8"), re.S)
    assert len(blocks) == 1
    return str(blocks[0])


def documented() -> dict[str, set[str]]:
    """Events with their fields, as the table in docs/watching.md has them."""
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| ([^|]+) \|$", (ROOT / "docs" / "watching.md").read_text(encoding="utf-8"), re.M)
    return {name: set(re.findall(r"`(\w+)`", fields)) for name, fields in rows}


def test_the_script_of_the_page_follows_a_run_to_its_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {"__name__": "page"}
    exec(compile(script("watching.md"), "docs/watching.md", "exec"), names)
    result = asyncio.run(names["follow"](RunConfig(**CONFIG, out=str(tmp_path / "run"))))
    told = capsys.readouterr().out
    assert result.startswith("3.04x ESTIMATE: AMBIGUOUS against eager")
    assert "seed0-01 compile_error None None" in told and "seed0 after_evaluate -> repair because compile_error: repair 1 of 5" in told


def test_the_script_of_studio_is_python() -> None:
    assert [node.name for node in ast.parse(script("studio.md")).body if isinstance(node, ast.AsyncFunctionDef)] == ["ask"]


def test_the_table_of_events_is_what_runs_write(tmp_path: Path) -> None:
    events: list[dict[str, Any]] = []

    async def run(config: RunConfig, **given: Any) -> None:
        one = Run(config, **given)
        async for event in one.stream():
            events.append(event)
            if config.policy == "best-of-n" and event["event"] == "candidate":
                one.stop("enough")

    asyncio.run(run(RunConfig(**CONFIG, out=str(tmp_path / "whole"))))
    judge = ScriptedEvaluator({"a": scripted_verdict(1.5)})
    stopped = RunConfig(**{**CONFIG, "replay": None, "policy": "best-of-n", "out": str(tmp_path / "stopped")})
    asyncio.run(run(stopped, author=ScriptedAuthor(seeds=["a"]), evaluator=judge))
    failed = RunConfig(**{**CONFIG, "replay": None, "seeds": 2, "out": str(tmp_path / "failed")})  # the script has no second seed
    asyncio.run(run(failed, author=ScriptedAuthor(seeds=["a"]), evaluator=judge))
    searched = RunConfig(**{**CONFIG, "replay": None, "policy": "default", "out": str(tmp_path / "searched")})
    judge = ScriptedEvaluator(Verdicts(speed_of), racer=Card())
    asyncio.run(run(searched, author=ScriptedAuthor(seeds=[KERNEL]), evaluator=judge))

    table, seen = documented(), {event["event"] for event in events}
    assert seen <= set(table) and set(table) - seen <= {"pause", "size", "waiting", "twin", "counters", "step", "bar"}
    for event in events:
        fields = set(event) - COMMON
        assert set(event) >= COMMON and fields <= table[event["event"]], event
        if event["event"] not in ("stage", "findings"):  # of these, some fields stand only at some nodes
            assert fields == table[event["event"]], event
    lines = (tmp_path / "whole" / "events.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["event"] for line in lines] == [event["event"] for event in events[: len(lines)]]
