"""Where the nodes and edges of one part of the graph lie: layers from top to bottom, by grandalf."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from grandalf.graphs import Edge, Graph, Vertex
from grandalf.layouts import SugiyamaLayout
from grandalf.routing import EdgeViewer

Spot = tuple[float, float]

_ROUNDS = 12
"""Passes that put nodes under their neighbours; more change nothing in graphs of this size."""


@dataclass(frozen=True)
class Placed:
    """Centres of nodes and the points of edges, in pixels from the upper left corner."""

    width: float
    height: float
    nodes: dict[str, Spot]
    edges: dict[tuple[str, str], tuple[Spot, ...]]
    """From the middle of one node over the layers between to the middle of the other."""


class _View:
    """What grandalf asks a node."""

    def __init__(self, width: float, height: float) -> None:
        self.w, self.h = width, height
        self.xy = (0.0, 0.0)


def place(sizes: Mapping[str, Spot], edges: Sequence[tuple[str, str]], *, gap: Spot = (22.0, 26.0), margin: float = 14.0) -> Placed:
    """Lay out nodes of these sizes; two edges between the same nodes, and an edge from a node to itself, are given once or not at all."""
    vertices = {name: Vertex(name) for name in sizes}
    for name, (width, height) in sizes.items():
        vertices[name].view = _View(width, height)
    links = {(a, b): Edge(vertices[a], vertices[b]) for a, b in dict.fromkeys(edges) if a != b}
    for link in links.values():
        link.view = EdgeViewer()
    nodes: dict[str, Spot] = {}
    routes: dict[tuple[str, str], tuple[Spot, ...]] = {}
    left = 0.0
    for part in Graph(list(vertices.values()), list(links.values())).C:
        layout = SugiyamaLayout(part)
        layout.xspace, layout.yspace = gap
        back = _find_backward(list(sizes), list(links))
        layout.init_all(
            roots=[vertex for vertex in part.sV if not vertex.e_in()] or None,
            inverted_edges=[link for pair, link in links.items() if pair in back and pair[0] in {vertex.data for vertex in part.sV}],
        )
        layout.draw(_ROUNDS)
        spots = {vertex.data: vertex.view.xy for vertex in part.sV}
        shift = left - min(x - sizes[name][0] / 2 for name, (x, _) in spots.items())
        nodes |= {name: (x + shift, y) for name, (x, y) in spots.items()}
        for pair, link in links.items():
            if pair[0] in spots:
                routes[pair] = tuple((x + shift, y) for x, y in link.view._pts)
        left = max(x + sizes[name][0] / 2 for name, (x, _) in nodes.items()) + gap[0]
    return _frame(sizes, nodes, routes, margin)


def _find_backward(names: list[str], edges: list[tuple[str, str]]) -> set[tuple[str, str]]:
    """Edges that lead back to a node on the way to them, when nodes are visited in the order of their names' table."""
    onward = {name: sorted((b for a, b in edges if a == name), key=names.index) for name in names}
    found: set[tuple[str, str]] = set()
    done: set[str] = set()

    def visit(name: str, way: tuple[str, ...]) -> None:
        done.add(name)
        for target in onward[name]:
            if target in (*way, name):
                found.add((name, target))
            elif target not in done:
                visit(target, (*way, name))

    for name in names:
        if name not in done:
            visit(name, ())
    return found


def _frame(sizes: Mapping[str, Spot], nodes: dict[str, Spot], routes: dict[tuple[str, str], tuple[Spot, ...]], margin: float) -> Placed:
    corners = [(x + sign * sizes[name][0] / 2, y + sign * sizes[name][1] / 2) for name, (x, y) in nodes.items() for sign in (-1, 1)]
    corners += [point for points in routes.values() for point in points]
    left, top = (min(corner[axis] for corner in corners) - margin for axis in (0, 1))
    right, bottom = (max(corner[axis] for corner in corners) + margin for axis in (0, 1))
    first = next(iter(nodes.values()))[0]
    mirrored = first - left > (right - left) / 2  # a reader begins on the left, and so does a screen that shows a part

    def move(spot: Spot) -> Spot:
        return right - spot[0] if mirrored else spot[0] - left, spot[1] - top

    return Placed(
        width=right - left,
        height=bottom - top,
        nodes={name: move(spot) for name, spot in nodes.items()},
        edges={pair: tuple(map(move, points)) for pair, points in routes.items()},
    )
