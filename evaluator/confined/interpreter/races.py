"""Happens-before race detector of one interpreted launch: vector clocks per program, last-access epochs per element.

Two accesses to one element race when one of them writes, at least one is not atomic, and no chain of release and acquire orders
them. A release is made by one thread of a program: it covers the stores of the others only up to the last tl.debug_barrier (Triton 3.6
puts no barrier in front of it). Stores and atomics of a single element are made by the program's first thread, which makes the release of
a single word as well: that release covers them without a barrier. So a program has two clocks' worth of components, all its threads and
its first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tritonsmith.evaluator.confined.interpreter.memory import Access, Region
from tritonsmith.evaluator.confined.interpreter.threads import ThreadOrder

_FULL_TABLE = 1 << 26
"""Entries of a per-program read table; a region above keeps only the last reader and may miss races, never invents one."""
_MOST_SYNCHRONISED = 1 << 15
"""Programs above which clocks of programs that synchronise are not kept, and detection stops at the first acquire."""
_MOST_CLOCKS = 1 << 26
"""Entries of all clocks that are kept at once; where more would be needed, detection stops."""
_MOST_REPORTED = 5
"""Sentences per launch."""

Same = Callable[[NDArray[Any] | slice], NDArray[np.bool_]]
"""Whether a store leaves the value as it was, for the given lanes."""


@dataclass
class _Epochs:
    """Last plain access per element of one region: a component's number plus one (0: none) and its program's clock.

    Component p is program p as a whole; component programs + p is its first thread alone, for writers only.
    """

    writer: NDArray[np.int32]
    written: NDArray[np.int32]
    write_line: NDArray[np.int32]
    reads: NDArray[np.int32] | None
    """Clock of the last read, per program and element."""
    reader: NDArray[np.int32]
    """Last reader; kept where `reads` is not."""
    read: NDArray[np.int32]
    read_line: NDArray[np.int32]
    readers: set[int] = field(default_factory=set)
    atomic: NDArray[np.int32] | None = None
    """Last component that changed the element atomically."""
    atomic_clock: NDArray[np.int32] | None = None


class RaceDetector:
    """Hears of every access in the order of the schedule; `races` collects one sentence per pair of lines.

    Args:
        programs: ids of the programs, in the order of their numbers.
    """

    def __init__(self, programs: list[tuple[int, int, int]]) -> None:
        self.races: list[str] = []
        self.threads = ThreadOrder(len(programs), self.races)
        self._programs = programs
        count = len(programs)
        self._clock = np.ones(count, np.int32)
        self._fenced = np.zeros(count, np.int32)
        self._seen: dict[int, NDArray[np.int32]] = {}
        """What a program that acquired something knows of the components, until it ends."""
        self._made = 0
        """Clocks made since they were last counted, and those that were kept then."""
        self._released: dict[tuple[int, int], NDArray[np.int32]] = {}
        self._epochs: dict[int, _Epochs] = {}
        self._reported: set[tuple[str, int, int]] = set()
        self._off = False

    def read(self, program: int, access: Access, line: int) -> bool:
        """A plain load; whether another program wrote some of what it reads."""
        if self._off:
            return False
        state, index = self._find_state(access.region), access.index
        foreign = self._check(program, access, state.writer[index], state.written[index], state.write_line, "load", "store", line)
        if state.atomic is not None and state.atomic_clock is not None:
            foreign |= self._check(program, access, state.atomic[index], state.atomic_clock[index], None, "load", "atomic", line)
        clock = self._clock[program]
        if state.reads is not None:
            state.reads[program, index] = clock
        else:
            state.reader[index], state.read[index] = program + 1, clock
        state.read_line[index] = line
        state.readers.add(program)
        return foreign

    def write(self, program: int, access: Access, line: int, same: Same, *, single: bool = False) -> None:
        """A plain store, `single` of one element without a block around it; called before the memory changes."""
        if self._off:
            return
        state, index = self._find_state(access.region), access.index
        self._check(program, access, state.writer[index], state.written[index], state.write_line, "store", "store", line, same)
        if state.atomic is not None and state.atomic_clock is not None:
            self._check(program, access, state.atomic[index], state.atomic_clock[index], None, "store", "atomic", line, same)
        self._check_readers(program, access, state, "store", line, same)
        # after other threads of the program wrote there as well, the first one's release says nothing about the element
        mixed = single and bool(((state.writer[index] == program + 1) & (state.written[index] > self._fenced[program])).any())
        state.writer[index] = self._find_component(program, single=single and not mixed) + 1
        state.written[index], state.write_line[index] = self._clock[program], line

    def atomic(
        self, program: int, access: Access, line: int, *, acquire: bool, release: bool, changed: bool, single: bool = False
    ) -> None:  # fmt: skip
        """An atomic operation, or an acquire load (changed=False); `single` as for `write`; called after the memory changed."""
        if self._off:
            return
        state, index = self._find_state(access.region), access.index
        self._check(program, access, state.writer[index], state.written[index], state.write_line, "atomic", "store", line)
        if changed:
            self._check_readers(program, access, state, "atomic", line, None)
            if state.atomic is None or state.atomic_clock is None:
                state.atomic = np.zeros(access.region.elements, np.int32)
                state.atomic_clock = np.zeros(access.region.elements, np.int32)
            state.atomic[index], state.atomic_clock[index] = self._find_component(program, single=single) + 1, self._clock[program]
        if acquire or release:
            self._synchronise(program, access, acquire=acquire, release=release, single=single)

    def fence(self, program: int) -> None:
        """tl.debug_barrier: what the program did so far is covered by its next release."""
        self._fenced[program] = self._clock[program]
        self._clock[program] += 1

    def _find_component(self, program: int, *, single: bool) -> int:
        return program + len(self._programs) * single

    def _synchronise(self, program: int, access: Access, *, acquire: bool, release: bool, single: bool) -> None:
        count = len(self._programs)
        if count > _MOST_SYNCHRONISED or not self._has_room():
            self._off = True
            return
        keys = [(access.region.number, element) for element in set(access.index.tolist())]
        before = {id(clock): clock for key in keys if (clock := self._released.get(key)) is not None}
        known = self._seen.get(program)
        if known is None:
            known = self._seen[program] = np.zeros(2 * count, np.int32)
        if acquire:
            for clock in before.values():
                np.maximum(known, clock, out=known)
        if not release:
            return
        published = known.copy()
        published[program] = published[program + count] = self._fenced[program]
        if single:
            published[program + count] = self._clock[program]
        # an atomic continues the release sequence of the ones before it; elements with one history share its clock
        self._made += 1 + len(before)
        after = {number: np.maximum(clock, published) for number, clock in before.items()}
        for key in keys:
            self._released[key] = after.get(id(self._released.get(key)), published)
        self._clock[program] += 1

    def _has_room(self) -> bool:
        """Whether further clocks may be made; those that are still kept are counted now and then."""
        most = _MOST_CLOCKS // (2 * len(self._programs))
        if self._made > most:
            self._made = len({id(clock) for clock in self._released.values()}) + len(self._seen)
            self._off = self._made > most // 2
        return not self._off

    def forget_program(self, program: int) -> None:
        """The program does nothing more."""
        self._seen.pop(program, None)

    def _find_state(self, region: Region) -> _Epochs:
        state = self._epochs.get(region.number)
        if state is None:
            count = region.elements
            full = len(self._programs) * count <= _FULL_TABLE
            small = 0 if full else count
            state = _Epochs(
                writer=np.zeros(count, np.int32),
                written=np.zeros(count, np.int32),
                write_line=np.zeros(count, np.int32),
                reads=np.zeros((len(self._programs), count), np.int32) if full else None,
                reader=np.zeros(small, np.int32),
                read=np.zeros(small, np.int32),
                read_line=np.zeros(count, np.int32),
            )
            self._epochs[region.number] = state
        return state

    def _look_up_known(self, program: int, others: NDArray[np.int32]) -> NDArray[np.int32]:
        known = self._seen.get(program)
        return np.zeros(others.shape, np.int32) if known is None else known[np.maximum(others - 1, 0)]

    def _check(
        self, program: int, access: Access, other: NDArray[np.int32], clock: NDArray[np.int32], lines: NDArray[np.int32] | None,
        kind: str, earlier: str, line: int, same: Same | None = None,
    ) -> bool:  # fmt: skip
        """Report what is not ordered; whether another program came before at all."""
        foreign = (other > 0) & ((other - 1) % len(self._programs) != program)
        if not foreign.any():
            return False
        bad = foreign & (clock > self._look_up_known(program, other))
        if bad.any() and not (same is not None and _all_same(same, access, bad)):
            where = int(np.argmax(bad))
            element = int(access.index[where])
            other_line = int(lines[element]) if lines is not None else 0
            author = (int(other[where]) - 1) % len(self._programs)
            self._report(program, access.region, element, author, kind, earlier, line, other_line)
        return True

    def _check_readers(self, program: int, access: Access, state: _Epochs, kind: str, line: int, same: Same | None) -> None:
        others = state.readers - {program}
        if not others:
            return
        index = access.index
        if state.reads is None:
            self._check(program, access, state.reader[index], state.read[index], state.read_line, kind, "load", line, same)
            return
        rows = np.fromiter(others, np.int64, len(others))
        known = self._look_up_known(program, rows.astype(np.int32) + 1)
        unordered = state.reads[np.ix_(rows, index)] > known[:, None]
        bad = np.asarray(unordered.any(axis=0))
        if bad.any() and not (same is not None and _all_same(same, access, bad)):
            row, where = (int(part) for part in np.unravel_index(int(np.argmax(unordered)), unordered.shape))
            element = int(index[where])
            self._report(program, access.region, element, int(rows[row]), kind, "load", line, int(state.read_line[element]))

    def _report(
        self, program: int, region: Region, element: int, other: int, kind: str, earlier: str, line: int, other_line: int
    ) -> None:
        key = (f"{kind} {earlier}", line, other_line)
        if key in self._reported or len(self.races) >= _MOST_REPORTED:
            return
        self._reported.add(key)
        at = f" (line {other_line})" if other_line else ""
        self.races.append(
            f"{kind} in line {line} by program {self._programs[program]} and {earlier}{at} by program {self._programs[other]} "
            f"on {region.name}[{element}] are in no defined order"
        )


def _all_same(same: Same, access: Access, bad: NDArray[Any]) -> bool:
    values = same(access.lanes)
    if values.size != bad.size:  # an element wider than the granule
        values = np.repeat(values, bad.size // values.size)
    return bool(values[bad].all())
