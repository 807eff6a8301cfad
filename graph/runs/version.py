"""The version of the graph: two processes with the same one understand each other's checkpoints."""

from functools import cache
from typing import get_type_hints

from tritonsmith.evaluator.kernel_text import text_sha
from tritonsmith.graph.builder import build_graph
from tritonsmith.graph.checkpoints.allowed import RECORDS
from tritonsmith.graph.sites import SITES
from tritonsmith.graph.state import BranchState, State


@cache
def graph_version() -> str:
    """A hash over the drawing, the sites with their choices, what the states hold, and the fields of every record in them."""
    drawing = build_graph().compile().get_graph(xray=True).draw_mermaid()
    sites = [(name, site.asks, sorted(site.choices.items()), site.exit, sorted(site.spends.items())) for name, site in SITES.items()]
    states = [sorted((name, str(hint)) for name, hint in get_type_hints(kind).items()) for kind in (State, BranchState)]
    records = [(kind.__qualname__, _fields(kind)) for kind in sorted(RECORDS, key=lambda record: record.__qualname__)]
    return text_sha(repr((drawing, sites, states, records)))


def _fields(kind: type) -> list[tuple[str, str]]:
    fields = getattr(kind, "model_fields", None)
    if fields is None:
        return [(name, str(member.value)) for name, member in getattr(kind, "__members__", {}).items()]
    return sorted((name, str(field.annotation)) for name, field in fields.items())
