"""A tuning stage's search within a run: its part of the budget, the evaluator's races, and what the stream hears of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tritonsmith.author.space import space_of
from tritonsmith.evaluator.errors import InfrastructureError
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.protocol import RaceReport
from tritonsmith.evaluator.schema import Candidate, Stage, Verdict
from tritonsmith.graph.searches import Search, configurations_tried, seconds_searched
from tritonsmith.graph.state import State
from tritonsmith.nodes.common import NodeRuntime, context_of, emit, session_of
from tritonsmith.nodes.foresee import foresee_text, is_blind_to
from tritonsmith.nodes.search.driver import FINALISTS, Limits, TuningSearch, count_registers
from tritonsmith.prompts.author import Brief, Draft

STAGES = (Stage.TUNE_GRID, Stage.TUNE_BLOCK, Stage.TUNE_MEMORY)
"""The stages of tuning in their order."""


async def search_stage(
    stage: Stage, base: Candidate, brief: Brief, verdict: Verdict, state: State, runtime: NodeRuntime
) -> tuple[list[Draft], Search]:
    """The search of a stage around the best kernel so far; a policy may have it cover all three stages."""
    context, session = context_of(runtime), session_of(state, runtime)
    joint = bool(getattr(context.policy, "joint", False))
    kernel = KernelText(await asyncio.to_thread(context.store.get, base.sha), base.sha)
    space = await asyncio.to_thread(space_of, brief)

    async def race(entrants: Sequence[KernelText], seconds: float) -> RaceReport | str | None:
        failure = ""
        for _ in range(2):
            try:
                return await context.evaluator.race(state["task"], kernel, entrants, verdict.facts, FINALISTS, seconds)
            except InfrastructureError as error:
                failure = f"the race failed twice: {error}"
        return failure

    def tell(search: Search) -> None:
        best = max((trial.ratio for trial in search.trials if trial.ratio), default=None)
        told = {"tried": len(search.trials), "size": search.size, "best_ratio": best, "sentence": search.sentence()}
        counts = {fate: search.count(fate) for fate in ("pruned", "failed", "slower", "alike", "kept", "foreseen")}
        kind = search.kind.value if search.kind else None
        emit(runtime, "search", stage.value, state, base.id, **told, **counts, kind=kind, seconds=search.seconds)

    search = TuningSearch(
        stage, STAGES if joint else (stage,), base.id, kernel, space, context.evaluator.hardware.present, race,
        lambda text: foresee_text(base.id, kernel.text, verdict, text), tell, lambda parameter: is_blind_to(verdict, parameter.name),
        count_registers(verdict),
    )  # fmt: skip
    searches, waiting = state.get("searches", {}), 1 if joint else len(STAGES) - STAGES.index(stage)
    budget = context.budget
    seconds = None if budget.tuning_seconds is None else max(0.0, budget.tuning_seconds - seconds_searched(searches)) / waiting
    limits = Limits(
        max(0, budget.configurations - configurations_tried(searches)) // waiting, seconds, lambda: session.stop_reason(budget)
    )  # fmt: skip
    return await search.run(limits)
