"""Candidates whose compiled code an earlier working candidate has: dropped before they cost a measurement, where the policy says so.

Only code that works is a reason to drop: a candidate may differ from a failing one in what its host passes, and be right. What runs side by
side is compared with what was known when it began, so that a repeated run goes the same way.
"""

import asyncio
from collections.abc import Mapping, Sequence

from tritonsmith.evaluator.errors import InfrastructureError
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.schema import Status
from tritonsmith.graph.state import BranchState, State, Update
from tritonsmith.nodes.common import NodeRuntime, context_of, emit


async def find_twins(candidates: Sequence[str], node: str, state: State | BranchState, runtime: NodeRuntime) -> Update:
    """The update of `codes` and `twins` for new candidates, in their order; empty where nobody asks or nobody can compile."""
    context = context_of(runtime)
    if not getattr(context.policy, "drop_twins", False):
        return {}
    found = await asyncio.gather(*(_read_code(candidate, state, runtime) for candidate in candidates))
    codes = {candidate: code for candidate, code in zip(candidates, found, strict=True) if code}
    if not codes:
        return {}
    known = _code_that_works(state)
    twins: dict[str, str] = {}
    for candidate, code in codes.items():
        if candidate in state.get("verdicts", {}):
            continue
        earlier = known.get(code)
        if earlier is None or _same_text(candidate, earlier, state):  # an equal text is judged once anyway
            known.setdefault(code, candidate)
            continue
        twins[candidate] = earlier
        emit(runtime, "twin", node, state, candidate, earlier=earlier, code=code)
    return {"codes": codes, "twins": twins}


async def _read_code(candidate: str, state: State | BranchState, runtime: NodeRuntime) -> str:
    """The digest of what a candidate compiles to; empty where it does not compile, or the machinery fails: then it is judged."""
    context = context_of(runtime)
    sha = state["candidates"][candidate].sha
    kernel = KernelText(await asyncio.to_thread(context.store.get, sha), sha)
    try:
        return await context.evaluator.read_code(state["task"], kernel)
    except InfrastructureError:
        return ""


def _code_that_works(state: State | BranchState) -> dict[str, str]:
    """Digest to the first working candidate that has it. Codes of candidates that this line does not know are of working ones."""
    candidates, verdicts = state.get("candidates", {}), state.get("verdicts", {})
    found: dict[str, str] = {}
    codes: Mapping[str, str] = state.get("codes", {})
    for candidate, code in codes.items():
        judged = verdicts.get(candidate)
        if candidate not in candidates or (judged is not None and judged.status is Status.OK):
            found.setdefault(code, candidate)
    return found


def _same_text(candidate: str, earlier: str, state: State | BranchState) -> bool:
    candidates = state["candidates"]
    return earlier in candidates and candidates[earlier].sha == candidates[candidate].sha
