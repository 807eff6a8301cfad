"""Records of the code that the compiler writes: expressions, statements, functions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields

_FIELDS: dict[type, tuple[str, ...]] = {}


def list_fields(kind: type[Node]) -> tuple[str, ...]:
    """The names of a class's fields that may hold records, in the order of the text."""
    names = _FIELDS.get(kind)
    if names is None:
        plain = ("str", "tuple[str, ...]", "Layout", "int | float")
        names = _FIELDS[kind] = tuple(entry.name for entry in fields(kind) if entry.type not in plain)
    return names


@dataclass(frozen=True, slots=True)
class Node:
    """A piece of code. Records are compared by what they say, not by how their lines are broken."""

    def children(self) -> Iterator[Node]:
        """The records right below, in the order of the text."""
        for name in list_fields(type(self)):
            value = getattr(self, name)
            if isinstance(value, Node):
                yield value
            elif value:
                yield from value


class Expression(Node):
    """A piece of code with a value."""

    __slots__ = ()



Layout = tuple[tuple[int, str], ...] | None
"""How a statement was laid out: what stands ahead of tokens by their number; None: as the printer does."""


@dataclass(frozen=True, slots=True)
class Statement(Node):
    """A statement, with the comment behind its first line and, where it was read, its layout."""

    comment: str = field(default="", kw_only=True)
    layout: Layout = field(default=None, kw_only=True, compare=False)


# Expressions


@dataclass(frozen=True, slots=True)
class Name(Expression):
    """A variable."""

    name: str


@dataclass(frozen=True, slots=True)
class Number(Expression):
    """A number that is not negative, and how it is written: 1, 1.0 and 0x1 differ."""

    value: int | float
    spelling: str


@dataclass(frozen=True, slots=True)
class Word(Expression):
    """True, False, None or `...`."""

    word: str


@dataclass(frozen=True, slots=True)
class String(Expression):
    """A string as it is written, with its quotes."""

    spelling: str


@dataclass(frozen=True, slots=True)
class FormattedString(Expression):
    """An f-string: `opening` is its prefix and quotes, its parts are strings without quotes and values."""

    opening: str
    parts: tuple[String | FormattedValue, ...]


@dataclass(frozen=True, slots=True)
class FormattedValue(Expression):
    """A value in an f-string, and the conversion and format behind it as written."""

    value: Expression
    suffix: str = ""


@dataclass(frozen=True, slots=True)
class Attribute(Expression):
    """`value.name`."""

    value: Expression
    name: str


@dataclass(frozen=True, slots=True)
class Keyword(Expression):
    """`name=value` in a call; `**value` where the name is empty."""

    name: str
    value: Expression


@dataclass(frozen=True, slots=True)
class Call(Expression):
    """A call. Positional arguments stand ahead of keywords."""

    function: Expression
    arguments: tuple[Expression, ...] = ()
    keywords: tuple[Keyword, ...] = ()


@dataclass(frozen=True, slots=True)
class Subscript(Expression):
    """`value[index]`; the index may be a tuple with slices."""

    value: Expression
    index: Expression


@dataclass(frozen=True, slots=True)
class Slice(Expression):
    """`lower:upper:step`, each of which may be missing."""

    lower: Expression | None = None
    upper: Expression | None = None
    step: Expression | None = None


@dataclass(frozen=True, slots=True)
class Binary(Expression):
    """Two operands with an arithmetic or bitwise operator between."""

    left: Expression
    operator: str
    right: Expression


@dataclass(frozen=True, slots=True)
class Unary(Expression):
    """`-`, `+`, `~` or `not` and its operand."""

    operator: str
    operand: Expression


@dataclass(frozen=True, slots=True)
class Compare(Expression):
    """A comparison; chained ones have several operators and one operand more."""

    operators: tuple[str, ...]
    operands: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Logical(Expression):
    """Operands with `and` or with `or` between."""

    operator: str
    operands: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Conditional(Expression):
    """`value if condition else otherwise`."""

    value: Expression
    condition: Expression
    otherwise: Expression


@dataclass(frozen=True, slots=True)
class Tuple(Expression):
    """Items in a row; it has parentheses where its place needs them."""

    items: tuple[Expression, ...] = ()


@dataclass(frozen=True, slots=True)
class List(Expression):
    """Items in brackets."""

    items: tuple[Expression, ...] = ()


@dataclass(frozen=True, slots=True)
class Entry(Expression):
    """`key: value` of a dict; `**value` where there is no key."""

    key: Expression | None
    value: Expression


@dataclass(frozen=True, slots=True)
class Dict(Expression):
    """A dict with its entries."""

    entries: tuple[Entry, ...] = ()


@dataclass(frozen=True, slots=True)
class Star(Expression):
    """`*value`."""

    value: Expression


@dataclass(frozen=True, slots=True)
class Group(Expression):
    """Parentheses that the tree does not need."""

    inner: Expression


@dataclass(frozen=True, slots=True)
class Parameter(Expression):
    """A parameter; `star` is empty, `*` or `**`."""

    name: str
    annotation: Expression | None = None
    default: Expression | None = None
    star: str = ""


@dataclass(frozen=True, slots=True)
class Lambda(Expression):
    """A function without a name."""

    parameters: tuple[Parameter, ...]
    body: Expression


@dataclass(frozen=True, slots=True)
class Clause(Expression):
    """`for target in source if condition ...` of a comprehension."""

    target: Expression
    source: Expression
    conditions: tuple[Expression, ...] = ()


@dataclass(frozen=True, slots=True)
class Comprehension(Expression):
    """A comprehension; `bracket` opens it: `[`, `(` or `{`. Its element may be an entry."""

    bracket: str
    element: Expression
    clauses: tuple[Clause, ...]


@dataclass(frozen=True, slots=True)
class Hole(Expression):
    """A place of a template; one with a star takes any number of records."""

    name: str
    star: str = ""


# Statements


@dataclass(frozen=True, slots=True)
class Assign(Statement):
    """`target = ... = value`, or `target: annotation = value`."""

    targets: tuple[Expression, ...]
    annotation: Expression | None = None
    value: Expression | None = None


@dataclass(frozen=True, slots=True)
class Augment(Statement):
    """`target += value` and its like; the operator is written without `=`."""

    target: Expression
    operator: str
    value: Expression


@dataclass(frozen=True, slots=True)
class Evaluate(Statement):
    """An expression that stands alone: a call, or a docstring."""

    value: Expression


@dataclass(frozen=True, slots=True)
class For(Statement):
    """A loop over items."""

    target: Expression
    source: Expression
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class While(Statement):
    """A loop with a condition."""

    condition: Expression
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Branch(Statement):
    """`if`, `elif` or (without a condition) `else`, and what it does."""

    condition: Expression | None
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class If(Statement):
    """Branches, of which the first that holds is taken."""

    branches: tuple[Branch, ...]


@dataclass(frozen=True, slots=True)
class Return(Statement):
    """`return value`."""

    value: Expression | None = None


@dataclass(frozen=True, slots=True)
class Raise(Statement):
    """`raise value from cause`."""

    value: Expression | None = None
    cause: Expression | None = None


@dataclass(frozen=True, slots=True)
class Assert(Statement):
    """`assert condition, message`."""

    condition: Expression
    message: Expression | None = None


@dataclass(frozen=True, slots=True)
class Alias(Expression):
    """`value as target`, of `with` and of imports."""

    value: Expression
    target: Expression | None = None


@dataclass(frozen=True, slots=True)
class With(Statement):
    """A block within contexts."""

    items: tuple[Alias, ...]
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Handler(Statement):
    """`except kind as name` and what it does."""

    kind: Expression | None
    target: Expression | None
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Try(Statement):
    """A block and what handles its errors."""

    body: tuple[Statement, ...]
    handlers: tuple[Handler, ...]


@dataclass(frozen=True, slots=True)
class Simple(Statement):
    """`pass`, `break` or `continue`."""

    word: str


@dataclass(frozen=True, slots=True)
class Import(Statement):
    """`import items`, or `from source import items`."""

    source: Expression | None
    items: tuple[Alias, ...]


@dataclass(frozen=True, slots=True)
class Comment(Statement):
    """A line that is a comment, its `#` included."""

    text: str


@dataclass(frozen=True, slots=True)
class Blank(Statement):
    """An empty line."""


@dataclass(frozen=True, slots=True)
class Decorator(Statement):
    """`@value` ahead of a function."""

    value: Expression


@dataclass(frozen=True, slots=True)
class Function(Statement):
    """A function. Its docstring is the first statement of its body."""

    decorators: tuple[Decorator, ...]
    name: str
    parameters: tuple[Parameter, ...]
    returns: Expression | None
    body: tuple[Statement, ...]

    @property
    def docstring(self) -> String | None:
        """What explains it; None where nothing does."""
        first = self.body[0] if self.body else None
        return first.value if isinstance(first, Evaluate) and isinstance(first.value, String) else None


@dataclass(frozen=True, slots=True)
class Class(Statement):
    """A class."""

    name: str
    bases: tuple[Expression, ...]
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class Module(Statement):
    """The statements of a file."""

    body: tuple[Statement, ...]


def is_generator(node: Expression) -> bool:
    """Whether an expression is a generator, in parentheses beyond need or not."""
    inner = node
    while isinstance(inner, Group):
        inner = inner.inner
    return isinstance(inner, Comprehension) and inner.bracket == "("


class SymbolicInt(int):
    """An int that came from an expression, and is written as it."""

    @property
    def expression(self) -> Expression:
        """What gives the value."""
        raise NotImplementedError


def number(value: int | float) -> Expression:
    """A number as Python prints it: True and False are words, negative ones have their sign in front.

    An int that came from an expression is this expression. Raises ValueError for infinities and NaN, which have no literal.
    """
    if isinstance(value, bool):
        return Word(str(value))
    if isinstance(value, SymbolicInt):
        return value.expression
    spelling = int.__repr__(value) if isinstance(value, int) else repr(value)
    if spelling.lstrip("-")[0] not in "0123456789":
        raise ValueError(f"no literal stands for {spelling}")
    return Unary("-", Number(-value, spelling[1:])) if spelling[0] == "-" else Number(value, spelling)
