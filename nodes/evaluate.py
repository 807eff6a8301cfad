"""evaluate: one verdict per candidate. A failing candidate is an answer; failing machinery ends the run with the best so far."""

import asyncio

from tritonsmith.evaluator.schema import Verdict
from tritonsmith.graph.pool import best
from tritonsmith.graph.state import BranchState, State, Update, allow_of
from tritonsmith.nodes.common import NodeRuntime, emit, session_of
from tritonsmith.nodes.judging import judge
from tritonsmith.nodes.twins import find_twins


async def evaluate(state: BranchState, runtime: NodeRuntime) -> Update:
    """Judge the branch's current candidate, if its author wrote one."""
    if state.get("current") is None:
        return {}
    candidate_id = str(state["current"])
    emit(runtime, "stage", "evaluate", state, candidate_id)
    update = await find_twins([candidate_id], "evaluate", state, runtime)
    if candidate_id in update.get("twins", {}):
        return update
    answer = await judge(candidate_id, "quick", "evaluate", state, runtime)
    if answer is None:
        return update
    return update | ({"stopped_because": answer} if isinstance(answer, str) else {"verdicts": {candidate_id: answer}})


async def evaluate_queue(node: str, state: State, runtime: NodeRuntime) -> Update:
    """Judge all variants of a tuning stage; the best working candidate of the whole run becomes the current one."""
    found = await find_twins(state.get("queue", []), node, state, runtime)
    queue = [candidate_id for candidate_id in state.get("queue", []) if candidate_id not in found.get("twins", {})]
    answers = await asyncio.gather(*(judge(candidate_id, "quick", node, state, runtime) for candidate_id in queue))
    session_of(state, runtime).raise_if_over(len(state["candidates"]))
    verdicts = {candidate_id: answer for candidate_id, answer in zip(queue, answers, strict=True) if isinstance(answer, Verdict)}
    chosen = best(state["candidates"], {**state.get("verdicts", {}), **verdicts}, allow_of(state))
    update: Update = {**found, "verdicts": verdicts, "queue": [], "current": chosen.id if chosen else None}
    reasons = [answer for answer in answers if isinstance(answer, str)]
    return {**update, "stopped_because": reasons[0]} if reasons else update
