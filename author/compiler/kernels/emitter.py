"""Writes the lines of a kernel that compute elements of values."""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from tritonsmith.author.compiler.ir import code
from tritonsmith.author.compiler.ir.indices import Coordinates, Guard, Index, join_guards, loaded, ravel, unravel
from tritonsmith.author.compiler.ir.printer import print_expression
from tritonsmith.author.compiler.ir.values import (
    FLOATS,
    TRITON_TYPES,
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

_TAKEN = {"tl", "triton", "torch", "nn", "F", "libdevice", "sigmoid", "tanh", "softplus", "mish", "multiply", "larger", "smaller",
          "add_logs", "floor_quotient", "floor_remainder", "real_quotient", "real_remainder", "as_key", "from_key", "row", "k", "offset",
          "start", "step", "inside", "valid", "better", "distance", "higher", "float", "range", "rows", "size",
          *keyword.kwlist}  # fmt: skip
"""Names that no value of a kernel may have."""
_SMALL = 2**31


@dataclass
class Arguments:
    """The pointers and numbers that a kernel takes, in the order in which it first names them."""

    names: dict[int, str] = field(default_factory=dict)
    values: list[Tensor] = field(default_factory=list)
    used: set[str] = field(default_factory=lambda: set(_TAKEN))
    largest: int = 0
    """Elements of the largest tensor."""

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
            self.largest = max(self.largest, value.size)
        return self.names[id(value)]


def locate_store(value: Tensor, index: Index) -> tuple[Tensor, Index]:
    """The tensor in which a value is stored, and where an element of it lies there."""
    if value.spot is None:
        return value, index
    spot = value.spot
    at = tuple(one + spot.start if axis == spot.axis else one for axis, one in enumerate(unravel(index, value.shape)))
    return spot.whole, ravel(at, spot.whole.shape)


@dataclass
class Scope:
    """Lines of one depth: the kernel's body, or a loop in it."""

    variables: frozenset[str]
    lines: list[str] = field(default_factory=list)
    known: dict[tuple[int, Coordinates, tuple[Guard, ...]], str] = field(default_factory=dict)
    expressions: dict[str, str] = field(default_factory=dict)
    """By text: the name that it got."""


class Emitter:
    """Computes elements of values, each once, as far out as what they depend on allows.

    Args:
        arguments: gets what is read.
        in_memory: whether a value is read from memory.
        bounds: by variable: the condition under which it is in range; empty where it always is.
        outer: variables of the body.
    """

    def __init__(self, arguments: Arguments, in_memory: Callable[[Tensor], bool], bounds: dict[str, str], outer: frozenset[str]) -> None:
        self.arguments = arguments
        self.in_memory = in_memory
        self.bounds = bounds
        self.scopes = [Scope(outer)]
        self.outcomes: dict[tuple[int, int], str] = {}
        """By anchor and number: the result of a reduction or scan."""
        self.names: dict[str, frozenset[str]] = {}
        """By text: the variables that it depends on."""
        self.given: dict[int, str] = {}
        """By value: the name of what the kernel has of it, wherever it is read."""
        self.narrow = False
        """Whether values of 16 bits are read as they are, not in fp32."""
        self.numbers: frozenset[str] = frozenset()
        """Variables that Triton has as Python's numbers, which have no methods."""
        self.load_hints: dict[int, str] = {}
        """By value in memory: what else a load of its elements says."""
        self.store_hint = ""
        """What else a store says."""
        self.rounded: frozenset[int] = frozenset()
        """Values of 16 bits that are rounded ahead of what is made of them, since that is asked for besides."""

    def line(self, text: str) -> None:
        """Add a line to the innermost scope."""
        self.scopes[-1].lines.append(text)

    def open(self, variables: frozenset[str]) -> None:
        """Begin a loop."""
        self.scopes.append(Scope(variables))

    def close(self, head: str) -> None:
        """End a loop, whose first line is `head`."""
        scope = self.scopes.pop()
        self.scopes[-1].lines += [head, *(f"    {line}" for line in scope.lines)]

    def read(self, value: Tensor, at: Coordinates, guards: tuple[Guard, ...] = ()) -> str:
        """The name of an element, or a number."""
        key = (id(value), at, guards)
        for scope in self.scopes:
            if key in scope.known:
                return scope.known[key]
        if id(value) in self.given:
            return self.given[id(value)]
        if isinstance(value, AnchorResult) and not self.in_memory(value):
            return self.outcomes[(id(value.anchor), value.which)]
        text, depends = self._write(value, at, guards)
        if id(value) in self.rounded:
            text = f"{text if text.isidentifier() else f'({text})'}.to({TRITON_TYPES[value.dtype]}).to(tl.float32)"
        if not text.isidentifier() and not (isinstance(value, Formula) and not value.inputs):
            name = self.arguments.name(value.name or "t")
            self._scope(depends).lines.append(f"{name} = {text}")
            text = name
        self.names[text] = depends
        self._scope(depends).known[key] = text
        return text

    def depends(self, text: str) -> frozenset[str]:
        """The variables that an element depends on."""
        return self.names.get(text, frozenset())

    def _scope(self, depends: frozenset[str]) -> Scope:
        return next(scope for scope in reversed(self.scopes) if scope is self.scopes[0] or depends & scope.variables)

    def _write(self, value: Tensor, at: Coordinates, guards: tuple[Guard, ...]) -> tuple[str, frozenset[str]]:
        if isinstance(value, Held) and value.number:
            return self.arguments.take(value), frozenset()
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
        return index.text if index.names - self.numbers else f"tl.full((), {index.text}, tl.int32)", index.names

    def _load(self, value: Tensor, at: Coordinates, guards: tuple[Guard, ...], other: str = "") -> tuple[str, frozenset[str]]:
        index = ravel(at, value.shape)
        mask = self.mask(index.names, guards)
        other = other or ("0.0" if value.dtype in FLOATS else "0")
        hint = self.load_hints.get(id(value), "")
        text = f"tl.load({self.address(value, index)}{f', mask={mask}, other={other}' if mask else ''}{hint})"
        return text + (".to(tl.float32)" if value.dtype in ("float16", "bfloat16") and not self.narrow else ""), index.names

    def address(self, value: Tensor, index: Index, stored: bool = False) -> str:
        """The pointer to an element."""
        pointer = self.arguments.take(value, stored)
        return pointer if index.text == "0" else f"{pointer} + {index.text}"

    def mask(self, names: frozenset[str], guards: tuple[Guard, ...] = ()) -> str:
        """The condition under which an element that depends on these variables exists."""
        bounds = [text for name, text in self.bounds.items() if text and name in names]
        texts = [text for guard in guards if guard.names <= names for text in guard.texts]
        return " & ".join(dict.fromkeys([*bounds, *texts]))

    def _compute(self, value: Formula, at: Coordinates, guards: tuple[Guard, ...]) -> tuple[str, frozenset[str]]:
        texts = []
        for number, one in enumerate(value.inputs):
            text = self.read(one, align(at, one.shape), guards)
            if not text.isidentifier() and value.casts(number):
                text = f"tl.full((), {text}, {TRITON_TYPES[one.dtype]})"
            texts.append(text)
        return print_expression(value.fill([code.Name(text) for text in texts])), frozenset().union(*(self.depends(text) for text in texts))

    def _move(self, value: TensorView, at: Coordinates, guards: tuple[Guard, ...]) -> tuple[str, frozenset[str]]:
        own = value.guards(at)
        moved = value.move(at)
        if not own:
            text = self.read(value.source, moved, guards)
            return text, self.depends(text)
        names = ravel(moved, value.source.shape).names
        joined = join_guards(guards, own)
        if joined is None:  # no place asks for it
            return f"tl.full((), {value.fill}, {TRITON_TYPES[value.dtype]})", frozenset()
        if self.in_memory(value.source) and all(guard.names <= names for guard in own):
            return self._load(value.source, moved, joined, value.fill)
        text = self.read(value.source, moved, joined)
        condition = " & ".join(one for guard in own for one in guard.texts)
        depends = self.depends(text).union(*(guard.names for guard in own))
        return f"tl.where({condition}, {text}, {value.fill})", depends

    def _join(self, value: Joined, at: Coordinates, guards: tuple[Guard, ...]) -> tuple[str, frozenset[str]]:
        parts = list_parts(value, at)
        depends: frozenset[str] = at[value.axis].names
        chosen = ""
        for part, moved, (own,) in reversed(parts):
            joined = join_guards(guards, (own,))
            if joined is None:  # no place asks for this part
                continue
            text = self.read(part, moved, joined)
            depends |= self.depends(text)
            chosen = f"tl.where({own.index.text} < {own.high}, {text}, {chosen})" if chosen else text
        return chosen or f"tl.full((), 0, {TRITON_TYPES[value.dtype]})", depends

    def _look_up(self, value: Lookup, at: Coordinates, guards: tuple[Guard, ...]) -> tuple[str, frozenset[str]]:
        places = []
        for place, where, limit in zip(value.places, value.where(at), value.limits, strict=True):
            text = self.read(place, where, guards)
            big = value.table.size >= _SMALL and place.dtype != "int64"
            places.append(loaded(f"{text}.to(tl.int64)" if big else text, limit, self.depends(text)))
        text = self.read(value.table, value.move(at, places), guards)
        return text, self.depends(text).union(*(index.names for index in places))

    def store(self, value: Tensor, index: Index, text: str, bounds: frozenset[str]) -> None:
        """Store an element."""
        value, index = locate_store(value, index)
        mask = self.mask(bounds)
        self.line(f"tl.store({self.address(value, index, stored=True)}, {text}{f', mask={mask}' if mask else ''}{self.store_hint})")
