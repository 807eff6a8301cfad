"""analyze: say why the branch's best kernel is slow, and propose exactly one change."""

from tritonsmith.evaluator.errors import InfrastructureError
from tritonsmith.graph.pool import best
from tritonsmith.graph.state import BranchState, Update, allow_of
from tritonsmith.nodes.asking import ask, brief_for
from tritonsmith.nodes.common import NodeRuntime, branch_of, context_of, emit, session_of
from tritonsmith.nodes.judging import count_kernel
from tritonsmith.nodes.racing import race_regions
from tritonsmith.prompts.analysis import Analysis, Category
from tritonsmith.prompts.author import Computing


async def analyze(state: BranchState, runtime: NodeRuntime) -> Update:
    """Analyse the best working candidate, never a worse one; what was tried since is in the brief's history."""
    candidates = state["candidates"]
    base = best(candidates, state.get("verdicts", {}), allow_of(state))
    if base is None:
        raise InfrastructureError("analyze was reached without a working candidate that may win; the policy's route is wrong")
    rounds = state.get("rounds", 0) + 1
    emit(runtime, "stage", "analyze", state, base.id, round=rounds)
    computed = isinstance(context_of(runtime).author, Computing)  # counting takes longer than a quick verdict, and nobody would read it
    counted = None if computed else await count_kernel(base.id, "analyze", state, runtime)
    verdicts = {base.id: counted} if counted is not None else {}
    state = {**state, "verdicts": {**state.get("verdicts", {}), **verdicts}}
    request = f"{state['branch']}-analysis-{rounds}"
    previous = state.get("analyses", {}).get(state.get("analysis", ""))
    brief = await brief_for(state, runtime, current=base, analysis=previous, others=tuple(candidates.values()))
    brief = await race_regions(brief, state, runtime)
    analysis, usage = await ask(request, context_of(runtime).author.analyze(brief), state, runtime)
    session = session_of(state, runtime)
    if analysis is None and session.waits(branch_of(state)):
        return {"verdicts": verdicts, "current": base.id, "usage": usage}
    if analysis is None:  # the fault is told already
        analysis = _no_analysis(session.fault(branch_of(state)))
    else:
        emit(
            runtime, "analysis", "analyze", state, base.id, id=request, bottleneck=analysis.bottleneck,
            method=analysis.optimisation_method, category=analysis.category.value, expected_speedup=analysis.expected_speedup,
            worth_optimizing=analysis.worth_optimizing, reason=analysis.reason, evidence=analysis.evidence,
        )  # fmt: skip
    return {
        "verdicts": verdicts, "analyses": {request: analysis}, "analysis": request, "current": base.id, "rounds": rounds, "usage": usage,
        "exhausted": False,
    }  # fmt: skip


def _no_analysis(reason: str) -> Analysis:
    """What stands for an analysis that could not be had."""
    return Analysis(
        bottleneck="unknown", optimisation_method="none", modification_plan="", category=Category.ALGORITHM, worth_optimizing=False,
        reason=f"there is no analysis: {reason or 'the author gave none'}",
    )  # fmt: skip
