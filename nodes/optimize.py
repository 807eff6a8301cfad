"""optimize: write what the analysis proposes, from the best working candidate."""

from tritonsmith.evaluator.schema import Stage
from tritonsmith.graph.state import BranchState, Update
from tritonsmith.nodes.asking import ask, brief_for
from tritonsmith.nodes.common import NodeRuntime, context_of, emit, make_candidate, next_id


async def optimize(state: BranchState, runtime: NodeRuntime) -> Update:
    """Ask the author for the proposed kernel; marks the line as exhausted when it cannot write it."""
    base = state["candidates"][str(state["current"])]
    emit(runtime, "stage", "optimize", state, base.id)
    cid = next_id(state["candidates"], state["branch"])
    brief = await brief_for(
        state, runtime, current=base, analysis=state["analyses"][state["analysis"]], stage=Stage.OPTIMIZE,
        others=tuple(state["candidates"].values()),
    )  # fmt: skip
    draft, usage = await ask(f"{cid}-optimize", context_of(runtime).author.optimize(brief), state, runtime)
    if draft is None:
        return {"exhausted": True, "usage": usage, "optimized": False}
    candidate = await make_candidate(draft, Stage.OPTIMIZE, cid, base.id, state, runtime)
    return {"candidates": {cid: candidate}, "current": cid, "usage": usage, "repairs": 0, "optimized": True, "exhausted": False}
