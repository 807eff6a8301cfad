"""Attributes and methods of things in host code."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tritonsmith.evaluator.texts.source.host_names import has_decorator
from tritonsmith.evaluator.texts.source.host_things import Frame, Given, Routine, Thing, ThingKind
from tritonsmith.evaluator.texts.source.kernel_file import Function

if TYPE_CHECKING:
    from tritonsmith.evaluator.texts.source.host_values import HostValues

_OF_TABLES = ("values", "items", "get", "pop", "copy", "setdefault", "children", "modules", "named_children")
"""Methods that give elements of a table."""

_SAME = {
    (ThingKind.MADE, "forward"), (ThingKind.MADE, "__call__"), (ThingKind.FUNCTION, "default"), (ThingKind.FUNCTION, "__wrapped__"),
}  # fmt: skip
"""Attributes that stand for the thing itself."""


class Members:
    """Finds attributes.

    Args:
        values: follows expressions.
    """

    def __init__(self, values: HostValues) -> None:
        self._values = values
        self._index = values.index
        self._names = values.names
        self._frames: dict[tuple[int, int, str], Frame] = {}
        self._kept: list[object] = []  # so that no other object gets the identity of one that is known

    def find_attribute(self, base: Thing, name: str, depth: int) -> Iterator[Thing]:
        """What an attribute of a thing may stand for."""
        if base.kind in (ThingKind.OBJECT, ThingKind.CLASS, ThingKind.PARENT):
            yield from self._find_member(base, name, depth)
        elif base.kind is ThingKind.OUTSIDE:
            own = self._names.operators.get(f"{base.name}.{name}".removeprefix("torch.ops."))
            outside = Thing(ThingKind.OUTSIDE, f"{base.name}.{name}")
            yield outside if own is None else Thing(ThingKind.FUNCTION, own.name, own, self._values.top)
        elif base.kind is ThingKind.KERNEL:
            if name == "run":
                yield Thing(ThingKind.LAUNCHER, base.name)
            elif name != "warmup":
                yield base
        elif (base.kind, name) in _SAME:
            yield base
        elif base.parts and name in _OF_TABLES:
            yield Thing(ThingKind.METHOD, name, parts=base.parts)
        else:
            yield Thing(ThingKind.METHOD, name, base.node, base.frame)

    def _find_member(self, base: Thing, name: str, depth: int) -> Iterator[Thing]:
        """A method, or what methods and the class itself set an attribute to; what a class outside has is named after it."""
        owners = self._names.read_bases(base.name) if base.kind is ThingKind.PARENT else [base.name]
        known = False
        for owner in owners:
            methods = self._index.find_methods(owner)
            if base.kind is ThingKind.CLASS and name == "apply" and "apply" not in methods and "forward" in methods:
                yield Thing(ThingKind.FUNCTION, "forward", methods["forward"], Frame(owner=owner), skip=1)
                return
            if name in methods:
                known = True
                yield from self._find_method(base, owner, methods[name], depth)
            for value, method in self._names.find_attribute_values(owner, name):
                known = True
                yield from self._values.find(value, self.enter_method(base, owner, method), depth)
        if not known:
            outside = [parent for owner in owners or [base.name] for parent in self._names.read_outside_bases(owner)]
            entered = name in ("forward", "__call__")
            yield from (Thing(ThingKind.OUTSIDE if entered else ThingKind.MADE, f"{parent}.{name}") for parent in outside)

    def _find_method(self, base: Thing, owner: str, method: Function, depth: int) -> Iterator[Thing]:
        written = has_decorator(method, "staticmethod") or base.kind is ThingKind.CLASS and not has_decorator(method, "classmethod")
        maker = base if base.kind is ThingKind.OBJECT else None
        thing = Thing(
            ThingKind.FUNCTION, method.name, method, Frame(owner=base.name if maker else owner, maker=maker), skip=0 if written else 1
        )  # fmt: skip
        if method.name in self._index.jit:
            yield Thing(ThingKind.KERNEL, method.name)
        elif has_decorator(method, "property", "cached_property"):
            yield from self._values.find_returned(thing, None, Frame(), depth)
        else:
            yield thing

    def enter_method(self, base: Thing, owner: str, method: Function | None) -> Frame:
        """The frame of a method that set an attribute: of a constructor, with the arguments that made the object."""
        if method is None:
            return self._values.top
        key = id(method), id(base.node), owner
        if key not in self._frames:
            made = base.node if isinstance(base.node, ast.Call) and method.name == "__init__" else None
            given = bind(method, made, base.frame, 1) if made is not None and base.frame is not None else {}
            self._frames[key] = Frame(method, owner, given, maker=base if base.kind is ThingKind.OBJECT else None)
            self._kept += [method, base.node]
        return self._frames[key]


def bind(
    function: Routine, node: ast.Call | None, frame: Frame | None, skip: int, before: tuple[Given, ...] = ()
) -> dict[str, Given]:
    """What a call gives to parameters.

    Args:
        function: what is entered.
        node: the call; without one only what partial has given counts.
        frame: where it stands.
        skip: parameters that are given without being written.
        before: arguments that partial has given.
    """
    given = list(before)
    named: dict[str, Given] = {}
    if node is not None and frame is not None:
        for argument in node.args:
            if isinstance(argument, ast.Starred):
                break
            given.append(Given(argument, frame))
        named = {word.arg: Given(word.value, frame) for word in node.keywords if word.arg}
    names = [argument.arg for argument in [*function.args.posonlyargs, *function.args.args]][skip:]
    return dict(zip(names, given, strict=False)) | named
