"""confirm: measure the best candidate again, in fresh processes with new seeds; only this verdict is reported."""

from tritonsmith.graph.pool import best
from tritonsmith.graph.state import State, Update
from tritonsmith.nodes.common import Runner, emit
from tritonsmith.nodes.evaluate import judge


async def confirm(state: State, runtime: Runner) -> Update:
    """Replace the quick verdict of the best working candidate by a strict one."""
    chosen = best(state.get("candidates", {}), state.get("verdicts", {}))
    if chosen is None:
        return {"current": None}
    emit(runtime, "stage", "confirm", state, chosen.id)
    answer = await judge(chosen.id, "strict", "confirm", state, runtime)
    if isinstance(answer, str):
        return {"current": chosen.id, "stopped_because": answer}
    twins = [cid for cid, candidate in state["candidates"].items() if candidate.sha == chosen.sha]
    return {"current": chosen.id, "verdicts": dict.fromkeys(twins, answer)}  # one text, one verdict, whichever branch wrote it
