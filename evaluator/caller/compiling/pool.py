"""A few processes that compile candidates while another one is measured."""

from __future__ import annotations

import contextlib
import os
import queue
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tritonsmith.evaluator.caller.compiling.client import START_SECONDS
from tritonsmith.evaluator.errors import InfrastructureError
from tritonsmith.evaluator.kernel_text import KernelText
from tritonsmith.evaluator.processes.requests import Compile
from tritonsmith.evaluator.processes.server import ServerProcess

_MOST_COMPILERS = 8
"""Compilers at work at once."""
_CORES_PER_COMPILER = 2
"""Cores of the machine for each of them. They stand still while something is measured."""
_ANSWER_SECONDS = START_SECONDS + 30.0
"""Time for an answer beyond the limit that the compiler itself keeps."""
CompileReport = dict[str, Any]
"""What `confined/compiler` reports: a status, and kernels with their facts or a message."""


class CompilePool:
    """Up to eight compilers for one card; each starts when it is first needed.

    Args:
        target: key of the card that is compiled for.
        sandbox: mode of the sandbox.
        mark: a file that exists while something is measured; compilers stand still then.
    """

    def __init__(self, target: str, sandbox: str, mark: Path) -> None:
        self._mark = mark
        count = max(1, min(_MOST_COMPILERS, (os.cpu_count() or 2) // _CORES_PER_COMPILER))
        self._all = [ServerProcess(target, sandbox=sandbox, module="tritonsmith.evaluator.caller.compiling") for _ in range(count)]
        self._free: queue.LifoQueue[ServerProcess] = queue.LifoQueue()  # the one that ran last is warm
        for compiler in self._all:
            self._free.put(compiler)
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="compile")

    def submit(self, kernel: KernelText, request: Path, seconds: float, keep: Path | None = None) -> Future[CompileReport]:
        """The report of `confined/compiler` in the future; the request's file must stay until then. `keep`: where what is compiled goes.

        It raises InfrastructureError, and so does this.
        """
        try:
            return self._threads.submit(self._compile, kernel, request, seconds, keep)
        except RuntimeError as error:
            raise InfrastructureError("the compilers are closed") from error

    def _compile(self, kernel: KernelText, request: Path, seconds: float, keep: Path | None) -> CompileReport:
        compiler = self._free.get()
        question = Compile(kernel=kernel, request=request, seconds=seconds, mark=self._mark, keep=keep)
        try:
            report: CompileReport = compiler.ask(question, seconds + _ANSWER_SECONDS).report
        except InfrastructureError:
            compiler.close()
            raise
        finally:
            self._free.put(compiler)
        return report

    def close(self) -> None:
        """End the compilers; what is under way ends with them."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        for compiler in self._all:
            with contextlib.suppress(OSError):
                compiler.remove()
        self._threads.shutdown(wait=True)
