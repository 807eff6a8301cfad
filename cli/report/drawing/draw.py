"""The graph as SVG, without a network and without a browser: the same nodes and edges as the Mermaid text, with ways marked."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from langchain_core.runnables.graph import Graph
from markupsafe import Markup, escape

from tritonsmith.cli.report.drawing.layout import Placed, Spot, place
from tritonsmith.graph.drawing import drawn_edges, drawn_graph, entry_of, find_followed, visited_nodes
from tritonsmith.graph.sites import SITES
from tritonsmith.graph.state import Decision

_GATE = "decide_"
_ENDS = {"__start__": "start", "__end__": "end"}
_HEIGHT = 26.0
"""Pixels of a node."""
_LETTER = 6.6
"""Pixels of a letter's width at the drawing's size of type."""
_BULGE = 30.0
"""How far an edge bends away from the edge that leads the other way."""
_TIMES = "\N{MULTIPLICATION SIGN}"
TAKEN_WAY = "the way that a run took"
POSSIBLE_WAYS = "the ways that a policy can take"
_HEAD = 20.0
"""Room above a panel for its name in a file with several."""

_STYLE = (
    ":root{--ink:#1f2933;--muted:#52606d;--edge:#b3bcc6;--paper:#fff;--taken:#c2410c;--wash:#ffedd5}"
    "@media (prefers-color-scheme:dark){:root{--ink:#e4e7eb;--muted:#a6b0bb;--edge:#56626e;--paper:#15191e;--taken:#fb923c;--wash:#43210f}}"
)
DRAWING_RULES = (
    ".graph{font:11px system-ui,sans-serif}.graph .sheet{fill:var(--paper)}.graph .box{fill:var(--paper);stroke:var(--edge)}"
    ".graph .gate .box{stroke-dasharray:3 2}.graph text{fill:var(--muted);text-anchor:middle}"
    ".graph .edge{fill:none;stroke:var(--edge)}.graph .tip{fill:var(--edge)}"
    ".graph .label{font-size:10px;paint-order:stroke;stroke:var(--paper);stroke-width:3px;stroke-linejoin:round}"
    ".graph .start{text-anchor:start}.graph .end{text-anchor:end}"
    ".graph .taken .box{stroke:var(--taken);stroke-width:1.8;fill:var(--wash)}.graph .taken text{fill:var(--ink)}"
    ".graph .taken .edge{stroke:var(--taken);stroke-width:1.8}.graph .taken .tip{fill:var(--taken)}"
    ".graph .name{font-weight:600;text-anchor:start;fill:var(--ink)}"
)
"""Style of a drawing; a page gives the colours."""


@dataclass(frozen=True)
class Panel:
    """One part of the graph: a branch, or what happens after the branches joined."""

    name: str
    title: str
    placed: Placed
    body: str
    """SVG elements."""

    @property
    def svg(self) -> Markup:
        """The part as an element of a page."""
        size = f'viewBox="0 0 {self.placed.width:.0f} {self.placed.height:.0f}" width="{self.placed.width:.0f}"'
        # every text in the body is escaped where it is put in
        return Markup(f'<svg class="graph" role="group" aria-label="{escape(self.title)}" {size}>{self.body}</svg>')


def draw_panels(decisions: Sequence[Decision], *, link: bool, counted: bool = True) -> tuple[Panel, ...]:
    """The parts of the graph with the way that these decisions took; with `link`, gates lead to `#gate-<name>`.

    What was `counted` says how often; what only can happen does not.

    A branch that begins with a chosen candidate is drawn only where a run went into it; without a way it is the same as a seed's.
    """
    whole, closed = drawn_graph(True), drawn_graph(False)
    seen = set(visited_nodes(whole, decisions)) | set(visited_nodes(closed, decisions))
    way = find_followed(decisions)
    main = [decision for decision in way if decision.branch == "main"]
    seeds = [decision for decision in way if decision.branch.startswith("seed")]
    improved = [decision for decision in way if decision not in main and decision not in seeds]
    parts = [("branch", "One seed's branch", seeds), ("", "The run, after the branches have joined", main)]
    if improved:
        parts.append(("improve", "A chosen candidate, analysed again or repaired", improved))
    return tuple(_draw_panel(name, title, whole if name else closed, seen, taken, link, counted) for name, title, taken in parts)


def draw_file(decisions: Sequence[Decision], marked: str = TAKEN_WAY) -> str:
    """The whole graph as one SVG file that needs no other file; `marked` says what the marks are."""
    panels = draw_panels(decisions, link=False, counted=marked == TAKEN_WAY)
    width = sum(panel.placed.width for panel in panels)
    height = max(panel.placed.height for panel in panels) + _HEAD
    parts, left = [], 0.0
    for panel in panels:
        name = f'<text class="name" x="{left + 14:.0f}" y="{_HEAD - 4:.0f}">{escape(panel.title)}</text>'
        parts.append(f'{name}<g transform="translate({left:.0f} {_HEAD:.0f})">{panel.body}</g>')
        left += panel.placed.width
    description = "The state machine of tritonsmith" + (f", with {marked}" if decisions else "")
    size = f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" class="graph" {size} role="img" aria-label="{description}">'
    style = f"<style>{_STYLE}{DRAWING_RULES}</style>"
    return f'{head}{style}<rect class="sheet" width="100%" height="100%"/>{"".join(parts)}</svg>\n'


def _draw_panel(name: str, title: str, graph: Graph, seen: set[str], decisions: Sequence[Decision], link: bool, counted: bool) -> Panel:
    prefix = f"{name}:" if name else ""
    nodes = [node for node in graph.nodes if node.startswith(prefix)]
    edges = {pair: label for pair, label in drawn_edges(graph).items() if pair[0] in nodes and pair[1] in nodes}
    sizes = {node: (_node_width(node.removeprefix(prefix)), _HEIGHT) for node in nodes}
    placed = place(sizes, list(edges))
    counts = Counter((f"{prefix}{_GATE}{decision.gate}", _target_of(prefix, decision)) for decision in decisions)
    asked = Counter(f"{prefix}{_GATE}{decision.gate}" for decision in decisions) if counted else Counter()
    counts = counts if counted else Counter(counts.keys())
    entries = {f"{prefix}{entry_of(decision.branch)}" for decision in decisions if name}
    body: list[str] = []
    for pair, label in edges.items():
        times = _count_way(pair, graph, seen, counts, prefix, entries)
        body.append(_draw_edge(placed, sizes, pair, label, times, (pair[1], pair[0]) in edges))
    body += [_draw_node(placed.nodes[node], sizes[node][0], node.removeprefix(prefix), node in seen, asked[node], link) for node in nodes]
    return Panel(name=name or "main", title=title, placed=placed, body="".join(body))


def _target_of(prefix: str, decision: Decision) -> str:
    choices = SITES[decision.gate].choices if decision.gate in SITES else {}
    return f"{prefix}{choices.get(decision.choice, '')}"


def _count_way(
    pair: tuple[str, str], graph: Graph, seen: set[str], counts: Counter[tuple[str, str]], prefix: str, entries: set[str]
) -> int:
    """How often the run went along an edge; 1 where only that it did is known."""
    source, target = pair
    if source.removeprefix(prefix).startswith(_GATE):
        return counts[pair]
    others = [edge for edge in graph.edges if edge.source == source and edge.target != target]
    straight = not others or target.endswith(":evaluate") or (source.endswith("__start__") and target in entries)
    return int(straight and source in seen and target in seen)


def _node_width(name: str) -> float:
    return len(_node_words(name)) * _LETTER + (26.0 if name.startswith(_GATE) else 18.0)


def _node_words(name: str) -> str:
    return _ENDS.get(name, name.removeprefix(_GATE).replace("_", " "))


def _draw_node(spot: Spot, width: float, name: str, taken: bool, asked: int, link: bool) -> str:
    gate = name.startswith(_GATE)
    x, y = spot
    radius = _HEIGHT / 2 if gate or name in _ENDS else 4
    corner = f'x="{x - width / 2:.1f}" y="{y - _HEIGHT / 2:.1f}"'
    box = f'<rect class="box" {corner} width="{width:.1f}" height="{_HEIGHT:.0f}" rx="{radius:.0f}"/>'
    text = f'<text x="{x:.1f}" y="{y + 4:.1f}">{escape(_node_words(name))}{"?" if gate else ""}</text>'
    group = f'<g class="node{" gate" if gate else ""}{" taken" if taken else ""}">{_count_title(name, asked)}{box}{text}</g>'
    return f'<a href="#gate-{escape(name.removeprefix(_GATE))}">{group}</a>' if link and asked else group


def _count_title(name: str, asked: int) -> str:
    times = "once" if asked == 1 else f"{asked} times"
    return f"<title>{escape(_node_words(name))}: decided {times}</title>" if asked else ""


def _draw_edge(placed: Placed, sizes: dict[str, Spot], pair: tuple[str, str], label: str, way: int, both: bool) -> str:
    source, target = pair
    points = _find_route(placed, pair)
    if both and len(points) == 2:  # the edge the other way would lie on this one
        points = _bend(points)
    points[0] = _border_point(points[0], points[1], sizes[source])
    points[-1] = _border_point(points[-1], points[-2], sizes[target])
    words = f"{label} {_TIMES}{way}".strip() if way > 1 else label
    text = _draw_label(words, points, both) if words else ""
    group = '<g class="taken">' if way else "<g>"
    return f'{group}<path class="edge" d="{_curve_path(points)}"/>{_draw_tip(points)}{text}</g>'


def _draw_label(words: str, points: Sequence[Spot], both: bool) -> str:
    """Next to the part of a line that goes down, above a line that goes across; at the bend of one of two that lead to and fro."""
    (x1, y1), (x2, y2) = points[:2]
    anchor, (x, y) = "start", _point_between(points[0], points[1], 0.5)
    if both and len(points) == 3:
        x, y = x2 - 3, y2 + 3
    elif abs(y2 - y1) > abs(x2 - x1):
        x, y = _point_between(points[0], points[1], 0.5 if len(points) == 2 else min(0.75, 24 / abs(y2 - y1)))
        leftward = x2 < x1 - 4  # then the room is on the left
        anchor, x, y = ("end", x - 6, y + 3) if leftward else ("start", x + 6, y + 3)
    elif len(points) > 2 and abs(points[2][0] - x2) < 2:
        x, y = x2 + 6, y2 + (24 if points[2][1] > y2 else -18)
    else:
        anchor, y = "middle", y - 3
    return f'<text class="label {anchor}" x="{x:.1f}" y="{y:.1f}">{escape(words)}</text>'


def _find_route(placed: Placed, pair: tuple[str, str]) -> list[Spot]:
    """From the source to the target; grandalf gives an edge that leads up in the other order."""
    points = list(placed.edges[pair]) or [placed.nodes[pair[0]], placed.nodes[pair[1]]]
    start = placed.nodes[pair[0]]
    if _distance(points[0], start) > _distance(points[-1], start):
        points.reverse()
    return [start, *points[1:-1], placed.nodes[pair[1]]]


def _bend(points: list[Spot]) -> list[Spot]:
    (x1, y1), (x2, y2) = points
    return [points[0], ((x1 + x2) / 2 + _BULGE, (y1 + y2) / 2), points[1]] if y2 < y1 else points


def _distance(start: Spot, end: Spot) -> float:
    return float(((start[0] - end[0]) ** 2 + (start[1] - end[1]) ** 2) ** 0.5)


def _point_between(start: Spot, end: Spot, share: float) -> Spot:
    return start[0] + (end[0] - start[0]) * share, start[1] + (end[1] - start[1]) * share


def _border_point(centre: Spot, towards: Spot, size: Spot) -> Spot:
    """Where the line from a node's middle leaves its box."""
    dx, dy = towards[0] - centre[0], towards[1] - centre[1]
    ratios = [half / abs(part) for half, part in ((size[0] / 2, dx), (size[1] / 2, dy)) if abs(part) > 1e-9]
    return _point_between(centre, towards, min([1.0, *ratios]))


def _curve_path(points: Iterable[Spot]) -> str:
    """A path through the points, rounded where it bends."""
    first, *rest = points
    path = f"M{first[0]:.1f} {first[1]:.1f}"
    past = first
    for point, following in zip(rest, rest[1:], strict=False):
        before = _point_between(point, past, min(0.5, 14 / max(1.0, _distance(point, past))))
        after = _point_between(point, following, min(0.5, 14 / max(1.0, _distance(point, following))))
        path += f"L{before[0]:.1f} {before[1]:.1f}Q{point[0]:.1f} {point[1]:.1f} {after[0]:.1f} {after[1]:.1f}"
        past = point
    return f"{path}L{rest[-1][0]:.1f} {rest[-1][1]:.1f}"


def _draw_tip(points: Sequence[Spot]) -> str:
    """The head of an arrow."""
    (x, y), past = points[-1], points[-2]
    length = max(1e-6, _distance(points[-1], past))
    ux, uy = (x - past[0]) / length, (y - past[1]) / length
    corners = [(x, y), (x - 7 * ux + 3 * uy, y - 7 * uy - 3 * ux), (x - 7 * ux - 3 * uy, y - 7 * uy + 3 * ux)]
    return f'<polygon class="tip" points="{" ".join(f"{a:.1f},{b:.1f}" for a, b in corners)}"/>'
