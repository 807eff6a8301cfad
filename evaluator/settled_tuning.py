"""torch.compile's choice between configurations, held against a card that is still waking up or busy. Imports torch.

Inductor times each configuration of a kernel once, for 25 ms, the one after the other, and keeps the fastest for good. On an H200 whose
processes had just started it kept one that needs 84 us where the other needs 70, and all verdicts of that evaluator were 1.2 times too
good (2026-11-22, torch 2.11). A baseline is to be the best that torch.compile can do, so each is timed until it gets no faster.
"""

from __future__ import annotations

import time
from collections.abc import Callable

_NO_FASTER, _GAIN = 4, 0.01
"""A configuration is settled when so many times in a row it was not faster by that part."""
_AWAKE_SECONDS = 0.5
"""So long at least the first one of a process is timed: the card's clocks rise with work."""
_MOST_SECONDS = 2.0

Bench = Callable[..., float]


def settled(bench: Bench, clock: Callable[[], float] = time.monotonic) -> Bench:
    """A `bench` that asks the given one, milliseconds of a call, again until they no longer fall; the least of them."""
    begun: float | None = None

    def until_settled(*args: object, **kwargs: object) -> float:
        nonlocal begun
        started = clock()
        begun = started if begun is None else begun
        least, as_slow = bench(*args, **kwargs), 0
        while least < float("inf") and clock() - started < _MOST_SECONDS and (as_slow < _NO_FASTER or clock() - begun < _AWAKE_SECONDS):
            again = bench(*args, **kwargs)
            as_slow = 0 if again < least * (1.0 - _GAIN) else as_slow + 1
            least = min(least, again)
        return least

    return until_settled


def settle_tuning() -> None:
    """Let Inductor choose so in this process. Where this torch has no such place, its own way stays."""
    try:
        from torch._inductor.runtime.triton_heuristics import CachingAutotuner  # noqa: PLC0415 - seconds, and only a compiled baseline needs it
    except ImportError:
        return
    bench = getattr(CachingAutotuner, "bench", None)
    if bench is not None and bench.__name__ != "until_settled":
        CachingAutotuner.bench = settled(bench)  # type: ignore[method-assign]
