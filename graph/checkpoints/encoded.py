"""A serializer of checkpoints that encodes each record once: a record never changes, and every step writes all of them."""

from typing import Any

from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from ormsgpack import Fragment

from tritonsmith.evaluator.schema import Record

_KEPT = 8192
"""Records that are remembered; a run has a few thousand."""


class EncodedOnce(JsonPlusSerializer):
    """Writes the same bytes as its base class, which reads them."""

    def __init__(self, **options: Any) -> None:
        """The options of the base class."""
        super().__init__(**options)
        self._known: dict[int, tuple[Record, Fragment]] = {}

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """Encode a checkpoint, or what a node wrote."""
        return super().dumps_typed(self._with_fragments(obj) if isinstance(obj, dict | list | tuple) else obj)

    def _with_fragments(self, value: Any) -> Any:
        if isinstance(value, Record):
            return self._fragment(value)
        if type(value) is dict:
            return {key: self._with_fragments(inner) for key, inner in value.items()}
        if type(value) in (list, tuple):
            return type(value)(self._with_fragments(inner) for inner in value)
        return value

    def _fragment(self, record: Record) -> Fragment:
        known = self._known.get(id(record))
        if known is not None:  # the entry holds the record, so its id is no other's
            return known[1]
        if len(self._known) >= _KEPT:
            self._known.clear()
        fragment = Fragment(super().dumps_typed(record)[1])
        self._known[id(record)] = (record, fragment)
        return fragment
