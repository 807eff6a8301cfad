"""A head start for an oracle: what a first verdict needs is started before torch is imported.

The import of torch takes seconds, in this process and in each that the first verdict needs. They are started first, so that
all import it at the same time. On a card the longest import is the baselines', which includes torch.compile; a first verdict waits for it.
Without a card the zygotes are started, which do the imports of the processes of every verdict.
"""

from __future__ import annotations

import json
import traceback

from tritonsmith.evaluator.caller.compiling.client import COMPILER
from tritonsmith.evaluator.cards.cards import CARDS
from tritonsmith.evaluator.cards.machine import card_in_nvml
from tritonsmith.evaluator.oracle.handles.pool import RunnerPool
from tritonsmith.evaluator.oracle.handles.process import INTERPRETING
from tritonsmith.evaluator.processes.requests import Hello
from tritonsmith.evaluator.sandbox.self_test import establish
from tritonsmith.evaluator.sandbox.warm_start import begin_warm_start


def start_ahead(line: str) -> RunnerPool | None:
    """Start what the first verdict needs, in the sandbox that the first request asks for. Returns the processes for a card that is here.

    What speaks against it is reported when the request is answered; here it goes to the log.
    """
    try:
        message = json.loads(line)
        if message["op"] != Hello.op:
            return None
        hello = Hello.model_validate(message)
        on_card = hello.use_card and _is_card_here(hello.target)
        establish(hello.sandbox, cuda=on_card)
        if on_card:
            return RunnerPool.start()
        begin_warm_start(INTERPRETING, COMPILER)
    except Exception:  # noqa: BLE001 - only a head start: without it the request is answered as it would be, with the reason if it fails
        traceback.print_exc()
    return None


def _is_card_here(target: str) -> bool:
    """Whether the driver's management library sees the card that `target` means."""
    name = card_in_nvml().get("name", "")
    known = CARDS.get(target.lower())
    return bool(name) and (target == "auto" or (known is not None and name.startswith(known.name)))
