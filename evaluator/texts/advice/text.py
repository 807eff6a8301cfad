"""A candidate's text as the rules see it: which code forward can reach, and which names are its inputs."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeGuard

from tritonsmith.evaluator.schema import PrecisionClass
from tritonsmith.evaluator.texts.source.kernel_file import Function, KernelSource, read_kernel_source
from tritonsmith.evaluator.texts.source.parse import parse


@dataclass(frozen=True)
class Remark:
    """One finding of a rule; `note` when right kernels may do this."""

    line: int
    text: str
    note: bool = False


@dataclass
class Text:
    """An indexed candidate."""

    index: KernelSource
    precision: PrecisionClass
    everything: list[ast.AST] = field(default_factory=list)
    host: list[ast.AST] = field(default_factory=list)
    """Nodes outside Triton kernels."""
    kernels: dict[str, list[ast.AST]] = field(default_factory=dict)
    """Nodes of each Triton kernel."""
    forward: list[ast.AST] = field(default_factory=list)
    """Nodes of the functions that forward may enter."""
    reached: list[Function] = field(default_factory=list)
    """Functions and methods that forward may enter, forward first; too many rather than too few."""
    model: dict[str, Function] = field(default_factory=dict)
    """Methods of ModelNew, inherited ones of classes in the file included."""
    aligned: frozenset[int] = frozenset()
    """Attributes, by identity, whose address is only asked for its alignment (`x.data_ptr() % 16`)."""
    inputs: frozenset[str] = frozenset()
    """Names of forward's arguments that stand for nothing else in it."""

    @property
    def tree(self) -> ast.Module:
        """The whole file."""
        return self.index.tree

    def resolve_name(self, node: ast.AST) -> str:
        """Full dotted name with import aliases resolved; empty for anything else."""
        return self.index.resolve_name(node)

    def find_launches(self) -> list[ast.Call]:
        """Calls `kernel[grid](...)` that forward may reach, for any expression in place of the kernel."""
        return [node for node in self.forward if isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript)]

    def is_imported(self, node: ast.AST) -> bool:
        """Whether an expression `a.b.c` (or `a[...].b`) begins with an imported name."""
        return root_of(node) in self.index.aliases


def read_text(source: str, precision: PrecisionClass) -> Text:
    """Index a candidate. Raises SyntaxError, ValueError, RecursionError or MemoryError where Python cannot parse it."""
    parse(source)  # its error has the line
    index = read_kernel_source(source, "candidate")
    text = Text(index, precision, everything=list(ast.walk(index.tree)))
    text.kernels = {name: list(ast.walk(function)) for name, function in index.jit.items()}
    inside = {id(node) for nodes in text.kernels.values() for node in nodes}
    text.host = [node for node in text.everything if id(node) not in inside]
    text.model = index.find_model_methods()
    text.reached = _find_reached(index, text.model)
    text.forward = [node for function in text.reached for node in ast.walk(function)]
    text.aligned = frozenset(
        id(node.left.func)
        for node in text.forward
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod) and isinstance(node.left, ast.Call)
    )
    text.inputs = _find_inputs(text.model)
    return text


def root_of(node: ast.AST) -> str:
    """The first name of `a.b[c].d` and of `getattr(a, "b")`; empty for anything else."""
    while isinstance(node, ast.Attribute | ast.Subscript) or _reads_attribute(node):
        node = node.args[0] if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _reads_attribute(node: ast.AST) -> TypeGuard[ast.Call]:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr" and bool(node.args)


def is_endless(loop: ast.While) -> bool:
    """Whether a loop has a constant true condition and nothing that leaves it."""
    leaves = (ast.Break, ast.Return, ast.Raise, ast.Yield, ast.Await)
    always = isinstance(loop.test, ast.Constant) and bool(loop.test.value)
    return always and not any(isinstance(node, leaves) for node in ast.walk(loop))


def _find_reached(index: KernelSource, model: dict[str, Function]) -> list[Function]:
    """Forward, and what it names: functions, methods and classes of the file. Each is entered once, so the cost is linear."""
    by_name: dict[str, list[Function]] = {name: [function] for name, function in index.functions.items()}
    for definition in index.classes.values():
        for node in definition.body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                by_name.setdefault(node.name, []).append(node)
    modules = _find_submodules(index)
    waiting, found = [method for name, method in model.items() if name == "forward"], dict[int, Function]()
    while waiting:
        function = waiting.pop(0)
        if id(function) in found:
            continue
        found[id(function)] = function
        names = {node.attr if isinstance(node, ast.Attribute) else node.id for node in _find_names(function)}
        for name in sorted(names):
            if name not in ("forward", "__init__"):
                waiting += by_name.get(name, [])
            if name in modules or name in index.classes:
                for owner in modules.get(name, {name}):
                    waiting += [method for key, method in index.find_methods(owner).items() if key in ("forward", "__call__")]
    return list(found.values())


def _find_names(node: ast.AST) -> Iterator[ast.Attribute | ast.Name]:
    yield from (part for part in ast.walk(node) if isinstance(part, ast.Attribute | ast.Name) and isinstance(part.ctx, ast.Load))


def _find_submodules(index: KernelSource) -> dict[str, set[str]]:
    """Attribute to the classes of the file that are assigned to it somewhere."""
    found: dict[str, set[str]] = {}
    for node in ast.walk(index.tree):
        if isinstance(node, ast.Assign):
            classes = {part.id for part in _find_names(node.value) if isinstance(part, ast.Name) and part.id in index.classes}
            for target in node.targets:
                if isinstance(target, ast.Attribute) and classes:
                    found.setdefault(target.attr, set()).update(classes)
    return found


def _find_inputs(model: dict[str, Function]) -> frozenset[str]:
    forward = model.get("forward")
    if forward is None:
        return frozenset()
    taken = forward.args.posonlyargs + forward.args.args + forward.args.kwonlyargs
    names = {argument.arg for argument in taken[1:]}
    return frozenset(names - find_assigned_names(forward))


def find_assigned_names(function: Function) -> set[str]:
    """Names that a function gives another meaning (assignments, loops, `with`); `x += y` keeps the tensor and does not count."""
    kept = {id(node.target) for node in ast.walk(function) if isinstance(node, ast.AugAssign)}
    return {
        node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and id(node) not in kept
    }
