"""confirm: measure the best candidate again, in fresh processes with new seeds; only this verdict is reported."""

from tritonsmith.evaluator.schema import Verdict
from tritonsmith.graph.pool import best, is_behind
from tritonsmith.graph.state import State, Update, allow_of
from tritonsmith.nodes.common import NodeRuntime, context_of, emit, session_of
from tritonsmith.nodes.judging import count_kernel, judge


async def confirm(state: State, runtime: NodeRuntime) -> Update:
    """Replace the quick verdict of the best working candidate by a strict one. The quick score is kept in `searched`.

    A kernel that the search has measured below what is claimed is not measured again: the strict profile has more baselines, not fewer.
    """
    verdicts = state.get("verdicts", {})
    chosen = best(state.get("candidates", {}), verdicts, allow_of(state))
    if chosen is None:
        return {"current": None}
    if verdicts[chosen.id].profile != "strict" and is_behind(verdicts[chosen.id], context_of(runtime).claims):
        return {"current": chosen.id}
    emit(runtime, "stage", "confirm", state, chosen.id)
    answer = await judge(chosen.id, "strict", "confirm", state, runtime)
    session_of(state, runtime).raise_if_over(len(state["candidates"]))
    if not isinstance(answer, Verdict):
        return {"current": chosen.id, "stopped_because": answer}
    confirmed: State = {**state, "verdicts": {**verdicts, chosen.id: answer}}
    answer = await count_kernel(chosen.id, "confirm", confirmed, runtime) or answer  # for the report: the search is over
    twins = [cid for cid, candidate in state["candidates"].items() if candidate.sha == chosen.sha]
    quick = {cid: verdicts[cid].score for cid in twins if cid in verdicts and verdicts[cid].profile != "strict"}
    # one text, one verdict, whichever branch wrote it
    return {"current": chosen.id, "verdicts": dict.fromkeys(twins, answer), "searched": {k: v for k, v in quick.items() if v is not None}}
