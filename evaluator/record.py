"""The base of all records."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """Immutable, tolerant of fields from later versions."""

    model_config = ConfigDict(frozen=True, extra="ignore", ser_json_inf_nan="strings")  # JSON has no NaN
