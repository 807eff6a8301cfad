"""A candidate under compute-sanitizer: `python -P -m tritonsmith.evaluator.confined.compiler.sanitize`, inside the sandbox.

The first process reads {"tool", "candidate", "request"} as JSON and becomes compute-sanitizer around a second one (`--target`). That one
builds the model with weights of its own and calls it on random inputs. Every tensor then has an allocation of its own, so that one
element past its end is seen. Results are not looked at. Imports torch in the target.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
from pathlib import Path

from tritonsmith.evaluator.channel.report import FINISHED

_CALLS = 2
"""Forwards under the tool."""


def _run_target(candidate: Path, request: Path) -> None:
    import torch  # noqa: PLC0415

    from tritonsmith.evaluator.confined.compiler.compile import make_argument  # noqa: PLC0415
    from tritonsmith.evaluator.confined.runner.candidate import import_candidate  # noqa: PLC0415

    said = pickle.loads(request.read_bytes())
    made = [make_argument(spec) for spec in said["inputs"]]
    arguments = [value.cuda() if isinstance(value, torch.Tensor) else value for value in made]
    with torch.no_grad():
        model = import_candidate(candidate).ModelNew(*said["init"]).cuda().train(said["train"])
        for _ in range(_CALLS):
            model(*arguments)
            torch.cuda.synchronize()
    os.write(1, f"{FINISHED}\n".encode())


def main() -> None:
    """Entry point of both processes."""
    if sys.argv[1:2] == ["--target"]:
        _run_target(Path(sys.argv[2]), Path(sys.argv[3]))
        return
    message = json.loads(sys.stdin.readline())
    words = [message["tool"], "--tool", "memcheck", "--print-limit", "3"]
    words += [sys.executable, "-P", "-W", "ignore", "-m", "tritonsmith.evaluator.confined.compiler.sanitize", "--target"]
    os.dup2(1, 2)
    os.execv(message["tool"], [*words, message["candidate"], message["request"]])


if __name__ == "__main__":
    main()
