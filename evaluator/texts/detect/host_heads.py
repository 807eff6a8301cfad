"""Heads of host loops: what they run over, with zip, enumerate, counting and the like taken apart, and whether that gives steps."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from tritonsmith.evaluator.texts.detect.tensors import Tensors
from tritonsmith.evaluator.texts.source.host_things import Frame
from tritonsmith.evaluator.texts.source.host_values import HostValues
from tritonsmith.evaluator.texts.source.kernel_file import HostLoop

WRAPPERS = ("enumerate", "reversed", "list", "tuple", "iter", "tqdm", "zip", "islice", "sorted", "pairwise", "chain", "deque")
"""Functions that give back what they are given, element by element."""
_KEEPS_NUMBERS = ("tolist", "cpu", "numpy", "flip", "clone", "int", "long", "to", "unbind", "cuda")
"""Methods of a tensor of numbers that give the same numbers."""


@dataclass(frozen=True)
class Head:
    """One `for target in over`, also of a comprehension."""

    target: ast.expr
    over: ast.expr


def describe_loop(loop: HostLoop) -> str:
    """The head of a loop as it is written."""
    if isinstance(loop, ast.For):
        return f"for {ast.unparse(loop.target)} in {ast.unparse(loop.iter)}"
    if isinstance(loop, ast.While):
        return f"while {ast.unparse(loop.test)}"
    return " ".join(ast.unparse(generator).strip() for generator in loop.generators)


def find_heads(loop: HostLoop) -> Iterator[Head]:
    """What a loop runs over, with zip, enumerate and the like taken apart."""
    pairs: list[tuple[ast.expr, ast.expr]] = []
    if isinstance(loop, ast.For):
        pairs = [(loop.target, _bound_count(loop))]
    elif not isinstance(loop, ast.While):
        pairs = [(generator.target, generator.iter) for generator in loop.generators]
    while pairs:
        target, over = pairs.pop()
        name = ast.unparse(over.func).rpartition(".")[2] if isinstance(over, ast.Call) else ""
        if name == "enumerate" and isinstance(target, ast.Tuple) and len(target.elts) == 2 and isinstance(over, ast.Call) and over.args:
            pairs.append((target.elts[1], over.args[0]))
            pairs.append((target.elts[0], _count_elements(over.args[0])))
        elif name in ("zip", "product") and isinstance(target, ast.Tuple) and len(target.elts) == len(getattr(over, "args", ())):
            assert isinstance(over, ast.Call)
            pairs += list(zip(target.elts, over.args, strict=True))
        elif name == "ndindex" and isinstance(target, ast.Tuple) and isinstance(over, ast.Call) and len(target.elts) == len(over.args):
            pairs += [(one, _make_range(extent)) for one, extent in zip(target.elts, over.args, strict=True)]
        elif name == "pairwise" and isinstance(target, ast.Tuple) and isinstance(over, ast.Call) and over.args:
            shifted = ast.Slice(None, ast.Constant(-1)), ast.Slice(ast.Constant(1))
            pairs += [(one, ast.Subscript(over.args[0], part, ast.Load())) for one, part in zip(target.elts, shifted, strict=False)]
        elif name in ("islice", "takewhile") and isinstance(over, ast.Call) and (counted := _read_counted(name, over)) is not None:
            pairs.append((target, _make_range(counted)))
        elif name in WRAPPERS and isinstance(over, ast.Call) and over.args:
            pairs.append((target, over.args[0]))
        else:
            yield Head(target, over)


def _is_count(node: ast.expr) -> bool:
    """`count()`, also `itertools.count(1)`."""
    return isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "count" and len(node.args) < 2


def _read_counted(name: str, over: ast.Call) -> ast.expr | None:
    """Where counting ends in `islice(count(), n)` and `takewhile(lambda i: i < n, count())`."""
    if len(over.args) != 2 or not _is_count(over.args[name == "takewhile"]):
        return None
    if name == "islice":
        return over.args[1]
    test = over.args[0].body if isinstance(over.args[0], ast.Lambda) else None
    return test.comparators[0] if isinstance(test, ast.Compare) and len(test.ops) == 1 else None


def _bound_count(loop: ast.For) -> ast.expr:
    """What a loop runs over; a range for one over `count()` that a comparison of its variable ends."""
    if not _is_count(loop.iter) or not isinstance(loop.target, ast.Name):
        return loop.iter
    for left, right in pairwise(find_conditions(loop)):
        if ast.unparse(left) == loop.target.id:
            return _make_range(right)
        if ast.unparse(right) == loop.target.id:
            return _make_range(left)
    return loop.iter


def find_conditions(loop: ast.For | ast.While) -> Iterator[ast.expr]:
    """Sides of the comparisons that end a loop: its test, and those under which it is left; a number alone is compared with zero."""
    tests = [loop.test] if isinstance(loop, ast.While) else []
    for part in ast.walk(loop):
        if isinstance(part, ast.If) and any(isinstance(inner, ast.Break | ast.Return) for inner in (*part.body, *part.orelse)):
            tests.append(part.test)
    for test in tests:
        for part in ast.walk(test):
            if isinstance(part, ast.Compare):
                yield from (part.left, *part.comparators)
        if isinstance(test, ast.Name):
            yield test


def _count_elements(over: ast.expr) -> ast.expr:
    """`range(len(over))`."""
    return _make_range(ast.Call(ast.Name("len", ast.Load()), [over], []))


def _make_range(extent: ast.expr) -> ast.expr:
    return ast.Call(ast.Name("range", ast.Load()), [extent], [])


class StepSources:
    """Tells what gives single steps of an input, or their numbers.

    Args:
        values: follows names.
        tensors: knows inputs.
    """

    def __init__(self, values: HostValues, tensors: Tensors) -> None:
        self._values = values
        self._tensors = tensors

    def find_range(self, over: ast.expr, frame: Frame, depth: int = 6) -> tuple[ast.Call, Frame] | None:
        """The range that an expression gives in some order: list(range(n)), a name for it, or a slice of it."""
        if isinstance(over, ast.Call) and ast.unparse(over.func).rpartition(".")[2] in ("range", "arange", "trange"):
            return over, frame
        parts: list[tuple[ast.expr, Frame]] = []
        if isinstance(over, ast.Call) and ast.unparse(over.func).rpartition(".")[2] in WRAPPERS:
            parts = [(part, frame) for part in over.args[:1]]
        elif isinstance(over, ast.Call) and isinstance(over.func, ast.Attribute) and over.func.attr in _KEEPS_NUMBERS:
            parts = [(over.func.value, frame)]
        elif isinstance(over, ast.Subscript):
            parts = [(over.value, frame)]
        elif isinstance(over, ast.ListComp | ast.GeneratorExp) and _is_place(over.elt) and len(over.generators) == 1:
            parts = [(over.generators[0].iter, frame)]
        elif isinstance(over, ast.IfExp):
            parts = [(over.body, frame), (over.orelse, frame)]
        elif isinstance(over, ast.Name):
            parts = [(value, where) for value, where in self._values.find_definitions(over, frame) if value is not over]
        return next((found for part, where in parts if depth and (found := self.find_range(part, where, depth - 1)) is not None), None)

    def gives_steps(self, over: ast.expr, frame: Frame, depth: int = 6) -> bool:
        """Whether iterating gives single steps of an input tensor: x, x.unbind(0), torch.unbind(x), x.split(1), x.transpose(0, 1)."""
        if depth <= 0:
            return False
        if isinstance(over, ast.Call) and isinstance(over.func, ast.Attribute):
            method = over.func.attr
            if method in ("split", "chunk", "tensor_split", "hsplit", "vsplit", "dsplit"):
                by_name = [word.value for word in over.keywords if word.arg != "dim"]
                sizes = (over.args[1:] if ast.unparse(over.func.value) == "torch" else over.args) or by_name
                if method == "split":
                    choices = [value for value, _ in self._values.find_definitions(sizes[0], frame)] if sizes else []
                    return any(_is_all_ones(size) for size in choices) and self._tensors.is_input(over, frame)
                return bool(sizes) and not isinstance(sizes[0], ast.Constant) and self._tensors.is_extent(sizes[0], frame)
            if method in ("items", "values"):
                return self.gives_steps(over.func.value, frame, depth - 1)
        if isinstance(over, ast.ListComp | ast.GeneratorExp | ast.DictComp):
            heads = list(find_heads(over))
            ranges = [found for head in heads if (found := self.find_range(head.over, frame))]
            along = any(len(found.args) < 3 and found.args and self._tensors.is_extent(found.args[-1], where) for found, where in ranges)
            along = along or any(self.gives_steps(head.over, frame, depth - 1) for head in heads)
            return self._tensors.is_input(over.value if isinstance(over, ast.DictComp) else over.elt, frame) and along
        if isinstance(over, ast.Name):
            values = [(value, where) for value, where in self._values.find_definitions(over, frame) if value is not over]
            if values:
                return any(self.gives_steps(value, where, depth - 1) for value, where in values)
        if isinstance(over, ast.Call) and ast.unparse(over.func).rpartition(".")[2] in WRAPPERS and over.args:
            return self.gives_steps(over.args[0], frame, depth - 1)
        if isinstance(over, ast.List | ast.Tuple):
            return any(self._holds_steps(part, frame, depth - 1) for part in over.elts)
        return self._tensors.is_input(over, frame)

    def _holds_steps(self, element: ast.expr, frame: Frame, depth: int) -> bool:
        """Whether an element of a list stands for steps: `*x.unbind(0)`, or what a loop over steps puts into the list."""
        if isinstance(element, ast.Starred):
            return self.gives_steps(element.value, frame, depth)
        names = [part.id for part in ast.walk(element) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load)]
        values = [value for name in names for value in self._values.find_values(name, frame)]
        items = [(value, where) for value, where, part in values if part == "item" and isinstance(value, ast.expr)]
        ranges = [found for value, where in items if (found := self.find_range(value, where)) is not None]
        counted = any(found.args and self._tensors.is_extent(found.args[-1], where) for found, where in ranges)
        steps = any(self.gives_steps(value, where, depth) for value, where in items if self.find_range(value, where) is None)
        return (counted or steps) and self._tensors.is_input(element, frame)

    def is_step(self, amount: ast.expr, frame: Frame) -> bool:
        """Whether a position moves on by one step: by 1, or in a flat sequence by the width of a step."""
        return is_one(amount) or self._tensors.counts_elements(amount, frame) or self._tensors.is_whole_extent(amount, frame)


def _is_place(element: ast.expr) -> bool:
    """Whether an element of a comprehension is a number or a slice made of numbers."""
    plain = (ast.Name, ast.Constant, ast.BinOp, ast.UnaryOp, ast.operator, ast.unaryop, ast.expr_context, ast.Tuple)
    return all(isinstance(part, plain) or isinstance(part, ast.Call) and ast.unparse(part.func) == "slice" for part in ast.walk(element))


def is_one(step: ast.expr) -> bool:
    """Whether a number is 1 or -1."""
    return ast.unparse(step) in ("1", "-1")


def read_number(node: ast.expr) -> int:
    """A number that is written out; 0 for anything else."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, int) else 0


def _is_all_ones(node: ast.expr) -> bool:
    """Whether pieces are one step long: 1, [1, 1, 1], [1] * n."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return any(isinstance(side, ast.List | ast.Tuple) and _is_all_ones(side) for side in (node.left, node.right))
    if isinstance(node, ast.List | ast.Tuple):
        return all(read_number(one) == 1 for one in node.elts)
    if isinstance(node, ast.ListComp):
        return read_number(node.elt) == 1
    return read_number(node) == 1
