"""The trusted compiler: compiles candidates without the card, so that several compile while one is measured.

Its requests come line by line, as the oracle's do: `Hello` and `Compile` of `processes/requests.py`.
The process for the next compilation starts when the last one has reported, and waits with its imports done.
"""

from __future__ import annotations

from typing import Any

from tritonsmith.evaluator.caller.compiling.client import COMPILER, Compilation, CompileFault
from tritonsmith.evaluator.cards.cards import named_card
from tritonsmith.evaluator.channel.compiled_code import keep_packed
from tritonsmith.evaluator.errors import InfrastructureError
from tritonsmith.evaluator.processes.requests import Compile, CompileAnswer, Hello, HelloAnswer, ServerRequest
from tritonsmith.evaluator.sandbox.self_test import establish
from tritonsmith.evaluator.sandbox.warm_start import begin_warm_start, end_warm_start, finish_warm_start
from tritonsmith.evaluator.schema import Record


class CompilerServer:
    """One compiler, with the process that waits for the next candidate."""

    def __init__(self) -> None:
        self._target = ""
        self._next: Compilation | None = None

    def answer(self, request: ServerRequest[Any]) -> Record:
        """The answer to one request. Raises UsageError or InfrastructureError."""
        match request:
            case Hello():
                return self._greet(request)
            case Compile():
                return self._compile(request)
            case _:
                raise InfrastructureError(f"a compiler does not answer {request.op!r}")

    def _greet(self, hello: Hello) -> HelloAnswer:
        """The card, once the sandbox is established and a process waits in it."""
        establish(hello.sandbox, cuda=False)
        begin_warm_start(COMPILER)
        finish_warm_start()
        self._target = hello.target
        self._next = Compilation()
        return HelloAnswer(hardware=named_card(self._target))

    def _compile(self, request: Compile) -> CompileAnswer:
        """The report about a candidate, or why there is none."""
        with self._next or Compilation() as compilation:
            self._next = None
            compilation.begin(request.kernel, request.request.read_bytes(), self._target, keep=request.keep is not None)
            try:
                report = compilation.report(request.seconds, request.mark)
            except CompileFault as fault:
                report = {"status": fault.status.value, "message": str(fault)}
        if (packed := report.pop("compiled", None)) and request.keep is not None:
            keep_packed(packed, request.keep)
        self._next = Compilation()
        return CompileAnswer(report=report)

    def close(self) -> None:
        """End the process that waits."""
        if self._next is not None:
            self._next.close()
        end_warm_start()
