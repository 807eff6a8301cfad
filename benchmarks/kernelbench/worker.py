"""The process of one card: `python -m tritonsmith.benchmarks.kernelbench.worker` opens an evaluator and answers jobs line by line."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

from tritonsmith.benchmarks.host import cpu_name
from tritonsmith.benchmarks.kernelbench.judging import describe_ahead, judge_job
from tritonsmith.benchmarks.kernelbench.rows.records import AskRow, RowAnswer
from tritonsmith.evaluator.caller.local import LocalEvaluator, open_evaluator
from tritonsmith.evaluator.errors import InfrastructureError, UsageError
from tritonsmith.evaluator.processes.requests import Hello, HelloAnswer, ServerRequest
from tritonsmith.evaluator.processes.serve import serve_requests
from tritonsmith.evaluator.schema import Record

NO_CARD = "there is no CUDA card here, and results hold measurements only; --target h200 --size small tries the way without one"


class JobServer:
    """Answers jobs by one evaluator, which the first request opens."""

    def __init__(self) -> None:
        self._evaluator: LocalEvaluator | None = None

    def answer(self, request: ServerRequest[Any]) -> Record:
        """The card for `Hello`, a row for `AskRow`. Raises UsageError without a card that was asked for."""
        match request:
            case Hello():
                return HelloAnswer(hardware=self._open(request.target).hardware)
            case AskRow():
                return self._judge(request)
            case _:
                raise InfrastructureError(f"a worker does not answer {request.op!r}")

    def _open(self, target: str) -> LocalEvaluator:
        if self._evaluator is None:
            self._evaluator = open_evaluator(target)
        if target == "auto" and not self._evaluator.hardware.present:
            raise UsageError(NO_CARD)
        return self._evaluator

    def _judge(self, request: AskRow) -> RowAnswer:
        assert self._evaluator is not None  # every process is greeted first
        if request.next is not None:
            describe_ahead(self._evaluator, request.next)
        self._evaluator.baselines = request.job.baselines
        row = asyncio.run(judge_job(self._evaluator, request.job))
        return RowAnswer(row=row.model_copy(update={"host": cpu_name(), "device": os.environ.get("CUDA_VISIBLE_DEVICES", "")}))

    def close(self) -> None:
        """End the evaluator."""
        if self._evaluator is not None:
            self._evaluator.close()


def main() -> None:
    """Serve until stdin closes."""
    out = os.dup(1)
    os.dup2(2, 1)  # only answers go to the caller
    server = JobServer()
    try:
        serve_requests(sys.stdin, out, (Hello, AskRow), server.answer)
    finally:
        server.close()


if __name__ == "__main__":
    main()
