"""Where the `tritonsmith` command begins. It loads nothing at its top, so that a signal in the first half second is heard too."""

import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType


def run(arguments: Sequence[str]) -> int:
    """Execute one command line and return its exit code; expected failures become one sentence on stderr."""
    from tritonsmith.cli.app import run as run_command  # noqa: PLC0415 - loading the commands takes half a second

    return run_command(arguments)


def main() -> None:
    """Entry point of the console script."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:  # `nohup` and shells let a process in the background ignore them
            signal.signal(number, _leave)
    sys.exit(run(sys.argv[1:]))


def _leave(number: int, frame: FrameType | None) -> None:
    """End at once, while modules are loaded or the process ends: an exception there would come out as a traceback."""
    del frame
    os.write(2, b"Interrupted.\n")
    os._exit(128 + number)
