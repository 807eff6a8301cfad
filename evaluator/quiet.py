"""Keeps a runner's main thread free of candidate code between two commands. Standard library only."""

from __future__ import annotations

import gc
import signal
import sys
from collections.abc import Callable

_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
_NEVER = 3600.0
_USUAL = 0.005


def switches() -> tuple[Callable[[], None], Callable[[], None]]:
    """Two calls, made before candidate code is imported and bound to the interpreter's own functions: `quiet` and `free`.

    After `quiet` nothing that a candidate left behind is called while the runner waits: no trace or profile function, collector
    callback, timer or signal handler, and no other Python thread unless the main thread waits for something. `free` gives signals and
    threads their turns back for the length of a command.
    """
    trace, profile, callbacks = sys.settrace, sys.setprofile, gc.callbacks
    timer, mask, switch = signal.setitimer, signal.pthread_sigmask, sys.setswitchinterval
    every = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
    monitoring = getattr(sys, "monitoring", None)  # since Python 3.12
    events, tools = (monitoring.set_events, range(6)) if monitoring else (None, range(0))
    in_use = monitoring.get_tool if monitoring else None

    def quiet() -> None:
        trace(None)
        profile(None)
        callbacks.clear()
        for tool in tools:
            if in_use and events and in_use(tool):
                events(tool, 0)
        for which in _TIMERS:
            timer(which, 0.0)
        mask(signal.SIG_BLOCK, every)
        switch(_NEVER)

    def free() -> None:
        switch(_USUAL)
        mask(signal.SIG_UNBLOCK, every)

    return quiet, free
