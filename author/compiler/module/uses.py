"""How a kernel uses a whole number: what an argument in its place may be called, and whether it may be known only at the launch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tritonsmith.author.compiler.ir import code
from tritonsmith.author.compiler.ir.code import Expression, Function, Name, Node, Number
from tritonsmith.author.compiler.ir.walk import Path, iterate

_ORDER = ("M", "N", "K", "SIZE", "LIMIT", "BLOCKS", "WIDTH", "STEPS", "STRIDE", "BOUND", "START", "BACK", "COUNT", "OFFSET")
"""Words for numbers, those that say most ahead."""
_SIZES = ("M", "N", "K", "SIZE", "LIMIT", "STRIDE")
"""Words for numbers that others may be multiples of."""
_LONGEST = 16
"""Characters of a tensor's name that the names of arguments tell."""
_SHAPED = ("zeros", "full", "reshape", "broadcast_to")
"""Functions of triton.language whose tuples are shapes."""
_BOUNDING = ("minimum", "maximum", "where")
_BOUNDED = {"m": "M", "line": "M", "n": "N", "across": "K", "down": "K"}
"""By variable of a product's kernel: the letter of its size."""
Trail = tuple[tuple[Node, int], ...]
"""The records around one, the innermost last, each with the number of the child that leads to it."""


@dataclass(frozen=True)
class NumberUse:
    """One use of a number."""

    word: str
    tensor: str = ""
    """The tensor whose addresses it is part of."""
    added: bool = False
    """Whether it is only added to a pointer."""
    passed: bool = False
    """Whether a function of the module takes it; `word` is what that calls it."""

    @property
    def rank(self) -> int:
        """Low for a use that says much about the number."""
        return len(_ORDER) if self.passed else _ORDER.index(self.word)

    @property
    def is_size(self) -> bool:
        """Whether other numbers may be multiples of it."""
        return not self.passed and self.word in _SIZES

    @property
    def is_count(self) -> bool:
        """Whether it counts what a loop does. Products of sizes and of it say something; multiples of it alone do for loops only."""
        return not self.passed and self.word in ("STEPS", "BLOCKS")

    @property
    def name(self) -> str:
        """What a constexpr argument is called."""
        named = self.word in ("STRIDE", "START", "BACK") and 0 < len(self.tensor) <= _LONGEST
        return f"{self.tensor}_{self.word}".upper() if named else self.word


@dataclass(frozen=True)
class UsedNumber:
    """A whole number of a function that may become an argument."""

    path: Path
    value: int
    use: NumberUse
    operand: bool
    """Whether it is multiplied, or divided, or divides."""


def list_numbers(function: Function, helpers: Mapping[str, tuple[str, ...]]) -> list[UsedNumber]:
    """The numbers of a function that may become arguments, in the order of the text.

    helpers: by function of the module that may take numbers: its parameters.
    """
    reader = _NumberReader(find_pointers(function), helpers)
    reader.read(function, (), ())
    return reader.numbers


def find_pointers(function: Function) -> set[str]:
    """Parameters that are pointers, and variables that are pointers with something added."""
    pointers = {one.name for one in function.parameters if one.annotation is None and _read_address(one.name)[1] == "ptr"}
    for node in iterate(function):
        match node:
            case code.Assign(targets=(Name(name=name), *_), value=Expression() as value) if pointers & {*_list_summands(value)}:
                pointers.add(name)
    return pointers


class _NumberReader:
    """Goes through a function with what is around each number."""

    def __init__(self, pointers: set[str], helpers: Mapping[str, tuple[str, ...]]) -> None:
        self.pointers, self.helpers = pointers, helpers
        self.numbers: list[UsedNumber] = []

    def read(self, node: Node, path: Path, trail: Trail) -> None:
        """Find the numbers in a record. Parentheses that the text does not need are not around anything."""
        if isinstance(node, Number):
            if trail and node.spelling.removesuffix(".0").isdigit() and (use := self.find_use(node, trail)) is not None:
                above = trail[-1][0]
                operand = isinstance(above, code.Binary) and above.operator not in ("+", "-")
                self.numbers.append(UsedNumber(path, int(node.value), use, operand))
        elif not isinstance(node, Name):
            for place, child in enumerate(node.children()):
                around = trail if isinstance(node, code.Group) else (*trail, (node, place))
                self.read(child, (*path, place), around)

    def find_use(self, node: Number, trail: Trail) -> NumberUse | None:
        """How a number is used; None where it has to stay as it is, such as an axis or a pattern of bits.

        A fraction without digits behind its point may be the divisor of a mean, which is the same as a whole number.
        """
        parent, place = trail[-1]
        if isinstance(node.value, float):
            divides = isinstance(parent, code.Binary) and parent.operator == "/" and place == 1 and not _is_constant(parent.left)
            return NumberUse("SIZE") if divides else None
        match parent:
            case code.Call():
                return self._find_call_use(parent, place - 1)
            case code.Tuple():
                call = trail[-2][0]
                shaped = isinstance(call, code.Call) and isinstance(call.function, code.Attribute) and call.function.name in _SHAPED
                return NumberUse("WIDTH") if shaped else None
            case code.Compare(operands=(first, *_)):
                left = _open(first)
                return NumberUse(_BOUNDED.get(left.name, "LIMIT") if isinstance(left, Name) else "LIMIT")
            case code.Binary() if not (_is_constant(parent.left) and _is_constant(parent.right)):
                return self._find_operand_use(parent, place, trail)
        return None

    def _find_call_use(self, call: code.Call, place: int) -> NumberUse | None:
        match call.function:
            case Name(name="range"):
                return NumberUse("STEPS" if len(call.arguments) == 1 else ("OFFSET", "K", "COUNT")[place])
            case Name(name=name):
                names = self.helpers.get(name, ())
                return NumberUse(names[place].upper(), passed=True) if place < len(names) else None
            case code.Attribute(value=Name("tl"), name="arange"):
                return NumberUse("WIDTH") if place else None
            case code.Attribute(value=Name("tl"), name="static_range"):
                return NumberUse("STEPS") if len(call.arguments) == 1 else None
            case code.Attribute(value=Name("tl"), name=name) if name in _BOUNDING:
                return NumberUse("BOUND")
        return None

    def _find_operand_use(self, parent: code.Binary, place: int, trail: Trail) -> NumberUse | None:
        outer = [node for node, _ in reversed(trail)]
        height = next(count for count, node in enumerate(outer) if not isinstance(node, code.Binary))
        top, above = outer[height - 1], outer[height]
        tensor = _find_tensor(top, above)
        match parent.operator:
            case "*":
                return NumberUse("STRIDE", tensor) if tensor else NumberUse("COUNT")
            case "//" | "%" | "/":
                left = _open(parent.left)
                counted = isinstance(left, code.Call) or left == Name("position")  # of blocks
                return NumberUse("BLOCKS" if counted else "SIZE") if place == 1 else None
            case "+" | "-":
                only_added = all(isinstance(node, code.Binary) and node.operator in ("+", "-") for node in outer[:height])
                added = only_added and bool(self.pointers & {*_list_summands(top)})
                if added and tensor:
                    return NumberUse("START" if parent.operator == "+" else "BACK", tensor, added)
                return NumberUse("COUNT" if parent.operator == "-" and place == 0 else "OFFSET")
        return None


def _open(node: Node) -> Node:
    """What stands in parentheses beyond need."""
    while isinstance(node, code.Group):
        node = node.inner
    return node


def _is_constant(node: Expression) -> bool:
    return isinstance(_open(node), Number | code.Word | code.String)


def _list_summands(node: Node) -> list[str]:
    """The names that a sum adds."""
    match _open(node):
        case code.Binary(left=left, operator="+" | "-", right=right):
            return [*_list_summands(left), *_list_summands(right)]
        case Name(name=name):
            return [name]
    return []


def _find_tensor(top: Node, above: Node) -> str:
    """The tensor whose addresses an expression gives."""
    targets = [target.name for target in above.targets if isinstance(target, Name)] if isinstance(above, code.Assign) else []
    for name in (*_list_summands(top), *targets):
        if tensor := _read_address(name)[0]:
            return tensor
    return ""


def _read_address(name: str) -> tuple[str, str]:
    """The tensor that a name is an address of, and `ptr` or `at` for a pointer or a place; twice empty for any other name."""
    tensor, _, kind = name.rpartition("_")
    if kind.isdecimal():
        tensor, _, kind = tensor.rpartition("_")
    return (tensor, kind) if tensor and kind in ("ptr", "at") else ("", "")
