"""How a kernel uses a constant: as the extent of a tile that is stepped over, to order programs, to count, or for the pipeline."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from tritonsmith.evaluator.texts.source.kernel_file import KernelSource

_SHAPED = {"arange", "zeros", "full", "make_block_ptr", "make_tensor_descriptor", "_experimental_make_tensor_descriptor"}
"""Functions of the language that take the extents of a tile."""
_STRIDES = {"strides", "offsets", "order", "base", "shape"}
"""Arguments of block pointers that are no extents of the tile."""
_PLACES = {"make_block_ptr": 5, "make_tensor_descriptor": 3, "_experimental_make_tensor_descriptor": 3}
"""By function, the number of the argument ahead of which no extents of the tile stand."""
_LOOPS = {"range", "static_range"}
_DEPTH = 4
"""Helpers in a chain that are followed."""


@dataclass
class ConstantUse:
    """How one constant is used in a kernel, helpers included."""

    extent: bool = False
    """It is an extent of a tile."""
    stepped: bool = False
    """Programs or a loop step by it: whatever its value, all elements are visited."""
    ordered: bool = False
    """The number of a program is divided by what is computed from it."""
    counted: bool = False
    """A loop runs so many times."""
    pipeline: bool = False
    """It is the number of pipeline stages of a loop."""


class KernelUses:
    """Reads how one kernel uses its constants.

    Args:
        index: the file.
        kernel: a jit function of it.
    """

    def __init__(self, index: KernelSource, kernel: ast.FunctionDef, depth: int = 0) -> None:
        self._index = index
        self._kernel = kernel
        self.kernel = kernel.name
        self._depth = depth
        self._above = {child: node for node in ast.walk(kernel) for child in ast.iter_child_nodes(node)}
        self._moving = self._find_moving()
        self.has_loop = any(isinstance(node, ast.For | ast.While) for node in ast.walk(kernel))
        self.has_dot = any(self._language(call) in ("dot", "dot_scaled") for call in ast.walk(kernel) if isinstance(call, ast.Call))
        self.asks_programs = any(self._language(call) == "num_programs" for call in ast.walk(kernel) if isinstance(call, ast.Call))

    def _language(self, call: ast.Call) -> str:
        return self._index.resolve_language_name(call.func)

    def _find_moving(self) -> set[str]:
        """Names that depend on the program or on the turn of a loop."""
        moving: set[str] = set()
        for node in ast.walk(self._kernel):
            if isinstance(node, ast.For):
                moving |= {name.id for name in ast.walk(node.target) if isinstance(name, ast.Name)}
        while True:
            before = len(moving)
            for node in ast.walk(self._kernel):
                if not isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign) or node.value is None:
                    continue
                if self._moves(node.value, moving):
                    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                    moving |= {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}
            if len(moving) == before:
                return moving

    def _moves(self, node: ast.AST, moving: set[str]) -> bool:
        return any(
            (isinstance(part, ast.Name) and part.id in moving)
            or (isinstance(part, ast.Call) and self._language(part) in ("program_id", "num_programs"))
            for part in ast.walk(node)
        )

    def of(self, name: str) -> ConstantUse:
        """How the constant of this name is used; a constant that is only handed on to a helper counts as that uses it."""
        usage = ConstantUse()
        same, computed = {name} | self._find_copies(name), self._find_computed(name)
        for node in ast.walk(self._kernel):
            if isinstance(node, ast.Name) and node.id in same and isinstance(node.ctx, ast.Load):
                self._note(node, usage)
            elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv | ast.Mod) and self._moves(node.left, self._moving):
                usage.ordered |= any(isinstance(part, ast.Name) and part.id in computed for part in ast.walk(node.right))
            elif isinstance(node, ast.Call) and self._language(node) in ("arange", "zeros", "full"):
                usage.extent |= any(isinstance(part, ast.Name) and part.id in computed for part in ast.walk(node))
        return usage

    def _find_computed(self, name: str) -> set[str]:
        """The constant, and numbers computed from it that are the same for all programs."""
        found = {name}
        while True:
            before = len(found)
            for node in ast.walk(self._kernel):
                if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None or self._moves(node.value, self._moving):
                    continue
                if _is_number(node.value) and any(isinstance(part, ast.Name) and part.id in found for part in ast.walk(node.value)):
                    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                    found |= {target.id for target in targets if isinstance(target, ast.Name)}
            if len(found) == before:
                return found

    def _find_copies(self, name: str) -> set[str]:
        """Other names for the constant: `b: tl.constexpr = BLOCK`."""
        return {
            target.id
            for node in ast.walk(self._kernel)
            if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Name) and node.value.id == name
            for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
            if isinstance(target, ast.Name)
        }

    def _note(self, node: ast.expr, usage: ConstantUse) -> None:
        below: ast.AST = node
        while (above := self._above.get(below)) is not None and above is not self._kernel:
            if isinstance(above, ast.keyword):
                usage.pipeline |= above.arg == "num_stages"
                if above.arg in _STRIDES or above.arg == "num_stages":
                    usage.stepped |= above.arg == "offsets"
                    return
            elif isinstance(above, ast.Call):
                if self._note_call(above, below, node, usage):
                    return
            elif isinstance(above, ast.BinOp):
                other = above.right if above.left is below else above.left
                if isinstance(above.op, ast.Mult) and self._moves(other, self._moving):
                    usage.stepped = True
                elif isinstance(above.op, ast.FloorDiv | ast.Mod) and above.right is below:
                    usage.stepped |= not self._moves(other, self._moving)
            elif isinstance(above, ast.AugAssign) and self._in_loop(above) and isinstance(above.op, ast.Add):
                usage.stepped = True
            below = above

    def _note_call(self, call: ast.Call, below: ast.AST, node: ast.expr, usage: ConstantUse) -> bool:
        """Note a use as an argument; whether nothing further out matters."""
        name = self._language(call) or (call.func.id if isinstance(call.func, ast.Name) else "")
        place = next((number for number, argument in enumerate(call.args) if argument is below), None)
        if name in _SHAPED:
            first = _PLACES.get(name)
            if first is None or place is None or place >= first - 1:
                usage.extent = True
            elif name == "make_block_ptr" and place == 3:
                usage.stepped = True
            return True
        if name == "cdiv" and place == 1:
            usage.stepped = True
        if name in _LOOPS:
            steps = len(call.args) == 3 and place == 2
            usage.stepped |= steps
            usage.counted |= below is node and place is not None and not steps and place == len(call.args[:2]) - 1
        usage.stepped |= name == "advance"
        usage.ordered |= name == "swizzle2d" and place == 4
        if isinstance(call.func, ast.Name) and call.func.id in self._index.jit and self._depth < _DEPTH:
            self._follow(call, below, node, usage)
            return True
        return False

    def _follow(self, call: ast.Call, below: ast.AST, node: ast.expr, usage: ConstantUse) -> None:
        """Add how a helper uses what it is given."""
        assert isinstance(call.func, ast.Name)
        helper = self._index.jit[call.func.id]
        names = [argument.arg for argument in helper.args.args]
        given = dict(zip(names, call.args, strict=False)) | {word.arg: word.value for word in call.keywords if word.arg}
        for parameter, argument in given.items():
            if argument is node or argument is below:
                inner = KernelUses(self._index, helper, self._depth + 1).of(parameter)
                usage.extent |= inner.extent
                usage.stepped |= inner.stepped
                usage.ordered |= inner.ordered
                usage.counted |= inner.counted
                usage.pipeline |= inner.pipeline
        if any(isinstance(other, ast.BinOp) for other in (below,)) and self._moves(call, self._moving):
            usage.stepped = True

    def _in_loop(self, node: ast.AST) -> bool:
        above = self._above.get(node)
        while above is not None and above is not self._kernel:
            if isinstance(above, ast.For | ast.While):
                return True
            above = self._above.get(above)
        return False


def _is_number(value: ast.expr) -> bool:
    """Whether an expression is arithmetic, and no tile."""
    return not any(isinstance(part, ast.Call) and ast.unparse(part.func).split(".")[-1] in (*_SHAPED, "load") for part in ast.walk(value))
