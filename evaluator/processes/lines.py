"""JSON lines over a pipe: writing them, and reading bounded ones with a deadline."""

from __future__ import annotations

import json
import os
import re
import select
import time
from collections.abc import Callable
from typing import Any

LINE_LIMIT = 4 << 20
"""Most bytes of a line that is read."""
_IDLE_SECONDS = 1.0
"""Between two calls of what is done while an answer is waited for."""
_CHUNK_BYTES = 1 << 16
"""What one read takes at most."""
_HALF = re.compile(rb"\\u[dD][89a-fA-F]")
"""Beginning of an escape that may stand for half a character: JSON can carry one, and no file can. It is read as `?`."""
# Bound now: in a runner, candidate code may patch the names later.
_dumps = json.dumps
_write = os.write


def send_line(fd: int, message: dict[str, Any]) -> None:
    """Write one JSON line; the caller trims long text."""
    data = _dumps(message).encode() + b"\n"
    while data:
        data = data[_write(fd, data) :]


def read_line(fd: int, timeout: float, idle: Callable[[], None] | None = None) -> dict[str, Any] | None:
    """One JSON object that stands on one line; None at time-out, end of file or for anything else.

    Only for pipes where one request has one answer: bytes after the newline would be lost. `idle` is called each second until then.
    """
    deadline = time.monotonic() + timeout
    data = b""
    while not data.endswith(b"\n"):
        if len(data) > LINE_LIMIT or not _wait_readable(fd, deadline, idle):
            return None
        chunk = os.read(fd, _CHUNK_BYTES)
        if not chunk:
            return None
        data += chunk
    try:
        message = json.loads(data)
        if _HALF.search(data):
            message = json.loads(json.dumps(message, ensure_ascii=False).encode("utf-8", "replace"))
    except ValueError:
        return None
    return message if isinstance(message, dict) else None


def _wait_readable(fd: int, deadline: float, idle: Callable[[], None] | None) -> bool:
    """Whether there is something to read before the deadline."""
    while True:
        left = max(0.0, deadline - time.monotonic())
        if select.select([fd], [], [], left if idle is None else min(left, _IDLE_SECONDS))[0]:
            return True
        if idle is None or not left:
            return False
        idle()
