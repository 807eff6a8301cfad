"""select and finish: the best working candidate goes on, and the confirmed one wins."""

from tritonsmith.evaluator.schema import Status
from tritonsmith.graph.pool import best, working
from tritonsmith.graph.state import State, Update
from tritonsmith.nodes.common import Runner, emit, session_of


async def select(state: State, runtime: Runner) -> Update:
    """Make the best working candidate of all branches the current one."""
    chosen = best(state.get("candidates", {}), state.get("verdicts", {}))
    emit(runtime, "stage", "select", state, chosen.id if chosen else None)
    return {"current": chosen.id if chosen else None}


async def finish(state: State, runtime: Runner) -> Update:
    """Name the winner and why the run ends: a confirmed candidate, else the best so far, else none."""
    candidates, verdicts = state.get("candidates", {}), state.get("verdicts", {})
    ranked = working(candidates, verdicts)
    confirmed = [candidate for candidate in ranked if verdicts[candidate.id].profile == "strict"]
    winner = next(iter(confirmed or ranked), None)
    session = session_of(state, runtime)
    if winner is None:
        statuses = sorted({verdict.status.value for verdict in verdicts.values() if verdict.status is not Status.OK})
        reason = f"no candidate works ({', '.join(statuses) or 'none was evaluated'})"
    elif confirmed:
        reason = "the winner is confirmed"
    else:
        reason = f"{winner.id} is the best so far and was not confirmed"
    earlier = state.get("stopped_because", "") or session.halted
    emit(runtime, "stop", "finish", state, winner.id if winner else None, reason=earlier or reason)
    return {"winner": winner.id if winner else None, "stopped_because": earlier or reason, "elapsed": session.elapsed}
