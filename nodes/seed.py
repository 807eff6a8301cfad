"""seed: the first kernel of a branch."""

from tritonsmith.author.backward import add_backward, refuse_backward
from tritonsmith.evaluator.caller.questions.compiler_seed import write_seed_with
from tritonsmith.evaluator.errors import InfrastructureError, TaskError
from tritonsmith.evaluator.protocol import CompilerSeed
from tritonsmith.evaluator.schema import Stage, Task, TaskFacts
from tritonsmith.evaluator.tasks.files import declared_shapes
from tritonsmith.graph.context import Context
from tritonsmith.graph.state import BranchState, Update
from tritonsmith.nodes.asking import ask, brief_for
from tritonsmith.nodes.common import NodeRuntime, context_of, emit, make_candidate, next_id
from tritonsmith.prompts.author import AuthorError, Draft


async def seed(state: BranchState, runtime: NodeRuntime) -> Update:
    """Ask the author for this branch's first kernel, or a compiler; a branch without one ends at its next gate."""
    emit(runtime, "stage", "seed", state)
    cid = next_id(state.get("candidates", {}), state["branch"])
    context = context_of(runtime)
    if context.seed_from and state.get("index") == context.branches - 1:
        answer = _ask_compiler(context, state["task"], state["facts"])
    else:
        answer = context.author.seed(await brief_for(state, runtime))
    draft, usage = await ask(f"{cid}-seed", answer, state, runtime)
    if draft is None:
        return {"current": None, "usage": usage, "repairs": 0, "optimized": False, "exhausted": True}
    candidate = await make_candidate(draft, Stage.SEED, cid, None, state, runtime)
    return {"candidates": {cid: candidate}, "current": cid, "usage": usage, "repairs": 0, "optimized": False, "exhausted": False}


async def _ask_compiler(context: Context, task: Task, facts: TaskFacts) -> Draft:
    """The compiler's own kernels as a draft. Raises AuthorError where there are none that stand alone, or that fit every size."""
    way_out = "drop the option, or let an author write more seeds (--seeds)"
    if declared_shapes(task):
        raise AuthorError(
            f"--seed-from {context.seed_from}: the compiler's kernels are made for one size, and {task.path} declares other ones (SHAPES) "
            f"at which the winner must be right too; leave SHAPES out, {way_out}"
        )
    if why_not := refuse_backward(task):
        raise AuthorError(f"--seed-from {context.seed_from}: its kernels have no backward, and {why_not}; {way_out}")
    try:
        seed = await write_seed_with(context.evaluator, task)
    except (TaskError, InfrastructureError) as error:
        seed = CompilerSeed(reason=str(error))
    if not seed.text:
        raise AuthorError(f"--seed-from {context.seed_from}: {seed.reason}; {way_out}")
    text = add_backward(seed.text, task, facts)
    return Draft(source=text, rationale=f"{str(context.seed_from).capitalize()}'s own kernels", author=str(context.seed_from))
