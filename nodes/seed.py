"""seed: the first kernel of a branch."""

from tritonsmith.evaluator.schema import Stage
from tritonsmith.graph.state import BranchState, Update
from tritonsmith.nodes.asking import ask, brief_for
from tritonsmith.nodes.common import NodeRuntime, context_of, emit, make_candidate, next_id


async def seed(state: BranchState, runtime: NodeRuntime) -> Update:
    """Ask the author for this branch's first kernel; a branch without one ends at its next gate."""
    emit(runtime, "stage", "seed", state)
    cid = next_id(state.get("candidates", {}), state["branch"])
    brief = await brief_for(state, runtime)
    draft, usage = await ask(f"{cid}-seed", context_of(runtime).author.seed(brief), state, runtime)
    if draft is None:
        return {"current": None, "usage": usage, "repairs": 0, "optimized": False, "exhausted": True}
    candidate = await make_candidate(draft, Stage.SEED, cid, None, state, runtime)
    return {"candidates": {cid: candidate}, "current": cid, "usage": usage, "repairs": 0, "optimized": False, "exhausted": False}
