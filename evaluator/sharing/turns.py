"""Turns at something that several runs share: whoever has waited longest since its last turn goes next, however much others ask for."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class FairTurns:
    """So many turns at a time, given to the owners in rotation; an owner's own questions keep their order. For one event loop.

    Args:
        places: turns that may go on at a time.
    """

    def __init__(self, places: int) -> None:
        self.places = max(1, places)
        self._free = self.places
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """Owners with questions, in the order in which they began to wait."""
        self._last: dict[str, int] = {}
        """Number of each owner's last turn."""
        self._given = 0

    @asynccontextmanager
    async def turn(self, owner: str) -> AsyncIterator[None]:
        """A turn until the block ends; waits until one is free."""
        await self._take(owner)
        try:
            yield
        finally:
            self._free += 1
            self._give()

    async def _take(self, owner: str) -> None:
        mine = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owner, deque()).append(mine)
        self._give()
        try:
            await mine
        except asyncio.CancelledError:
            if mine.done() and not mine.cancelled():  # the turn came together with the cancellation
                self._free += 1
            self._give()
            raise

    def _give(self) -> None:
        while self._free and self._waiting:
            owner = min(self._waiting, key=lambda name: self._last.get(name, 0))  # of equals, who waits longest
            questions = self._waiting.pop(owner)
            while questions and questions[0].done():  # cancelled while it waited
                questions.popleft()
            if not questions:
                continue
            self._free -= 1
            self._given += 1
            self._last[owner] = self._given
            questions.popleft().set_result(None)
            if questions:
                self._waiting[owner] = questions
