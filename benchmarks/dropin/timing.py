"""Microseconds that the host takes for a call."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

_CALLS, _ROUNDS = 100, 150


def time_calls(call: Callable[[], Any], device: torch.device) -> float:
    """Microseconds of a call: the least of many short rounds, since other work of the host only adds. A card is idle when one begins."""
    for _ in range(200):
        call()
    rounds = []
    for _ in range(_ROUNDS):
        if device.type == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(_CALLS):
            call()
        rounds.append((time.perf_counter() - start) / _CALLS * 1e6)
    return min(rounds)
