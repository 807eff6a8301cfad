"""Calls in host code that run when ModelNew's forward does, with the loops around them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from tritonsmith.evaluator.texts.source.host_results import LOOKING
from tritonsmith.evaluator.texts.source.host_things import Frame, Thing, ThingKind
from tritonsmith.evaluator.texts.source.host_values import HostValues
from tritonsmith.evaluator.texts.source.kernel_file import HostLoop, KernelSource
from tritonsmith.evaluator.texts.source.remainders import find_recursion

LOOPS = (ast.For, ast.While, ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp)
"""The classes of HostLoop."""
_CALLING = ("submit", "map", "starmap", "apply", "apply_async")
"""Methods of pools that call a function which they are given."""
_BY_ELEMENT = ("functools.", "itertools.", "torch.vmap", "torch.func.", ".map", ".starmap", ".apply")
"""What calls a function with elements of what it is given beside it."""


@dataclass(frozen=True)
class LoopSite:
    """A loop in host code, and the function that it stands in as it was entered."""

    loop: HostLoop
    frame: Frame


@dataclass(frozen=True)
class Call:
    """A call in host code that runs under ModelNew, with the host loops around it (through helper functions too)."""

    node: ast.Call
    frame: Frame
    loops: tuple[LoopSite, ...]
    kernel: str | None = None
    """Name of the Triton kernel when the call is a launch."""
    launcher: ast.Subscript | None = None
    """Its `kernel[grid]`."""
    launcher_frame: Frame | None = None
    """Where that stands."""
    things: tuple[Thing, ...] = ()
    """What else the call may enter."""
    unused: bool = False
    """It is a statement of its own: nobody uses what it gives back."""


class HostCalls:
    """Follows the host code of a file.

    Args:
        index: the file.
    """

    def __init__(self, index: KernelSource) -> None:
        self.values = HostValues(index)
        self._index = index
        self._found: list[Call] = []
        self._captured: list[tuple[ast.stmt, Frame]] = []
        """What a CUDA graph has recorded, which a replay does again."""
        self._unused = {id(part.value) for part in index.nodes if isinstance(part, ast.Expr)}
        self._unused |= {id(part.context_expr) for part in index.nodes if isinstance(part, ast.withitem)}
        methods = index.find_model_methods()
        if "forward" in methods or "__call__" in methods:
            model = Thing(ThingKind.OBJECT, "ModelNew")
            for thing in self.values.find_entered(model):
                self._follow(self.values.enter(thing, None, self.values.top), (), frozenset())
        else:
            for function in index.functions.values():
                self._follow(Frame(function), (), frozenset())
            for name in index.classes:
                for method in index.find_methods(name).values():
                    self._follow(Frame(method, name), (), frozenset())
        unique = {(id(call.node), call.kernel, tuple(id(site.loop) for site in call.loops)): call for call in self._found}
        self.calls = list(unique.values())

    def _follow(self, frame: Frame, outer: tuple[LoopSite, ...], seen: frozenset[int]) -> None:
        function = frame.function
        if function is None or id(function) in seen:
            return
        body = function.body if isinstance(function.body, list) else [function.body]
        if (again := find_recursion(function)) is not None:
            outer = (*outer, LoopSite(again, frame))
        for statement in body:
            self._visit(statement, frame, outer, seen | {id(function)})

    def _visit(self, node: ast.AST, frame: Frame, loops: tuple[LoopSite, ...], seen: frozenset[int]) -> None:
        self._index.count_step()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.ExceptHandler):
            return  # entered where it is called; a handler runs only where the way in the text fails
        if isinstance(node, ast.Call):
            self._note(node, frame, loops, seen)
        if isinstance(node, ast.With) and any(self._records(item.context_expr) for item in node.items):
            self._captured += [(statement, frame) for statement in node.body]
        inner = (*loops, LoopSite(node, frame)) if isinstance(node, LOOPS) else loops
        first = node.generators[0].iter if isinstance(node, ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp) else None
        for child in ast.iter_child_nodes(node):
            if isinstance(node, ast.For) and (child is node.iter or child in node.orelse):
                self._visit(child, frame, loops, seen)
            elif isinstance(child, ast.comprehension):
                for part in ast.iter_child_nodes(child):
                    self._visit(part, frame, loops if part is first else inner, seen)
            else:
                self._visit(child, frame, inner, seen)

    def _note(self, node: ast.Call, frame: Frame, loops: tuple[LoopSite, ...], seen: frozenset[int]) -> None:
        """Note a call and follow it into functions of the file, also those that something outside is given."""
        things = self.values.find(node.func, frame)
        launched = False
        for thing in things:
            if thing.kind is ThingKind.LAUNCHER:
                launched = True
                launcher = thing.node if isinstance(thing.node, ast.Subscript) else None
                self._found.append(Call(node, frame, loops, thing.name, launcher, thing.frame))
        if not launched:
            inherited = (layer for thing in things for layer in self._find_inherited(thing))
            whole = (*things, *inherited, *self._find_passed_layers(node, frame, things))
            self._found.append(Call(node, frame, loops, things=whole, unused=id(node) in self._unused))
        for thing in things:
            for function in self.values.find_entered(thing):
                self._follow(self.values.enter(function, node, frame), loops, seen)
        for function, handed in self._find_passed(node, frame, things):
            self._follow(self.values.enter(function, handed, frame), loops, seen)
        if isinstance(node.func, ast.Attribute) and node.func.attr == "replay":
            for statement, around in [each for each in self._captured if id(each[0]) not in seen]:
                self._visit(statement, around, loops, seen | {id(statement)})

    def _records(self, node: ast.expr) -> bool:
        """Whether a with statement records a CUDA graph."""
        return isinstance(node, ast.Call) and self._index.resolve_name(node.func) == "torch.cuda.graph"

    def _find_inherited(self, thing: Thing) -> Iterator[Thing]:
        """The layer that an object without a forward of its own inherits from."""
        if thing.kind is ThingKind.OBJECT and not any(True for _ in self.values.find_entered(thing)):
            yield from (Thing(ThingKind.MADE, name) for name in self.values.names.read_outside_bases(thing.name))

    def _find_passed_layers(self, node: ast.Call, frame: Frame, things: list[Thing]) -> Iterator[Thing]:
        """Layers of the library that a call gives to a function of the library, which then calls them."""
        if any(thing.kind is ThingKind.OUTSIDE and thing.name.startswith("torch.") and thing.name[-1:] != "_" for thing in things):
            made = [thing for argument in node.args for thing in self.values.find(argument, frame) if thing.kind is ThingKind.MADE]
            yield from (thing for thing in made if thing.name.startswith("torch.nn."))

    def _find_passed(self, node: ast.Call, frame: Frame, things: list[Thing]) -> Iterator[tuple[Thing, ast.Call | None]]:
        """Functions of the file that a call gives to something outside, which may call them, with what stands behind them in the call.

        Python's own functions such as map call them with elements of that.
        """
        names = [thing.name for thing in things if thing.kind in (ThingKind.OUTSIDE, ThingKind.MADE) and thing.name not in LOOKING]
        names += [f".{thing.name}" for thing in things if thing.kind is ThingKind.METHOD and thing.name in _CALLING]
        whole = any("." in name and not name.startswith(_BY_ELEMENT) for name in names)
        met: set[int] = set()
        for place, argument in enumerate([*node.args, *(word.value for word in node.keywords)] if names else ()):
            handed = ast.copy_location(ast.Call(argument, node.args[place + 1 :], node.keywords), node) if whole else None
            for part in self.values.open([argument], frame, 6):
                for function in self.values.find_entered(part) if part.kind in (ThingKind.FUNCTION, ThingKind.OBJECT) else ():
                    if id(function.node) not in met:
                        met.add(id(function.node))
                        yield function, handed
