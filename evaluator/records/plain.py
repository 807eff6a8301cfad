"""The base of all records, and values of no fixed type in them: a record that is read equals the one that was written."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, TypeAlias

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema


class Record(BaseModel):
    """Immutable, tolerant of fields from later versions."""

    model_config = ConfigDict(frozen=True, extra="ignore", ser_json_inf_nan="strings")  # JSON has no NaN


def make_plain(value: Any) -> Any:
    """The value with lists for tuples, text for keys, plain values for enumerations and `{"float": "inf"}`, all the way down."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}  # JSON has no such number
    if isinstance(value, Mapping):
        return {str(make_plain(name)): make_plain(entry) for name, entry in value.items()}
    if isinstance(value, tuple | list):
        return [make_plain(entry) for entry in value]
    return value


@dataclass(frozen=True)
class _AsPlain:
    """Makes a field's value plain. Its text holds no address, as a function's would: the version of the graph is made from such texts."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(make_plain, handler(source))


Plain: TypeAlias = Annotated[Any, _AsPlain()]
"""A value that JSON can hold, in JSON's own types."""
