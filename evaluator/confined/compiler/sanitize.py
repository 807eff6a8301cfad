"""A candidate under compute-sanitizer: `python -P -m tritonsmith.evaluator.confined.compiler.sanitize TOOL INBOX`, inside the sandbox.

The first process becomes compute-sanitizer around a second one (`--target`). That one imports what candidates need and opens the card,
which takes seconds under the tool. Then it waits for a file: INBOX/question.json with {"candidate", "request", "code"}.
It calls the model with the reference's weights on inputs of the task (`channel/own_call.py`): what a kernel takes for places must be what a
caller gives. Every tensor has an allocation of its own, so that one element past its end is seen. Results are not looked at.
Imports torch in the target.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from pathlib import Path

from tritonsmith.evaluator.channel.compiled_code import unpack_cache
from tritonsmith.evaluator.channel.report import FINISHED, QUESTION

_CALLS = 2
"""Forwards under the tool."""
_POLL_SECONDS = 0.01
"""Between two looks for the question."""


def _run_target(inbox: Path) -> None:
    import torch  # noqa: PLC0415
    import triton  # noqa: F401, PLC0415 - part of being ready

    from tritonsmith.evaluator.confined.compiler.own_call import open_call  # noqa: PLC0415

    torch.zeros(1, device="cuda").add_(1)
    torch.cuda.synchronize()
    while not (inbox / QUESTION).exists():
        time.sleep(_POLL_SECONDS)
    question = json.loads((inbox / QUESTION).read_text())
    with contextlib.suppress(OSError, ValueError):  # then the kernels are compiled here
        unpack_cache(Path(question["code"]), Path(os.environ["TRITON_CACHE_DIR"]))
    with torch.no_grad():
        model, arguments = open_call(Path(question["candidate"]), Path(question["request"]), "cuda")
        for _ in range(_CALLS):
            model(*arguments)
            torch.cuda.synchronize()
    os.write(1, f"{FINISHED}\n".encode())


def main() -> None:
    """Entry point of both processes."""
    first, inbox = sys.argv[1:]
    if first == "--target":
        _run_target(Path(inbox))
        return
    words = [first, "--tool", "memcheck", "--print-limit", "3", "--target-processes", "application-only"]  # not those that compile
    words += [sys.executable, "-P", "-W", "ignore", "-m", "tritonsmith.evaluator.confined.compiler.sanitize", "--target", inbox]
    os.dup2(1, 2)
    os.execv(first, words)


if __name__ == "__main__":
    main()
