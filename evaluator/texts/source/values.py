"""What a walk through a Triton kernel notes: values, loops, accesses, products. Records only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import TypeAlias

from tritonsmith.evaluator.texts.source.forms import ZERO, Polynomial, make_opaque


class Use(IntEnum):
    """What is done to an earlier value on the way to a later one, mildest first."""

    COPY = 0
    SUM = 1
    """Sums, maxima, selections: an associative reduction or scan."""
    SCALE = 2
    """It is multiplied by something, and nothing is added: a product over a row."""
    LINEAR = 3
    """It is multiplied by something, and something is added."""
    EXPONENT = 4
    """An exponential of it; a logarithm leads back to a sum."""
    FULL = 5
    """Anything else: products of tiles, activations, addresses."""


def combine(first: Use, second: Use) -> Use:
    """What two uses in turn amount to."""
    return Use.LINEAR if {first, second} == {Use.SUM, Use.SCALE} else max(first, second)


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
    carried: frozenset[tuple[int, str, Use]] = frozenset()
    """(loop, name, use): depends on what the name held at the end of the iteration before."""
    rank: int = 0
    form: Polynomial = ZERO
    """The number or address as a polynomial."""
    reads: frozenset[tuple[str, Use]] = frozenset()
    """(root, use): rests on what was loaded from there."""
    origins: frozenset[Polynomial] = frozenset()
    """Addresses of the loads that it rests on."""
    axes: frozenset[int] = frozenset()
    """Axes of a tile along which it differs, by `[:, None]` and `[None, :]`."""
    strides: tuple[Polynomial, ...] = ()
    """Strides of a block pointer or descriptor."""
    block: tuple[Polynomial, ...] = ()
    """Extents of its block."""
    atomic: bool = False
    """Rests on what an atomic gave back."""
    mixed: bool = False
    """Rests on a product of tiles or on a reduction."""
    dotted: bool = False
    """Rests on a product of tiles by tl.dot."""
    elements: tuple[Value, ...] = ()
    """Of a tuple."""


NOTHING = Value()
"""A value that depends on nothing."""

Env: TypeAlias = dict[str, Value]
"""What is known about each name of a function."""


def union(*values: Value, signature: int = 0, roots: bool = True, form: Polynomial = ZERO) -> Value:
    """Everything any of the values depends on."""
    return Value(
        signature=signature,
        pids=frozenset().union(*(value.pids for value in values)),
        roots=frozenset().union(*(value.roots for value in values)) if roots else frozenset(),
        loops=frozenset().union(*(value.loops for value in values)),
        carried=frozenset().union(*(value.carried for value in values)),
        rank=max((value.rank for value in values), default=0),
        form=form,
        reads=frozenset().union(*(value.reads for value in values)),
        origins=frozenset().union(*(value.origins for value in values)),
        axes=frozenset().union(*(value.axes for value in values)),
        atomic=any(value.atomic for value in values),
        mixed=any(value.mixed for value in values),
        dotted=any(value.dotted for value in values),
    )


def join_ways(values: Sequence[Value], signature: int) -> Value:
    """What may come by several ways, such as returns of a function; tuples element by element."""
    if len(values) == 1:
        return values[0]
    forms = {value.form for value in values}
    form = values[0].form if len(forms) == 1 else make_opaque("either", *(value.form for value in values))
    whole = replace(union(*values, signature=signature, form=form), strides=values[0].strides, block=values[0].block)
    if len({len(value.elements) for value in values}) != 1 or not values[0].elements:
        return whole
    pairs = zip(*(value.elements for value in values), strict=True)
    return replace(whole, elements=tuple(join_ways(parts, hash((signature, place))) for place, parts in enumerate(pairs)))


def take_apart(values: Mapping[str, Value]) -> Iterator[tuple[str, Value]]:
    """Names with their values; elements of tuples with names of their own."""
    for name, value in values.items():
        if value.elements:
            yield from take_apart({f"{name}.{place}": part for place, part in enumerate(value.elements)})
        else:
            yield name, value


def turn(value: Value) -> Value:
    """A tile with rows and columns changed over."""
    return replace(value, axes=frozenset(1 - axis if axis < 2 else axis for axis in value.axes)) if value.rank == 2 else value


def put_to_use(value: Value, use: Use) -> Value:
    """The value after something was done to it."""
    if not value.carried and not value.reads:
        return value
    carried = frozenset((loop, name, combine(before, use)) for loop, name, before in value.carried)
    return replace(value, carried=carried, reads=frozenset((root, combine(before, use)) for root, before in value.reads))


@dataclass
class Loop:
    """One loop of a kernel, helpers' loops included."""

    id: int
    line: int
    kind: str
    """`for`, `static` for one that the compiler unrolls, or `while`."""
    outer: tuple[int, ...]
    bound: str = ""
    """Source of the last bound of a range."""
    first: Polynomial = ZERO
    last: Polynomial | None = None
    """The bound as a polynomial."""
    step: Polynomial | None = None
    trips: int | None = None
    """Where both bounds are known numbers."""
    seen: int | None = None
    """Iterations that a program made at most in a forward that was run."""
    variables: list[Polynomial] = field(default_factory=list)
    """What counts iterations: the variable of a range, and names that grow by the same amount each time."""
    counters: list[Polynomial] = field(default_factory=list)
    """Those of them that are no pointers."""
    leaps: list[Polynomial] = field(default_factory=list)
    """Numbers that only some iterations move on, each time by the same."""
    entries: dict[str, Value] = field(default_factory=dict)
    """What the names that it assigns hold before it."""
    updates: dict[str, Use] = field(default_factory=dict)
    """Names that rest on their value of the iteration before, with what an iteration does to it."""
    tiles: set[str] = field(default_factory=set)
    """Those of them that are tiles, and no single numbers."""
    dotted: set[str] = field(default_factory=set)
    """Those of them that rest on products of tiles."""
    reduced: set[str] = field(default_factory=set)
    """Those of the latter that are no such tiles any more, but sums or maxima along an axis."""
    gated: set[str] = field(default_factory=set)
    """Names that are multiplied by what the iteration loads."""
    mixed: set[str] = field(default_factory=set)
    """Names of tiles whose elements an iteration combines along one of their own axes."""
    moved: set[str] = field(default_factory=set)
    """Those of them whose elements change places."""
    pointers: set[str] = field(default_factory=set)
    """Pointers that change in no even steps, such as two that change places."""
    polls: bool = False
    """Waits until memory holds a value that another program writes."""
    by_program: bool = False
    """Each program waits for another value, such as its own number."""
    lock: bool = False
    """Takes a lock by compare-and-swap, which orders nothing but itself."""
    queue: bool = False
    """Takes its work from a counter."""
    guards: frozenset[int] = frozenset()
    has_dot: bool = False

    @property
    def name(self) -> str:
        """Its symbol in polynomials."""
        return f"loop:{self.id}"


@dataclass(frozen=True)
class AccessSite:
    """A load, store or atomic in a kernel's text."""

    kind: str
    """`load`, `store` or `atomic`."""
    line: int
    address: Value
    value: Value
    loops: tuple[int, ...]
    guards: frozenset[int] = frozenset()
    """Conditions about program ids under which it stands; negative on the other side of a branch."""
    sides: frozenset[int] = frozenset()
    """Conditions that are the same for all programs; negative on the other side."""
    swaps: tuple[Polynomial, Polynomial] | None = None
    """What a compare-and-swap compares with and writes."""
    after_arrival: bool = False
    """Stands under a condition about what an atomic gave back."""
    elected: bool = False
    """The same, also where the condition picks the first program that an atomic counts."""
    mask: Polynomial | None = None
    """The condition under which an element is touched; None for all elements."""


@dataclass(frozen=True)
class Product:
    """`total += left * right` (also as fma, also summed over an axis), or one of several such in a sum of its own.

    `loops` is empty for the latter, and outside of loops.
    """

    line: int
    left: Value
    right: Value
    loops: tuple[int, ...]
    target: str
    outer: bool = False
    """A column times a row, by their indexing."""
    summed: bool = False
    """tl.sum over the product."""
    totals: frozenset[tuple[int, str]] = frozenset()
    """(loop, name): what the innermost loop carries and the product is added to, with nothing done to it before."""
    sides: frozenset[int] = frozenset()
    """Conditions that are the same for all programs; negative on the other side."""


@dataclass(frozen=True)
class Rescale:
    """Marks of an online softmax: a running maximum, or a carried total multiplied by exp(old maximum - new maximum)."""

    kind: str
    """`maximum`, `exponential`, `scaling`, or `weighted` for a scaled total to which products are added."""
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
    operations: dict[int, tuple[str, int, int, int]] = field(default_factory=dict)
    """By signature: sums, differences and products with the signatures of both sides and the line."""
    loops_at: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """By line: loops around a sum, difference or product, outermost first."""
    factors: dict[int, tuple[Value, Value]] = field(default_factory=dict)
    """By signature: both factors of a product."""
    differences: dict[int, tuple[Value, Value]] = field(default_factory=dict)
    """By signature: both sides of a difference."""
    ranges: dict[str, Polynomial] = field(default_factory=dict)
    """Extents of ranges of elements by the name of their symbol."""
    compiled: set[str] = field(default_factory=set)
    """Parameters that are constants of a launch."""
    program_axes: set[str] = field(default_factory=set)
    conditions: dict[int, tuple[Value, bool]] = field(default_factory=dict)
    """By the number that stands in guards: a condition about program ids, and whether it holds there."""
    pid_parts: set[str] = field(default_factory=set)
    has_dot: bool = False
    reduces: bool = False
    """It sums, scans or compares along an axis."""
    foreign: set[int] = field(default_factory=set)
    """Loops in which a function of another file is called, which may wait; 0 outside of loops."""

    def polls_in(self, loop: int) -> list[Loop]:
        """Loops inside this one that wait for other programs; 0 stands for the whole kernel."""
        return [inner for inner in self.loops.values() if inner.polls and not inner.lock and (loop == 0 or loop in inner.outer)]

    @property
    def waits(self) -> bool:
        """Whether programs of the kernel wait for each other at all."""
        return bool(self.polls_in(0))
