"""Ways to write regions, raced in a confined process: the oracle starts it, waits, and reads what it says.

No verdict depends on the answer, which candidate code could forge. It decides how a candidate is cut, and that one is judged as always.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from tritonsmith.evaluator.processes.lines import send_line
from tritonsmith.evaluator.records.contest import Contest, ContestReport, ContestTimes
from tritonsmith.evaluator.sandbox.process import SandboxedProcess

_MOST_BYTES = 4 << 20
"""Of the process's answer."""
_GRACE_SECONDS = 60.0
"""Beyond its own seconds: imports, and the last call."""


def race_contests(contests: Sequence[Contest], seconds: float) -> ContestReport:
    """What each way of each contest takes, or why nothing is known.

    Args:
        contests: the most important ones first.
        seconds: after so many no further contest begins.
    """
    with tempfile.TemporaryDirectory(prefix="tritonsmith-contests-", ignore_cleanup_errors=True) as folder:
        inbox = Path(folder)
        inbox.chmod(0o755)
        asked = inbox / "contests.json"
        asked.write_text(json.dumps([contest.model_dump(mode="json") for contest in contests]))
        asked.chmod(0o644)
        with SandboxedProcess("tritonsmith.evaluator.confined.contests", confined=True, read=[inbox]) as sandbox:
            assert sandbox.process.stdin is not None
            send_line(sandbox.process.stdin.fileno(), {"contests": str(asked), "seconds": seconds})
            output = sandbox.read_output(seconds + _GRACE_SECONDS, _MOST_BYTES)
            said = sandbox.stderr_tail().strip().splitlines()[-1:]
    answers = _read_answers(output or b"", len(contests))
    why = "the race of regions took too long" if output is None else f"the race of regions ended early: {''.join(said)[:200]}"
    return ContestReport(contests=tuple(answers), note="" if any(answer.times for answer in answers) else why)


def _read_answers(output: bytes, count: int) -> list[ContestTimes]:
    """The answers as far as they can be read, and empty ones for the rest."""
    answers: list[ContestTimes] = []
    for line in output.splitlines()[:count]:
        try:
            answers.append(ContestTimes.model_validate_json(line))
        except ValidationError:
            break
    return answers + [ContestTimes()] * (count - len(answers))
