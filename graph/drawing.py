"""The picture of the graph as Mermaid text, and the way that a run took through it."""

import re
from collections import defaultdict
from collections.abc import Iterable

from langchain_core.runnables.graph import Graph
from langgraph.graph import START

from tritonsmith.graph.builder import build_graph
from tritonsmith.graph.sites import LINES, SITES
from tritonsmith.graph.state import Decision

_TAKEN = "fill:#ffd8a8,stroke:#d9480f,stroke-width:2px"
_OVERRULE = ("budget", "graph")
"""Sites whose answer at a gate replaces the policy's."""
_ENTRIES = {"seed": "seed", LINES["after_select"]: "analyze", LINES["after_confirm"]: "repair"}
"""The node with which a line of work begins, by what its name begins with."""
_LABELLED = re.compile(r"(decide_(\w+) -\. )&nbsp;(\w+)&nbsp;( \.-> )")


def graph_mermaid(xray: bool = True, decisions: Iterable[Decision] = ()) -> str:
    """The graph as Mermaid text, branches drawn open with `xray`; nodes on the way of `decisions` are highlighted.

    The text depends on the wiring alone, never on the policy. Edges of one gate that lead to one node share a label. `improve` is the
    same subgraph as `branch`: open, both are drawn once, as `branch`, and what either of them visited is highlighted there.
    """
    graph = drawn_graph(xray)
    visited = dict.fromkeys(_drawn_as(node) for node in visited_nodes(graph, decisions))
    text = _LABELLED.sub(_join_labels, _with_one_branch(graph).draw_mermaid())
    if visited:
        names = ",".join(node.replace(":", r"\3a") for node in visited)
        text = f"{text.rstrip()}\n\tclassDef taken {_TAKEN}\n\tclass {names} taken\n"
    return text


def _drawn_as(node: str) -> str:
    """The node of `branch` that stands for a node of the open `improve`."""
    return node.replace("improve:", "branch:", 1) if node.startswith("improve:") else node


def _with_one_branch(graph: Graph) -> Graph:
    """The drawing without the inside of `improve`; edges into and out of it go to `branch`."""
    nodes = {name: node for name, node in graph.nodes.items() if _drawn_as(name) == name}
    moved = (edge._replace(source=_drawn_as(edge.source), target=_drawn_as(edge.target)) for edge in graph.edges)
    return Graph(nodes=nodes, edges=list(dict.fromkeys(moved)))


def drawn_graph(xray: bool = True) -> Graph:
    """The drawing's nodes and edges; branches open with `xray`."""
    return build_graph().compile(name="tritonsmith").get_graph(xray=1 if xray else False)


def drawn_edges(graph: Graph) -> dict[tuple[str, str], str]:
    """The edges of a drawing with their labels. A gate's edge names every choice that takes it, unless choice and target have one name."""
    edges: dict[tuple[str, str], str] = {}
    for edge in graph.edges:
        _, _, gate = edge.source.partition("decide_")
        choices = SITES[gate].choices if gate in SITES else {}
        label = str(edge.data) if edge.data else ""
        target = choices.get(label)
        edges[edge.source, edge.target] = " / ".join(choice for choice, node in choices.items() if node == target) if target else label
    return edges


def entry_of(branch: str) -> str:
    """The node with which a line of work begins."""
    return _ENTRIES[branch.rstrip("0123456789")]


def find_followed(decisions: Iterable[Decision]) -> list[Decision]:
    """The decisions that the run followed: where a gate recorded two answers at once, the second one."""
    followed: list[Decision] = []
    for decision in decisions:
        last = next((index for index in range(len(followed) - 1, -1, -1) if followed[index].branch == decision.branch), None)
        if last is not None and followed[last].gate == decision.gate:
            if decision.site in _OVERRULE or followed[last].site in ("budget", "author"):
                del followed[last]
        followed.append(decision)
    return followed


def visited_nodes(graph: Graph, decisions: Iterable[Decision]) -> list[str]:
    """Ids of the drawn nodes that a run with these decisions went through, in the drawing's order."""
    onward: dict[str, list[str]] = defaultdict(list)
    for edge in graph.edges:
        if not edge.conditional:
            onward[edge.source].append(edge.target)
    seen: set[str] = set()

    def walk(node: str) -> None:
        if node in graph.nodes and node not in seen:
            seen.add(node)
            for target in onward[node]:
                walk(target)

    for decision in find_followed(decisions):
        where = _prefix(graph, decision.branch)
        walk(START)
        if where is None:  # a closed branch is one node
            walk("branch" if decision.branch.startswith("seed") else "improve")
            continue
        if where:
            seen.add(f"{where}{START}")
            walk(where + entry_of(decision.branch))
        if where and (decision.candidate or "").startswith(f"{decision.branch}-"):  # a kernel of this line was judged
            walk(f"{where}evaluate")
        gate = f"{where}decide_{decision.gate}"
        walk(gate)
        target = SITES[decision.gate].choices.get(decision.choice) if decision.gate in SITES else None
        if target is not None:
            for edge in graph.edges:
                reached = edge.target.removesuffix(f":{START}") if not where else edge.target
                if edge.source == gate and reached == where + target:
                    walk(edge.target)
    return [node for node in graph.nodes if node in seen]


def possible_decisions(answers: Iterable[tuple[str, str]]) -> tuple[Decision, ...]:
    """What a run can decide where each gate gives these answers, as (gate, choice); gates that no way leads to are left out."""
    choices: dict[str, list[str]] = defaultdict(list)
    for gate, choice in dict.fromkeys(answers):
        choices[gate].append(choice)

    def choices_at(inside: str, gate: str) -> list[str]:
        analysed = f"{inside}analyze" in seen
        return [choice for choice in choices[gate] if analysed or SITES[gate].needs.get(choice) != "analysis"]

    def is_begun(line: str) -> bool:
        return any(SITES[gate].choices[choice] == "improve" for gate in SITES if LINES.get(gate) == line for choice in choices[gate])

    def leads_on(source: str, target: str) -> bool:
        inside, _, gate = source.rpartition("decide_")
        if gate in SITES:
            nodes = {f"{inside}{SITES[gate].choices[choice]}" for choice in choices_at(inside, gate)}
            return bool({target, target.removesuffix(f":{START}")} & nodes)
        if source.endswith(f":{START}"):
            lines = ["seed"] if source.startswith("branch") else [line for line in LINES.values() if is_begun(line)]
            return target.rpartition(":")[2] in {_ENTRIES[line] for line in lines}
        return True

    edges, seen = drawn_graph(True).edges, {START}
    while found := {edge.target for edge in edges if edge.source in seen and leads_on(edge.source, edge.target)} - seen:
        seen |= found
    return tuple(
        Decision(id=f"{branch}/{gate}/{choice}", site=SITES[gate].asks, gate=gate, choice=choice, reason="", branch=branch)
        for inside, branch in (("branch:", "seed0"), *(("improve:", f"{line}1") for line in LINES.values() if is_begun(line)), ("", "main"))
        for gate in SITES
        if f"{inside}decide_{gate}" in seen
        for choice in choices_at(inside, gate)
    )


def _prefix(graph: Graph, branch: str) -> str | None:
    if branch == "main":
        return ""
    name = "branch" if branch.startswith("seed") else "improve"
    return None if name in graph.nodes else f"{name}:"


def _join_labels(edge: re.Match[str]) -> str:
    """Mermaid draws one edge per pair of nodes; name every choice that takes it."""
    head, gate, label, arrow = edge.groups()
    choices = SITES[gate].choices
    joined = [choice for choice, target in choices.items() if target == choices[label]]
    return f"{head}&nbsp;{' / '.join(joined)}&nbsp;{arrow}"
