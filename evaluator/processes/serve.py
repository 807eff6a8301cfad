"""The request loop of a trusted server process: one JSON line in, one JSON line out."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tritonsmith.evaluator.errors import TaskError, UsageError
from tritonsmith.evaluator.processes.lines import send_line
from tritonsmith.evaluator.processes.requests import ServerRequest, read_request
from tritonsmith.evaluator.schema import Record

_MESSAGE_CHARACTERS = 2000
"""Length of a message about an unexpected error."""


def serve_requests(
    requests: Iterable[str], out: int, kinds: Sequence[type[ServerRequest[Any]]], answer: Callable[[ServerRequest[Any]], Record]
) -> None:
    """Answer each request of these kinds on the descriptor `out` until there are no more.

    An error becomes {"error": sentence, "kind": "task" | "usage" | "infrastructure"}; an unexpected one is also written to stderr.
    """
    for line in requests:
        try:
            message = answer(read_request(json.loads(line), kinds)).model_dump(mode="json")
        except TaskError as error:
            message = {"error": str(error), "kind": "task"}
        except UsageError as error:
            message = {"error": str(error), "kind": "usage"}
        except Exception as error:  # noqa: BLE001 - the process boundary: the caller decides what to do
            traceback.print_exc()
            message = {"error": f"{type(error).__name__}: {error}"[:_MESSAGE_CHARACTERS], "kind": "infrastructure"}
        send_line(out, message)
