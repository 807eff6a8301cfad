"""tune: variants of the best working candidate, in one of three stages (grid, block, memory)."""

import asyncio

from tritonsmith.evaluator.schema import Candidate, Stage
from tritonsmith.graph.pool import best
from tritonsmith.graph.state import State, Update, allow_of
from tritonsmith.nodes.asking import ask, brief_for
from tritonsmith.nodes.common import NodeRuntime, context_of, emit, make_candidate, next_id, session_of
from tritonsmith.nodes.foresee import foresee_stage, sort_out


async def tune(stage: Stage, state: State, runtime: NodeRuntime) -> Update:
    """Queue the author's variants of the best working candidate, as many as the budget allows; without those that cannot be better."""
    context, candidates = context_of(runtime), state["candidates"]
    base = best(candidates, state.get("verdicts", {}), allow_of(state))
    if base is None:
        return {"queue": [], "current": None, "unjudged": ""}
    emit(runtime, "stage", stage.value, state, base.id)
    verdict = state["verdicts"][base.id]
    if reason := foresee_stage(base.id, verdict):
        return {"queue": [], "current": base.id, "unjudged": reason}
    tried = tuple(candidate for candidate in candidates.values() if candidate.stage.value.startswith("tune_"))
    brief = await brief_for(state, runtime, current=base, stage=stage, others=tried)
    drafts, usage = await ask(f"{stage.value}-{base.id}", context.author.tune(brief), state, runtime)
    session_of(state, runtime).raise_if_over(len(candidates))
    room = session_of(state, runtime).room(context.budget)
    made: dict[str, Candidate] = {}
    worthy, reason = sort_out(base.id, await asyncio.to_thread(context.store.get, base.sha), verdict, drafts or ())
    for draft in worthy[:room]:
        cid = next_id({**candidates, **made}, stage.value.removeprefix("tune_"))
        made[cid] = await make_candidate(draft, stage, cid, base.id, state, runtime)
    return {"candidates": made, "queue": list(made), "current": base.id, "usage": usage, "unjudged": reason}
