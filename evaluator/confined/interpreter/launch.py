"""One launch in the concurrent interpreter: programs, memory, races, counts, and the faults it may end with.

Imports Triton: for evaluator processes with TRITON_INTERPRET=1 only.
"""

from __future__ import annotations

import sys
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tritonsmith.evaluator.channel.report import MOST_LINES, LaunchCount, LineCount
from tritonsmith.evaluator.confined.interpreter.memory import Access, AddressMap, OutOfBounds
from tritonsmith.evaluator.confined.interpreter.programs import Order, Program, Programs, Stuck
from tritonsmith.evaluator.confined.interpreter.races import RaceDetector
from tritonsmith.evaluator.confined.stand_ins.untyped import interpreter


class KernelFault(Exception):
    """A kernel did something that no GPU would let pass; the message is one sentence with kernel, line and program."""


class DeadlockError(KernelFault):
    """Every resident program waits for memory that nobody will change."""


class OutOfBoundsError(KernelFault):
    """An access outside the tensors of the launch."""


class KernelError(KernelFault):
    """Any other exception raised inside a kernel."""


@dataclass(frozen=True)
class Lanes:
    """The unmasked addresses of one operation."""

    addresses: NDArray[np.int64]
    mask: NDArray[np.bool_]
    size: int

    @classmethod
    def of(cls, pointers: Any, mask: Any) -> Lanes:
        """From the handles of pointers and mask (None: all lanes)."""
        size = max(1, pointers.get_element_ty().primitive_bitwidth // 8)
        lanes = np.broadcast_to(mask.data, pointers.data.shape) if mask is not None else np.ones(pointers.data.shape, bool)
        addresses = pointers.data.ravel() if lanes.all() else pointers.data[lanes]
        return cls(addresses.astype(np.int64), np.ascontiguousarray(lanes), size)

    @property
    def bytes(self) -> int:
        """Bytes that the lanes move."""
        return self.addresses.size * self.size

    @property
    def range(self) -> tuple[int, int]:
        """First and last address."""
        return int(self.addresses.min()), int(self.addresses.max()) + self.size - 1


class InterpretedLaunch:
    """One launch while it runs: its programs, memory, races and counts.

    Args:
        function: the kernel as the interpreter rewrote it.
        arguments: by name, converted for the interpreter.
        grid: programs per axis.
        tensors: pairs of argument name and torch tensor.
        order, seed, resident, patience: as Programs takes them.
        detect_races: whether to look for accesses in no defined order.
    """

    def __init__(
        self, function: Callable[..., Any], arguments: dict[str, Any], grid: tuple[int, int, int], tensors: list[tuple[str, Any]],
        order: Order, seed: int, resident: int | None, detect_races: bool, patience: int = 0,
    ) -> None:  # fmt: skip
        places = [(x, y, z) for x in range(grid[0]) for y in range(grid[1]) for z in range(grid[2])]
        self.name = function.__name__
        self.grid = grid
        self.file = function.__code__.co_filename
        self.memory = AddressMap(tensors)
        self.races = RaceDetector(places) if detect_races else None
        self.programs = Programs(places, lambda: self._run_program(function, arguments), self._enter, order, seed, resident, patience)
        self.loaded = self.stored = self.atomics = self.flops = 0
        self.dots: Counter[str] = Counter()
        self._visits: Counter[tuple[int, str, int]] = Counter()
        """By line, kind of access and program."""
        self.foreign: Counter[tuple[int, str]] = Counter()
        """By line and kind: accesses to what another program wrote."""

    def _run_program(self, function: Callable[..., Any], arguments: dict[str, Any]) -> None:
        function(**arguments)
        if self.races:
            self.races.forget_program(self.number)

    def _enter(self, program: Program) -> None:
        interpreter.interpreter_builder.grid_idx = program.place

    @property
    def number(self) -> int:
        """Number of the program that is running."""
        return self.programs.current.number

    def line(self) -> int:
        """Line of the kernel's file that is running."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if frame.f_code.co_filename == self.file:
                return frame.f_lineno
            frame = frame.f_back
        return 0

    def describe_place(self, line: int) -> str:
        """Kernel, line and program in words."""
        return f"kernel {self.name}, line {line}, program {self.programs.current.place}"

    def run(self) -> None:
        """Run every program. Raises KernelFault."""
        try:
            self.programs.run()
        except Stuck:
            raise DeadlockError(self._describe_deadlock()) from None
        except KernelFault:
            raise
        except Exception as error:  # noqa: BLE001 - candidate code may raise anything; the boundary names the place
            frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == self.file]
            place = self.describe_place(frames[-1].lineno or 0 if frames else 0)
            raise KernelError(f"{place}: {type(error).__name__}: {error}") from error

    def _describe_deadlock(self) -> str:
        waiting, last = self.programs.not_started, self.programs.current
        more = f"; {waiting} of {len(self.programs.all)} never start because only {self.programs.resident} fit at once" if waiting else ""
        return f"{self.describe_place(last.line)}: it and every other running program waits for memory that nobody will change{more}"

    def locate(self, lanes: Lanes, what: str, line: int) -> list[Access]:
        """Regions and elements of an operation, remembered as touched. Raises OutOfBoundsError."""
        try:
            accesses = self.memory.locate(lanes.addresses, lanes.size)
        except OutOfBounds as error:
            raise OutOfBoundsError(f"{self.describe_place(line)}: out-of-bounds {what}: {error}") from None
        for access in accesses:
            access.region.touch(access.index)
        self._visits[line, what, self.number] += 1
        return accesses

    def _count_lines(self) -> tuple[LineCount, ...]:
        most: dict[tuple[int, str], int] = {}
        programs: Counter[tuple[int, str]] = Counter()
        for (line, kind, _), visits in self._visits.items():
            most[line, kind] = max(visits, most.get((line, kind), 0))
            programs[line, kind] += 1
        places = sorted(most)[:MOST_LINES]
        return tuple(LineCount(*place, most[place], programs[place], self.foreign[place]) for place in places)

    def count(self, constexprs: dict[str, Any]) -> LaunchCount:
        """What the launch did so far."""
        return LaunchCount(
            name=self.name,
            grid=self.grid,
            constexprs=constexprs,
            bytes_loaded=self.loaded,
            bytes_stored=self.stored,
            unique_bytes=sum(region.touched_bytes for region in self.memory.regions),
            dot_flops=dict(self.dots),
            flops=self.flops,
            atomics=self.atomics,
            sync_rounds=max((program.rounds for program in self.programs.all), default=0),
            races=tuple(self.races.races) if self.races else (),
            lines=self._count_lines(),
        )


class _Running:
    """Which launch the builder's hooks report to."""

    launch: InterpretedLaunch | None = None


running = _Running()
