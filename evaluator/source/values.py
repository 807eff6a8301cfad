"""What a walk through a Triton kernel notes: values, loops, accesses, products. Records only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias


@dataclass(frozen=True)
class Value:
    """What is known about a value."""

    signature: int = 0
    """Equal for equal expressions."""
    pids: frozenset[str] = frozenset()
    """Components of program ids: `0` is program_id(0) itself, `0//...` and `0%...` are parts of it."""
    roots: frozenset[str] = frozenset()
    """Kernel parameters that may be the base pointer, where this is an address."""
    loops: frozenset[int] = frozenset()
    """Loops whose variable it depends on."""
    carried: frozenset[tuple[int, str]] = frozenset()
    """(loop, name): depends on what the name held at the end of the iteration before."""
    rank: int = 0


NOTHING = Value()
"""A value that depends on nothing."""

Env: TypeAlias = dict[str, Value]
"""What is known about each name of a function."""


def union(*values: Value, signature: int = 0, roots: bool = True) -> Value:
    """Everything any of the values depends on."""
    return Value(
        signature=signature,
        pids=frozenset().union(*(value.pids for value in values)),
        roots=frozenset().union(*(value.roots for value in values)) if roots else frozenset(),
        loops=frozenset().union(*(value.loops for value in values)),
        carried=frozenset().union(*(value.carried for value in values)),
        rank=max((value.rank for value in values), default=0),
    )


@dataclass
class Loop:
    """One loop of a kernel, helpers' loops included."""

    id: int
    line: int
    kind: str
    """`for` or `while`."""
    outer: tuple[int, ...]
    bound: str = ""
    """Source of the last bound of a range."""
    trips: int | None = None
    """Where both bounds are literal."""
    unit_step: bool = True
    strided_by_programs: bool = False
    """Starts at a program id and has a step: a loop over tiles in a grid smaller than the work."""
    polls: bool = False
    """A while loop that reads memory until a value arrives."""
    lock: bool = False
    """A while loop that takes a lock by compare-and-swap, which orders nothing but itself."""
    has_dot: bool = False
    assigned: frozenset[str] = frozenset()


@dataclass(frozen=True)
class AccessSite:
    """A load or store in a kernel's text."""

    kind: str
    line: int
    address: Value
    value: Value
    loops: tuple[int, ...]


@dataclass(frozen=True)
class Product:
    """`total += left * right` (also as fma, also summed over an axis)."""

    line: int
    left: Value
    right: Value
    loops: tuple[int, ...]
    target: str
    outer: bool = False
    """A column times a row, by their indexing."""


@dataclass(frozen=True)
class Rescale:
    """Marks of an online softmax: a running maximum, or a carried total multiplied by exp(old maximum - new maximum)."""

    kind: str
    """`maximum`, `exponential` or `scaling`."""
    line: int
    loops: tuple[int, ...]


@dataclass
class KernelWalk:
    """The facts of one kernel."""

    name: str
    line: int
    loops: dict[int, Loop] = field(default_factory=dict)
    accesses: list[AccessSite] = field(default_factory=list)
    products: list[Product] = field(default_factory=list)
    rescales: list[Rescale] = field(default_factory=list)
    program_axes: set[str] = field(default_factory=set)
    pid_parts: set[str] = field(default_factory=set)
    has_dot: bool = False

    def waits_in(self, loop: int) -> bool:
        """Whether some iteration of the loop waits for other programs."""
        return any(loop in inner.outer and inner.polls and not inner.lock for inner in self.loops.values())

    @property
    def waits(self) -> bool:
        """Whether programs of the kernel wait for each other at all."""
        return any(loop.polls and not loop.lock for loop in self.loops.values())
