"""Runs that a test leaves in the middle, and what came of them."""

import asyncio
import json
from pathlib import Path

from tritonsmith.graph.runs.config import RunConfig
from tritonsmith.graph.runs.run import Run


async def run_to_end(run):
    return [event async for event in run.stream()]


def outcome_of(out):
    """Decisions, winner, candidates and reason of a finished run."""
    summary = json.loads((Path(out) / "summary.json").read_text())
    return summary["decisions"], summary["winner"], summary["candidates"], summary["stopped_because"]


def begin(task, players, out, at="verdict", count=1, **options):
    """A run that was left in the middle, at that many events of a kind."""

    async def leave():
        run, seen = Run(RunConfig(task=str(task), out=str(out), **options), **players), 0
        events = run.stream()
        async for event in events:
            seen += event["event"] == at
            if seen == count:
                break
        await events.aclose()

    asyncio.run(leave())
