"""All that a process writes to a pipe, up to a limit and until a deadline that may stand still."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable

from tritonsmith.evaluator.errors import InfrastructureError

_PAUSE_POLL_SECONDS = 0.01
"""Time between two looks at whether the process is paused."""
_CHUNK_BYTES = 1 << 16
"""What one read takes at most."""


def read_output(
    fd: int, seconds: float, limit: int, is_paused: Callable[[], bool] | None = None, *, first_within: float | None = None
) -> bytes | None:
    """All bytes until the pipe is closed, at most `limit` and a chunk; None at the deadline.

    Args:
        fd: the end of the pipe that is read.
        seconds: time until the deadline; it stands still while `is_paused` says so.
        limit: bytes after which reading ends.
        is_paused: whether the process stands still.
        first_within: where it is given, `seconds` count from the first byte on, and that must come within this time.
    Raises:
        InfrastructureError: no byte came within `first_within`.
    """
    left, data = seconds if first_within is None else first_within, b""
    before = time.monotonic()
    while len(data) < limit:
        ready = select.select([fd], [], [], max(0.0, left if is_paused is None else min(left, _PAUSE_POLL_SECONDS)))[0]
        now = time.monotonic()
        if is_paused is None or not is_paused():
            left -= now - before
        before = now
        if not ready:
            if left > 0:
                continue
            if first_within is not None and not data:
                raise InfrastructureError(f"a process in the sandbox was not ready after {first_within:.0f} s")
            return None
        chunk = os.read(fd, _CHUNK_BYTES)
        if not chunk:
            break
        if first_within is not None and not data:
            left = seconds
        data += chunk
    return data
