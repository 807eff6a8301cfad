"""describe: run and trace the reference once; everything later rests on these facts."""

import asyncio
from uuid import uuid4

from langgraph.types import Overwrite
from pydantic import ValidationError

from tritonsmith.evaluator.errors import InfrastructureError, UsageError
from tritonsmith.evaluator.schema import Task
from tritonsmith.evaluator.tasks.declared import note_small
from tritonsmith.evaluator.tasks.files import choose_load_size, load_task, settle_task, settled_size
from tritonsmith.graph.context import Context
from tritonsmith.graph.state import Shared, State, Update
from tritonsmith.nodes.bar import measure_bar
from tritonsmith.nodes.common import NodeRuntime, context_of, emit
from tritonsmith.nodes.forms import measure_forms
from tritonsmith.prompts.author import AuthorError, Choosy


async def describe(state: State, runtime: NodeRuntime) -> Update:
    """Check the input and ask the evaluator for the task's facts.

    Raises TaskError, AuthorError where the author says at once that it cannot write this, or InfrastructureError after a second try.
    """
    context = context_of(runtime)
    task = await _task_of(state, context)
    emit(runtime, "stage", "describe", state, task=task.name, size=settled_size(task))
    try:
        facts = await context.evaluator.describe(task)
    except InfrastructureError:
        facts = await context.evaluator.describe(task)
    task = note_small(settle_task(task, facts))
    if task.sized:
        emit(runtime, "size", "describe", state, size=task.size, reason=task.sized)
    facts = await measure_bar(context, task, facts)
    if facts.bar is not None:
        emit(runtime, "bar", "describe", state, baseline=facts.bar.baseline, baselines_ms=facts.bar.baselines_ms)
    seeds = context.branches
    again = "candidates" in state and bool(state["candidates"] or state.get("stopped_because"))
    run = uuid4().hex if again else state.get("run") or uuid4().hex
    begun: Update = {"task": task, "facts": facts, "run": run, "seeds": seeds, "allow": context.allow}
    if isinstance(context.author, Choosy):
        try:
            context.author.require(task, facts, context.evaluator.hardware)
        except AuthorError as error:
            if context.seed_from is None:  # else a compiler may still write one, and its branch says it
                unwritten = str(error)
                forms = await measure_forms("describe", begun, runtime)
                if forms is None:
                    raise
                begun |= {"unwritten": unwritten, "forms": forms}
    return {**_FRESH, **begun} if again else begun


_FRESH: Update = {
    **{name: Overwrite({}) for name in Shared.__annotations__ if name not in ("stopped_because", "elapsed")},
    "stopped_because": Overwrite(""), "elapsed": Overwrite(0.0), "current": None, "queue": [], "improvements": 0, "returns": 0,
    "widenings": 0, "lines": Overwrite({}), "opening": [], "searches": Overwrite({}), "winner": None, "result": "",
    "behind": None, "unwritten": "", "forms": None, "regions": (),
}  # fmt: skip
"""Empties the state: a thread that gets another task begins a new run, and nothing of the old one counts."""


async def _task_of(state: State, context: Context) -> Task:
    """The given task, or the one in the given file. Size `auto` is full with a card and small without."""
    given: object = state.get("task")
    mode: object = state.get("mode")
    if isinstance(given, str):
        size = choose_load_size(state.get("size"), context.evaluator.hardware.present)
        overrides: object = state.get("overrides") or {}
        if not isinstance(overrides, dict) or not all(isinstance(value, int | float | str) for value in overrides.values()):
            raise UsageError(f'overrides {overrides!r}: give names of the task file with their values, such as {{"seq_len": 16}}')
        return await asyncio.to_thread(load_task, given, size, overrides, state.get("precision"), str(mode) if mode else None)
    if isinstance(given, dict):
        try:
            return Task.model_validate(given)
        except ValidationError as error:
            first = error.errors()[0]
            raise UsageError(f"task.{'.'.join(map(str, first['loc']))}: {first['msg']}; or give the path of a task file") from None
    if not isinstance(given, Task):
        raise UsageError(
            'the graph\'s input is {"task": "path/of/a/task.py"} or {"task": Task} (tritonsmith.evaluator.tasks.files.load_task)'
        )
    return given
