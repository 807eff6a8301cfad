"""select and finish: the best working candidate goes on, and the confirmed one wins."""

from tritonsmith.evaluator.schema import Allow, Status, Verdict
from tritonsmith.graph.pool import best, describe_choice, is_behind, rank_working, refusal
from tritonsmith.graph.state import State, Update, allow_of
from tritonsmith.graph.storage.summary import winner_of
from tritonsmith.graph.tracing.spans import score_run
from tritonsmith.nodes.accounting import account_for
from tritonsmith.nodes.common import NodeRuntime, context_of, emit, session_of
from tritonsmith.nodes.forms import measure_forms


async def select(state: State, runtime: NodeRuntime) -> Update:
    """Make the best working candidate of all branches the current one. Raises AuthorError when the author failed every branch."""
    session_of(state, runtime).raise_if_over(len(state.get("candidates", {})))
    chosen = best(state.get("candidates", {}), state.get("verdicts", {}), allow_of(state))
    reason = describe_choice(state.get("candidates", {}), state.get("verdicts", {}), allow_of(state))
    emit(runtime, "stage", "select", state, chosen.id if chosen else None, **({"reason": reason} if reason else {}))
    return {"current": chosen.id if chosen else None}


async def finish(state: State, runtime: NodeRuntime) -> Update:
    """Name the winner and why the run ends: a confirmed candidate, else the best so far, else none.

    A kernel that a card measured below what the policy claims wins nothing: it is `behind`, and the module is best kept.
    """
    candidates, verdicts = state.get("candidates", {}), state.get("verdicts", {})
    ranked = [member for member in rank_working(candidates, verdicts, allow_of(state)) if not verdicts[member.id].quarantine]
    confirmed = [candidate for candidate in ranked if verdicts[candidate.id].profile == "strict"]
    chosen = next(iter(confirmed or ranked), None)
    session, claims = session_of(state, runtime), context_of(runtime).claims
    behind = chosen is not None and is_behind(verdicts[chosen.id], claims)
    winner = None if behind else chosen
    if chosen is None:
        reason = state.get("unwritten") or _explain_no_winner(state)
    elif behind:
        reason = f"{chosen.id} is the best kernel, and it was measured below {claims:g}x"
    elif confirmed:
        reason = "the winner is confirmed"
    else:
        reason = f"{chosen.id} is the best so far and was not confirmed"
    if winner is not None and (choice := describe_choice(candidates, verdicts, allow_of(state))):
        reason = f"{reason}; {choice}"
    earlier = state.get("stopped_because", "") or session.halt_reason
    forms = state.get("forms")
    if chosen is None and forms is None and candidates and not session.halt_reason:
        forms = await measure_forms("finish", dict(state), runtime)
    name = winner.id if winner else None
    emit(runtime, "stop", "finish", state, name, reason=earlier or reason)
    score_run(verdicts[winner.id] if winner else None)
    won = winner_of({**state, "winner": name})
    return {
        "regions": await account_for(chosen, state, runtime) if chosen else (),
        "winner": name, "behind": chosen.id if chosen and behind else None, "forms": forms, "result": won.result if won else "",
        "stopped_because": earlier or reason, "elapsed": session.elapsed,
    }  # fmt: skip


def _explain_no_winner(state: State) -> str:
    """Why there is no winner: what failed, and what works but may not win."""
    verdicts, allow = state.get("verdicts", {}), allow_of(state)
    failed = ", ".join(sorted({verdict.status.value for verdict in verdicts.values() if verdict.status is not Status.OK}))
    blocked = {cid: _block_reason(verdict, allow) for cid, verdict in verdicts.items() if verdict.status is Status.OK}
    if not blocked:
        return f"no candidate works ({failed or 'none was evaluated'})"
    listed = ", ".join(f"{cid} {why}" for cid, why in blocked.items())
    return f"nothing that may win works (allowed: {allow.value}; {listed}{f'; the others: {failed}' if failed else ''})"


def _block_reason(verdict: Verdict, allow: Allow) -> str:
    if refusal(verdict, allow) and not allow.admits(verdict.label):
        return f"is labelled {verdict.label.value if verdict.label else 'unknown'}"
    return "is quarantined" if verdict.quarantine else "failed in another try"
