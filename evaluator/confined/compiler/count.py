"""A candidate under Nsight Compute: `python -P -m tritonsmith.evaluator.confined.compiler.count`, inside the sandbox.

The first process reads {"tool": [words], "candidate", "request"} as JSON and becomes the tool around a second one (`--target`). That one
gives the model the reference's weights (`channel/own_call.py`), calls it once to compile, and lets the tool count during a second call.
Results are not looked at. Imports torch in the target.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from tritonsmith.evaluator.channel.report import FINISHED


def _run_target(candidate: Path, request: Path) -> None:
    import torch  # noqa: PLC0415

    from tritonsmith.evaluator.confined.compiler.own_call import open_call  # noqa: PLC0415

    with torch.no_grad():
        model, arguments = open_call(candidate, request, "cuda")
        model(*arguments)
        torch.cuda.synchronize()
        torch.cuda.cudart().cudaProfilerStart()
        model(*arguments)
        torch.cuda.synchronize()
        torch.cuda.cudart().cudaProfilerStop()
    os.write(1, f"{FINISHED}\n".encode())


def main() -> None:
    """Entry point of both processes."""
    if sys.argv[1:2] == ["--target"]:
        _run_target(Path(sys.argv[2]), Path(sys.argv[3]))
        return
    message = json.loads(sys.stdin.readline())
    words = [*message["tool"], sys.executable, "-P", "-W", "ignore", "-m", "tritonsmith.evaluator.confined.compiler.count", "--target"]
    os.dup2(1, 2)
    os.execv(words[0], [*words, message["candidate"], message["request"]])


if __name__ == "__main__":
    main()
