"""Writing states to a checkpointer and reading them back as the records they were."""

from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from tritonsmith.evaluator import schema
from tritonsmith.graph import state
from tritonsmith.prompts import analysis

RECORDS: tuple[type, ...] = tuple(
    value
    for module in (schema, state, analysis)
    for value in vars(module).values()
    if isinstance(value, type) and value.__module__ == module.__name__ and (hasattr(value, "model_fields") or hasattr(value, "__members__"))
)
"""Every record and enumeration that a state may hold."""


def serializer() -> JsonPlusSerializer:
    """The `serde=` of a checkpointer for this graph: it reads our records and no other class, so a foreign checkpoint runs no code."""
    return JsonPlusSerializer(allowed_msgpack_modules=RECORDS)
