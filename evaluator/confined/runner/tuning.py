"""torch.compile's choice between configurations, protected from a card that wakes up or is busy. Imports torch.

Inductor times each configuration of a kernel once, for some 20 ms, one after the other, and keeps the fastest for good. While other
processes of an evaluator start, a configuration of 68 us took 68 to 95 us for that long, and one of 82 us took 82 to 98 us (H200, torch
2.11, 2026-11-22, `benchmarks/results/timing_study/1313_tuning.txt`). Inductor may then keep the slower one, and all verdicts against it
are too good. A baseline should be the best that torch.compile can do. So configurations take turns here, until each has been as fast as
it can be several times.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

_MIN_FAST_TIMES = 3
"""A configuration is settled when so many of its times are within _FAST_FACTOR of its least."""
_FAST_FACTOR = 1.02
"""Times within this factor of the least count as equally fast."""
_AWAKE_SECONDS = 0.5
"""Seconds for which the first kernel of a process is timed at least: the card's clocks rise with work."""
_MOST_SECONDS = 2.0
"""Seconds for which one kernel is timed at most."""
_MOST_ROUNDS = 100
"""Rounds in which the configurations of one kernel take turns at most."""
_ALL_SECONDS = 40.0
"""Seconds for all kernels of a process. The others are timed once, as Inductor does: a model may have hundreds, and builds have a limit."""
_NEVER = float("inf")
"""Inductor's time of a configuration that cannot run."""

Config = TypeVar("Config")


def take_turns(
    configs: Sequence[Config], bench: Callable[[Config], float], at_least: float = 0.0, at_most: float = _MOST_SECONDS,
    clock: Callable[[], float] = time.monotonic,
) -> dict[Config, float]:  # fmt: skip
    """The least milliseconds of each configuration, timed in turns until all are settled, for `at_least` and `at_most` seconds.

    Each round goes the other way, so that a disturbance of every second bench meets all of them. A configuration whose first time is
    infinite (Inductor's sign that it cannot run) is not tried again.
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
    return sum(taken <= min(times) * _FAST_FACTOR for taken in times) >= _MIN_FAST_TIMES


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
