"""Asking the author: the brief it gets, and the ledger of what a model's answers cost."""

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any, TypeVar

from tritonsmith.evaluator.schema import Candidate, Stage
from tritonsmith.graph.pool import lineage, refusal
from tritonsmith.graph.state import BranchState, State, Usage, allow_of
from tritonsmith.nodes.authors.meter import meter_request
from tritonsmith.nodes.chat.faults import ModelFault
from tritonsmith.nodes.chat.ledger import append_rows
from tritonsmith.nodes.chat.records import Request, UsageRow, Waiting
from tritonsmith.nodes.common import NodeRuntime, branch_of, context_of, emit, session_of
from tritonsmith.prompts.analysis import Analysis
from tritonsmith.prompts.author import Attempt, AuthorError, Brief, Recalled

Answer = TypeVar("Answer")


async def ask(
    request: str, answer: Awaitable[Answer], state: State | BranchState, runtime: NodeRuntime
) -> tuple[Answer | None, dict[str, Usage]]:
    """The author's answer and the update of the state's `usage`; every prompt and reply is written as it comes.

    None where the author cannot be asked: the session then knows why, and the next gate ends the branch or the run.
    """
    context, session = context_of(runtime), session_of(state, runtime)

    def keep(name: str, call: dict[str, Any], rows: Sequence[UsageRow], usage: Usage) -> None:
        context.store.save_call(name, call)
        append_rows(context.store.root / "usage.csv", rows)
        session.note_usage(request, usage)

    def spend(asked: Request, model: str, usage: Usage, answered: bool) -> None:
        emit(runtime, "usage", "author", state, **usage_event(asked, model, usage, session.total_usage), answered=answered)

    def tell(text: str) -> None:
        emit(runtime, "pause", "author", state, request=request, reason=text)

    reply: Answer | None = None
    with meter_request(request, keep, spend, tell) as meter:
        try:
            reply = await answer
        except Waiting as wait:
            session.wait(branch_of(state), wait)
            emit(runtime, "waiting", "author", state, request=request, reason=str(wait))
        except AuthorError as error:
            fatal = isinstance(error, ModelFault) and not error.fault.of_the_request
            session.fail(branch_of(state), error, fatal=fatal)
            emit(runtime, "fault", "author", state, request=request, reason=str(error))
    return reply, {} if meter.usage == Usage() else {request: meter.usage}


def usage_event(asked: Request, model: str, usage: Usage, so_far: Usage) -> dict[str, Any]:
    """What the stream tells of one call to a model; the rest of it is in `llm/` and `usage.csv`."""
    return {
        **asked.model_dump(mode="json", include={"call", "stage", "role"}),
        "request": asked.name,
        "model": model,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "money": usage.money,
        "seconds": usage.seconds,
        "total_tokens": so_far.tokens,
        "total_money": so_far.money,
    }


async def brief_for(
    state: State | BranchState,
    runtime: NodeRuntime,
    *,
    current: Candidate | None = None,
    analysis: Analysis | None = None,
    stage: Stage = Stage.SEED,
    others: tuple[Candidate, ...] = (),
) -> Brief:
    """Everything the author may know; the history is the candidate's ancestors, then `others`, each with its verdict."""
    context = context_of(runtime)
    index = state.get("index")
    candidates = state.get("candidates", {})
    chain = lineage(candidates, current.id)[:-1] if current else []
    seen = {candidate.id for candidate in chain} | ({current.id} if current else set())
    chain += [candidate for candidate in others if candidate.id not in seen]
    task, facts, hardware = state["task"], state["facts"], context.evaluator.hardware
    shown = [current, *chain] if current else chain
    sources = await asyncio.to_thread(lambda: [context.store.get(candidate.sha) for candidate in shown])
    attempts = [_attempt(state, candidate, source) for candidate, source in zip(shown, sources, strict=True)]
    recalled = await context.memory(task, facts, hardware) if context.memory else Recalled()
    return Brief(
        task=task,
        facts=facts,
        hardware=hardware,
        branch=index if isinstance(index, int) else 0,
        current=attempts[0] if current else None,
        history=tuple(attempts[1:] if current else attempts),
        analysis=analysis,
        stage=stage,
        allow=allow_of(state),
        examples=recalled.examples,
        failures=recalled.failures,
    )


def _attempt(state: State | BranchState, candidate: Candidate, source: str) -> Attempt:
    verdict = state.get("verdicts", {}).get(candidate.id)
    check = state.get("checks", {}).get(candidate.id)
    return Attempt(
        candidate=candidate,
        source=source,
        verdict=verdict,
        refusal=refusal(verdict, allow_of(state)) if verdict else "",
        promise=f"{'kept' if check.kept else 'broken'}: {check.reason}" if check else "",
    )
