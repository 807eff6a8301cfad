"""Elementwise functions as trees of operators. One table says how each operator is written, what it costs and what it keeps."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from enum import Enum, unique
from functools import cache

from tritonsmith.author.compiler.ir import code
from tritonsmith.author.compiler.ir.code import Expression, Node, list_fields
from tritonsmith.author.compiler.ir.parser import parse_expression
from tritonsmith.author.compiler.ir.precedence import tidy
from tritonsmith.author.types import SHORT, TYPES

Number = int | float | bool


class Tree:
    """An elementwise function of numbered operands. Python's operators make larger ones: `A * 2.0 + B`."""

    def __add__(self, right: Tree | Number) -> Tree:
        return Operator.ADD(self, right)

    def __radd__(self, left: Number) -> Tree:
        return Operator.ADD(left, self)

    def __sub__(self, right: Tree | Number) -> Tree:
        return Operator.SUB(self, right)

    def __rsub__(self, left: Number) -> Tree:
        return Operator.SUB(left, self)

    def __mul__(self, right: Tree | Number) -> Tree:
        return Operator.MUL(self, right)

    def __rmul__(self, left: Number) -> Tree:
        return Operator.MUL(left, self)

    def __truediv__(self, right: Tree | Number) -> Tree:
        return Operator.DIV(self, right)

    def __rtruediv__(self, left: Number) -> Tree:
        return Operator.DIV(left, self)

    def __floordiv__(self, right: Tree | Number) -> Tree:
        return Operator.QUOTIENT(self, right)

    def __mod__(self, right: Tree | Number) -> Tree:
        return Operator.REMAINDER(self, right)

    def __and__(self, right: Tree | Number) -> Tree:
        return Operator.AND(self, right)

    def __or__(self, right: Tree | Number) -> Tree:
        return Operator.OR(self, right)

    def __xor__(self, right: Tree | Number) -> Tree:
        return Operator.XOR(self, right)

    def __lshift__(self, right: Tree | Number) -> Tree:
        return Operator.SHIFT_LEFT(self, right)

    def __rshift__(self, right: Tree | Number) -> Tree:
        return Operator.SHIFT_RIGHT(self, right)

    def __neg__(self) -> Tree:
        return Operator.NEG(self)

    def __invert__(self) -> Tree:
        return Operator.INVERT(self)

    def __lt__(self, right: Tree | Number) -> Tree:
        return Operator.LT(self, right)

    def __le__(self, right: Tree | Number) -> Tree:
        return Operator.LE(self, right)

    def __gt__(self, right: Tree | Number) -> Tree:
        return Operator.GT(self, right)

    def __ge__(self, right: Tree | Number) -> Tree:
        return Operator.GE(self, right)

    def to(self, dtype: str) -> Tree:
        """The value in another type."""
        return Operator.CAST(self, Type(dtype))


@dataclass(frozen=True)
class Operand(Tree):
    """An operand, by its place."""

    place: int


@dataclass(frozen=True)
class Constant(Tree):
    """A number. Without a type of its own it takes that of what it meets; trees are equal for numbers that are written alike."""

    value: Number
    dtype: str = field(default="", compare=False)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constant) and repr(self.value) == repr(other.value)

    def __hash__(self) -> int:
        return hash(repr(self.value))


@dataclass(frozen=True)
class Type(Tree):
    """A type that values are brought into."""

    dtype: str


@dataclass(frozen=True)
class Applied(Tree):
    """An operator and what it is applied to."""

    operator: Operator
    arguments: tuple[Tree, ...]


A, B, C, D, E = (Operand(place) for place in range(5))
"""The first operands."""


@dataclass(frozen=True)
class Form:
    """What is known of an operator.

    Args:
        template: how it is written, with holes for its arguments in the order of the alphabet.
        cost: operations for one element.
        rising: whether it never falls where an argument rises, rounding included.
        torch: the function of torch that it is, where there is one: `add` stands for `torch.add`.
        wide: how it is written in float64, where `template` has the digits of fp32 alone.
        corners: what it gives at NaN, infinities, zeros and the ends of types, and where that is not what torch's function gives.
    """

    template: str
    cost: float = 1.0
    rising: bool = False
    torch: str = ""
    wide: str = ""
    corners: str = ""

    def __post_init__(self) -> None:
        if self.wide and self.wide.count("{") != self.template.count("{"):
            raise ValueError(f"{self.wide} does not take the arguments of {self.template}")


@unique
class Operator(Enum):
    """What a kernel can do to elements. A member makes a tree of its arguments: `Operator.EXP(A - B)`."""

    ADD = Form("{a} + {b}", torch="add", corners="whole numbers begin again at the other end")
    SUB = Form("{a} - {b}", torch="sub", corners="whole numbers begin again at the other end")
    MUL = Form("{a} * {b}", torch="mul", corners="whole numbers begin again at the other end; 0 times infinity is NaN")
    DIV = Form("{a} / {b}", torch="div", corners="by zero: infinity with the sign of both, NaN for 0 / 0")
    NEG = Form("-{a}", torch="neg", corners="of a float 0.0 - a, so of 0.0 it is 0.0; where the sign of a zero counts it is a * -1.0")
    QUOTIENT = Form("{a} // {b}", corners="whole numbers; by zero and of the least number by -1: undefined, as in C")
    """Rounded towards zero."""
    REMAINDER = Form("{a} % {b}", corners="whole numbers; the sign of the first")
    """What is left by a quotient that is rounded towards zero."""
    AND = Form("{a} & {b}", torch="bitwise_and")
    OR = Form("{a} | {b}", torch="bitwise_or")
    XOR = Form("{a} ^ {b}", torch="bitwise_xor")
    INVERT = Form("~{a}", torch="bitwise_not")
    SHIFT_LEFT = Form("{a} << {b}", torch="bitwise_left_shift", corners="by the width of the type or more: undefined, as in C")
    SHIFT_RIGHT = Form("{a} >> {b}", torch="bitwise_right_shift", corners="of a negative number its sign moves in")
    EQ = Form("{a} == {b}", 0.0, torch="eq", corners="NaN equals nothing; -0.0 equals 0.0")
    NE = Form("{a} != {b}", 0.0, torch="ne", corners="NaN differs from itself")
    LT = Form("{a} < {b}", 0.0, torch="lt", corners="with NaN false")
    LE = Form("{a} <= {b}", 0.0, torch="le", corners="with NaN false")
    GT = Form("{a} > {b}", 0.0, torch="gt", corners="with NaN false")
    GE = Form("{a} >= {b}", 0.0, torch="ge", corners="with NaN false")
    WHERE = Form("tl.where({a}, {b}, {c})", torch="where", corners="what is not chosen may be NaN")
    MAXIMUM = Form("tl.maximum({a}, {b}, propagate_nan=tl.PropagateNan.ALL)", rising=True, torch="maximum",
                   corners="NaN if one is NaN; of zeros with two signs, any")
    MINIMUM = Form("tl.minimum({a}, {b}, propagate_nan=tl.PropagateNan.ALL)", rising=True, torch="minimum",
                   corners="NaN if one is NaN; of zeros with two signs, any")
    FMAX = Form("tl.maximum({a}, {b})", rising=True, torch="fmax", corners="the other one if one is NaN")
    """For whole numbers, and for numbers of which none is NaN."""
    FMIN = Form("tl.minimum({a}, {b})", rising=True, torch="fmin", corners="the other one if one is NaN")
    CAST = Form(
        "{a}.to({b})", 0.0,
        corners="of a float to fewer than 32 bits: by way of 32, so it begins again at the other end; NaN is undefined, as in C",
    )
    BITS = Form("{a}.to({b}, bitcast=True)", 0.0, corners="the sign of zeros and of NaN is in the highest bit")
    """The same bits as a value of another type."""
    GROUP = Form("({a})", 0.0)
    """Its argument, in parentheses for those who read it."""

    ABS = Form("tl.abs({a})", torch="abs", corners="the least whole number stays as it is")
    EXP = Form("libdevice.exp({a})", torch="exp", corners="exp(-inf) is 0")
    FAST_EXP = Form("tl.exp({a})", torch="exp", corners="exp(-inf) is 0")
    """Loses digits where its argument is large: it multiplies by log2(e) in fp32."""
    EXP2 = Form("tl.exp2({a})", torch="exp2", corners="exp2(-inf) is 0")
    LOG = Form("tl.log({a})", torch="log", corners="-inf for zeros, NaN below")
    LOG2 = Form("tl.log2({a})", torch="log2", corners="-inf for zeros, NaN below")
    SQRT = Form("tl.sqrt({a})", torch="sqrt", corners="-0.0 for -0.0, NaN below")
    RSQRT = Form("tl.rsqrt({a})", torch="rsqrt", corners="infinity for 0.0")
    SIN = Form("tl.sin({a})", torch="sin", corners="NaN for infinities")
    COS = Form("tl.cos({a})", torch="cos", corners="NaN for infinities")
    ERF = Form("tl.erf({a})", torch="erf")
    FLOOR = Form("tl.floor({a})", rising=True, torch="floor", corners="keeps the sign of a zero")
    CEIL = Form("tl.ceil({a})", rising=True, torch="ceil", corners="keeps the sign of a zero")

    TRUNC = Form("libdevice.trunc({a})", rising=True, torch="trunc", corners="keeps the sign of a zero")
    RINT = Form("libdevice.rint({a})", rising=True, torch="round", corners="halves go to the even neighbour")
    EXPM1 = Form("libdevice.expm1({a})", torch="expm1", corners="exact near 0, with the sign of a zero")
    LOG1P = Form("libdevice.log1p({a})", torch="log1p", corners="exact near 0; -inf for -1, NaN below")
    LOG10 = Form("libdevice.log10({a})", torch="log10", corners="-inf for zeros, NaN below")
    TAN = Form("libdevice.tan({a})", torch="tan")
    SINH = Form("libdevice.sinh({a})", torch="sinh")
    COSH = Form("libdevice.cosh({a})", torch="cosh")
    ASIN = Form("libdevice.asin({a})", torch="asin", corners="NaN beyond 1")
    ACOS = Form("libdevice.acos({a})", torch="acos", corners="NaN beyond 1")
    ATAN = Form("libdevice.atan({a})", torch="atan")
    ASINH = Form("libdevice.asinh({a})", torch="asinh")
    ACOSH = Form("libdevice.acosh({a})", torch="acosh", corners="NaN below 1")
    ATANH = Form("libdevice.atanh({a})", torch="atanh", corners="infinity at 1, NaN beyond")
    ERFC = Form("libdevice.erfc({a})", torch="special.erfc", corners="does not cancel for large arguments")
    ERFINV = Form("libdevice.erfinv({a})", torch="special.erfinv")
    ERFCX = Form("libdevice.erfcx({a})", torch="special.erfcx")
    LGAMMA = Form("libdevice.lgamma({a})", torch="special.gammaln", corners="infinity for 0 and negative whole numbers")
    BESSEL_I0 = Form("libdevice.cyl_bessel_i0({a})", torch="special.i0")
    BESSEL_I1 = Form("libdevice.cyl_bessel_i1({a})", torch="special.i1")
    ATAN2 = Form("libdevice.atan2({a}, {b})", torch="atan2", corners="goes by the signs of zeros")
    HYPOT = Form("libdevice.hypot({a}, {b})", torch="hypot", corners="infinity where one is, whatever the other")
    FMOD = Form("libdevice.fmod({a}, {b})", torch="fmod", corners="exact; NaN by zero and of infinity; the sign of the first")
    POW = Form("libdevice.pow({a}, {b})", torch="pow", corners="1 for an exponent of 0, also of NaN")
    COPYSIGN = Form("libdevice.copysign({a}, {b})", torch="copysign", corners="takes the sign of zeros too")
    NEXTAFTER = Form("libdevice.nextafter({a}, {b})", torch="nextafter", corners="fp32 and float64 alone: in 16 bits it stays PyTorch's")

    SIGMOID = Form("sigmoid({a})", 3.0, rising=True, torch="sigmoid", corners="0 for -inf, 1 for inf")
    TANH = Form("tanh({a})", 8.0, rising=True, torch="tanh", wide="libdevice.tanh({a})", corners="keeps the sign of a zero")
    MISH = Form("mish({a})", 12.0, torch="nn.functional.mish", corners="NaN for -inf")
    FLOOR_QUOTIENT = Form("floor_quotient({a}, {b})", torch="floor_divide", corners="whole numbers, no sum leaves the type")
    FLOOR_REMAINDER = Form(
        "floor_remainder({a}, {b})", torch="remainder",
        corners="whole numbers, no sum leaves the type; the sign of the divisor",
    )
    REAL_QUOTIENT = Form(
        "real_quotient({a}, {b})", torch="floor_divide",
        corners="as PyTorch: from the exact remainder; a / b by zero; -1.0 // inf is -1.0; zeros have the sign of a / b",
    )
    REAL_REMAINDER = Form(
        "real_remainder({a}, {b})", torch="remainder",
        corners="exact; the sign of the divisor; NaN by zero and of infinity",
    )
    TO_KEY = Form("as_key({a})", corners="NaN behind infinity; -0.0 ahead of 0.0")
    """The whole number whose order is that of fp32 values."""
    FROM_KEY = Form("from_key({a})", corners="the inverse of that")
    """The fp32 value of such a number."""

    __hash__ = object.__hash__

    def __call__(self, *arguments: Tree | Number) -> Applied:
        """The operator applied to trees and numbers. Raises ValueError for another number of arguments."""
        if len(arguments) != self.arity:
            raise ValueError(f"{self.name} takes {self.arity} arguments, not {len(arguments)}")
        return Applied(self, tuple(argument if isinstance(argument, Tree) else _to_tree(argument) for argument in arguments))

    @property
    def arity(self) -> int:
        """How many arguments it takes."""
        return self.value.template.count("{")

    @property
    def cost(self) -> float:
        """Operations for one element."""
        return self.value.cost

    @property
    def rising(self) -> bool:
        """Whether it never falls where an argument rises."""
        return self.value.rising


def _to_tree(number: Number) -> Tree:
    """A number that a lowering writes out: a negative one is the negation of another."""
    if isinstance(number, bool) or not math.copysign(1.0, number) < 0:
        return Constant(number)
    return Constant(number) if math.isinf(number) else Operator.NEG(Constant(-number))


def chain(operator: Operator, parts: Sequence[Tree]) -> Tree:
    """Several trees with an operator between: `chain(Operator.MUL, [A, B, C])` is `A * B * C`."""
    first, *rest = parts
    for part in rest:
        first = operator(first, part)
    return first


# Questions about trees


def iterate(tree: Tree) -> Iterator[Tree]:
    """A tree and all within it."""
    yield tree
    if isinstance(tree, Applied):
        for argument in tree.arguments:
            yield from iterate(argument)


def replace_operands(tree: Tree, leaves: Sequence[Tree]) -> Tree:
    """The tree with others in the place of its operands."""
    if isinstance(tree, Operand):
        return leaves[tree.place]
    if isinstance(tree, Applied):
        return Applied(tree.operator, tuple(replace_operands(argument, leaves) for argument in tree.arguments))
    return tree


def count_cost(tree: Tree) -> float:
    """Operations of a tree for one element."""
    return sum(part.operator.cost for part in iterate(tree) if isinstance(part, Applied))


def read_number(tree: Tree) -> Number | None:
    """The number that a tree is, with its sign; None for any other tree."""
    if isinstance(tree, Constant):
        return tree.value
    if isinstance(tree, Applied) and tree.operator in (Operator.NEG, Operator.GROUP):
        number = read_number(tree.arguments[0])
        return number if number is None or tree.operator is Operator.GROUP else -number
    return None


def is_cast(tree: Tree, operand: Tree = A) -> bool:
    """Whether a tree only brings an operand into types, or is the operand itself."""
    while isinstance(tree, Applied) and tree.operator is Operator.CAST:
        tree = tree.arguments[0]
    return tree == operand


@cache
def cast_operands(tree: Tree) -> frozenset[Tree]:
    """What is brought into another type just as it is, within a tree."""
    casts = [part for part in iterate(tree) if isinstance(part, Applied) and part.operator is Operator.CAST]
    return frozenset(part.arguments[0] for part in casts)


def drop_ones(tree: Tree) -> Tree:
    """The tree without products with a one on their left; what was a factor keeps its parentheses."""
    if not isinstance(tree, Applied):
        return tree
    arguments = tuple(drop_ones(argument) for argument in tree.arguments)
    if tree.operator is Operator.MUL and arguments[0] == Constant(1.0):
        kept = arguments[1]
        plain = not isinstance(kept, Applied) or _is_call(kept.operator)
        return kept if plain else Operator.GROUP(kept)
    return Applied(tree.operator, arguments)


# How trees are written


_MEETING = (Operator.WHERE, Operator.MAXIMUM, Operator.MINIMUM, Operator.FMAX, Operator.FMIN)
"""Functions that bring a literal and a value into one type, and do not take the literal as one of the value's."""


def write(tree: Tree, operands: Sequence[Expression], dtype: str = "", *, summed: bool = False) -> Expression:
    """The code of a tree with its operands filled in.

    Args:
        tree: an elementwise function.
        operands: the code of its operands.
        dtype: the type of the operands, as far as numbers among them have to be written for it (`write_number`). Functions of the device
            library take no number of fp32 beside one of float64.
        summed: whether it is added to a value, whose type a choice between numbers then gets.
    """
    if isinstance(tree, Operand):
        return operands[tree.place]
    if not isinstance(tree, Applied):
        return _write_leaf(tree, dtype)
    if tree.operator is Operator.NEG and (number := read_number(tree)) is not None and is_typed(number, dtype):
        return write_number(number, dtype)
    if tree.operator is Operator.WHERE and not summed and (typed := _type_choice(tree, dtype)) is not None:
        return typed(operands)
    form = _compile(tree.operator, dtype == "float64")
    summed = tree.operator in (Operator.ADD, Operator.SUB) and any(map(_is_of_operands, tree.arguments))
    if dtype in SHORT and tree.operator in _MEETING:
        return form([_write_beside(argument, operands, dtype) for argument in tree.arguments])
    outside = dtype == "float64" and tree.operator.value.template.startswith(("libdevice.", "real_"))
    return form([
        _write_typed(argument.value, dtype) if outside and isinstance(argument, Constant)
        else write(argument, operands, dtype, summed=summed)
        for argument in tree.arguments
    ])  # fmt: skip


def holds_numbers(tree: Tree, dtype: str) -> bool:
    """Whether a type of whole numbers holds all whole numbers that stand in a tree; the sign of a uint8 has a -1."""
    numbers = [number for number in map(read_number, iterate(tree)) if type(number) is int]
    return all(TYPES[dtype].round(number) == number for number in numbers)


def _write_beside(tree: Tree, operands: Sequence[Expression], dtype: str) -> Expression:
    """An argument of a choice among whole numbers of few bits: beside an int32, which a literal is, all would become one."""
    number = read_number(tree)
    return _write_typed(number, dtype) if type(number) is int else write(tree, operands, dtype)


def _is_of_operands(tree: Tree) -> bool:
    """Whether a tree has the type of operands, as a choice between numbers has not."""
    if isinstance(tree, Applied) and tree.operator is Operator.WHERE:
        return any(map(_is_of_operands, tree.arguments[1:]))
    return isinstance(tree, Operand) or (isinstance(tree, Applied) and any(map(_is_of_operands, tree.arguments)))


def _type_choice(tree: Applied, dtype: str) -> Callable[[Sequence[Expression]], Expression] | None:
    """How a choice between two numbers is written where its type would be fp32 or int32; None where nothing else is needed."""
    condition, first, second = tree.arguments
    numbers, last = (read_number(first), read_number(second)), read_number(second)
    kind = {"float64": float, "int64": int}.get(dtype)
    if kind is None or last is None or not all(type(number) is kind for number in numbers):
        return None
    form = _compile(Operator.WHERE, dtype == "float64")
    return lambda operands: form([write(condition, operands, dtype), write(first, operands, dtype), _write_typed(last, dtype)])


def is_typed(value: Number, dtype: str) -> bool:
    """Whether a number needs its type beside it to be that number among values of a type.

    Triton reads a literal as fp32, as a float64 below the normal fp32 numbers, as a uint32 from 2^31 on, and -0.0 as 0.0.
    """
    if isinstance(value, bool) or not dtype:
        return False
    if isinstance(value, float):
        small = 0.0 < abs(value) < 2.0**-126
        wide = abs(value) > TYPES["float32"].largest and math.isfinite(value)
        return _is_negative_zero(value) or small or (dtype == "float64" and (wide or TYPES["float32"].round(value) != value))
    return dtype == "int64" and 2**31 <= value < 2**32


def _is_negative_zero(value: Number) -> bool:
    return value == 0 and math.copysign(1.0, value) < 0


def write_number(value: Number, dtype: str = "") -> Expression:
    """A number among other values: a negative one in parentheses, what has no literal as a call of `float`.

    Where a literal would be another number among values of type `dtype`, its type is written beside it.
    """
    if is_typed(value, dtype):
        return _write_typed(value, dtype)
    if isinstance(value, float) and not math.isfinite(value):
        return code.Call(code.Name("float"), (code.String(f'"{value}"'),))
    found = code.number(value)
    return code.Group(found) if isinstance(found, code.Unary) and value < 0 else found


def _write_leaf(tree: Tree, dtype: str) -> Expression:
    if isinstance(tree, Constant):
        return write_number(tree.value, dtype)
    assert isinstance(tree, Type), "other leaves are operands"
    return parse_expression(TYPES[tree.dtype].triton)


def _write_typed(value: Number, dtype: str) -> Expression:
    """A number as a value of a type."""
    if isinstance(value, float) and not math.isfinite(value):
        return parse_expression(f'tl.full((), float("{value}"), tl.{dtype})')
    if _is_negative_zero(value):
        return parse_expression(f"(tl.full((), 0.0, tl.{dtype}) * -1.0)")
    return parse_expression(f"tl.full((), {value!r}, tl.{dtype})")


Write = Callable[[Sequence[Expression]], Expression]


@cache
def _read_form(operator: Operator) -> Expression:
    return parse_expression(operator.value.template)


@cache
def _is_call(operator: Operator) -> bool:
    return isinstance(_read_form(operator), code.Call | code.Group)


@cache
def _compile(operator: Operator, wide: bool = False) -> Write:
    """What fills an operator's template, or the one for float64."""
    return _compile_node(_read_form(operator) if not (wide and operator.value.wide) else parse_expression(operator.value.wide))


def _compile_node(node: Expression) -> Write:
    if isinstance(node, code.Hole):
        place = ord(node.name) - ord("a")
        return lambda arguments: arguments[place]
    if not _has_hole(node):
        return lambda arguments: node
    kind, inner = type(node), list_fields(type(node))
    makers = [_compile_field(getattr(node, entry.name), entry.name in inner) for entry in fields(node)]

    def make(arguments: Sequence[Expression]) -> Expression:
        made = kind(*[maker(arguments) for maker in makers])
        return tidy(made) if code.Group in map(type, arguments) else made

    return make


def _compile_field(value: object, inner: bool) -> Callable[[Sequence[Expression]], object]:
    if not inner or value is None:
        return lambda arguments: value
    if isinstance(value, tuple):
        several = [_compile_node(child) for child in value]
        return lambda arguments: tuple([single(arguments) for single in several])
    assert isinstance(value, Expression)
    return _compile_node(value)


def _has_hole(node: Node) -> bool:
    return isinstance(node, code.Hole) or any(map(_has_hole, node.children()))
