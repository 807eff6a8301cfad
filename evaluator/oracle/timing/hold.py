"""The card kept from other processes for a moment: forward starts when the oracle knows.

A short call is mostly host work: Python, Triton's launcher, the driver. On a shared machine that part takes 40 microseconds in one
process and 120 in the next, for whole sessions. Work that a process queues while the card belongs to another one starts when the card
changes hands, however long queueing took. A process that asks for the card while that work runs has it when it ends.

Handing the card over and back takes 287 us on an H200, give or take 2 us (2026-11-22). The rest is the kernel's time. Above 20 us it
agrees with the card's events: 0.6 us more in the median, and -1.5 to 2.6 us in nine calls of ten.

The kernel (`oracle/timing/hold_kernel.py`) runs in the oracle's process. So no candidate can shorten it, and nothing of a candidate runs
on the card meanwhile. Inputs are placed while it runs, from another stream of the same process, so that no kernel of a candidate can read
them before its call is due.

The card gives each process a time slice. A hold that is longer keeps the card while nobody else has work for it. From then on it loses
the card as soon as somebody has. Placing gigabytes takes that long, and the runner that is rung next has work. So a long hold ends before
anybody is rung, the card is idle for a moment, and a second, short hold takes it with a slice of its own. The second kernel knows the
clock at the first one's last look. Within the time that is allowed in between, nobody else can have had the card.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable

from tritonsmith.evaluator.errors import InfrastructureError
from tritonsmith.evaluator.oracle.timing.hold_kernel import ANY_TIME, ENDED, GAP, INTERRUPTED, LATE, STARTED, HoldKernel

HOLD_MS = 0.5
"""Host work that a timed call may do without being noticed: some forty launches."""
MOST_HOLD_MS = 0.9
"""The same for a forward of many launches: with the preparation, which may take `LONG_MS`, it stays below a time slice of 2 ms."""
LONG_MS = 1.0
"""Milliseconds of preparation after which the card is taken for a second time.

Half of a time slice of 2 ms. Of 6,100 holds of 0.5 to 2.6 ms three were interrupted (H200, 2026-11-22).
"""
_IDLE_SHARE = 0.3
"""For this part of the time that is allowed between two holds the card is left idle: a process that was idle gets a new time slice."""
_PROMPT_SHARE = 0.6
"""If this process has launched the second hold within this part of that time, what is late is somebody else's doing."""
_START_SECONDS = 10.0
"""Time within which the card must be had."""
_SLEPT_SECONDS = 50e-6
"""Between two looks at the host's memory: the card changes hands in twice as much at the least."""


def wait_until(has_come: Callable[[], bool]) -> tuple[float, float]:
    """Look until something has come: `time.perf_counter()` then, and a time before which it had not.

    The second one is minus infinity where it is unknown. The two lie microseconds apart if this thread ran in between. It may lose its
    processor at any moment, between a look and the clock as well. Raises InfrastructureError after `_START_SECONDS`.
    """
    before, last = -math.inf, time.perf_counter()
    began = last
    while not has_come():
        before, last = last, time.perf_counter()  # the look that has just failed was later than `before`
        if last > began + _START_SECONDS:
            raise InfrastructureError(f"the card could not be taken within {_START_SECONDS:.0f} s: something else keeps it busy")
    return time.perf_counter(), before


class CardHold:
    """Takes the card and gives it back, and knows whether it was this process's all the time.

    Args:
        kernel: what occupies the card.
    """

    def __init__(self, kernel: HoldKernel) -> None:
        self._kernel = kernel
        self._number = 0
        """Of the kernel that was launched last."""
        self._first = 0
        """Of the kernel with which the card was taken; a later one took it again."""
        self._not_before = -math.inf
        """What was waited for last came after that."""
        self._prompt = True
        """Whether this process was quick to take the card again."""
        self.prepared_ms = 0.0
        """Milliseconds that the last preparation took."""

    def begin(
        self, prepare: Callable[[], object] = lambda: None, milliseconds: float = HOLD_MS, *, at_once: bool = False, between_ms: float = 0.0
    ) -> float:
        """Take the card, queue what `prepare` does, overwrite the L2 cache; returns when that is done, with so many milliseconds left.

        `at_once`: ask for the card before anything else, while another process may still have it; `prepare` must then read nothing
        that waits on the current stream.

        `between_ms`: if the preparation takes long, the card is taken twice, and may be nobody's for so long in between; 0: taken once.

        What a process finds in the cache is worth 5 to 10 microseconds even to an empty call, so it finds nothing, ever.

        Returns:
            `time.perf_counter()` when the card was taken.

        Raises:
            InfrastructureError: somebody else keeps the card.
        """
        if not at_once:
            self._kernel.settle()  # `prepare` reads what was queued on the current stream
        self._launch(milliseconds)
        self._first = self._number
        taken = self._wait(STARTED)
        self._kernel.open(self._number, prepare)
        self.prepared_ms = (time.perf_counter() - taken) * 1e3
        if between_ms and self.prepared_ms > LONG_MS:
            self._take_again(milliseconds, between_ms)
        return taken

    def _launch(self, milliseconds: float, between: int = ANY_TIME) -> None:
        self._number += 1
        self._kernel.launch(self._number, int(milliseconds * 1e6), between)

    def _take_again(self, milliseconds: float, between_ms: float) -> None:
        """A second hold at once after the first one, which is over; nobody has been asked for anything yet."""
        ended = self._wait(ENDED)
        not_before = self._not_before
        while time.perf_counter() < ended + _IDLE_SHARE * between_ms * 1e-3:
            pass
        self._launch(milliseconds, int(between_ms * 1e6))
        self._prompt = (time.perf_counter() - not_before) * 1e3 < _PROMPT_SHARE * between_ms
        self._wait(STARTED)
        self._kernel.open(self._number)

    def wait_end(self) -> float:
        """Wait until the card is given back; `time.perf_counter()` then. Raises InfrastructureError."""
        return self._wait(ENDED)

    def _wait(self, word: int) -> float:
        words, wanted = self._kernel.words, self._number
        seen, self._not_before = wait_until(lambda: words[word] == wanted)
        return seen

    @property
    def slept(self) -> bool:
        """Whether this thread did not run when what was waited for last came, as far as is known; to be asked at once.

        That is so if it may have come more than `_SLEPT_SECONDS` ago.
        """
        return time.perf_counter() - self._not_before > _SLEPT_SECONDS

    @property
    def interrupted(self) -> bool:
        """Whether somebody else had the card since it was taken; to be asked some microseconds after the end.

        That is also so if the card was not had in time for a second hold, although this process was quick.
        """
        return self._kernel.words[INTERRUPTED] >= self._first or (self._late and self._prompt)

    @property
    def retaken_late(self) -> bool:
        """Whether this process was too slow to take the card again: then it is unknown whether somebody else had it in between."""
        return self._late and not self._prompt

    @property
    def _late(self) -> bool:
        return self._kernel.words[LATE] == self._number

    @property
    def gap_ms(self) -> float:
        """For how many milliseconds the hold that was interrupted last did not run."""
        return self._kernel.words[GAP] * 1e-6


@functools.cache
def card_hold(cache_bytes: int) -> CardHold:
    """The hold of this process, made once."""
    return CardHold(HoldKernel(cache_bytes))
