"""A head start for an oracle: what a first verdict on a card needs is started before torch is imported.

The import of torch takes seconds, in this process and in each that the first verdict on a card needs. They are started first, so that
all import it at the same time. The longest import is the baselines', which includes torch.compile; a first verdict waits for it.
"""

from __future__ import annotations

import json
import traceback

from tritonsmith.evaluator.cards import CARDS
from tritonsmith.evaluator.machine import card_in_nvml
from tritonsmith.evaluator.oracle.handles.pool import RunnerPool
from tritonsmith.evaluator.sandbox.self_test import establish


def start_pool(line: str) -> RunnerPool | None:
    """What the first verdict on a card needs, started now, if the first request asks for the card that is here.

    What speaks against it is reported when the request is answered; here it goes to the log.
    """
    try:
        request = json.loads(line)
        if request["op"] != "hello" or not request["use_card"] or not _is_card_here(request["target"]):
            return None
        establish(request["sandbox"], cuda=True)
        return RunnerPool.start()
    except Exception:  # noqa: BLE001 - only a head start: without it the request is answered as it would be, with the reason if it fails
        traceback.print_exc()
        return None


def _is_card_here(target: str) -> bool:
    """Whether the driver's management library sees the card that `target` means."""
    name = card_in_nvml().get("name", "")
    known = CARDS.get(target.lower())
    return bool(name) and (target == "auto" or (known is not None and name.startswith(known.name)))
