"""Turns at cards that several runs share: each card stays with a task for a while, and whoever has waited longest goes next."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

IN_A_ROW = 16
"""Turns that a card gives to one task while other tasks wait: the evaluator has one task's reference and baselines ready at a time."""
PATIENCE = 1.0
"""Seconds that a card waits for its task's next question before another task has it: to make a reference ready takes 5 to 15 seconds."""
_WORTH_A_START = 2
"""Waiting questions of a task for which another card makes its reference ready too."""


@dataclass
class _Card:
    """What a card is taken for."""

    room: int
    """Further questions that it can take."""
    task: str = ""
    """The task of the last turn."""
    row: int = 0
    """Turns in a row that this task has had."""
    ended: float = 0.0
    """When the last turn ended, by the loop's clock."""


@dataclass
class _Question:
    owner: str
    task: str
    given: asyncio.Future[int]
    """The number of the card, once it is this question's turn."""


class FairTurns:
    """So many turns at a time. A card goes on with its task, up to `IN_A_ROW` turns; then the owner whose last turn is longest ago has one.

    It waits for the next question of a task whose questions come within `patience`: a confirmation follows the last verdict at once, and
    a model's next text does not. For one event loop.

    Args:
        places: turns that may go on at a time, on all cards.
        cards: how many cards share them.
        patience: seconds that a card waits for its task's next question; 0 where a reference is made ready at once.
    """

    def __init__(self, places: int, cards: int = 1, patience: float = PATIENCE) -> None:
        self._patience = patience
        self._places = max(1, places // max(1, cards))
        """Turns at each card."""
        self._cards = [_Card(self._places) for _ in range(max(1, cards))]
        self._waiting: list[_Question] = []
        self._last: dict[str, float] = {}
        """Number of each owner's last turn; of one that had none, where it stands among them."""
        self._going: Counter[str] = Counter()
        """By task: its turns that go on."""
        self._ended: dict[str, float] = {}
        """By task: when its last turn ended, by the loop's clock."""
        self._paused: set[str] = set()
        """Tasks whose next question is not waited for: the one before came too late, or their run is over."""
        self._given = 0

    @asynccontextmanager
    async def turn(self, owner: str, task: str = "") -> AsyncIterator[int]:
        """A turn until the block ends, at the card of this number; waits until one is free. `task` names what a card makes ready for it."""
        card = await self._take(owner, task)
        try:
            yield card
        finally:
            self._end(self._cards[card], task)

    def leave(self, task: str) -> None:
        """No card waits for a question of this task any longer."""
        self._paused.add(task)
        self._give()

    def _end(self, card: _Card, task: str) -> None:
        loop = asyncio.get_running_loop()
        card.room, card.ended = card.room + 1, loop.time()
        self._going[task] -= 1
        self._ended[task] = card.ended
        self._give()
        loop.call_later(self._patience, self._give)

    async def _take(self, owner: str, task: str) -> int:
        loop = asyncio.get_running_loop()
        mine = _Question(owner, task, loop.create_future())
        self._last.setdefault(owner, self._given - 0.5)  # behind those whose last turn is longer ago
        if not self._going[task] and loop.time() < self._ended.get(task, math.inf) + self._patience:
            self._paused.discard(task)
        elif not self._going[task]:
            self._paused.add(task)  # it came late
        self._waiting.append(mine)
        self._give()
        try:
            return await mine.given
        except asyncio.CancelledError:
            if not mine.given.cancelled():  # the turn came together with the cancellation
                self._end(self._cards[mine.given.result()], task)
            raise

    def _give(self) -> None:
        self._waiting = [one for one in self._waiting if not one.given.cancelled()]
        while found := self._find():
            number, question = found
            card = self._cards[number]
            card.room -= 1
            card.row = card.row % IN_A_ROW + 1 if question.task == card.task else 1
            card.task = question.task
            self._going[question.task] += 1
            self._given += 1
            self._last[question.owner] = self._given
            self._waiting.remove(question)
            question.given.set_result(number)

    def _find(self) -> tuple[int, _Question] | None:
        """A card with room, and the question that it goes on with: the card with most room first."""
        free = sorted((number for number, card in enumerate(self._cards) if card.room), key=lambda number: -self._cards[number].room)
        for number in free:
            if question := self._choose(number):
                return number, question
        return None

    def _choose(self, number: int) -> _Question | None:
        card = self._cards[number]
        if card.row < IN_A_ROW and (own := [one for one in self._waiting if one.task == card.task]):
            return self._pick_longest(own)
        if self._waits(card):
            return None
        elsewhere = {other.task for other in self._cards if other is not card} - {card.task}
        if loose := [one for one in self._waiting if one.task not in elsewhere]:
            return self._pick_longest(loose)
        waiting = Counter(one.task for one in self._waiting)
        return self._pick_longest([one for one in self._waiting if waiting[one.task] >= _WORTH_A_START])

    def _waits(self, card: _Card) -> bool:
        """Whether the card is kept for the next question of its task."""
        if not self._patience or card.row in (0, IN_A_ROW) or card.task in self._paused:
            return False
        return card.room < self._places or asyncio.get_running_loop().time() < card.ended + self._patience

    def _pick_longest(self, questions: list[_Question]) -> _Question | None:
        """The one whose owner's last turn is longest ago; of equals, the one that waits longest."""
        return min(questions, key=lambda one: self._last[one.owner], default=None)
