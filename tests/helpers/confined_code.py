"""Text that tries to outlive the process that runs it, and how to see whether it did; for tests of the sandbox."""

import os
import select

ESCAPE = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        sys.stdout.close()
        time.sleep(100)
    os._exit(0)
os.wait()
"""


def closed_within(descriptor: int, seconds: float) -> bool:
    """Whether every process that held the other end of a pipe is gone."""
    return bool(select.select([descriptor], [], [], seconds)[0]) and os.read(descriptor, 1) == b""
