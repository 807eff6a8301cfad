"""detect and check: what kind of kernel this is, and whether it keeps its analysis' promise."""

import asyncio

from tritonsmith.evaluator.errors import KernelFileError
from tritonsmith.evaluator.schema import Candidate, Verdict
from tritonsmith.graph.state import BranchState, Finding, Findings, PromiseCheck, State, Update
from tritonsmith.nodes.common import NodeRuntime, context_of, emit
from tritonsmith.nodes.judging import count_kernel
from tritonsmith.prompts.analysis import Promise
from tritonsmith.prompts.promises import PERCENTAGES, name_source, read_metric


async def detect(state: State, runtime: NodeRuntime) -> Update:
    """Label the selected candidate."""
    candidate = state["candidates"][str(state["current"])]
    return {"findings": {candidate.id: await _findings("detect", candidate, state, runtime)}}


async def check(state: BranchState, runtime: NodeRuntime) -> Update:
    """Label the optimized candidate and compare it with the promise of its analysis."""
    candidate = state["candidates"][str(state["current"])]
    verdict = state.get("verdicts", {}).get(candidate.id)
    if verdict is None or verdict.score is None:
        return {}  # a kernel that does not run has no facts to check
    promise = state["analyses"][state["analysis"]].promise
    counted = await count_kernel(candidate.id, "check", state, runtime) if promise and promise.metric in PERCENTAGES else None
    if counted is not None:
        verdict = counted
        state = {**state, "verdicts": {**state["verdicts"], candidate.id: counted}}
    findings = await _findings("check", candidate, state, runtime)
    result = check_promise(candidate.id, state["analysis"], promise, verdict, findings)
    found: Update = {"findings": {candidate.id: findings}, "checks": {candidate.id: result}}
    return found if counted is None else {**found, "verdicts": {candidate.id: counted}}


def check_promise(candidate: str, analysis: str, promise: Promise | None, verdict: Verdict, findings: Findings) -> PromiseCheck:
    """Compare a promise with measured facts. A time loop that is still in Python breaks any promise."""
    loop = next((finding for finding in findings.labels if finding.name == "time_loop_in_python"), None)
    actual = None if promise is None else read_metric(promise.metric, verdict)
    kept, reason = True, f"{promise.metric} was promised and is not measured here" if promise else "nothing measurable was promised"
    if promise is not None and actual is not None:
        kept = actual <= promise.bound if promise.at_most else actual >= promise.bound
        bound = f"{'at most' if promise.at_most else 'at least'} {promise.bound:g}"
        source = name_source(promise.metric, verdict)
        reason = f"{promise.metric} is {actual:.4g} ({bound} was promised, {promise.before:.4g} before{f'; {source}' if source else ''})"
    if loop is not None:
        where = f" (line {loop.line})" if loop.line else ""
        kept, reason = False, f"the time loop is still in Python{where}; {reason}"
    return PromiseCheck(
        candidate=candidate,
        analysis=analysis,
        metric=promise.metric if promise else "",
        bound=promise.bound if promise else None,
        actual=actual,
        kept=kept,
        time_loop_in_python=loop is not None,
        reason=reason,
    )


async def _findings(node: str, candidate: Candidate, state: State | BranchState, runtime: NodeRuntime) -> Findings:
    context = context_of(runtime)
    emit(runtime, "stage", node, state, candidate.id)
    source = await asyncio.to_thread(context.store.get, candidate.sha)
    verdict = state["verdicts"][candidate.id]
    given = (source, verdict.facts, state["facts"], context.evaluator.hardware, verdict.timing)
    try:
        detection = await asyncio.to_thread(context.detector, *given)
    except KernelFileError as error:  # it works, but its text cannot be followed: no label, and the run goes on
        emit(runtime, "findings", node, state, candidate.id, labels=[], message=str(error))
        return Findings(candidate=candidate.id)
    hits = tuple(Finding(name=str(hit.name), line=hit.line, evidence=hit.evidence) for hit in detection.labels)
    emit(runtime, "findings", node, state, candidate.id, labels=[hit.model_dump() for hit in hits])
    return Findings(candidate=candidate.id, labels=hits)
