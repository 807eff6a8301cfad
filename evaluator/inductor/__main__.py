"""Writes Inductor's text for a task: `python -P -m tritonsmith.evaluator.inductor`. Imports torch; runs the user's own task file.

Reads one JSON line {"task": Task, "hardware": Hardware}, and writes one JSON object on the original stdout: {"text": ...},
{"reason": half a sentence} where Inductor has no text that stands alone, or {"error": sentence} where the task is at fault.
"""

from __future__ import annotations

import json
import os
import sys

from tritonsmith.evaluator.errors import TaskError
from tritonsmith.evaluator.inductor.write import write_seed
from tritonsmith.evaluator.processes.steps import STEPS
from tritonsmith.evaluator.schema import Hardware, Task


def main() -> None:
    """Entry point of the process."""
    answer_to = os.dup(1)
    os.dup2(2, 1)  # what the task prints must not mix with the answer
    asked = json.loads(sys.stdin.readline())
    STEPS.note("run the task")
    try:
        answer = write_seed(Task.model_validate(asked["task"]), Hardware.model_validate(asked["hardware"]))
    except TaskError as error:
        answer = {"error": str(error)}
    with os.fdopen(answer_to, "w") as stream:
        json.dump(answer, stream)


if __name__ == "__main__":
    main()
