"""torch.compile's choice between configurations, held against a card that wakes up or is busy. Imports torch.

Inductor times each configuration of a kernel once, for some 20 ms, one after the other, and keeps the fastest for good. Beside other
processes of an evaluator that starts, one of 68 us took 68 to 95 us for that long and one of 82 us 82 to 98 (H200, torch 2.11, 2026-11-22,
`benchmarks/results/timing_study/1313_tuning.txt`): it may keep the slower one, and all verdicts against it are too good. A baseline is to
be the best that torch.compile can do, so configurations take turns here, until each has been as fast as it can be several times.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

_TIMES, _WITHIN = 3, 1.02
"""A configuration is settled when so many of its times are within that factor of its least."""
_AWAKE_SECONDS = 0.5
"""So long at least the first kernel of a process is timed: the card's clocks rise with work."""
_MOST_SECONDS, _MOST_ROUNDS = 2.0, 100
_ALL_SECONDS = 40.0
"""For all kernels of a process; the others are timed once, as Inductor has it: a model may have hundreds, and the build has a limit."""
_NEVER = float("inf")

Config = TypeVar("Config")


def take_turns(
    configs: Sequence[Config], bench: Callable[[Config], float], at_least: float = 0.0, at_most: float = _MOST_SECONDS,
    clock: Callable[[], float] = time.monotonic,
) -> dict[Config, float]:  # fmt: skip
    """The least milliseconds of each configuration, timed in turns until all are settled, for `at_least` and `at_most` seconds.

    Each round goes the other way, so that what comes and goes with every second bench meets all of them. One that takes for ever by its
    first time (Inductor's word for one that cannot run) is not tried again.
    """
    started = clock()
    times = {config: [bench(config)] for config in configs}
    running = [config for config, taken in times.items() if taken[0] < _NEVER]
    for _ in range(_MOST_ROUNDS):
        passed = clock() - started
        if passed >= at_most or (passed >= at_least and all(_is_settled(times[config]) for config in running)):
            break
        running.reverse()
        for config in running:
            times[config].append(bench(config))
    return {config: min(taken) for config, taken in times.items()}


def _is_settled(times: Sequence[float]) -> bool:
    return sum(taken <= min(times) * _WITHIN for taken in times) >= _TIMES


def settle_tuning() -> None:
    """Let Inductor choose so in this process. Where this torch has no such place, its own way stays."""
    try:
        from torch._inductor.runtime.triton_heuristics import CachingAutotuner  # noqa: PLC0415 - seconds, and only a compiled baseline needs it
    except ImportError:
        return
    choose = getattr(CachingAutotuner, "benchmark_all_configs", None)
    if choose is None or not hasattr(CachingAutotuner, "bench") or hasattr(choose, "settles"):
        return
    spent = 0.0

    def choose_in_turns(self: Any, *args: Any, **kwargs: Any) -> Any:
        """Inductor's own way, with these times for each of its own."""
        nonlocal spent
        bench, started = self.bench, time.monotonic()
        at_most = min(_MOST_SECONDS, _ALL_SECONDS - spent)
        least = take_turns(
            list(self.launchers), lambda launcher: bench(launcher, *args, **kwargs), 0.0 if spent else _AWAKE_SECONDS, at_most
        )
        spent += time.monotonic() - started
        self.bench = lambda launcher, *_, **__: least[launcher]
        try:
            return choose(self, *args, **kwargs)
        finally:
            del self.bench

    choose_in_turns.settles = True  # type: ignore[attr-defined]
    CachingAutotuner.benchmark_all_configs = choose_in_turns  # type: ignore[method-assign]
