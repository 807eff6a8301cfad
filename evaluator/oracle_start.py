"""How an oracle begins: `python -P -m tritonsmith.evaluator.oracle_start`. No torch until the first request has been looked at.

The import of torch takes seconds, in this process and in each that the first verdict on a card needs. They are started first, so that
all import it at the same time; the longest, the baselines' with torch.compile, is what a first verdict waits for.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import traceback

from tritonsmith.evaluator.cards import CARDS
from tritonsmith.evaluator.environment import card_in_nvml
from tritonsmith.evaluator.runner_process import RunnerPool
from tritonsmith.evaluator.sandbox.process import guard_self
from tritonsmith.evaluator.sandbox.self_test import establish


def pool_ahead(line: str) -> RunnerPool | None:
    """What the first verdict on a card needs, started now, if the first request asks for the card that is here.

    Whatever speaks against it is told when the request is answered; here it goes to the log.
    """
    try:
        request = json.loads(line)
        if request["op"] != "hello" or not request["use_card"] or not _is_here(request["target"]):
            return None
        establish(request["sandbox"], cuda=True)
        return RunnerPool.begun()
    except Exception:  # noqa: BLE001 - only a head start: without it the request is answered as it would be, with the reason if it fails
        traceback.print_exc()
        return None


def _is_here(target: str) -> bool:
    """Whether the driver's management library sees the card that `target` means."""
    name = card_in_nvml().get("name", "")
    known = CARDS.get(target.lower())
    return bool(name) and (target == "auto" or (known is not None and name.startswith(known.name)))


def main() -> None:
    """Serve until stdin closes."""
    guard_self()
    out = os.dup(1)
    os.dup2(2, 1)  # a task file may print
    first = sys.stdin.readline()
    pool = pool_ahead(first)
    from tritonsmith.evaluator import oracle  # noqa: PLC0415 - torch, while the pool's processes import it as well

    oracle.serve(itertools.chain([first] if first else [], sys.stdin), out, pool)


if __name__ == "__main__":
    main()
    os._exit(0)
