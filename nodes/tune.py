"""tune: variants of the best working candidate, in one of three stages (grid, block, memory); by a search, by the author, or by both."""

import asyncio
from collections.abc import Sequence

from tritonsmith.evaluator.schema import Candidate, Stage, Verdict
from tritonsmith.evaluator.texts.spaces.read import read_space
from tritonsmith.graph.pool import best
from tritonsmith.graph.searches import Search, Tuning
from tritonsmith.graph.state import State, Update, Usage, allow_of
from tritonsmith.nodes.asking import ask, brief_for
from tritonsmith.nodes.common import NodeRuntime, context_of, emit, make_candidate, next_id, session_of
from tritonsmith.nodes.foresee import foresee_stage, sort_out
from tritonsmith.nodes.search.stage import search_stage
from tritonsmith.prompts.author import Brief, Draft


async def tune(stage: Stage, state: State, runtime: NodeRuntime) -> Update:
    """Queue variants of the best working candidate, as many as the budget allows; without those that cannot be better."""
    context, candidates = context_of(runtime), state["candidates"]
    base = best(candidates, state.get("verdicts", {}), allow_of(state))
    if base is None:
        return {"queue": [], "current": None, "unjudged": ""}
    emit(runtime, "stage", stage.value, state, base.id)
    verdict = state["verdicts"][base.id]
    tuning = context.tuning or Tuning(str(getattr(context.policy, "tuning", Tuning.SEARCH)))
    if tuning is Tuning.NONE:
        return {"queue": [], "current": base.id, "unjudged": "tuning is off"}
    reason = foresee_stage(base.id, verdict)
    if reason:
        made = await _replace_autotuner(stage, base, state, runtime) if tuning is not Tuning.MODEL else {}
        return {"candidates": made, "queue": list(made), "current": base.id, "unjudged": reason}
    tried = tuple(candidate for candidate in candidates.values() if candidate.stage.value.startswith("tune_"))
    brief = await brief_for(state, runtime, current=base, stage=stage, others=tried)
    drafts: list[Draft] = []
    search: Search | None = None
    usage: dict[str, Usage] = {}
    if tuning is not Tuning.MODEL:
        drafts, search = await search_stage(stage, base, brief, verdict, state, runtime)
    if tuning in (Tuning.MODEL, Tuning.BOTH) or (search is not None and not search.space and not _has_space(brief)):
        written, usage, reason = await _ask_author(stage, base, brief, verdict, state, runtime)
        drafts += written
    made = await _make_candidates(drafts, stage, base, state, runtime)
    update: Update = {"candidates": made, "queue": list(made), "current": base.id, "usage": usage, "unjudged": reason}
    return update if search is None else {**update, "searches": {stage.value: _name_finalists(search, made)}}


def _has_space(brief: Brief) -> bool:
    """Whether the text launches a kernel at all: then any stage may find something to vary."""
    return brief.current is not None and bool(brief.current.candidate.recipe or "triton" in brief.current.source)


async def _replace_autotuner(stage: Stage, base: Candidate, state: State, runtime: NodeRuntime) -> dict[str, Candidate]:
    """An autotuned kernel with the first configuration of its list as plain constants: no search follows that would choose one."""
    text = await asyncio.to_thread(context_of(runtime).store.get, base.sha)
    space = await asyncio.to_thread(read_space, text)
    plain = space.write({}) if any(parameter.needed for parameter in space.parameters) else None
    if plain is None or any(candidate.replaces == base.id for candidate in state["candidates"].values()):
        return {}
    draft = Draft(source=plain, rationale="plain constants in place of the autotuner", replaces=base.id)
    return await _make_candidates([draft], stage, base, state, runtime)


async def _ask_author(
    stage: Stage, base: Candidate, brief: Brief, verdict: Verdict, state: State, runtime: NodeRuntime
) -> tuple[list[Draft], dict[str, Usage], str]:
    """The author's variants that may be better, what asking cost, and a sentence about the others."""
    context = context_of(runtime)
    drafts, usage = await ask(f"{stage.value}-{base.id}", context.author.tune(brief), state, runtime)
    session_of(state, runtime).raise_if_over(len(state["candidates"]))
    worthy, reason = sort_out(base.id, await asyncio.to_thread(context.store.get, base.sha), verdict, drafts or ())
    return worthy, usage, reason


async def _make_candidates(
    drafts: Sequence[Draft], stage: Stage, base: Candidate, state: State, runtime: NodeRuntime
) -> dict[str, Candidate]:
    """The drafts as candidates, within the budget."""
    room = session_of(state, runtime).room(context_of(runtime).budget)
    made: dict[str, Candidate] = {}
    for draft in drafts[:room]:
        cid = next_id({**state["candidates"], **made}, stage.value.removeprefix("tune_"))
        made[cid] = await make_candidate(draft, stage, cid, base.id, state, runtime)
    return made


def _name_finalists(search: Search, made: dict[str, Candidate]) -> Search:
    """The search with the ids of the trials that are judged in full."""
    ids = {candidate.sha: cid for cid, candidate in made.items()}
    trials = tuple(trial.model_copy(update={"candidate": ids.get(trial.sha)}) for trial in search.trials)
    return search.model_copy(update={"trials": trials})
