"""A candidate under compute-sanitizer, where that tool exists: memory errors that the numbers did not show."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path

from tritonsmith.evaluator.channel.report import FINISHED
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.processes.lines import send_line
from tritonsmith.evaluator.sandbox.policy import sandbox_report
from tritonsmith.evaluator.sandbox.process import SandboxedProcess

_MOST_BYTES = 4 << 20
"""Of the tool's output."""
_PLACES = ("/usr/local/cuda/bin", "/usr/local/cuda/compute-sanitizer", "/opt/nvidia/compute-sanitizer")
_FOUND = re.compile(r"^========= (Invalid .*|Out-of-range .*|Misaligned .*|.* hazard .*)$", re.MULTILINE)
_WHERE = re.compile(r"^=========     (?:at|by) (.*)$", re.MULTILINE)


def find_tool() -> str | None:
    """Path of compute-sanitizer; None where it is not installed."""
    return shutil.which("compute-sanitizer") or next(
        (path for folder in _PLACES if os.access(path := f"{folder}/compute-sanitizer", os.X_OK)), None
    )


def run_sanitizer(kernel: KernelText, request: Path, seconds: float) -> tuple[bool, str]:
    """Whether memory errors were found, and what was found or why nothing can be said."""
    program = find_tool()
    if program is None:
        return False, "not done: compute-sanitizer is not installed"
    if sandbox_report()["layers"].get("uid") != "applied":  # the tool reads its child's /proc, and must see nobody else's
        return False, "not done: compute-sanitizer needs candidates to run as a user of their own (root starts them so)"
    environment = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    with tempfile.TemporaryDirectory(prefix="tritonsmith-sanitize-", ignore_cleanup_errors=True) as folder:
        inbox = Path(folder)
        inbox.chmod(0o755)
        source = inbox / "candidate.py"
        source.write_text(kernel.text)
        source.chmod(0o644)
        with SandboxedProcess(
            "tritonsmith.evaluator.confined.compiler.sanitize", environment=environment, confined=True, read=[inbox, request], proc=True
        ) as sandbox:
            assert sandbox.process.stdin is not None
            send_line(sandbox.process.stdin.fileno(), {"tool": program, "candidate": str(source), "request": str(request)})
            output = sandbox.read_output(seconds, _MOST_BYTES)
    if output is None:
        return False, f"not done: it took longer than {seconds:.0f} s"
    return read_tool_output(output.decode(errors="replace"))


def read_tool_output(text: str) -> tuple[bool, str]:
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
