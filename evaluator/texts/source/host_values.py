"""What an expression of host code may stand for: a kernel, a launch, a function, class or object of the file, or a name from outside.

Names are followed through assignments, arguments, closures, attributes of objects, tables, and what functions give back.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from tritonsmith.evaluator.texts.source.host_members import Members, bind
from tritonsmith.evaluator.texts.source.host_names import Names, has_decorator
from tritonsmith.evaluator.texts.source.host_results import find_outside_result
from tritonsmith.evaluator.texts.source.host_things import Frame, Thing, ThingKind
from tritonsmith.evaluator.texts.source.kernel_file import KernelSource

_DEPTH = 14
"""Steps from a name to what it stands for."""


class HostValues:
    """Follows expressions of host code.

    Args:
        index: the file.
    """

    def __init__(self, index: KernelSource) -> None:
        self.index = index
        self.names = Names(index)
        self.top = Frame()
        self.members = Members(self)
        self._known: dict[tuple[int, int], list[Thing]] = {}
        self._kept: list[object] = []  # so that no other object gets the identity of one that is known

    def find(self, node: ast.expr | None, frame: Frame, depth: int = _DEPTH) -> list[Thing]:
        """What an expression may stand for; nothing for tensors and numbers."""
        if node is None or depth <= 0:
            return []
        key = id(node), id(frame)
        if key not in self._known:
            self._known[key] = []  # for an expression that leads back to itself
            self._kept += [node, frame]
            self.index.count_step()
            self._known[key] = list(dict.fromkeys(self._find(node, frame, depth)))
        return self._known[key]

    def _find(self, node: ast.expr, frame: Frame, depth: int) -> Iterator[Thing]:
        less = depth - 1
        if isinstance(node, ast.Name):
            yield from self._find_name(node.id, frame, less)
        elif isinstance(node, ast.Attribute):
            bases = self.find(node.value, frame, less)
            for base in bases:
                yield from self.members.find_attribute(base, node.attr, less)
            if not bases:
                yield Thing(ThingKind.METHOD, node.attr, node.value, frame)
        elif isinstance(node, ast.Call):
            for called in self.find(node.func, frame, less):
                yield from self._find_result(called, node, frame, less)
        elif isinstance(node, ast.Subscript):
            for base in self.find(node.value, frame, less):
                yield from [Thing(ThingKind.LAUNCHER, base.name, node, frame)] if base.kind is ThingKind.KERNEL else base.parts
        elif isinstance(node, ast.Lambda):
            yield Thing(ThingKind.FUNCTION, "lambda", node, frame)
        elif isinstance(node, ast.NamedExpr | ast.Starred | ast.Await):
            yield from self.find(node.value, frame, less)
        elif isinstance(node, ast.IfExp | ast.BoolOp):
            sides = node.values if isinstance(node, ast.BoolOp) else [node.body, node.orelse]
            yield from (thing for side in sides for thing in self.find(side, frame, less))
        elif parts := self._find_parts(node, frame, less):
            yield Thing(ThingKind.TABLE, parts=parts)

    def _find_parts(self, node: ast.expr, frame: Frame, depth: int) -> tuple[Thing, ...]:
        """Elements of a table that is written out."""
        inner: Iterable[ast.expr | None] = ()
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            inner = node.elts
        elif isinstance(node, ast.Dict):
            inner = node.values
        elif isinstance(node, ast.ListComp | ast.GeneratorExp | ast.SetComp):
            inner = [node.elt]
        elif isinstance(node, ast.DictComp):
            inner = [node.value]
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.BitOr | ast.Mult):
            inner = [node.left, node.right]
        return self.open(inner, frame, depth)

    def open(self, nodes: Iterable[ast.expr | None], frame: Frame, depth: int) -> tuple[Thing, ...]:
        """What expressions stand for, tables within by their elements."""
        found = (thing for node in nodes for thing in self.find(node, frame, depth))
        return tuple(dict.fromkeys(inner for thing in found for inner in (thing.parts if thing.kind is ThingKind.TABLE else (thing,))))

    def _find_name(self, name: str, frame: Frame, depth: int) -> Iterator[Thing]:
        if name == "self" and frame.owner:
            yield frame.maker or Thing(ThingKind.OBJECT, frame.owner)
            return
        if name == "cls" and frame.owner and name not in frame.given:
            yield Thing(ThingKind.CLASS, frame.owner)
            return
        for value, where, part in self.find_values(name, frame):
            if isinstance(value, ast.FunctionDef | ast.AsyncFunctionDef):
                kernel = value.name in self.index.jit
                yield Thing(ThingKind.KERNEL, value.name) if kernel else Thing(ThingKind.FUNCTION, value.name, value, where)
            elif isinstance(value, ast.ClassDef):
                yield Thing(ThingKind.CLASS, value.name)
            elif isinstance(value, ast.expr):
                found = self.find(value, where, depth)
                yield from found if part is None else (inner for thing in found for inner in thing.parts or (thing,))
            else:
                yield Thing(ThingKind.OUTSIDE, str(part))

    def find_values(self, name: str, frame: Frame) -> Iterator[tuple[ast.AST | None, Frame, int | str | None]]:
        """What a name is set to: a value with its frame, and the name's place in it where it is only a part.

        For what is imported, and for names of Python itself, there is no value and the full name in place of the part.
        """
        at: Frame | None = frame
        while at is not None:
            bound = self.names.read(at.function).get(name, [])
            if name in at.given:
                yield at.given[name].node, at.given[name].frame, None
            yield from ((value, at, part) for value, part in bound)
            if bound or name in at.given:
                return
            if at.function is not None and name in self.names.read_parameters(at.function):
                default = self.names.read_default(at.function, name)
                if default is not None:
                    yield default, self.top, None
                return
            at = at.outer or (self.top if at.function is not None else None)
        yield None, self.top, self.index.aliases.get(name, name)

    def find_nodes(self, name: str, frame: Frame) -> list[tuple[ast.AST, Frame]]:
        """What a name is set to in the text, whole or as a part."""
        return [(value, where) for value, where, _ in self.find_values(name, frame) if value is not None]

    def _find_result(self, called: Thing, node: ast.Call, frame: Frame, depth: int) -> Iterator[Thing]:
        """What a call gives back."""
        if called.kind is ThingKind.FUNCTION:
            yield from self.find_returned(called, node, frame, depth)
        elif called.kind is ThingKind.CLASS:
            yield Thing(ThingKind.OBJECT, called.name, node, frame)
        elif called.kind is ThingKind.METHOD and called.parts:
            yield from called.parts if called.name in ("get", "pop", "setdefault") else [Thing(ThingKind.TABLE, parts=called.parts)]
        elif called.kind is ThingKind.OUTSIDE:
            yield from find_outside_result(self, called.name, node, frame, depth)
        elif called.kind in (ThingKind.MADE, ThingKind.OBJECT):
            yield from (thing for thing in self.open(node.args, frame, depth) if thing.kind in (ThingKind.FUNCTION, ThingKind.KERNEL))

    def find_returned(self, called: Thing, node: ast.Call | None, frame: Frame, depth: int) -> Iterator[Thing]:
        """What a function may return, and what a generator gives as elements."""
        inside = self.enter(called, node, frame)
        if isinstance(inside.function, ast.Lambda):
            yield from self.find(inside.function.body, inside, depth)
        elif inside.function is not None:
            returned, yielded = self.names.read_results(inside.function)
            yield from (thing for value in returned for thing in self.find(value, inside, depth))
            if parts := self.open(yielded, inside, depth):
                yield Thing(ThingKind.TABLE, parts=parts)

    def enter(self, called: Thing, node: ast.Call | None, frame: Frame) -> Frame:
        """The frame of a function that a call enters."""
        function, around = called.node, called.frame or self.top
        assert isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        given = bind(function, node, frame, called.skip, called.before)
        return Frame(function, around.owner, given, around if around.function is not None else None, around.maker)

    def find_entered(self, called: Thing) -> Iterator[Thing]:
        """Functions of the file that run when a thing is called."""
        if called.kind is ThingKind.FUNCTION:
            yield called
        elif called.kind in (ThingKind.OBJECT, ThingKind.CLASS):
            methods = self.index.find_methods(called.name)
            name = "__init__" if called.kind is ThingKind.CLASS else "__call__" if "__call__" in methods else "forward"
            if name in methods:
                maker = called if called.kind is ThingKind.OBJECT else None
                yield Thing(ThingKind.FUNCTION, name, methods[name], Frame(owner=called.name, maker=maker), skip=1)
        elif called.kind in (ThingKind.MADE, ThingKind.TABLE):
            yield from (inner for part in called.parts if part.kind is not ThingKind.CLASS for inner in self.find_entered(part))

    def find_definitions(self, node: ast.expr, frame: Frame, depth: int = _DEPTH) -> Iterator[tuple[ast.expr, Frame]]:
        """What a name or an attribute of an object was set to, followed to expressions that are neither; other expressions as they are."""
        if not isinstance(node, ast.Name | ast.Attribute):
            yield node, frame
            return
        values: list[tuple[ast.AST | None, Frame]] = []
        if isinstance(node, ast.Name):
            values = [(value, where) for value, where, part in self.find_values(node.id, frame) if part is None]
        else:
            for base in self.find(node.value, frame):
                if base.kind is ThingKind.OBJECT:
                    method = self.index.find_methods(base.name).get(node.attr)
                    if method is not None and has_decorator(method, "property", "cached_property"):
                        inside = Frame(method, base.name, maker=base)
                        values += [(value, inside) for value in self.names.read_results(method)[0]]
                    found = self.names.find_attribute_values(base.name, node.attr)
                    values += [(value, self.members.enter_method(base, base.name, method)) for value, method in found]
        for value, where in values if depth > 0 else ():
            if isinstance(value, ast.expr):
                yield from self.find_definitions(value, where, depth - 1)
