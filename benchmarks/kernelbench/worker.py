"""The process of one card: `python -m tritonsmith.benchmarks.kernelbench.worker` opens an evaluator and answers jobs line by line."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

from tritonsmith.benchmarks.host import cpu_name
from tritonsmith.benchmarks.kernelbench.judging import describe_ahead, judge_job
from tritonsmith.benchmarks.kernelbench.rows.records import JudgeJob
from tritonsmith.evaluator.caller.local import LocalEvaluator, open_evaluator
from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.processes.serve import serve_requests

NO_CARD = "there is no CUDA card here, and results hold measurements only; --target h200 --size small tries the way without one"


class JobServer:
    """Answers jobs by one evaluator, which the first request opens."""

    def __init__(self) -> None:
        self._evaluator: LocalEvaluator | None = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """The card for `hello`, a row for `judge`. Raises UsageError without a card that was asked for."""
        if self._evaluator is None:
            self._evaluator = open_evaluator(request["target"])
            if request["target"] == "auto" and not self._evaluator.hardware.present:
                raise UsageError(NO_CARD)
        if request["op"] == "hello":
            return {"hardware": self._evaluator.hardware.model_dump(mode="json")}
        if request.get("next"):
            describe_ahead(self._evaluator, JudgeJob.model_validate(request["next"]))
        job = JudgeJob.model_validate(request["job"])
        self._evaluator.baselines = job.baselines
        row = asyncio.run(judge_job(self._evaluator, job))
        named = row.model_copy(update={"host": cpu_name(), "device": os.environ.get("CUDA_VISIBLE_DEVICES", "")})
        return {"row": named.model_dump(mode="json")}

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
        serve_requests(sys.stdin, out, server.answer)
    finally:
        server.close()


if __name__ == "__main__":
    main()
