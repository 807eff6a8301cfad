"""The process that replays forwards: `python -P -m tritonsmith.evaluator.confined.replay`. Needs TRITON_INTERPRET=1.

Reads one JSON line of configuration, says `ready`, then answers one JSON line per request.
"""

from __future__ import annotations

import json
import os
import sys

from tritonsmith.evaluator.confined.interpreter import launch
from tritonsmith.evaluator.confined.replay.forward import FILE, ReplayServer
from tritonsmith.evaluator.confined.runner.faults import classify
from tritonsmith.evaluator.processes.lines import send_line
from tritonsmith.evaluator.sandbox.oneself import confine_self


def main() -> None:
    """Serve until stdin closes."""
    confine_self()
    control = os.dup(1)
    os.dup2(2, 1)  # what kernels print
    server = ReplayServer(json.loads(sys.stdin.readline()))
    send_line(control, {"event": "ready"})
    for line in sys.stdin:
        try:
            answer = server.answer(json.loads(line))
        except BaseException as error:  # noqa: BLE001 - the process boundary: kernels and forged traces may raise anything
            answer = classify(error, FILE)
        launch.running.launch = None
        send_line(control, answer)


if __name__ == "__main__":
    main()
    os._exit(0)
