"""Asking the evaluator: one verdict per text and profile, and what becomes of machinery that fails."""

from __future__ import annotations

import asyncio

from tritonsmith.evaluator.errors import InfrastructureError
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.schema import Task, Verdict
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

    async def measure() -> Verdict:
        known = bool(getattr(context.evaluator, "knows", _never)(task, kernel, profile))
        if not known:
            emit(runtime, "evaluating", node, state, candidate_id, profile=profile)  # now, not while it waited for its turn
        inputs = {"candidate": candidate_id, "sha": candidate.sha, "profile": profile}
        tags = ["evaluation", f"profile:{profile}", *(["from:tape"] if known else [])]
        async with span(f"evaluation {candidate_id}", inputs, tags) as work:
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


def _never(task: Task, kernel: KernelText, profile: str) -> bool:
    """What evaluators know that keep no tape."""
    del task, kernel, profile
    return False
