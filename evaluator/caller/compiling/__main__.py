"""The process of the trusted compiler: `python -P -m tritonsmith.evaluator.caller.compiling`."""

from __future__ import annotations

import contextlib
import os
import sys

from tritonsmith.evaluator.caller.compiling.server import CompilerServer
from tritonsmith.evaluator.processes.requests import COMPILER_KINDS
from tritonsmith.evaluator.processes.serve import serve_requests
from tritonsmith.evaluator.sandbox.oneself import guard_self


def main() -> None:
    """Serve until stdin closes."""
    guard_self()
    out = os.dup(1)
    os.dup2(2, 1)
    with contextlib.closing(CompilerServer()) as server:
        serve_requests(sys.stdin, out, COMPILER_KINDS, server.answer)


if __name__ == "__main__":
    main()
    os._exit(0)
