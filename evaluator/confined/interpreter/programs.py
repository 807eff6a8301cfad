"""The programs of one launch as greenlets: which runs next, which sleep on memory, and when none can go on."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Literal

import greenlet
import numpy as np

Order = Literal["round_robin", "shuffled"]
Range = tuple[int, int]
"""First and last address of a poll."""

_WINDOW = 64
"""Programs in flight that can run; more are started only when these sleep, so that large grids stay small in memory."""
_IDLE_PASSES = 500
"""Polls of every sleeping program without any change of memory that make a deadlock."""
_SWITCH_CHANCE = 0.2
"""Chance of a switch at an ordinary load or store in a shuffled run."""


class Stuck(Exception):
    """Every resident program polls memory that nobody will change."""


class Program:
    """One program of the grid."""

    def __init__(self, number: int, place: tuple[int, int, int]) -> None:
        self.number = number
        self.place = place
        self.green: greenlet.greenlet | None = None
        self.asleep = False
        self.polled: set[Range] = set()
        """What it polled since memory there changed or it wrote itself."""
        self.walked: set[Range] = set()
        """What it read otherwise while it had polled something."""
        self.published = True
        """Whether it wrote since its last wait began."""
        self.rounds = 0
        self.line = 0
        """Source line of its last poll."""


class Programs:
    """Runs every program of a launch to its end.

    Args:
        places: program ids in grid order.
        body: what one program does.
        enter: called with the program that goes on, at every switch.
        order: round_robin runs each until it waits or synchronises; shuffled picks the next at random, also at loads and stores.
        seed: of the shuffled order.
        resident: programs that may be in flight at once.
        patience: wakings of sleeping programs for which one program of a shuffled order, taken at random, is kept from starting:
            who gives up waiting for it goes on without it.
    """

    def __init__(
        self, places: list[tuple[int, int, int]], body: Callable[[], None], enter: Callable[[Program], None], order: Order, seed: int,
        resident: int | None, patience: int = 0,
    ) -> None:  # fmt: skip
        self.all = [Program(number, place) for number, place in enumerate(places)]
        self.current = self.all[0] if self.all else Program(0, (0, 0, 0))
        self._body = body
        self._enter = enter
        self._shuffled = order == "shuffled"
        self._random = random.Random(seed)
        self._resident = min(resident or len(places), len(places))
        waiting = list(self.all)
        if self._shuffled:
            self._random.shuffle(waiting)
        self.patience = patience
        self._late = waiting.pop() if self._shuffled and patience > 0 and 1 < len(waiting) == self._resident else None
        self._waiting = deque(waiting)
        self._ready: deque[Program] = deque()
        # dicts as ordered sets: equal seeds must give equal runs
        self._asleep: dict[Program, None] = {}
        self._watches: dict[Range, dict[Program, None]] = {}
        self._idle = 0
        self._main = greenlet.getcurrent()

    @property
    def resident(self) -> int:
        """Programs that may be in flight at once."""
        return self._resident

    @property
    def not_started(self) -> int:
        """Programs still to be started."""
        return len(self._waiting)

    def run(self) -> None:
        """Run all programs. Raises Stuck, or what a program raises, after ending the others."""
        try:
            while self._waiting or self._ready or self._asleep or self._late:
                self._resume(self._choose_next())
        finally:
            self._end_all()

    def _choose_next(self) -> Program:
        if self._late and not self._ready and not self._waiting:
            self._wait_for_late()
        in_flight = len(self._ready) + len(self._asleep)
        may_start = bool(self._waiting) and in_flight < self._resident and len(self._ready) < _WINDOW
        if not self._ready and not may_start:
            self._idle += 1
            if self._idle > _IDLE_PASSES:
                raise Stuck
            for program in list(self._asleep):
                self._wake(program)
        if self._shuffled:
            startable = min(len(self._waiting), self._resident - in_flight) if may_start else 0
            choice = self._random.randrange(len(self._ready) + startable)
            if choice < len(self._ready):
                self._ready.rotate(-choice)
                return self._ready.popleft()
            return self._waiting.popleft()
        return self._waiting.popleft() if may_start else self._ready.popleft()

    def _wait_for_late(self) -> None:
        """Nobody else can go on: let the sleepers look again, until patience ends."""
        if self._asleep and self.patience > 0:
            self.patience -= len(self._asleep)
            for program in list(self._asleep):
                self._wake(program)
        elif self._late:
            self._waiting.append(self._late)
            self._late = None

    def _resume(self, program: Program) -> None:
        if program.green is None:
            program.green = greenlet.greenlet(self._start)
        self.current = program
        self._enter(program)
        program.green.switch()
        if program.green.dead:
            self._forget(program)
            self._idle = 0
        elif program.asleep:
            self._asleep[program] = None
        else:
            self._ready.append(program)

    def _start(self) -> None:
        with np.errstate(all="ignore"):  # a greenlet has a context of its own
            self._body()

    def _end_all(self) -> None:
        for program in self.all:
            if program.green is not None and not program.green.dead and program.green:
                program.green.throw()

    def switch(self) -> None:
        """Let another program go on; called inside a program."""
        if len(self.all) > 1 or self.current.asleep:
            program = self.current
            self._main.switch()
            self.current = program

    def maybe_switch(self) -> None:
        """In a shuffled run, let another program go on now and then."""
        if self._shuffled and len(self.all) > 1 and self._random.random() < _SWITCH_CHANCE:
            self.switch()

    def poll(self, place: Range, line: int) -> None:
        """The current program read memory that others may change; when it did so before and nothing changed since, it sleeps."""
        program = self.current
        program.line = line
        if program.published:
            program.published = False
            program.rounds += 1
        if place in program.polled:
            program.asleep = True
        else:
            program.polled.add(place)
            self._watches.setdefault(place, {})[program] = None
        self.switch()

    def note_read(self, place: Range) -> None:
        """The current program reads plainly.

        A program that goes on reading from new places does not wait, even if it polls in between.
        """
        program = self.current
        if program.polled and place not in program.walked:
            program.walked.add(place)
            self._forget(program)
            self._idle = 0

    def note_change(self, place: Range) -> None:
        """The current program changed memory in this range: programs that poll there may go on."""
        self._idle = 0
        self.current.published = True
        self._forget(self.current)
        low, high = place
        for watched in [watch for watch in self._watches if watch[0] <= high and low <= watch[1]]:
            for program in list(self._watches.get(watched, ())):
                self._wake(program)

    def _wake(self, program: Program) -> None:
        self._forget(program)
        if program.asleep:
            program.asleep = False
            self._asleep.pop(program, None)
            self._ready.append(program)

    def _forget(self, program: Program) -> None:
        for place in program.polled:
            watchers = self._watches[place]
            watchers.pop(program, None)
            if not watchers:
                del self._watches[place]
        program.polled.clear()
