"""Files that a kill leaves whole: lines appended in one write, files put in place at once, and readers for both."""

import json
import os
from pathlib import Path
from typing import Any
from uuid import uuid4

from pydantic import ValidationError


def append_text(path: Path, text: str) -> None:
    """Add text to a file that is there, all of it or nothing. Raises OSError.

    The file is not made: where a run's folder was removed, nothing of it must come back half.
    """
    data = memoryview(text.encode())
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        size = os.fstat(descriptor).st_size
        try:
            while data:
                data = data[os.write(descriptor, data) :]
        except OSError:
            os.ftruncate(descriptor, size)  # a full disk took a part of it
            raise
    finally:
        os.close(descriptor)


def drop_cut_line(path: Path) -> None:
    """Remove a last line without an end, which a kill has cut; nothing happens where there is no file. Raises OSError."""
    if not path.is_file():
        return
    data = path.read_bytes()
    whole = data.rfind(b"\n") + 1
    if whole < len(data):
        os.truncate(path, whole)


def put_text(path: Path, text: str) -> None:
    """Write a file that is never seen half. Raises OSError."""
    partial = path.with_suffix(f".{uuid4().hex}.part")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    except OSError:
        partial.unlink(missing_ok=True)
        raise


def lines_of(data: bytes) -> list[bytes]:
    """The lines of JSON lines. Only a newline ends one: JSON leaves other line ends, such as U+2028, in its texts as they are."""
    return data.removesuffix(b"\n").split(b"\n") if data else []


def parse_object(text: str | bytes) -> dict[str, Any]:
    """One JSON object. Raises ValueError that says why it is none."""
    try:
        found = json.loads(text)
    except RecursionError as error:
        raise ValueError(fault_of(error)) from None
    if not isinstance(found, dict):
        raise ValueError("it is no JSON object")
    return found


def fault_of(error: Exception) -> str:
    """What a reader found wrong with a file, in one line: for records the first field that does not fit."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        return f"{where}: {first['msg']}" if where else first["msg"]
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, UnicodeDecodeError):
        return f"it is not UTF-8 text, byte {error.start}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error).partition("\n")[0] or type(error).__name__
