"""The oracle's process: `python -P -m tritonsmith.evaluator.oracle`. Imports torch once the first request has been looked at."""

from __future__ import annotations

import itertools
import os
import sys

from tritonsmith.evaluator.oracle.start import start_ahead
from tritonsmith.evaluator.sandbox.oneself import guard_self


def main() -> None:
    """Serve until stdin closes."""
    guard_self()
    out = os.dup(1)
    os.dup2(2, 1)  # a task file may print
    first = sys.stdin.readline()
    pool = start_ahead(first)
    from tritonsmith.evaluator.oracle import server  # noqa: PLC0415 - torch, while the pool's processes import it as well

    server.serve(itertools.chain([first] if first else [], sys.stdin), out, pool)


if __name__ == "__main__":
    main()
    os._exit(0)
