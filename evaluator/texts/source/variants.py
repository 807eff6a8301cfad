"""What a variant of a kernel file changes, read from both texts. Nothing is run."""

from __future__ import annotations

import ast
from enum import IntEnum

from tritonsmith.evaluator.errors import KernelFileError
from tritonsmith.evaluator.texts.source.kernel_file import KernelSource, read_kernel_source

_OPTIONS = frozenset({"num_warps", "num_stages", "maxnreg"})
"""Options of a launch that the compiler alone reads."""
_TAKE_OPTIONS = frozenset({"triton.Config", "triton.language.range"})
"""What takes such options besides a launch."""
_PURE = frozenset({"min", "max", "int", "triton.cdiv", "triton.next_power_of_2"})
"""Functions of numbers, which launch nothing."""


class Reach(IntEnum):
    """How far a difference between two texts can reach, nearest first."""

    OPTIONS = 0
    """Compiler options of launches, such as num_warps. The same programs do the same work."""
    LAUNCHED = 1
    """Constants that only kernels and launches read. The same launches are made, but of other programs."""
    ANYTHING = 2


def compare_texts(base: str, variant: str) -> Reach:
    """How far the difference reaches; ANYTHING where a text cannot be read, or where more than constants differ."""
    try:
        first, second = read_kernel_source(base, "base"), read_kernel_source(variant, "variant")
        found = _find_changed_constants(first.tree, second.tree)
        readers = _Readers(first)
        return Reach.ANYTHING if found is None else max((readers.of(node) for node in found), default=Reach.OPTIONS)
    except (KernelFileError, RecursionError, MemoryError):
        return Reach.ANYTHING


def _find_changed_constants(first: ast.AST, second: ast.AST) -> list[ast.Constant] | None:
    """Constants of the first tree that are others in the second; None where the trees differ in anything else but docstrings."""
    changed: list[ast.Constant] = []
    waiting: list[tuple[object, object]] = [(first, second)]
    while waiting:
        one, other = waiting.pop()
        if type(one) is not type(other):
            return None
        if isinstance(one, ast.Constant) and isinstance(other, ast.Constant):
            if (type(one.value), one.value) != (type(other.value), other.value):
                changed.append(one)
        elif isinstance(one, ast.AST) and isinstance(other, ast.AST):
            waiting += [(getattr(one, name, None), getattr(other, name, None)) for name in one._fields]
        elif isinstance(one, list) and isinstance(other, list):
            one, other = _drop_docstring(one), _drop_docstring(other)
            if len(one) != len(other):
                return None
            waiting += zip(one, other, strict=True)
        elif one != other:
            return None
    return changed


def _drop_docstring(nodes: list[object]) -> list[object]:
    """Statements without a text that stands first."""
    first = nodes[0] if nodes else None
    told = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    return nodes[1:] if told else nodes


class _Readers:
    """Who reads a constant of a file.

    Args:
        index: the file.
    """

    def __init__(self, index: KernelSource) -> None:
        self._index = index
        self._above = {child: node for node in ast.walk(index.tree) for child in ast.iter_child_nodes(node)}
        self._kernels = set(index.jit.values())
        self._names: dict[str, list[ast.Name]] = {}
        for node in ast.walk(index.tree):
            if isinstance(node, ast.Name):
                self._names.setdefault(node.id, []).append(node)

    def of(self, node: ast.expr, seen: frozenset[str] = frozenset()) -> Reach:
        """How far a constant reaches, or a name that holds it; `seen` are the names on the way to it."""
        below: ast.AST = node
        way: set[ast.AST] = {node}
        inside = Reach.LAUNCHED if self._in_kernel(node) else Reach.ANYTHING
        while (above := self._above.get(below)) is not None:
            if isinstance(above, ast.Call):
                option = isinstance(below, ast.keyword) and below.arg in _OPTIONS
                launch = self._index.find_launched_kernel(above) is not None
                name = self._index.resolve_name(above.func)
                if option and (launch or name in _TAKE_OPTIONS):
                    return Reach.OPTIONS
                if launch or name not in _PURE:
                    return Reach.LAUNCHED if launch else inside
            if isinstance(above, ast.Assign | ast.AnnAssign):
                return min(inside, self._of_target(above, way, seen))
            if isinstance(above, ast.stmt):
                return inside
            below = above
            way.add(above)
        return inside

    def _in_kernel(self, node: ast.AST) -> bool:
        """Whether it stands in a jit function, its decorators included: nothing there makes a launch."""
        above: ast.AST | None = node
        while above is not None and above not in self._kernels:
            above = self._above.get(above)
        return above is not None

    def _of_target(self, assignment: ast.Assign | ast.AnnAssign, way: set[ast.AST], seen: frozenset[str]) -> Reach:
        """How far a part of an assignment's value reaches, the one that `way` passes: as far as the furthest reader of its name."""
        targets = assignment.targets if isinstance(assignment, ast.Assign) else [assignment.target]
        target, value = targets[0], assignment.value
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            target = next(name for name, part in zip(target.elts, value.elts, strict=True) if part in way)
        if len(targets) != 1 or not isinstance(target, ast.Name) or target.id in seen:
            return Reach.ANYTHING
        places = [name for name in self._names[target.id] if name is not target]
        if not all(isinstance(name.ctx, ast.Load) for name in places):
            return Reach.ANYTHING
        return max((self.of(name, seen | {target.id}) for name in places), default=Reach.OPTIONS)
