"""Describes a task's reference: `python -P -m tritonsmith.evaluator.reference`. Imports torch; runs the user's own task file.

Reads one JSON line, the Task record, and writes one JSON object on the original stdout:
{"facts": TaskFacts, "trace": [OperatorCost, ...]} or {"error": sentence, "kind": "task"}.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict

from tritonsmith.evaluator.errors import TaskError
from tritonsmith.evaluator.processes.steps import STEPS
from tritonsmith.evaluator.reference.probe import probe
from tritonsmith.evaluator.schema import Task


def main() -> None:
    """Entry point of the process."""
    answer_to = os.dup(1)
    os.dup2(2, 1)  # what the task prints must not mix with the answer
    task = Task.model_validate_json(sys.stdin.readline())
    STEPS.note("run the task")
    try:
        facts, trace = probe(task)
        answer = {"facts": facts.model_dump(mode="json"), "trace": [asdict(cost) for cost in trace]}
    except TaskError as error:
        answer = {"error": str(error), "kind": "task"}
    with os.fdopen(answer_to, "w") as stream:
        json.dump(answer, stream)


if __name__ == "__main__":
    main()
