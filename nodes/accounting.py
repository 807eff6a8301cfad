"""What each part of the best kernel takes, for the answer of a run."""

from __future__ import annotations

import asyncio

from tritonsmith.evaluator.schema import Candidate
from tritonsmith.graph.state import State, allow_of
from tritonsmith.nodes.common import NodeRuntime, context_of
from tritonsmith.prompts.author import Attempt, Brief
from tritonsmith.prompts.regions import Accounting, RegionRow, list_kernels


async def account_for(candidate: Candidate, state: State, runtime: NodeRuntime) -> tuple[RegionRow, ...]:
    """The parts of a kernel as its author knows them; by the kernels of its verdict where a model wrote it."""
    context, verdict = context_of(runtime), state.get("verdicts", {}).get(candidate.id)
    author = context.author
    if not candidate.recipe or not isinstance(author, Accounting):
        return list_kernels(verdict)
    brief = Brief(
        task=state["task"], facts=state["facts"], hardware=context.evaluator.hardware, allow=allow_of(state),
        current=Attempt(candidate=candidate, source="", verdict=verdict),
    )  # fmt: skip
    return await asyncio.to_thread(author.account, brief)
