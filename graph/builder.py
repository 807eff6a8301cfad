"""The whole graph on one screen: which nodes there are, and which edges. Every fork is a gate from `graph/sites.py`."""

from collections.abc import Awaitable, Callable, Hashable
from functools import partial
from typing import Any, cast

from langgraph.graph import END, START, StateGraph
from langgraph.runtime import get_runtime
from langgraph.types import Send

from tritonsmith.evaluator.schema import Stage, Status
from tritonsmith.graph.checkpoints.any_saver import AnySaverGraph
from tritonsmith.graph.context import Context
from tritonsmith.graph.pool import lineage
from tritonsmith.graph.sites import SITES
from tritonsmith.graph.state import (
    BranchInput,
    BranchState,
    Budget,
    RunInput,
    RunOutput,
    Shared,
    State,
    Update,
    allow_of,
    count_returned_repairs,
)
from tritonsmith.graph.steps import GATE_TRACE, NODE_TRACE, Edge, Step
from tritonsmith.nodes.analyze import analyze
from tritonsmith.nodes.common import NodeRuntime, context_of
from tritonsmith.nodes.confirm import confirm
from tritonsmith.nodes.decide import choice_of, decide
from tritonsmith.nodes.describe import describe
from tritonsmith.nodes.detect import check, detect
from tritonsmith.nodes.evaluate import evaluate, evaluate_queue
from tritonsmith.nodes.optimize import optimize
from tritonsmith.nodes.repair import repair
from tritonsmith.nodes.seed import seed
from tritonsmith.nodes.select import finish, select
from tritonsmith.nodes.tune import tune

Node = Callable[[Any, NodeRuntime], Awaitable[Update]]
"""A stage: state and runtime in, a small update out."""
Around = Callable[[str, Node, Any, NodeRuntime], Awaitable[Update]]
"""Wraps each node for a server: makes a Context of plain values, and calls the node."""

Graph = StateGraph[Any, Any, Any, Any]


def build_graph(context_schema: type[Any] = Context, around: Around | None = None, input_schema: type[Any] = RunInput) -> Graph:
    """The graph, not yet compiled: `build_graph().compile(checkpointer=...)` is the caller's choice."""
    graph: Graph = AnySaverGraph(State, context_schema=context_schema, input_schema=input_schema, output_schema=RunOutput)
    add = partial(_add_node, graph, State, around)
    branch = build_branch(context_schema, around).compile(name="branch")

    add("describe", describe)
    graph.add_node("branch", branch, trace_policy=NODE_TRACE)
    add("select", select)
    graph.add_node("improve", branch, trace_policy=NODE_TRACE)
    add("detect", detect)
    for stage in (Stage.TUNE_GRID, Stage.TUNE_BLOCK, Stage.TUNE_MEMORY):
        axis = stage.value.removeprefix("tune_")
        add(stage.value, partial(tune, stage))
        add(f"evaluate_{axis}", partial(evaluate_queue, f"evaluate_{axis}"))
        graph.add_edge(stage.value, f"evaluate_{axis}")
        _add_gate(graph, State, around, f"evaluate_{axis}", f"after_{axis}")
    add("confirm", confirm)
    add("finish", finish)

    graph.add_edge(START, "describe")
    graph.add_conditional_edges("describe", Edge("seeds", _send_seeds), ["branch", "finish"])
    graph.add_edge("branch", "select")
    graph.add_edge("improve", "select")
    _add_gate(graph, State, around, "select", "after_select")
    _add_gate(graph, State, around, "detect", "after_detect")
    _add_gate(graph, State, around, "confirm", "after_confirm")
    graph.add_edge("finish", END)
    return graph


def build_branch(context_schema: type[Any] = Context, around: Around | None = None) -> Graph:
    """One line of work: a seed, its repairs and its rescue; or, entered with a candidate, from its analysis or its repair on."""
    graph: Graph = StateGraph(BranchState, context_schema=context_schema, input_schema=BranchInput, output_schema=Shared)
    add = partial(_add_node, graph, BranchState, around)
    add("seed", seed)
    add("evaluate", evaluate)
    add("repair", repair)
    add("analyze", analyze)
    add("optimize", optimize)
    add("check", check)
    graph.add_conditional_edges(START, Edge("entry", _read_entry), {"new": "seed", "selected": "analyze", "refused": "repair"})
    graph.add_edge("seed", "evaluate")
    _add_gate(graph, BranchState, around, "evaluate", "after_evaluate")
    _add_gate(graph, BranchState, around, "analyze", "worth_optimizing")
    _add_gate(graph, BranchState, around, "check", "after_optimize")
    for author in ("repair", "optimize"):
        graph.add_conditional_edges(author, Edge("drafted", _read_draft), {"drafted": "evaluate", "nothing": "decide_after_evaluate"})
    return graph


def step_limit(budget: Budget) -> int:
    """A recursion limit that no run within the budget reaches: a backstop, not a rule."""
    return 200 + 20 * (budget.candidates or 1000)


def _read_entry(state: BranchState) -> str:
    if state.get("returns"):
        return "refused"
    return "selected" if state.get("current") else "new"


def _read_draft(state: BranchState) -> str:
    return "nothing" if state.get("exhausted") else "drafted"


def _send_seeds(state: State) -> list[Send] | str:
    """A branch for each seed; straight to the end where the author writes no kernel of the task."""
    if state.get("unwritten"):
        return "finish"
    shared = {"task": state["task"], "facts": state["facts"], "run": state["run"], "allow": allow_of(state)}
    return [Send("branch", {**shared, "branch": f"seed{index}", "index": index}) for index in range(state["seeds"])]


def _send_back(gate: str, state: State) -> list[Send]:
    """The lines of work that the last decision begins; one to be repaired knows its ancestors, as in the branch that it came from."""
    refused = gate == "after_confirm"
    counters = {"returns": state["returns"], "repairs": count_returned_repairs(state) - 1} if refused else {"returns": 0, "repairs": 0}
    shared = {"task": state["task"], "facts": state["facts"], "run": state["run"], "allow": allow_of(state)}
    working = {cid for cid, verdict in state.get("verdicts", {}).items() if verdict.status is Status.OK}
    codes = {cid: code for cid, code in state.get("codes", {}).items() if cid in working}
    sent: list[Send] = []
    for name in state["opening"]:
        chosen = state["lines"][name]
        known = [one.id for one in lineage(state["candidates"], chosen)] if refused else [chosen]
        verdicts = {cid: state["verdicts"][cid] for cid in known if cid in state["verdicts"]}
        pool = {"candidates": {cid: state["candidates"][cid] for cid in known}, "verdicts": verdicts, "codes": codes}
        sent.append(Send("improve", {**shared, "branch": name, "index": None, "current": chosen, **counters, **pool}))
    return sent


def _add_gate(graph: Graph, schema: type[Any], around: Around | None, source: str, gate: str) -> None:
    """Add a node that decides and records, and an edge that only reads the answer. So every policy has the same drawing."""

    def read(state: Any) -> Any:
        choice = choice_of(state)
        return _send_back(gate, state) if SITES[gate].choices[choice] == "improve" else choice

    _add_node(graph, schema, around, f"decide_{gate}", partial(decide, gate))
    graph.add_edge(source, f"decide_{gate}")
    graph.add_conditional_edges(f"decide_{gate}", Edge(f"choice_{gate}", read), cast("dict[Hashable, str]", SITES[gate].choices))


def _add_node(graph: Graph, schema: type[Any], around: Around | None, name: str, node: Node) -> None:
    """Add a node that gets state and runtime. In a trace a gate shows its answer, any other node its changes."""

    async def work(state: Any, runtime: NodeRuntime) -> Update:
        if around is not None:
            return await around(name, node, state, runtime)
        context_of(runtime)  # a missing context is reported before any work
        return await node(state, runtime)

    policy = GATE_TRACE if name.startswith("decide_") else NODE_TRACE
    step = Step(name, lambda state: work(state, get_runtime(Context)))
    graph.add_node(name, step, input_schema=schema, trace_policy=policy)
