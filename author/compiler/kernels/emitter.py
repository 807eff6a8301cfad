"""Writes the lines of a kernel that compute elements of values."""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from tritonsmith.author.compiler.ir.code import Call, Compare, Expression, For, Group, Keyword, Name, Number, Statement, Unary, Word, number
from tritonsmith.author.compiler.ir.indices import Coordinates, Guard, Index, join_guards, loaded, ravel, unravel
from tritonsmith.author.compiler.ir.operators import write
from tritonsmith.author.compiler.ir.template import expression
from tritonsmith.author.compiler.ir.values import (
    FLOATS,
    TYPE_NAMES,
    AnchorResult,
    Formula,
    Held,
    Joined,
    Lookup,
    Position,
    Tensor,
    TensorView,
    align,
    list_parts,
)
from tritonsmith.author.compiler.kernels.pieces import assign, choose, is_name, join_tests, load, store
from tritonsmith.author.types import TYPES, widen

_TAKEN = {"tl", "triton", "torch", "nn", "F", "libdevice", "sigmoid", "tanh", "softplus", "mish", "multiply", "larger", "smaller",
          "add_logs", "floor_quotient", "floor_remainder", "real_quotient", "real_remainder", "as_key", "from_key", "row", "k", "offset",
          "start", "step", "inside", "valid", "better", "distance", "higher", "float", "range", "rows", "size",
          *keyword.kwlist}  # fmt: skip
"""Names that no value of a kernel may have."""
_SMALL = 2**31
_ZERO, _ZERO_POINT = number(0), number(0.0)
Found = tuple[Expression, frozenset[str]]
"""An expression, and the variables that it depends on."""


@dataclass
class Arguments:
    """The pointers and numbers that a kernel takes, in the order in which it first names them."""

    names: dict[int, str] = field(default_factory=dict)
    values: list[Tensor] = field(default_factory=list)
    used: set[str] = field(default_factory=lambda: set(_TAKEN))
    largest: int = 0
    """Elements of the largest tensor, and the greatest number on the way to a place: from 2**31 on places have 64 bits."""

    def name(self, hint: str) -> str:
        """A name that the kernel does not use yet."""
        base = re.sub(r"\W", "_", hint).strip("_").lower() or "t"
        base = f"t_{base}" if base[0].isdigit() else base
        name, number = base, 0
        while name in self.used:
            number += 1
            name = f"{base}_{number}"
        self.used.add(name)
        return name

    def take(self, value: Tensor, stored: bool = False) -> str:
        """The argument for a tensor or a number."""
        if id(value) not in self.names:
            hint = value.name or ("result" if stored else "x")
            self.names[id(value)] = self.name(hint if isinstance(value, Held) and value.number else f"{hint}_ptr")
            self.values.append(value)
            self.reach(value.size)
        return self.names[id(value)]

    def reach(self, number: int) -> None:
        """Note a number that is computed on the way to a place."""
        self.largest = max(self.largest, number)

    def list(self) -> list[tuple[str, Tensor]]:
        """The arguments with their names."""
        return [(self.names[id(value)], value) for value in self.values]


def locate_store(value: Tensor, index: Index) -> tuple[Tensor, Index]:
    """The tensor in which a value is stored, and where an element of it lies there."""
    if value.spot is None:
        return value, index
    spot = value.spot
    at = tuple(one + spot.start if axis == spot.axis else one for axis, one in enumerate(unravel(index, value.shape)))
    return spot.whole, ravel(at, spot.whole.shape)


@dataclass
class Scope:
    """Statements of one depth: the kernel's body, or a loop in it."""

    variables: frozenset[str]
    lines: list[Statement] = field(default_factory=list)
    known: dict[tuple[int, Coordinates, tuple[Guard, ...]], Expression] = field(default_factory=dict)
    expressions: dict[Expression, Name] = field(default_factory=dict)
    """The names that expressions got."""


class Emitter:
    """Computes elements of values, each once, as far out as what they depend on allows.

    Args:
        arguments: gets what is read.
        in_memory: whether a value is read from memory.
        bounds: by variable: the condition under which it is in range; None where it always is.
        outer: variables of the body.
    """

    def __init__(
        self, arguments: Arguments, in_memory: Callable[[Tensor], bool], bounds: Mapping[str, Expression | None], outer: frozenset[str],
    ) -> None:
        self.arguments = arguments
        self.in_memory = in_memory
        self.bounds: dict[str, Expression | None] = dict(bounds)
        self.scopes = [Scope(outer)]
        self.outcomes: dict[tuple[int, int], str] = {}
        """By anchor and number: the name of a result of a reduction or scan."""
        self.names: dict[str, frozenset[str]] = {}
        """By name: the variables that it depends on."""
        self.given: dict[int, str] = {}
        """By value: the name of what the kernel has of it, wherever it is read."""
        self.narrow = False
        """Whether values of 16 bits are read as they are, not in fp32."""
        self.numbers: frozenset[str] = frozenset()
        """Variables that Triton has as Python's numbers, which have no methods."""
        self.load_options: dict[int, tuple[Keyword, ...]] = {}
        """By value in memory: what else a load of its elements says."""
        self.store_options: tuple[Keyword, ...] = ()
        """What else a store says."""
        self.rounded: frozenset[int] = frozenset()
        """Values of 16 bits that are rounded ahead of what is made of them, since that is asked for besides."""

    def line(self, *lines: Statement) -> None:
        """Add statements to the innermost scope."""
        self.scopes[-1].lines += lines

    def open(self, variables: frozenset[str]) -> None:
        """Begin a loop."""
        self.scopes.append(Scope(variables))

    def close(self, head: For) -> None:
        """End a loop, which `head` is without its body."""
        scope = self.scopes.pop()
        self.scopes[-1].lines.append(replace(head, body=tuple(scope.lines)))

    def read(self, value: Tensor, at: Coordinates, guards: tuple[Guard, ...] = ()) -> Expression:
        """The name of an element, or a number."""
        key = (id(value), at, guards)
        for scope in self.scopes:
            if key in scope.known:
                return scope.known[key]
        if id(value) in self.given:
            return Name(self.given[id(value)])
        if isinstance(value, AnchorResult) and not self.in_memory(value):
            return Name(self.outcomes[(id(value.anchor), value.which)])
        node, depends = self._write(value, at, guards)
        if id(value) in self.rounded:
            template = "{x}.to({own}).to({wide})" if is_name(node) else "({x}).to({own}).to({wide})"
            node = expression(template, x=node, own=TYPE_NAMES[value.dtype], wide=TYPE_NAMES[widen(value.dtype)])
        written_out = isinstance(node, Number) or (isinstance(value, Formula) and not value.inputs and not self.in_memory(value))
        if not is_name(node) and not written_out:
            name = self.arguments.name(value.name or "t")
            self._scope(depends).lines.append(assign(name, node))
            node = Name(name)
        if isinstance(node, Name):
            self.names[node.name] = depends
        self._scope(depends).known[key] = node
        return node

    def depends(self, element: Expression) -> frozenset[str]:
        """The variables that an element depends on."""
        return self.names.get(element.name, frozenset()) if isinstance(element, Name) else frozenset()

    def _scope(self, depends: frozenset[str]) -> Scope:
        return next(scope for scope in reversed(self.scopes) if scope is self.scopes[0] or depends & scope.variables)

    def _write(self, value: Tensor, at: Coordinates, guards: tuple[Guard, ...]) -> Found:
        if isinstance(value, Held) and value.number:
            return Name(self.arguments.take(value)), frozenset()
        if self.in_memory(value):
            return self._load(value, at, guards)
        if isinstance(value, Formula):
            return self._compute(value, at, guards)
        if isinstance(value, TensorView):
            return self._move(value, at, guards)
        if isinstance(value, Joined):
            return self._join(value, at, guards)
        if isinstance(value, Lookup):
            return self._look_up(value, at, guards)
        assert isinstance(value, Position), "anchors are read through their results"
        index = value.index(at)
        self.arguments.reach(max(*map(abs, index.bounds), index.reach))
        if index.names - self.numbers:
            return index.code, index.names
        return _fill("int32" if max(index.bounds) < _SMALL else "int64", index.code), index.names

    def _load(self, value: Tensor, at: Coordinates, guards: tuple[Guard, ...], other: Expression | None = None) -> Found:
        index = ravel(at, value.shape)
        mask = self.mask(index.names, guards)
        other = other or (_ZERO_POINT if value.dtype in FLOATS else _ZERO)
        node: Expression = load(self.address(value, index), mask, other, self.load_options.get(id(value), ()))
        if (wide := TYPES[value.dtype].computed) and not self.narrow:
            node = expression("{x}.to({wide})", x=node, wide=TYPE_NAMES[wide])
        return node, index.names

    def address(self, value: Tensor, index: Index, stored: bool = False) -> Expression:
        """The pointer to an element."""
        pointer = Name(self.arguments.take(value, stored))
        self.arguments.reach(index.reach)
        return index.add_to(pointer) if index.terms or index.constant else pointer

    def mask(self, names: frozenset[str], guards: tuple[Guard, ...] = ()) -> Expression | None:
        """The condition under which an element that depends on these variables exists; None where it always does."""
        tests = [test for name, test in self.bounds.items() if test is not None and name in names]
        for guard in guards:
            self.arguments.reach(guard.reach)
        return join_tests([*tests, *(test for guard in guards if guard.names <= names for test in guard.list_tests())])

    def _compute(self, value: Formula, at: Coordinates, guards: tuple[Guard, ...]) -> Found:
        operands = []
        for place, operand in enumerate(value.inputs):
            node = self.read(operand, align(at, operand.shape), guards)
            operands.append(_fill(operand.dtype, node) if value.casts(place) and _is_number(node) else node)
        if operands and all(map(_is_number, operands)):  # Python's numbers have no methods, and a type of their own
            operands = [_fill(widen(operand.dtype), node) for operand, node in zip(value.inputs, operands, strict=True)]
        return value.fill(operands), frozenset().union(*map(self.depends, operands))

    def _move(self, value: TensorView, at: Coordinates, guards: tuple[Guard, ...]) -> Found:
        own = value.guards(at)
        moved = value.move(at)
        if not own:
            node = self.read(value.source, moved, guards)
            return node, self.depends(node)
        names = ravel(moved, value.source.shape).names
        joined, filler = join_guards(guards, own), write(value.fill, (), widen(value.dtype))
        if joined is None:  # no place asks for it
            return _fill(value.dtype, filler), frozenset()
        if self.in_memory(value.source) and all(guard.names <= names for guard in own):
            return self._load(value.source, moved, joined, filler)
        node = self.read(value.source, moved, joined)
        condition = join_tests(test for guard in own for test in guard.list_tests())
        for guard in own:
            self.arguments.reach(guard.reach)
        depends = self.depends(node).union(*(guard.names for guard in own))
        return choose(condition, node, filler), depends

    def _join(self, value: Joined, at: Coordinates, guards: tuple[Guard, ...]) -> Found:
        parts = list_parts(value, at)
        depends: frozenset[str] = at[value.axis].names
        chosen: Expression | None = None
        for part, moved, (own,) in reversed(parts):
            joined = join_guards(guards, (own,))
            if joined is None:  # no place asks for this part
                continue
            node = self.read(part, moved, joined)
            depends |= self.depends(node)
            chosen = node if chosen is None else choose(Compare(("<",), (own.index.code, number(own.high))), node, chosen)
        return chosen or _fill(value.dtype, _ZERO), depends

    def _look_up(self, value: Lookup, at: Coordinates, guards: tuple[Guard, ...]) -> Found:
        places = []
        for place, where, limit in zip(value.places, value.where(at), value.limits, strict=True):
            node = self.read(place, where, guards)
            big = value.table.size >= _SMALL and not (place.dtype == "int64" and self.in_memory(place))  # computed places have 32 bits
            places.append(loaded(expression("{x}.to(tl.int64)", x=node) if big else node, limit, self.depends(node)))
        node = self.read(value.table, value.move(at, places), guards)
        return node, self.depends(node).union(*(index.names for index in places))

    def store(self, value: Tensor, index: Index, element: Expression, bounds: frozenset[str]) -> None:
        """Store an element."""
        value, index = locate_store(value, index)
        mask = self.mask(bounds)
        self.line(store(self.address(value, index, stored=True), element, mask, self.store_options))


def _is_number(node: Expression) -> bool:
    """Whether an expression is a number that is written out."""
    if isinstance(node, Group):
        return _is_number(node.inner)
    if isinstance(node, Unary):
        return _is_number(node.operand)
    literal = isinstance(node, Number) or (isinstance(node, Word) and node.word in ("True", "False"))
    return literal or (isinstance(node, Call) and node.function == Name("float"))


def _fill(dtype: str, value: Expression) -> Expression:
    """A number as Triton has values, which have methods."""
    return expression("tl.full((), {x}, {dtype})", x=value, dtype=TYPE_NAMES[dtype])
