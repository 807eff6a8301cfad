"""describe: run and trace the reference once; everything later rests on these facts."""

from uuid import uuid4

from tritonsmith.evaluator.errors import InfrastructureError, UsageError
from tritonsmith.evaluator.schema import Task
from tritonsmith.graph.state import State, Update
from tritonsmith.nodes.common import Runner, context_of, emit


async def describe(state: State, runtime: Runner) -> Update:
    """Check the input and ask the evaluator for the task's facts. Raises TaskError, or InfrastructureError after a second try."""
    context = context_of(runtime)
    given: object = state.get("task")
    if not isinstance(given, Task | dict):
        raise UsageError('the graph\'s input is {"task": Task}; load one with tritonsmith.evaluator.tasks.load_task(path, ...)')
    task = Task.model_validate(given)
    emit(runtime, "stage", "describe", state, task=task.name, size=task.size)
    try:
        facts = await context.evaluator.describe(task)
    except InfrastructureError:
        facts = await context.evaluator.describe(task)
    wanted = context.policy.seeds or context.seeds
    seeds = min(wanted, context.budget.candidates or wanted)
    return {"task": task, "facts": facts, "run": state.get("run") or uuid4().hex, "seeds": seeds, "allow": context.allow}
