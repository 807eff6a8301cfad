"""One event loop in a thread of its own, for callers who are not asynchronous."""

import asyncio
import threading
from collections.abc import Coroutine
from functools import cache
from typing import Any, TypeVar

Result = TypeVar("Result")


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="tritonsmith-loop", daemon=True).start()
    return loop


_starting = threading.Lock()


def run_to_completion(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine to its end for a caller that is not asynchronous. In a notebook, whose loop is busy, another loop runs it."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    return run_blocking(work)


def run_blocking(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine on the background loop and wait for it; context variables of the caller are seen by it."""
    with _starting:  # functools.cache may call twice when two threads race
        loop = _loop()
    future = asyncio.run_coroutine_threadsafe(work, loop)
    try:
        return future.result()
    except BaseException:
        future.cancel()
        raise
