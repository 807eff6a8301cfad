"""Times the ways to write each region, in turn and with a cold cache. Imports torch.

What comes of it is no verdict: it decides how a candidate is cut, and the candidate gets a verdict of its own. So the card's clock is
believed here, and all that a module could gain by a lie is a verdict that finds it out.

First every way is compiled, several at a time. Then nothing else runs, and the ways of one region take turns.
"""

from __future__ import annotations

import importlib.util
import os
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from tritonsmith.evaluator.records.contest import Alternative, AlternativeTime, Contest, ContestInput, ContestTimes
from tritonsmith.evaluator.reference.precision import set_tf32

_COMPILING_SHARE = 0.7
"""Of the seconds, for compilation."""
_MOST_THREADS = 8
"""Ways that are compiled at a time: Triton's passes and ptxas run beside each other, Python does not."""
_ROUNDS = 15
"""Calls of each way that count."""
_MOST_SECONDS = 2.0
"""Of one contest, in which slow ways get fewer calls; each has three at least."""
_LEAST_ROUNDS = 3
_HOPELESS = 4.0
"""A way that takes so many times as long as the fastest one gets no further call."""
_HOLD_SECONDS, _MOST_HOLD = 0.5e-3, 5e-3
"""For how long the card is kept busy ahead of a call, so that the host has queued it before it starts: at least, and at most."""
_FLUSHED = 2
"""What is written between two calls, in sizes of the L2 cache."""
_REASON_CHARACTERS = 200


@dataclass
class Entrant:
    """A way of a contest while it is raced."""

    name: str
    model: Any = None
    reason: str = ""
    host_seconds: float = 0.0
    """Until the host has queued a call."""
    times: list[float] = field(default_factory=list)
    """Microseconds."""


def run_contests(contests: Sequence[Contest], seconds: float, folder: Path) -> Iterator[ContestTimes]:
    """The answer to each contest, as soon as it is there.

    Args:
        contests: the most important ones first.
        seconds: after so many no further contest begins; those that are left get an empty answer.
        folder: where texts are written, for Triton reads the files of its kernels.
    """
    end = time.monotonic() + seconds
    torch.cuda.init()
    clock = _Clock()
    entrants = [[Entrant(one.name) for one in contest.alternatives] for contest in contests]
    _prepare_all(contests, entrants, time.monotonic() + _COMPILING_SHARE * seconds, folder)
    for contest, ways in zip(contests, entrants, strict=True):
        if time.monotonic() > end:
            yield ContestTimes()
            continue
        set_tf32(contest.tf32)
        _time_ways(contest, [way for way in ways if not way.reason], clock)
        yield ContestTimes(times=tuple(map(_describe, ways)))


def _prepare_all(contests: Sequence[Contest], entrants: Sequence[Sequence[Entrant]], until: float, folder: Path) -> None:
    """Compile every way by a first call; those that fail, or come too late, get a reason."""
    jobs = [(contest, one, way) for contest, ways in zip(contests, entrants, strict=True)
            for one, way in zip(contest.alternatives, ways, strict=True)]  # fmt: skip
    pool = ThreadPoolExecutor(min(_MOST_THREADS, len(os.sched_getaffinity(0))))
    waiting: list[tuple[Future[None], tuple[Contest, Alternative, Entrant]]] = [
        (pool.submit(_prepare, *job, folder / f"way_{number}.py"), job) for number, job in enumerate(jobs)
    ]
    wait([future for future, _ in waiting], timeout=max(0.0, until - time.monotonic()))
    for future, (_, _, way) in waiting:
        if future.cancel() or not future.done():
            way.reason = way.reason or "it was not compiled in time"
    pool.shutdown(wait=True)  # what is under way launches nothing while others are timed
    for number, (future, (contest, one, way)) in enumerate(waiting):
        if not future.cancelled() and future.exception() is not None:
            try:  # by itself: some libraries cannot be started by several threads at once
                _prepare(contest, one, way, folder / f"again_{number}.py")
            except BaseException as error:  # noqa: BLE001 - a module's own code runs here
                way.reason = _say(error)


def _prepare(contest: Contest, alternative: Alternative, way: Entrant, path: Path) -> None:
    """Build a way's module and call it twice: what is compiled is compiled, and a queued call's time on the host is known."""
    path.write_text(alternative.text)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    with torch.no_grad():
        model = module.ModelNew().cuda().eval()
        _fill(model)
        arguments = [_draw(one) for one in contest.inputs]
        model(*arguments)
        torch.cuda.synchronize()
        before = time.perf_counter()
        model(*arguments)
        way.host_seconds = time.perf_counter() - before
        torch.cuda.synchronize()
    way.model = model


def _fill(model: Any) -> None:
    """Give a module weights: small ones for products, positive ones near 1 for norms."""
    generator = torch.Generator("cuda").manual_seed(0)
    for tensor in (*model.parameters(), *model.buffers()):
        if tensor.is_floating_point():
            drawn = torch.randn(tensor.shape, device="cuda", generator=generator)
            tensor.copy_(drawn * tensor.shape[-1] ** -0.5 if tensor.dim() > 1 else 1.0 + 0.1 * drawn.abs())


def _draw(given: ContestInput) -> torch.Tensor:
    dtype, shape = getattr(torch, given.spec.dtype), given.spec.shape
    generator = torch.Generator("cuda").manual_seed(len(shape))
    if dtype.is_floating_point:
        value = torch.randn(shape, device="cuda", generator=generator).to(dtype)
    else:
        value = torch.randint(0, max(1, given.below), shape, device="cuda", generator=generator).to(dtype)
    if given.spec.strides is not None:
        value = torch.empty_strided(shape, given.spec.strides, dtype=dtype, device="cuda").copy_(value)
    return value


class _Clock:
    """Times one call on the card at a time, with a cold cache."""

    def __init__(self) -> None:
        card = torch.cuda.get_device_properties(0)
        self._flushed = torch.empty(_FLUSHED * max(card.L2_cache_size, 1 << 25), dtype=torch.int8, device="cuda")
        self._cycles = getattr(card, "clock_rate", 1_500_000) * 1e3
        self._start, self._stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def time_call(self, way: Entrant, arguments: Sequence[torch.Tensor]) -> float:
        """Microseconds of one call."""
        hold = min(_MOST_HOLD, max(_HOLD_SECONDS, 1.5 * way.host_seconds))
        torch.cuda.synchronize()
        self._flushed.zero_()
        torch.cuda._sleep(int(hold * self._cycles))
        self._start.record()
        way.model(*arguments)
        self._stop.record()
        torch.cuda.synchronize()
        return float(self._start.elapsed_time(self._stop)) * 1e3


def _time_ways(contest: Contest, ways: Sequence[Entrant], clock: _Clock) -> None:
    """Let the ways of a contest take turns, in changing order."""
    running = list(ways)
    try:
        arguments = [_draw(one) for one in contest.inputs]
    except torch.OutOfMemoryError as error:
        for way in running:
            way.reason = _say(error)
        return
    end = time.monotonic() + _MOST_SECONDS
    with torch.no_grad():
        for number in range(_ROUNDS + 1):
            for way in running[::-1] if number % 2 else list(running):
                try:
                    taken = clock.time_call(way, arguments)
                except Exception as error:  # noqa: BLE001 - a module's own code runs here
                    way.reason = _say(error)
                    running.remove(way)
                    continue
                if number:  # the first round finds caches of another region's code
                    way.times.append(taken)
            if number >= _LEAST_ROUNDS:
                best = min((statistics.median(way.times) for way in running), default=0.0)
                running = [way for way in running if statistics.median(way.times) < _HOPELESS * best]
                if time.monotonic() > end:
                    break
    for way in ways:
        way.model = None  # its weights are needed no more


def _describe(way: Entrant) -> AlternativeTime:
    if way.reason or not way.times:
        return AlternativeTime(name=way.name, reason=way.reason or "it was not timed")
    ordered = sorted(way.times)
    spread = (ordered[(3 * len(ordered)) // 4] - ordered[len(ordered) // 4]) / 2
    return AlternativeTime(name=way.name, us=round(statistics.median(ordered), 2), spread_us=round(spread, 2))


def _say(error: BaseException) -> str:
    said = str(error).strip().splitlines()
    return f"{type(error).__name__}: {said[0] if said else ''}"[:_REASON_CHARACTERS]
