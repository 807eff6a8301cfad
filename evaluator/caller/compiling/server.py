"""The trusted compiler: compiles candidates without the card, so that several compile while one is measured.

Its requests come line by line, as the oracle's do:

    {"op": "hello", "target": key, "sandbox": mode}                        -> {"hardware": {...}}
    {"op": "compile", "kernel": {"text", "sha"}, "request": path, "seconds": limit,
     "mark": path of a file that exists while something is timed,
     "keep": path of a file for what was compiled, or nothing}             -> {"report": {...}}, or {"report": {"status", "message"}}

The process for the next compilation starts when the last one has reported, and waits with its imports done.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tritonsmith.evaluator.caller.compiling.client import COMPILER, Compilation, CompileFault
from tritonsmith.evaluator.cards.cards import named_card
from tritonsmith.evaluator.channel.compiled_code import keep_packed
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.sandbox.self_test import establish
from tritonsmith.evaluator.sandbox.warm_start import begin_warm_start, end_warm_start, finish_warm_start


class CompilerServer:
    """One compiler, with the process that waits for the next candidate."""

    def __init__(self) -> None:
        self._target = ""
        self._next: Compilation | None = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer to one request. Raises UsageError or InfrastructureError."""
        if request["op"] == "hello":
            establish(request["sandbox"], cuda=False)
            begin_warm_start(COMPILER)
            finish_warm_start()
            self._target = request["target"]
            self._next = Compilation()
            return {"hardware": named_card(self._target).model_dump(mode="json")}
        with self._next or Compilation() as compilation:
            self._next = None
            keep, asked = request["keep"], Path(request["request"]).read_bytes()
            compilation.begin(KernelText(**request["kernel"]), asked, self._target, keep=bool(keep))
            try:
                report = compilation.report(request["seconds"], Path(request["mark"]))
            except CompileFault as fault:
                report = {"status": fault.status.value, "message": str(fault)}
        if (packed := report.pop("compiled", None)) and keep:
            keep_packed(packed, Path(keep))
        self._next = Compilation()
        return {"report": report}

    def close(self) -> None:
        """End the process that waits."""
        if self._next is not None:
            self._next.close()
        end_warm_start()
