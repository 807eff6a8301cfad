"""repair: fix a candidate that failed, knowing its error and everything tried before."""

from tritonsmith.evaluator.schema import Stage
from tritonsmith.graph.state import BranchState, Update
from tritonsmith.nodes.asking import ask, brief_for
from tritonsmith.nodes.common import NodeRuntime, context_of, emit, make_candidate, next_id


async def repair(state: BranchState, runtime: NodeRuntime) -> Update:
    """Ask the author to fix the current candidate; marks the line as exhausted when it has nothing further to try."""
    failing = state["candidates"][str(state["current"])]
    emit(runtime, "stage", "repair", state, failing.id)
    cid = next_id(state["candidates"], state["branch"])
    analysis = state.get("analyses", {}).get(state.get("analysis", ""))
    brief = await brief_for(state, runtime, current=failing, analysis=analysis, stage=Stage.REPAIR)
    draft, usage = await ask(f"{cid}-repair", context_of(runtime).author.repair(brief), state, runtime)
    repairs = state.get("repairs", 0) + 1
    if draft is None:
        return {"exhausted": True, "usage": usage, "repairs": repairs}
    candidate = await make_candidate(draft, Stage.REPAIR, cid, failing.id, state, runtime)
    return {"candidates": {cid: candidate}, "current": cid, "usage": usage, "repairs": repairs}
