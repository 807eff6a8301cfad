"""Keeps a runner's main thread free of candidate code between two commands."""

from __future__ import annotations

import gc
import importlib
import signal
import sys
from collections.abc import Callable

_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
"""Every timer that a process can set."""
_NEVER = 3600.0
"""Seconds that another thread waits for the interpreter: longer than any runner lives."""


def bind_quiet() -> Callable[[], None]:
    """A call, made before candidate code is imported and bound to the interpreter's own functions.

    After it nothing that a candidate left behind is called while the runner waits: no trace or profile function, collector callback,
    timer or signal handler, and no other Python thread unless the main thread waits for something. It belongs between the answer to a
    command and the next one, so it costs no timed call anything.
    """
    trace, profile, callbacks = sys.settrace, sys.setprofile, gc.callbacks
    # The function below the one in `signal`, which would turn sixty numbers into enumerations.
    timer, mask, switch = signal.setitimer, importlib.import_module("_signal").pthread_sigmask, sys.setswitchinterval
    block, every = signal.SIG_BLOCK, sorted(map(int, signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}))
    monitoring = getattr(sys, "monitoring", None)  # since Python 3.12
    events, in_use = (monitoring.set_events, monitoring.get_tool) if monitoring else (None, None)

    def quiet() -> None:
        trace(None)
        profile(None)
        callbacks.clear()
        if events and in_use:
            for tool in range(6):
                if in_use(tool):
                    events(tool, 0)
        for which in _TIMERS:
            timer(which, 0.0)
        mask(block, every)
        switch(_NEVER)

    return quiet
