"""The request loop of a trusted server process: one JSON line in, one JSON line out."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Iterable
from typing import Any

from tritonsmith.evaluator.errors import TaskError, UsageError
from tritonsmith.evaluator.processes.lines import send_line

_MESSAGE_CHARACTERS = 2000
"""Length of a message about an unexpected error."""


def serve_requests(requests: Iterable[str], out: int, answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Answer each request on the descriptor `out` until there are no more.

    An error becomes {"error": sentence, "kind": "task" | "usage" | "infrastructure"}; an unexpected one is also written to stderr.
    """
    for line in requests:
        try:
            message = answer(json.loads(line))
        except TaskError as error:
            message = {"error": str(error), "kind": "task"}
        except UsageError as error:
            message = {"error": str(error), "kind": "usage"}
        except Exception as error:  # noqa: BLE001 - the process boundary: the caller decides what to do
            traceback.print_exc()
            message = {"error": f"{type(error).__name__}: {error}"[:_MESSAGE_CHARACTERS], "kind": "infrastructure"}
        send_line(out, message)
