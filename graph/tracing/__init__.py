"""A run as a trace server sees it."""

from tritonsmith.graph.tracing.tracer import tracing

__all__ = ["tracing"]
