"""How a kernel uses a whole number: what an argument in its place may be called, and whether it may be known only at the launch."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass

Parents = Mapping[ast.AST, ast.AST]
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
_POINTER = re.compile(r"(.+?)_(?:ptr|at)(?:_\d+)?")


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


def find_pointers(function: ast.FunctionDef) -> set[str]:
    """Arguments that are pointers, and variables that are pointers with something added."""
    found = {one.arg for one in function.args.args if one.annotation is None and re.search(r"_ptr(_\d+)?$", one.arg)}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and found & set(_list_summands(node.value)):
            found.add(node.targets[0].id)
    return found


def find_use(node: ast.Constant, parents: Parents, pointers: set[str], helpers: Mapping[str, tuple[str, ...]]) -> NumberUse | None:
    """How a number is used; None where it has to stay as it is, such as an axis or a pattern of bits.

    A fraction without digits behind its point may be the divisor of a mean, which is the same as a whole number.
    """
    parent = parents[node]
    if type(node.value) is float:
        if not isinstance(parent, ast.BinOp) or not isinstance(parent.op, ast.Div) or isinstance(parent.left, ast.Constant):
            return None
        return NumberUse("SIZE") if parent.right is node else None
    if isinstance(parent, ast.Call):
        return _find_call_use(node, parent, helpers)
    if isinstance(parent, ast.Tuple):
        call = parents[parent]
        shaped = isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in _SHAPED
        return NumberUse("WIDTH") if shaped else None
    if isinstance(parent, ast.Compare):
        return NumberUse(_BOUNDED.get(parent.left.id, "LIMIT") if isinstance(parent.left, ast.Name) else "LIMIT")
    if not isinstance(parent, ast.BinOp) or isinstance(parent.left, ast.Constant) and isinstance(parent.right, ast.Constant):
        return None
    top: ast.AST = parent
    while isinstance(parents[top], ast.BinOp):
        top = parents[top]
    tensor = _find_tensor(top, parents[top])
    if isinstance(parent.op, ast.Mult):
        return NumberUse("STRIDE", tensor) if tensor else NumberUse("COUNT")
    if isinstance(parent.op, ast.FloorDiv | ast.Mod | ast.Div):
        counted = isinstance(parent.left, ast.Call) or isinstance(parent.left, ast.Name) and parent.left.id == "position"  # of blocks
        return NumberUse("BLOCKS" if counted else "SIZE") if parent.right is node else None
    if not isinstance(parent.op, ast.Add | ast.Sub):
        return None
    chain: ast.AST = parent
    while isinstance(above := parents[chain], ast.BinOp) and isinstance(above.op, ast.Add | ast.Sub):
        chain = above
    added = chain is top and bool(pointers & set(_list_summands(chain)))
    if added and tensor:
        return NumberUse("START" if isinstance(parent.op, ast.Add) else "BACK", tensor, added)
    return NumberUse("COUNT" if isinstance(parent.op, ast.Sub) and parent.left is node else "OFFSET")


def _find_call_use(node: ast.Constant, call: ast.Call, helpers: Mapping[str, tuple[str, ...]]) -> NumberUse | None:
    if node not in call.args:
        return None
    place = call.args.index(node)
    if isinstance(call.func, ast.Name):
        if call.func.id == "range":
            return NumberUse("STEPS" if len(call.args) == 1 else ("OFFSET", "K", "COUNT")[place])
        names = helpers.get(call.func.id, ())
        return NumberUse(names[place].upper(), passed=True) if place < len(names) else None
    if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Name) and call.func.value.id == "tl":
        if call.func.attr == "arange":
            return NumberUse("WIDTH") if place else None
        if call.func.attr == "static_range":
            return NumberUse("STEPS") if len(call.args) == 1 else None
        return NumberUse("BOUND") if call.func.attr in _BOUNDING else None
    return None


def _list_summands(node: ast.AST) -> list[str]:
    """The names that a sum adds."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        return [*_list_summands(node.left), *_list_summands(node.right)]
    return [node.id] if isinstance(node, ast.Name) else []


def _find_tensor(top: ast.AST, above: ast.AST) -> str:
    """The tensor whose addresses an expression gives."""
    targets = [one.id for one in above.targets if isinstance(one, ast.Name)] if isinstance(above, ast.Assign) else []
    for name in (*_list_summands(top), *targets):
        if (found := _POINTER.fullmatch(name)) is not None:
            return found[1]
    return ""
