"""A candidate under compute-sanitizer, where that tool exists: memory errors that the numbers did not show."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from pathlib import Path

from tritonsmith.evaluator.channel.report import FINISHED, QUESTION
from tritonsmith.evaluator.kernel_text import KernelText
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


def say_why_not() -> str:
    """Why no candidate can be run under the tool here, as a sentence; empty where one can."""
    if find_tool() is None:
        return "not done: compute-sanitizer is not installed"
    if sandbox_report()["layers"].get("uid") != "applied":  # the tool reads its child's /proc, and must see nobody else's
        return "not done: compute-sanitizer needs candidates to run as a user of their own (root starts them so)"
    return ""


class SanitizerProcess:
    """One process under compute-sanitizer that waits for a candidate: it imports meanwhile, which takes seconds under the tool.

    It can read its own folder and the tool's, so `examine` copies what the question needs into it.
    """

    def __init__(self) -> None:
        program = find_tool()
        assert program is not None  # `say_why_not` was asked
        self._folder = tempfile.TemporaryDirectory(prefix="tritonsmith-sanitize-", ignore_cleanup_errors=True)
        self._inbox = Path(self._folder.name)
        self._inbox.chmod(0o755)
        tool = [Path(os.path.realpath(program)).parent, Path(program).parent]
        self.sandbox = SandboxedProcess(
            "tritonsmith.evaluator.confined.compiler.sanitize", [program, str(self._inbox)],
            environment={"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}, confined=True, read=[self._inbox, *tool], proc=True,
        )  # fmt: skip

    def examine(self, kernel: KernelText, request: Path, code: Path, seconds: float) -> tuple[bool, str]:
        """Whether memory errors were found in a candidate, and what was found or why nothing can be said; once for each process.

        Args:
            kernel: the candidate.
            request: the file with the arguments of one call (`channel/own_call.py`).
            code: a file with what the text compiles to, which may be missing.
            seconds: the longest that it may take.
        """
        draft, question = self._inbox / "question.draft", self._inbox / QUESTION
        source, asked = self._hand_over("candidate.py", kernel.text.encode()), self._inbox / "request.pt"
        shutil.copyfile(request, asked)  # as large as the task's weights
        asked.chmod(0o644)
        compiled = self._hand_over("code.json", code.read_bytes() if code.is_file() else b"{}")
        self._hand_over(draft.name, json.dumps({"candidate": str(source), "request": str(asked), "code": str(compiled)}).encode())
        draft.rename(question)  # whole, once it is there
        output = self.sandbox.read_output(seconds, _MOST_BYTES)
        if output is None:
            return False, f"not done: it took longer than {seconds:.0f} s"
        return read_tool_output(output.decode(errors="replace"))

    def _hand_over(self, name: str, content: bytes) -> Path:
        """A file of the folder that the process, which is another user, can read."""
        path = self._inbox / name
        path.write_bytes(content)
        path.chmod(0o644)
        return path

    def pause(self) -> None:
        """Stop every process of the run until `resume`."""
        self.sandbox.family.pause()

    def resume(self) -> None:
        """Let them run again."""
        self.sandbox.family.resume()

    def close(self) -> None:
        """End the process and remove its folder."""
        self.sandbox.kill()
        self._folder.cleanup()


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
