"""A candidate under compute-sanitizer, where that tool exists: memory errors that the numbers did not show. Imports torch in the target.

`python -P -m tritonsmith.evaluator.sanitize` runs inside the sandbox: it reads {"candidate", "request"} as JSON and becomes
`compute-sanitizer python -m tritonsmith.evaluator.sanitize --target ...`, which builds the model with weights of its own and calls it
on random inputs. Every tensor then has an allocation of its own, so that one element past its end is seen. Results are not looked at.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import shutil
import sys
from pathlib import Path

from tritonsmith.evaluator.sandbox import SandboxedProcess, sandbox_report
from tritonsmith.evaluator.wire_text import send_line

FINISHED = "the candidate came to its end"
_MOST_BYTES = 4 << 20
_CALLS = 2
_PLACES = ("/usr/local/cuda/bin", "/usr/local/cuda/compute-sanitizer", "/opt/nvidia/compute-sanitizer")
_FOUND = re.compile(r"^========= (Invalid .*|Out-of-range .*|Misaligned .*|.* hazard .*)$", re.MULTILINE)
_WHERE = re.compile(r"^=========     (?:at|by) (.*)$", re.MULTILINE)


def tool() -> str | None:
    """Path of compute-sanitizer; None where it is not installed."""
    return shutil.which("compute-sanitizer") or next(
        (path for folder in _PLACES if os.access(path := f"{folder}/compute-sanitizer", os.X_OK)), None
    )


def sanitized(source: Path, request: Path, seconds: float) -> tuple[bool, str]:
    """Whether memory errors were found, and what was found or why nothing can be said."""
    if tool() is None:
        return False, "not done: compute-sanitizer is not installed"
    if sandbox_report()["layers"].get("uid") != "applied":  # the tool reads its child's /proc, and must see nobody else's
        return False, "not done: compute-sanitizer needs candidates to run as a user of their own (root starts them so)"
    environment = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    with SandboxedProcess(
        "tritonsmith.evaluator.sanitize", environment=environment, confined=True, read=[source, request], proc=True
    ) as sandbox:
        assert sandbox.process.stdin is not None
        send_line(sandbox.process.stdin.fileno(), {"candidate": str(source), "request": str(request)})
        output = sandbox.read_output(seconds, _MOST_BYTES)
    if output is None:
        return False, f"not done: it took longer than {seconds:.0f} s"
    return verdict_of(output.decode(errors="replace"))


def verdict_of(text: str) -> tuple[bool, str]:
    """Whether compute-sanitizer's output reports an error, with its first one in words."""
    found = _FOUND.search(text)
    if found:
        where = _WHERE.search(text, found.end())
        return True, f"{found[1].strip()}{f' at {where[1].strip()}' if where else ''}"
    if FINISHED not in text:
        lines = [line for line in text.strip().splitlines() if line.strip()]
        last = ([line for line in lines if not line.startswith("=========")] or lines)[-1:]
        return False, f"not done: {last[0][:200] if last else 'the run ended early'}"
    return False, "no memory error found"


def _run(candidate: Path, request: Path) -> None:
    import torch  # noqa: PLC0415

    from tritonsmith.evaluator.candidate_module import import_candidate  # noqa: PLC0415
    from tritonsmith.evaluator.compile_only import argument_like  # noqa: PLC0415

    said = pickle.loads(request.read_bytes())
    made = [argument_like(spec) for spec in said["inputs"]]
    arguments = [one.cuda() if isinstance(one, torch.Tensor) else one for one in made]
    with torch.no_grad():
        model = import_candidate(candidate).ModelNew(*said["init"]).cuda().eval()
        for _ in range(_CALLS):
            model(*arguments)
            torch.cuda.synchronize()
    os.write(1, f"{FINISHED}\n".encode())


def main() -> None:
    """Entry point of both processes."""
    if sys.argv[1:2] == ["--target"]:
        _run(Path(sys.argv[2]), Path(sys.argv[3]))
        return
    message = json.loads(sys.stdin.readline())
    program = tool() or ""
    words = [program, "--tool", "memcheck", "--print-limit", "3"]
    words += [sys.executable, "-P", "-W", "ignore", "-m", "tritonsmith.evaluator.sanitize", "--target"]
    os.dup2(1, 2)
    os.execv(program, [*words, message["candidate"], message["request"]])


if __name__ == "__main__":
    main()
