"""Which expressions of host code are activations, which are weights, and which are extents of a tensor."""

from __future__ import annotations

import ast

from tritonsmith.evaluator.texts.source.host_things import Frame, ThingKind
from tritonsmith.evaluator.texts.source.host_values import HostValues

_DEPTH = 8
"""Steps from a name to the tensor that it is made of."""
_FIGURES = ("shape", "dtype", "device", "ndim", "size", "stride", "numel", "dim", "requires_grad", "is_cuda", "layout", "element_size")
"""Attributes of a tensor that are no tensor."""
_SHARES = ("cdiv", "ceil_div", "log2", "bit_length", "next_power_of_2", "ceil")
"""Functions that make another number of an extent: of tiles, or of stages of a tree."""

MAKERS = (
    "empty", "zeros", "ones", "full", "empty_like", "zeros_like", "ones_like", "full_like", "new_empty", "new_zeros", "new_ones",
    "new_full", "empty_strided",
)  # fmt: skip
"""Functions that make a tensor of some size."""


class Tensors:
    """Answers questions about expressions.

    Args:
        values: follows names.
    """

    def __init__(self, values: HostValues) -> None:
        self._values = values

    def is_input(self, node: ast.AST | None, frame: Frame, depth: int = _DEPTH) -> bool:
        """Whether an expression is a tensor that rests on forward's arguments, such as an input or a state, and no weight."""
        if depth <= 0 or node is None:
            return False
        less = depth - 1
        if isinstance(node, ast.Name):
            return self._is_input_name(node.id, frame, less)
        if isinstance(node, ast.Attribute):
            found = self.find_attribute(node, frame)
            if found is not None:
                return any(self.is_input(value, where, less) for value, where in found)
            return node.attr not in _FIGURES and self.is_input(node.value, frame, less)
        if isinstance(node, ast.Call):
            inner = [node.func.value] if isinstance(node.func, ast.Attribute) and node.func.attr not in _FIGURES else []
            written = bool(node.args) and isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str)
            given = node.args[1:] if written else node.args[:1]  # behind an equation any operand may be the input
            named = [word.value for word in node.keywords if word.arg in ("input", "tensor", "tensors")]
            return any(self.is_input(part, frame, less) for part in [*inner, *given, *named])
        if isinstance(node, ast.Subscript | ast.Starred | ast.NamedExpr):
            return self.is_input(node.value, frame, less)
        parts: list[ast.expr] = []
        if isinstance(node, ast.BinOp):
            parts = [node.left, node.right]
        elif isinstance(node, ast.IfExp):
            parts = [node.body, node.orelse]
        elif isinstance(node, ast.BoolOp):
            parts = node.values
        elif isinstance(node, ast.List | ast.Tuple):
            parts = node.elts
        elif isinstance(node, ast.ListComp | ast.GeneratorExp):
            parts = [node.elt]
        elif isinstance(node, ast.DictComp):
            parts = [node.value]
        return any(self.is_input(part, frame, less) for part in parts)

    def _is_input_name(self, name: str, frame: Frame, depth: int) -> bool:
        if name in ("self", "ctx"):
            return False
        at: Frame | None = frame
        while at is not None and at.function is not None and name not in self._values.names.read_parameters(at.function):
            at = at.outer
        if at is not None and at.function is not None and name not in at.given and getattr(at.function, "name", "") != "__init__":
            return True  # a parameter that no call in sight gives
        return any(self.is_input(value, where, depth) for value, where in self._values.find_nodes(name, frame))

    def find_attribute(self, node: ast.Attribute, frame: Frame) -> list[tuple[ast.expr, Frame]] | None:
        """What an attribute of an object of the file is set to; nothing for methods, None for attributes of other things."""
        bases = [base for base in self._values.find(node.value, frame) if base.kind is ThingKind.OBJECT]
        if not bases:
            return None
        return [
            (value, self._values.members.enter_method(base, base.name, method))
            for base in bases
            for value, method in self._values.names.find_attribute_values(base.name, node.attr)
        ]

    def rests_on_model(self, node: ast.AST, frame: Frame, depth: int = _DEPTH) -> bool:
        """Whether an expression, or what its names are set to, names an attribute of the model that is no activation, such as a weight."""
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") in MAKERS or self.is_input(node, frame):
            return False  # it may be of a size that the model says
        if isinstance(node, ast.Attribute) and (found := self.find_attribute(node, frame)) is not None:
            is_method = any(node.attr in self._values.index.find_methods(base.name) for base in self._values.find(node.value, frame))
            if not is_method and not any(self._is_activation(value, where, depth) for value, where in found):
                return True
        if isinstance(node, ast.Name) and depth > 0 and node.id != "self":
            values = self._values.find_nodes(node.id, frame)
            if any(value is not node and self.rests_on_model(value, where, depth - 2) for value, where in values):
                return True
        children: list[ast.expr] = [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
        if isinstance(node, ast.IfExp):
            children = [node.body, node.orelse]
        elif isinstance(node, ast.Subscript):
            children = [node.value]
        return any(self.rests_on_model(child, frame, depth) for child in children)

    def _is_activation(self, value: ast.expr, frame: Frame, depth: int) -> bool:
        """Whether what an attribute was set to is no part of the model: it was made while forward runs, and of no weight."""
        if self.is_input(value, frame):
            return True
        method = getattr(frame.function, "name", "__init__")
        made = frame.maker.frame.function if frame.maker is not None and frame.maker.frame is not None else None
        while_running = method != "__init__" or made is not None and getattr(made, "name", "") != "__init__"
        return while_running and isinstance(value, ast.Call) and depth > 0 and not self.rests_on_model(value, frame, depth - 2)

    def is_extent(self, node: ast.AST | None, frame: Frame, depth: int = _DEPTH) -> bool:
        """Whether a number is an extent of an activation: x.shape[i], x.size(i), len(x), or a name for one."""
        if node is None or depth <= 0:
            return False
        for part in ast.walk(node):
            if isinstance(part, ast.Attribute) and part.attr in _SHARES or isinstance(part, ast.Name) and part.id in _SHARES:
                return False
            if isinstance(part, ast.BinOp) and isinstance(part.op, ast.FloorDiv | ast.Div | ast.RShift):
                return False
        for part in ast.walk(node):
            if isinstance(part, ast.Attribute) and part.attr in ("shape", "size") and not self.rests_on_model(part.value, frame):
                return True
            if isinstance(part, ast.Call) and getattr(part.func, "id", "") == "len" and part.args:
                if self.is_input(part.args[0], frame):
                    return True
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load):
                values = self._values.find_nodes(part.id, frame)
                if any(value is not node and self.is_extent(value, where, depth - 2) for value, where in values):
                    return True
            elif isinstance(part, ast.Attribute) and (found := self.find_attribute(part, frame)):
                if any(self.is_extent(value, where, depth - 2) for value, where in found):
                    return True
        return False

    def is_whole_extent(self, node: ast.AST, frame: Frame, depth: int = 4) -> bool:
        """Whether a number is nothing but one extent of an input: x.shape[i], x.size(i), or a name for one, also of `B, T = x.shape`."""
        if isinstance(node, ast.Name) and depth > 0:
            values = self._values.find_nodes(node.id, frame)
            return bool(values) and all(value is not node and self.is_whole_extent(value, where, depth - 1) for value, where in values)
        if isinstance(node, ast.Call):
            return getattr(node.func, "attr", "") == "size" and self.is_whole_extent(node.func, frame, 0)
        part = node.value if isinstance(node, ast.Subscript) else node
        return isinstance(part, ast.Attribute) and part.attr in ("shape", "size") and self.is_input(part.value, frame)

    def counts_elements(self, node: ast.AST, frame: Frame, depth: int = 4) -> bool:
        """Whether a number says how far parts of an activation lie apart: x[0].numel(), x.stride(0), or a name for one."""
        if isinstance(node, ast.Name) and depth > 0:
            values = self._values.find_nodes(node.id, frame)
            return any(value is not node and self.counts_elements(value, where, depth - 1) for value, where in values)
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or not self.is_input(node.func.value, frame):
            return False
        return node.func.attr == "stride" or node.func.attr == "numel" and isinstance(node.func.value, ast.Subscript)

    def is_figure(self, node: ast.AST | None, frame: Frame, depth: int = 4) -> bool:
        """Whether an expression is a number of the text or one that a tensor's layout gives."""
        if isinstance(node, ast.Constant):
            return isinstance(node.value, int) and not isinstance(node.value, bool)
        if isinstance(node, ast.BinOp):
            return self.is_figure(node.left, frame, depth) and self.is_figure(node.right, frame, depth)
        if isinstance(node, ast.Name) and depth > 0:
            values = list(self._values.find_values(node.id, frame))
            return bool(values) and all(value is not node and self.is_figure(value, where, depth - 1) for value, where, _ in values)
        if isinstance(node, ast.Subscript):
            return self.is_figure(node.value, frame, depth)
        named = node.func if isinstance(node, ast.Call) else node
        return isinstance(named, ast.Attribute) and named.attr in _FIGURES
