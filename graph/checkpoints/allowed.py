"""The classes that a state of this graph holds: a serializer reads these and no other, so that a foreign checkpoint runs no code."""

from enum import Enum
from typing import Any, get_args, get_type_hints

from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from pydantic import BaseModel
from typing_extensions import is_typeddict

from tritonsmith.evaluator import schema
from tritonsmith.graph import searches, state
from tritonsmith.graph.checkpoints.encoded import EncodedOnce
from tritonsmith.prompts import analysis

_STATES = (state.State, state.BranchState, state.RunInput, state.RunOutput, state.BranchInput)


def _collect(hint: Any, found: dict[type, None]) -> None:
    """Add the records and enumerations that a type names, and those that their fields name."""
    for part in get_args(hint):
        _collect(part, found)
    if not isinstance(hint, type) or hint in found:
        return
    if is_typeddict(hint):
        for inner in get_type_hints(hint).values():
            _collect(inner, found)
    elif issubclass(hint, BaseModel):
        found[hint] = None
        for field in hint.model_fields.values():
            _collect(field.annotation, found)
    elif issubclass(hint, Enum):
        found[hint] = None


def _find_records() -> tuple[type, ...]:
    found: dict[type, None] = {}
    for module in (schema, state, searches, analysis):  # also what stands in fields of no fixed type
        for value in vars(module).values():
            if isinstance(value, type) and value.__module__ == module.__name__ and issubclass(value, BaseModel | Enum):
                _collect(value, found)
    for kind in _STATES:
        _collect(kind, found)
    return tuple(found)


RECORDS = _find_records()
"""Every record and enumeration that a state may hold, wherever it is defined."""


def serializer() -> JsonPlusSerializer:
    """The `serde=` of a checkpointer for this graph."""
    return EncodedOnce(allowed_msgpack_modules=RECORDS)
