"""Asking the evaluator what each way to write a region takes, ahead of an analysis."""

from __future__ import annotations

import asyncio

from tritonsmith.evaluator.errors import InfrastructureError
from tritonsmith.evaluator.records.contest import NO_CARD, ContestReport
from tritonsmith.graph.state import BranchState
from tritonsmith.nodes.common import NodeRuntime, context_of, emit
from tritonsmith.prompts.author import Brief, Raced, Racing

RACE_SECONDS = 40.0
"""Of a race of regions. What its contests compile to takes most of it."""


async def race_regions(brief: Brief, state: BranchState, runtime: NodeRuntime) -> Brief:
    """The brief with the race that its author asks for, where the policy wants one for a kernel of this score.

    Without a card nothing is raced, and the brief says so.
    """
    context = context_of(runtime)
    verdict = brief.current.verdict if brief.current else None
    if not isinstance(context.author, Racing) or verdict is None or (verdict.score or 0.0) >= context.policy.race_below:
        return brief
    if not context.evaluator.hardware.present:
        return brief.model_copy(update={"raced": Raced(note=NO_CARD)})
    contests = await asyncio.to_thread(context.author.list_contests, brief)
    if not contests:
        return brief.model_copy(update={"raced": Raced()})
    current = brief.current.candidate.id if brief.current else None
    emit(runtime, "racing", "analyze", state, current, contests=len(contests))
    try:
        report = await context.evaluator.race_regions(brief.task, contests, RACE_SECONDS)
    except InfrastructureError as error:
        report = ContestReport(note=f"the race of regions failed: {error}")
    times = {contest.key: answer for contest, answer in zip(contests, report.contests, strict=False)}
    raced = sum(bool(answer.times) for answer in report.contests)
    emit(runtime, "raced", "analyze", state, current, contests=len(contests), raced=raced, seconds=report.seconds, note=report.note)
    return brief.model_copy(update={"raced": Raced(times=times, seconds=report.seconds, note=report.note)})
