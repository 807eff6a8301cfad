"""The disposable process of one candidate, or of the baselines: `python -P -m tritonsmith.evaluator.confined.runner`.

Says `warm` once its imports are done; words on its command line ask for more (`card`, `profiler`). Then it reads one JSON line of
configuration, so that it can wait for its candidate.
"""

from __future__ import annotations

import json
import os
import sys

from tritonsmith.evaluator.confined.runner.faults import classify
from tritonsmith.evaluator.confined.runner.serve import RunnerServer
from tritonsmith.evaluator.processes.lines import send_line
from tritonsmith.evaluator.sandbox.oneself import confine_self


def main() -> None:
    """Entry point of the process."""
    confine_self()
    control = os.dup(1)
    os.dup2(2, 1)  # prints of candidate code go to the log, not to the control pipe
    import triton  # noqa: F401, PLC0415 - after the switch to the interpreter was read; part of being warm

    if sys.argv[1:]:
        from tritonsmith.evaluator.confined.runner import warm  # noqa: PLC0415 - as above

        warm.warm_up(sys.argv[1:])
    send_line(control, {"event": "warm"})
    config = json.loads(sys.stdin.readline())
    try:
        runner = RunnerServer(config, control)
        runner.start()
    except BaseException as error:  # noqa: BLE001 - the process boundary
        send_line(control, {"event": "failed"} | classify(error, config.get("source", "")))
        return
    runner.serve()


if __name__ == "__main__":
    main()
    os._exit(0)  # threads that candidate code left behind do not keep the process
