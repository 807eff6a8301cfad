"""What all nodes share: the context, events, and turning drafts into candidates."""

import asyncio
from collections.abc import Mapping
from typing import Any

from langgraph.runtime import Runtime

from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.schema import Allow, Candidate, Stage, Verdict
from tritonsmith.graph.context import Context
from tritonsmith.graph.pool import refusal
from tritonsmith.graph.session import Session
from tritonsmith.graph.state import BranchState, State
from tritonsmith.prompts.author import Draft

NodeRuntime = Runtime[Context]
"""What a node gets in addition to the state."""


def context_of(runtime: NodeRuntime) -> Context:
    """The context of this run. Raises UsageError when the graph was invoked without one, or with one that is closed."""
    if not isinstance(runtime.context, Context):
        raise UsageError("the graph was invoked without context=; make one with tritonsmith.graph.run.make_context(...)")
    runtime.context.require_open()
    return runtime.context


def session_of(state: State | BranchState, runtime: NodeRuntime) -> Session:
    """Ledger and memo of this run, brought up to date with the state."""
    session = context_of(runtime).session(state["run"])
    session.absorb(state)
    return session


def branch_of(state: State | BranchState) -> str:
    """`seed0`, `improve1`, `return1`, ... or `main`."""
    return str(state.get("branch", "main"))


def emit(runtime: NodeRuntime, event: str, node: str, state: State | BranchState, candidate: str | None = None, **data: Any) -> None:
    """Send one event to the custom stream; nothing happens when nobody listens."""
    runtime.stream_writer({"event": event, "node": node, "branch": branch_of(state), "candidate": candidate, **data})


async def make_candidate(
    draft: Draft, stage: Stage, candidate_id: str, parent: str | None, state: State | BranchState, runtime: NodeRuntime
) -> Candidate:
    """Keep a draft in the store and announce it as a candidate."""
    index = state.get("index")
    candidate = Candidate(
        id=candidate_id,
        sha=await asyncio.to_thread(context_of(runtime).store.put, draft.source),
        stage=stage,
        parent=parent,
        branch=index if isinstance(index, int) else None,
        rationale=draft.rationale,
        author=draft.author,
        recipe=draft.recipe,
        settings=draft.settings,
        replaces=draft.replaces,
    )
    session_of(state, runtime).note_candidate(candidate_id)
    emit(
        runtime, "candidate", stage.value, state, candidate_id, stage=stage.value, parent=parent, sha=candidate.sha,
        rationale=draft.rationale, author=draft.author, recipe=draft.recipe, settings=draft.settings,
    )  # fmt: skip
    return candidate


def next_id(candidates: Mapping[str, Candidate], prefix: str) -> str:
    """The next free `<prefix>-<two digits>`; depends on the state alone, so a resumed node makes the same id."""
    return f"{prefix}-{1 + sum(cid.startswith(f'{prefix}-') for cid in candidates):02d}"


def verdict_event(verdict: Verdict, allow: Allow) -> dict[str, Any]:
    """What the stream tells of a verdict; the whole of it is in `verdicts/`."""
    timing = verdict.timing
    return {
        "status": verdict.status.value,
        "score": verdict.score,
        "interval": timing.interval if timing else None,
        "profile": verdict.profile,
        "kind": timing.kind.value if timing else None,
        "median_ms": timing.median_ms if timing else None,
        "baseline": timing.baseline if timing else None,
        "floor_share": timing.floor.share if timing and timing.floor else None,
        "floor_limit": timing.floor.limit.value if timing and timing.floor else None,
        "label": verdict.label.value if verdict.label else None,
        "comparison": timing.comparison.value if timing and timing.comparison else None,
        "not_allowed": refusal(verdict, allow),
        "launches_per_forward": verdict.facts.launches_per_forward,
        "message": verdict.message,
        "advice": verdict.advice,
        "seconds": verdict.seconds,
    }
