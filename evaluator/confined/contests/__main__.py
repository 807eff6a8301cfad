"""The process that races regions: `python -P -m tritonsmith.evaluator.confined.contests`.

It reads one JSON line, {"contests": path, "seconds": number}, where the file has contests as
JSON, and answers with one JSON line for each, in their order: {"times": [AlternativeTime]}.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from tritonsmith.evaluator.processes.lines import send_line
from tritonsmith.evaluator.sandbox.oneself import confine_self


def main() -> None:
    """Entry point of the process."""
    confine_self()
    control = os.dup(1)
    os.dup2(2, 1)  # prints of the modules go to the log
    from tritonsmith.evaluator.confined.contests.race import run_contests  # noqa: PLC0415 - after the switch of stdout; it imports torch
    from tritonsmith.evaluator.records.contest import Contest  # noqa: PLC0415 - as above

    message = json.loads(sys.stdin.readline())
    contests = [Contest.model_validate(one) for one in json.loads(Path(message["contests"]).read_text())]
    for answer in run_contests(contests, float(message["seconds"]), Path.cwd()):
        send_line(control, answer.model_dump(mode="json"))


if __name__ == "__main__":
    main()
    os._exit(0)  # threads that a module left behind do not keep the process
