"""What a long verdict is at, for whoever waits for it: oracles note their steps, and callers hear of them every few seconds."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator, Callable
from contextvars import ContextVar

from tritonsmith.evaluator.processes.steps import LAST_STEP

EVERY_SECONDS = 10.0
"""Between two lines about one verdict."""
_STEP = re.compile(rf"^{LAST_STEP} '(.+)', begun after", re.MULTILINE)
_listener: ContextVar[Callable[[str], None] | None] = ContextVar("listener", default=None)
"""Who follows the present work; a thread that `asyncio.to_thread` starts has it too."""


def is_followed() -> bool:
    """Whether anybody hears of steps here."""
    return _listener.get() is not None


def tell_step(step: str) -> None:
    """Say what comes next, to whoever follows."""
    if listener := _listener.get():
        listener(step)


def find_last_step(log: str) -> str:
    """The last step that a process noted in its log; empty without one."""
    found = _STEP.findall(log)
    return str(found[-1]) if found else ""


@contextlib.asynccontextmanager
async def follow_steps(tell: Callable[[str, float], None], every: float | None = None) -> AsyncIterator[None]:
    """Context in which `tell` is called every so many seconds, with the step that the work is at and the seconds that it has taken."""
    pause = EVERY_SECONDS if every is None else every
    began, step = time.monotonic(), ""

    def note(now: str) -> None:
        nonlocal step
        step = now

    async def repeat() -> None:
        while True:
            await asyncio.sleep(pause)
            tell(step, time.monotonic() - began)

    token, repeating = _listener.set(note), asyncio.create_task(repeat())
    try:
        yield
    finally:
        repeating.cancel()
        await asyncio.gather(repeating, return_exceptions=True)
        _listener.reset(token)
