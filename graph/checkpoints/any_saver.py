"""A graph that any checkpointer serves: its records are read back without a warning, and nothing of it is blocked."""

from copy import copy
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Checkpointer

from tritonsmith.graph.checkpoints.allowed import RECORDS

_NOBODYS = ("tritonsmith", "no class of this name")
"""Only a serializer that allows everything allows this already."""


class AnySaverGraph(StateGraph[Any, Any, Any, Any]):
    """A StateGraph whose `compile` tells the checkpointer which classes its states hold."""

    def compile(self, checkpointer: Checkpointer = None, **options: Any) -> CompiledStateGraph[Any, Any, Any, Any]:
        """As of StateGraph. A checkpointer that is passed in keeps its own serializer; the graph works with a shallow copy."""
        return super().compile(_let_read(checkpointer) if isinstance(checkpointer, BaseCheckpointSaver) else checkpointer, **options)


def _let_read(saver: BaseCheckpointSaver[Any]) -> BaseCheckpointSaver[Any]:
    """The checkpointer with a serializer that reads our records; itself where it does so, or has a serializer of its user's own kind."""
    serde = _allow_records(saver.serde)
    if serde is saver.serde:
        return saver
    twin = copy(saver)
    twin.serde = serde
    return twin


def _allow_records(serde: SerializerProtocol) -> SerializerProtocol:
    if isinstance(serde, EncryptedSerializer):
        inner = _allow_records(serde.serde)
        return serde if inner is serde.serde else EncryptedSerializer(serde.cipher, inner)
    if not isinstance(serde, JsonPlusSerializer):
        return serde
    if serde.with_msgpack_allowlist([_NOBODYS]) is not serde:
        return serde.with_msgpack_allowlist(RECORDS)
    if type(serde) is not JsonPlusSerializer:
        return serde
    return JsonPlusSerializer(pickle_fallback=serde.pickle_fallback, allowed_msgpack_modules=RECORDS)  # all, with a warning for each
