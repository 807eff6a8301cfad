"""Records as JSON files, written whole or not at all."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar
from uuid import uuid4

from pydantic import ValidationError

from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.schema import Record
from tritonsmith.graph.storage.files import fault_of

Kind = TypeVar("Kind", bound=Record)


def write_record(path: Path, record: Record) -> None:
    """Write a file that is never seen half."""
    partial = path.with_suffix(f".{uuid4().hex}.part")
    partial.write_text(record.model_dump_json(indent=1) + "\n", encoding="utf-8")
    partial.replace(path)


def read_record(kind: type[Kind], path: Path) -> Kind:
    """Read a file of the folder. Raises UsageError that names it."""
    try:
        return kind.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ValidationError) as error:
        raise UsageError(f"{path}: cannot be read ({fault_of(error)}); remove it, and let the other side write it again") from error
