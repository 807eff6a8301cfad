"""Asking the evaluator: one verdict per text and profile, and what becomes of machinery that fails."""

from __future__ import annotations

import asyncio

from tritonsmith.evaluator.cards.floors import add_counters
from tritonsmith.evaluator.errors import InfrastructureError
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.processes.following import follow_steps
from tritonsmith.evaluator.records.limits import Counters
from tritonsmith.evaluator.schema import TimingKind, Verdict
from tritonsmith.graph.state import BranchState, State, allow_of
from tritonsmith.graph.tracing.spans import score_verdict, span
from tritonsmith.nodes.chat.records import Waiting
from tritonsmith.nodes.common import NodeRuntime, branch_of, context_of, emit, session_of, verdict_event


async def judge(candidate_id: str, profile: str, node: str, state: State | BranchState, runtime: NodeRuntime) -> Verdict | str | None:
    """The verdict, measured once per text and profile; after two failures of the machinery, the reason as a sentence.

    None where the verdict comes in a later part of the run. The next gate then ends the branch.
    """
    context, session = context_of(runtime), session_of(state, runtime)
    candidate, task = state["candidates"][candidate_id], state["task"]
    kernel = KernelText(await asyncio.to_thread(context.store.get, candidate.sha), candidate.sha)

    def tell(step: str, seconds: float) -> None:
        emit(runtime, "step", node, state, candidate_id, profile=profile, step=step, seconds=round(seconds))

    async def measure() -> Verdict:
        known = context.evaluator.knows(task, kernel, profile)
        if not known:
            emit(runtime, "evaluating", node, state, candidate_id, profile=profile)  # now, not while it waited for its turn
        inputs = {"candidate": candidate_id, "sha": candidate.sha, "profile": profile}
        tags = ["evaluation", f"profile:{profile}", *(["from:tape"] if known else [])]
        async with span(f"evaluation {candidate_id}", inputs, tags) as work, follow_steps(tell):
            verdict = await context.evaluator.evaluate(task, kernel, profile)
            verdict = verdict.model_copy(update={"sha": candidate.sha, "profile": profile})
            score_verdict(work, verdict)
        return verdict

    key = (task.sha, candidate.sha, profile)
    try:
        try:
            verdict = await session.get_or_make(key, measure)
        except InfrastructureError:
            verdict = await session.get_or_make(key, measure)
    except Waiting as wait:
        session.wait(branch_of(state), wait)
        emit(runtime, "waiting", node, state, candidate_id, reason=str(wait))
        return None
    except InfrastructureError as error:
        reason = f"the evaluator failed twice on {candidate_id}: {error}"
        session.halt(reason)
        emit(runtime, "stop", node, state, candidate_id, reason=reason)
        return reason
    await asyncio.to_thread(context.store.save_verdict, candidate_id, verdict)
    emit(runtime, "verdict", node, state, candidate_id, **verdict_event(verdict, allow_of(state)))
    return verdict


async def count_kernel(candidate_id: str, node: str, state: State | BranchState, runtime: NodeRuntime) -> Verdict | None:
    """A measured verdict with what Nsight Compute counted, or with the reason why it did not; None where nothing is to be added.

    It is asked for what a model analyses, and for what was promised: counting takes longer than a quick verdict.
    """
    context, verdict = context_of(runtime), state.get("verdicts", {}).get(candidate_id)
    if verdict is None or verdict.timing is None or verdict.timing.kind is not TimingKind.MEASURED:
        return None
    known = verdict.facts.counters
    if known is not None and known.source == "ncu":
        return None
    sha = state["candidates"][candidate_id].sha
    kernel = KernelText(await asyncio.to_thread(context.store.get, sha), sha)
    try:
        found = await context.evaluator.count(state["task"], kernel)
    except InfrastructureError as error:
        found = Counters(source="compiled", reason=f"Nothing was counted: {error}")
    if found is None:
        return None
    verdict = add_counters(verdict, found)
    await asyncio.to_thread(context.store.save_verdict, candidate_id, verdict)
    words = "; ".join(f"{one.name}: {one.words}" for one in found.kernels) or found.reason
    emit(runtime, "counters", node, state, candidate_id, source=found.source, words=words)
    return verdict
