"""A process that compiles candidates without the card, so that several compile while one is measured. Imports no torch.

`python -P -m tritonsmith.evaluator.compiler` is asked as the oracle is, line by line:

    {"op": "hello", "target": key, "sandbox": mode}                        -> {"hardware": {...}}
    {"op": "compile", "source": path, "request": path, "seconds": limit}   -> {"report": {...}}, or {"report": {"status", "message"}}
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

from tritonsmith.evaluator.cards import named_card
from tritonsmith.evaluator.compile_client import CompileFault, read_report, start_compilation
from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.sandbox import guard_self
from tritonsmith.evaluator.sandbox_check import establish
from tritonsmith.evaluator.wire_text import send_line


def _answer(request: dict[str, Any], target: str) -> dict[str, Any]:
    if request["op"] == "hello":
        establish(request["sandbox"], cuda=False)
        return {"hardware": named_card(target).model_dump(mode="json")}
    with start_compilation(Path(request["source"]), Path(request["request"]), target) as sandbox:
        try:
            return {"report": read_report(sandbox, request["seconds"])}
        except CompileFault as fault:
            return {"report": {"status": fault.status.value, "message": str(fault)}}


def main() -> None:
    """Serve until stdin closes."""
    guard_self()
    out = os.dup(1)
    os.dup2(2, 1)
    target = ""
    for line in sys.stdin:
        request = json.loads(line)
        target = request.get("target", target)
        try:
            message = _answer(request, target)
        except UsageError as error:
            message = {"error": str(error), "kind": "usage"}
        except Exception as error:  # noqa: BLE001 - the process boundary: the caller decides what to do
            traceback.print_exc()
            message = {"error": f"{type(error).__name__}: {error}"[:2000], "kind": "infrastructure"}
        send_line(out, message)


if __name__ == "__main__":
    main()
    os._exit(0)
