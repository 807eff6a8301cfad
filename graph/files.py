"""Files that a kill leaves whole: lines appended in one write, and files that are put in place at once."""

import os
from pathlib import Path
from uuid import uuid4


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
