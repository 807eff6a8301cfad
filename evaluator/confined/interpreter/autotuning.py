"""`@triton.autotune` in the interpreter: every configuration runs once on the buffers of the launch, and the oracle says which is kept.

On a card the tuner benchmarks each configuration on the real buffers ahead of the first launch of a key. What a kernel adds to, or changes
in place, is then changed many times, unless the tuner is told to undo it. Which configuration is the fastest differs from card to card, so
each must be right by itself. Imports Triton: for evaluator processes with TRITON_INTERPRET=1 only.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from triton import testing
from triton.compiler.errors import CompileTimeAssertionFailure
from triton.runtime.autotuner import Autotuner

_SURE_RUNS = 2
"""Configurations of a key that always run: two show what a run leaves behind."""
_MOST_SECONDS = 20.0
"""Seconds of a process for all others. Those that do not run are kept in turn like the rest."""
_TIME = 1.0
"""What every configuration takes: nothing is measured."""


class StaticAssertion(AssertionError):
    """A failed `tl.static_assert`: Triton compiles no such configuration, and its tuner drops it."""


class _Tuning:
    """What the tuners of this process share."""

    number = 0
    """The configuration that every tuner keeps, counted around its list."""
    most = 1
    """Configurations of the longest list so far."""
    trying = False
    """Whether a tuner tries a configuration now."""
    seconds = 0.0


tuning = _Tuning()
"""Of this process."""


class _Kept(dict[Any, Any]):
    """A tuner's choice by key: one of those that it tried, as `tuning.number` says."""

    def __init__(self) -> None:
        super().__init__()
        self.tried: list[Any] = []
        """Configurations of the key that is being tuned and that can run."""

    def __setitem__(self, key: Any, best: Any) -> None:
        fit = self.tried or [best]
        tuning.most = max(tuning.most, len(fit))
        super().__setitem__(key, fit)
        self.tried = []

    def __getitem__(self, key: Any) -> Any:
        fit = super().__getitem__(key)
        return fit[tuning.number % len(fit)]


def run_once(call: Callable[[], object], quantiles: Any = None, **_options: object) -> list[float]:
    """What the tuner takes for a benchmark: one run."""
    call()
    return [_TIME] * len(quantiles or (0.5, 0.2, 0.8))


def _bench_once(call: Callable[[], object], *_arguments: object, quantiles: Any = None, **_options: object) -> Any:
    """Triton's `do_bench`, which would run the kernel for a tenth of a second."""
    times = run_once(call, quantiles)
    return times if quantiles and len(quantiles) > 1 else _TIME


def install_autotuning() -> None:
    """Put this in place of the tuner's clock and choice; call once."""
    stock_run, stock_bench = Autotuner.run, Autotuner._bench

    def run(self: Any, *arguments: Any, **options: Any) -> Any:
        if not isinstance(self.cache, _Kept):
            self.cache = _Kept()
        return stock_run(self, *arguments, **options)

    def bench(self: Any, *arguments: Any, config: Any, **meta: Any) -> Any:
        kept: Any = self.cache
        if len(kept.tried) >= _SURE_RUNS and tuning.seconds >= _MOST_SECONDS:
            kept.tried.append(config)
            return [_TIME] * 3
        began, tuning.trying = time.monotonic(), True
        try:
            times = stock_bench(self, *arguments, config=config, **meta)
        finally:
            tuning.trying = False
            tuning.seconds += time.monotonic() - began
        if times != [float("inf")] * 3:
            kept.tried.append(config)
        return times

    Autotuner.run, Autotuner._bench = run, bench
    testing.do_bench = testing.do_bench_cudagraph = _bench_once


def drop_configuration(fault: BaseException) -> None:
    """Raises what the tuner takes for a configuration that does not compile, where a fault is that of one which it tries."""
    if tuning.trying and isinstance(fault.__cause__, StaticAssertion):
        raise CompileTimeAssertionFailure(None, None, str(fault)) from fault
