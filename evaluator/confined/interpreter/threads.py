"""Accesses of one program's own threads: what one of them stored, another may load only behind a barrier.

Triton spreads a block over the threads of a program and orders them for shared memory alone: a store to global memory and a later load
of the same element by another thread, or a load and a later store, happen in no order unless tl.debug_barrier stands between them. Which
thread has which element is the compiler's choice; one place in a block is taken for one thread, in every block. What passes through
shared memory anyway (reductions, scans, products, an atomic of one element) is taken for a barrier: never too strict.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tritonsmith.evaluator.confined.interpreter.memory import Access, Region

_MOST_REPORTED = 3
"""Sentences per launch."""
Places = NDArray[np.int64]


@dataclass
class _Last:
    """Last access per element: number of the program plus one (0: none), its phase, and the place in the block."""

    program: NDArray[np.int32]
    phase: NDArray[np.int32]
    place: NDArray[np.int32]

    @classmethod
    def of(cls, elements: int) -> _Last:
        return cls(*(np.zeros(elements, np.int32) for _ in range(3)))


class ThreadOrder:
    """Hears of every plain access and barrier of every program.

    Args:
        programs: how many there are.
        races: where a sentence goes for each pair of lines.
    """

    def __init__(self, programs: int, races: list[str]) -> None:
        self._races = races
        self._phase = np.ones(programs, np.int32)
        self._stores: dict[int, _Last] = {}
        self._loads: dict[int, _Last] = {}
        self._reported: set[tuple[str, int]] = set()

    def barrier(self, program: int) -> None:
        """Every thread of the program has done what stands before."""
        self._phase[program] += 1

    def load(self, program: int, access: Access, places: Places, line: int) -> None:
        """A plain load; `places` are the places in the block of the elements in `access.index`."""
        self._require_ordered(program, self._stores, access, places, "load", "store", line)
        self._remember(program, self._loads, access, places)

    def store(self, program: int, access: Access, places: Places, line: int) -> None:
        """A plain store."""
        self._require_ordered(program, self._loads, access, places, "store", "load", line)
        self._remember(program, self._stores, access, places)

    def _remember(self, program: int, table: dict[int, _Last], access: Access, places: Places) -> None:
        last = _find_last(table, access.region)
        last.program[access.index], last.phase[access.index], last.place[access.index] = program + 1, self._phase[program], places

    def _require_ordered(
        self, program: int, table: dict[int, _Last], access: Access, places: Places, kind: str, earlier: str, line: int
    ) -> None:
        last = table.get(access.region.number)
        if last is None:
            return
        index = access.index
        bad = (last.program[index] == program + 1) & (last.phase[index] == self._phase[program]) & (last.place[index] != places)
        if not bad.any() or (kind, line) in self._reported or len(self._reported) >= _MOST_REPORTED:
            return
        self._reported.add((kind, line))
        self._races.append(
            f"{kind} in line {line} of {access.region.name}[{int(index[int(np.argmax(bad))])}] and an earlier {earlier} by another thread "
            "of the same program are in no defined order: tl.debug_barrier() must stand between them"
        )


def _find_last(table: dict[int, _Last], region: Region) -> _Last:
    if region.number not in table:
        table[region.number] = _Last.of(region.elements)
    return table[region.number]


def find_places(mask: NDArray[np.bool_], access: Access) -> Places:
    """The place in its block of each element in `access.index`; `mask` says which lanes of the operation are on."""
    lanes = np.flatnonzero(mask)[access.lanes]
    return lanes if lanes.size == access.index.size else np.repeat(lanes, access.index.size // max(lanes.size, 1))
