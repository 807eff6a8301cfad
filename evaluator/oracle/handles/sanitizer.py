"""A candidate under compute-sanitizer, where that tool exists: memory errors that the numbers did not show."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path

from tritonsmith.evaluator.channel.report import FINISHED
from tritonsmith.evaluator.channel.sanitize import REQUEST, SOURCE
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


class SanitizerProcess:
    """compute-sanitizer in the sandbox, around a process that imports torch and waits for a candidate.

    Args:
        tool: path of compute-sanitizer.
    """

    def __init__(self, tool: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="tritonsmith-sanitize-", ignore_cleanup_errors=True)
        self._inbox = Path(self._folder.name)
        self._inbox.chmod(0o755)
        self.sandbox = SandboxedProcess(
            "tritonsmith.evaluator.confined.compiler.sanitize", environment={"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}, confined=True,
            read=[self._inbox], proc=True,
        )  # fmt: skip
        assert self.sandbox.process.stdin is not None
        send_line(self.sandbox.process.stdin.fileno(), {"tool": tool, "inbox": str(self._inbox)})

    def examine(self, kernel: KernelText, request: Path, seconds: float) -> tuple[bool, str]:
        """Whether memory errors were found, and what was found or why nothing can be said; once."""
        self._hand_over(SOURCE, kernel.text.encode())
        self._hand_over(REQUEST, request.read_bytes())  # last: the process waits for it
        output = self.sandbox.read_output(seconds, _MOST_BYTES)
        if output is None:
            return False, f"not done: it took longer than {seconds:.0f} s"
        return read_tool_output(output.decode(errors="replace"))

    def _hand_over(self, name: str, content: bytes) -> None:
        part = self._inbox / f"{name}.part"
        part.write_bytes(content)
        part.chmod(0o644)
        part.rename(self._inbox / name)

    def pause(self) -> None:
        """Let it stand still until `resume`."""
        self.sandbox.family.pause()

    def resume(self) -> None:
        """Let it go on."""
        self.sandbox.family.resume()

    def close(self) -> None:
        """End it and remove its folder."""
        self.sandbox.kill()
        self._folder.cleanup()


def find_obstacle() -> str:
    """Why memory errors cannot be looked for here; empty where they can."""
    if find_tool() is None:
        return "not done: compute-sanitizer is not installed"
    if sandbox_report()["layers"].get("uid") != "applied":  # the tool reads its child's /proc, and must see nobody else's
        return "not done: compute-sanitizer needs candidates to run as a user of their own (root starts them so)"
    return ""


def start_sanitizer() -> SanitizerProcess | None:
    """A process that waits for a candidate; None where memory errors cannot be looked for."""
    tool = find_tool()
    return SanitizerProcess(tool) if tool and not find_obstacle() else None


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
