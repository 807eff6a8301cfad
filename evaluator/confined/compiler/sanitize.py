"""A candidate under compute-sanitizer: `python -P -m tritonsmith.evaluator.confined.compiler.sanitize`, inside the sandbox.

The first process reads {"tool", "inbox"} as JSON and becomes compute-sanitizer around a second one (`--target`). That one imports torch
and waits for a candidate in the inbox, a folder. Then it builds the model with weights of its own and calls it on random inputs. Every
tensor has an allocation of its own, so that one element past its end is seen. Results are not looked at. Imports torch in the target.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import time
from pathlib import Path

from tritonsmith.evaluator.channel.report import FINISHED
from tritonsmith.evaluator.channel.sanitize import REQUEST, SOURCE

_CALLS = 2
"""Forwards under the tool."""
_POLL_SECONDS = 0.01
"""Between two looks for a candidate."""


def _run_target(inbox: Path) -> None:
    import torch  # noqa: PLC0415

    from tritonsmith.evaluator.confined.compiler.compile import make_argument  # noqa: PLC0415
    from tritonsmith.evaluator.confined.runner.candidate import import_candidate  # noqa: PLC0415

    torch.zeros(1, device="cuda")  # makes the context on the card, which takes a second under the tool
    while not (inbox / REQUEST).exists():
        time.sleep(_POLL_SECONDS)
    said = pickle.loads((inbox / REQUEST).read_bytes())
    made = [make_argument(spec) for spec in said["inputs"]]
    arguments = [value.cuda() if isinstance(value, torch.Tensor) else value for value in made]
    with torch.no_grad():
        model = import_candidate(inbox / SOURCE).ModelNew(*said["init"]).cuda().train(said["train"])
        for _ in range(_CALLS):
            model(*arguments)
            torch.cuda.synchronize()
    os.write(1, f"{FINISHED}\n".encode())


def main() -> None:
    """Entry point of both processes."""
    if sys.argv[1:2] == ["--target"]:
        _run_target(Path(sys.argv[2]))
        return
    message = json.loads(sys.stdin.readline())
    words = [message["tool"], "--tool", "memcheck", "--print-limit", "3"]
    words += [sys.executable, "-P", "-W", "ignore", "-m", "tritonsmith.evaluator.confined.compiler.sanitize", "--target"]
    os.dup2(1, 2)
    os.execv(message["tool"], [*words, message["inbox"]])


if __name__ == "__main__":
    main()
