"""Where an oracle is: each step of a request is a line in its log, which the sentence about a missing answer quotes."""

from __future__ import annotations

import sys
import time

LAST_STEP = "its last step is"
"""How each of these lines begins."""


class StepLog:
    """Writes to standard error, which is the log of the oracle's process."""

    def __init__(self) -> None:
        self._started = time.monotonic()

    def start(self) -> None:
        """A request comes."""
        self._started = time.monotonic()

    def note(self, step: str) -> float:
        """A step begins; returns when, in seconds of `time.monotonic`."""
        now = time.monotonic()
        sys.stderr.write(f"{LAST_STEP} '{step}', begun after {now - self._started:.0f} s\n")
        sys.stderr.flush()
        return now


STEPS = StepLog()
"""Of this process, which answers one request at a time."""
