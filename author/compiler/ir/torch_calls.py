"""What forward asks of PyTorch, as records: calls of its functions, and views. And how both are written."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from tritonsmith.author.compiler.ir import code
from tritonsmith.author.compiler.ir.code import Attribute, Expression, Keyword, Name, Slice, Subscript, number
from tritonsmith.author.compiler.ir.indices import Shape
from tritonsmith.author.compiler.ir.operators import Operand
from tritonsmith.author.compiler.ir.parser import parse_expression
from tritonsmith.author.members import attribute

FUNCTIONAL = "torch.nn.functional."
"""Where functions of a network lie. A module calls it `F`."""
SIGNS = {
    "matmul": "@", "add": "+", "sub": "-", "mul": "*", "truediv": "/", "pow": "**", "floordiv": "//", "mod": "%", "and_": "&", "or_": "|",
    "xor": "^", "lshift": "<<", "rshift": ">>", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
}  # fmt: skip
"""Python's operators between two operands, by their names in `operator`."""
PREFIXES = {"invert": "~", "neg": "-", "pos": "+"}
"""Those ahead of one operand."""
_COMPARISONS = frozenset(("eq", "ne", "lt", "le", "gt", "ge"))
_DEVICE = Name("device")
_PRODUCTS = frozenset(("matmul", "bmm", "torch.matmul", "torch.bmm"))


class Way(Enum):
    """How a call names what it calls."""

    FUNCTION = "function"
    """By a dotted name: `torch.matmul(a, b)`."""
    METHOD = "method"
    """By a name behind its first argument: `a.matmul(b)`."""
    OPERATOR = "operator"
    """By a sign: `(a @ b)`."""
    MEMBER = "member"
    """By the path of a module below `self`."""


class Surrounding(Enum):
    """What forward knows and no call gives."""

    DEVICE = "device"
    """The device of its tensors."""


@dataclass(frozen=True)
class Global:
    """A constant of torch, by its dotted name: `torch.float32`."""

    name: str


@dataclass(frozen=True)
class TorchCall:
    """A call of PyTorch.

    Args:
        way: how it names what it calls.
        name: of the function, method or operator, or the path of the module.
        arguments: operands by their places, other calls, constants of torch, and plain values with any of these within.
        keywords: the same by name.
    """

    way: Way
    name: str
    arguments: tuple[Any, ...] = ()
    keywords: Mapping[str, Any] = field(default_factory=dict)

    @property
    def function(self) -> str:
        """The name of a function of torch.nn.functional, such as `linear`; empty for anything else."""
        plain = self.way is Way.FUNCTION and self.name.startswith(FUNCTIONAL)
        return self.name.removeprefix(FUNCTIONAL) if plain else ""

    @property
    def is_product(self) -> bool:
        """Whether it multiplies its first two operands as matrices."""
        known = self.way is not Way.MEMBER and self.name in _PRODUCTS
        return known and self.arguments == (Operand(0), Operand(1)) and not self.keywords

    @property
    def equation(self) -> str | None:
        """What an `einsum` of operands computes; None for any other call."""
        if self.way is not Way.FUNCTION or self.name != "torch.einsum" or not self.arguments:
            return None
        return self.arguments[0] if isinstance(self.arguments[0], str) else None


def call_function(name: str, /, *arguments: Any, **keywords: Any) -> TorchCall:
    """A call of a function by its dotted name: `call_function("torch.stack", [Operand(0), Operand(1)], 1)`."""
    return TorchCall(Way.FUNCTION, name, arguments, keywords)


def write_call(call: TorchCall, operands: Sequence[Expression] = (), device: Expression = _DEVICE) -> Expression:
    """The code of a call.

    Args:
        call: the record.
        operands: what stands for its operands.
        device: of forward's tensors.
    """
    given = [write_argument(one, operands, device) for one in call.arguments]
    keywords = tuple(Keyword(key, write_argument(one, operands, device)) for key, one in call.keywords.items())
    match call.way:
        case Way.FUNCTION:
            called = _write_name(f"F.{call.function}" if call.function else call.name)
        case Way.METHOD:
            called = Attribute(given.pop(0), call.name)
        case Way.OPERATOR:
            return code.Group(_write_operation(call.name, given))
        case Way.MEMBER:
            called = parse_expression(attribute(call.name))
    return code.Call(called, tuple(given), keywords)


def _write_name(dotted: str) -> Expression:
    first, *rest = dotted.split(".")
    written: Expression = Name(first)
    for part in rest:
        written = Attribute(written, part)
    return written


def _write_operation(name: str, operands: Sequence[Expression]) -> Expression:
    if name in PREFIXES:
        return code.Unary(PREFIXES[name], *operands)
    left, right = operands
    return code.Compare((SIGNS[name],), (left, right)) if name in _COMPARISONS else code.Binary(left, SIGNS[name], right)


def write_argument(value: Any, operands: Sequence[Expression], device: Expression) -> Expression:
    """The code of an argument. Raises TypeError for a value that no record stands for."""
    match value:
        case Operand(place):
            return operands[place]
        case TorchCall():
            return write_call(value, operands, device)
        case Global(name):
            return _write_name(name)
        case Surrounding.DEVICE:
            return device
        case None:
            return code.Word("None")
        case str():
            return code.String(repr(value))
        case float() if not math.isfinite(value):
            return code.Call(Name("float"), (code.String(f'"{value}"'),))
        case int() | float():
            return number(value)
        case complex():
            return code.Call(Name("complex"), (number(value.real), number(value.imag)))
        case tuple():
            return code.Tuple(tuple(write_argument(one, operands, device) for one in value))
        case list():
            return code.List(tuple(write_argument(one, operands, device) for one in value))
        case dict():
            written = [[write_argument(one, operands, device) for one in entry] for entry in value.items()]
            return code.Dict(tuple(code.Entry(key, held) for key, held in written))
    raise TypeError(f"{type(value).__name__} is no argument of a call")


# Views


@dataclass(frozen=True)
class Reshape:
    """The elements in the same order under another shape."""

    shape: Shape


@dataclass(frozen=True)
class Permute:
    """The axes in another order."""

    order: tuple[int, ...]


@dataclass(frozen=True)
class Expand:
    """The value repeated along axes of one element."""

    shape: Shape


@dataclass(frozen=True)
class Cut:
    """Every `step`-th place of an axis, from `start` to ahead of `end`."""

    axis: int
    start: int
    end: int
    step: int = 1


@dataclass(frozen=True)
class Select:
    """One place of an axis, without the axis."""

    axis: int
    place: int


@dataclass(frozen=True)
class Unfold:
    """Windows along an axis, as a last axis."""

    axis: int
    size: int
    step: int


@dataclass(frozen=True)
class Clone:
    """A copy in memory of its own; `contiguous` where the value may be no whole tensor."""

    contiguous: bool = False


ViewStep = Reshape | Permute | Expand | Cut | Select | Unfold | Clone
"""How PyTorch shows a value."""


def write_view(step: ViewStep, value: Expression) -> Expression:
    """The code of a view of a value."""
    match step:
        case Reshape(shape):
            return _call(value, "reshape", _write_shape(shape))
        case Permute(order):
            return _call(value, "permute", *map(number, order))
        case Expand(shape):
            return _call(value, "expand", _write_shape(shape))
        case Cut(axis, start, end, by):
            part = Slice(number(start), number(end), number(by) if by > 1 else None)
            return Subscript(value, code.Tuple((*(Slice(),) * axis, part)) if axis else part)
        case Select(axis, place):
            return _call(value, "select", number(axis), number(place))
        case Unfold(axis, size, by):
            return _call(value, "unfold", number(axis), number(size), number(by))
        case Clone(contiguous):
            form = (Keyword("memory_format", _write_name("torch.contiguous_format")),) if contiguous else ()
            return code.Call(Attribute(value, "clone"), (), form)


def write_items(places: Sequence[int], value: Expression) -> Expression:
    """The code of a part of a tuple of tuples: `value[1][0]`."""
    for place in places:
        value = Subscript(value, number(place))
    return value


def _call(value: Expression, method: str, *arguments: Expression) -> Expression:
    return code.Call(Attribute(value, method), arguments)


def _write_shape(shape: Shape) -> Expression:
    return code.Tuple(tuple(map(number, shape)))
