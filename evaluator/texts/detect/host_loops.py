"""Loops of host code: what an iteration reads that another one wrote."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tritonsmith.evaluator.texts.detect.grids import read_launch_arguments
from tritonsmith.evaluator.texts.detect.host_heads import find_heads
from tritonsmith.evaluator.texts.detect.kept_state import LastingState
from tritonsmith.evaluator.texts.detect.tensors import Tensors
from tritonsmith.evaluator.texts.source.host_calls import Call, HostCalls, LoopSite
from tritonsmith.evaluator.texts.source.host_things import Frame
from tritonsmith.evaluator.texts.source.kernel_file import HostLoop, KernelSource
from tritonsmith.evaluator.texts.source.remainders import RESULT, find_shortened, find_windows
from tritonsmith.evaluator.texts.source.values import AccessSite, KernelWalk

SLICES = ("select", "narrow", "index_select", "__getitem__")
"""Methods that pick a part of a tensor by an index."""
_VIEWS = (
    "view", "reshape", "squeeze", "unsqueeze", "transpose", "permute", "t", "flatten", "expand", "detach", "view_as", "swapaxes",
    "movedim", "data", "unbind",
)  # fmt: skip
"""Methods of a tensor that give the same memory."""
_GROWS = ("append", "appendleft", "insert")
"""Methods that put something into a list."""
_DEPTH = 12
"""Steps from an argument to the tensor that it names."""


@dataclass(frozen=True)
class TensorPart:
    """What an iteration reads or writes."""

    base: str
    """The tensor, as the function with the loop names it; of another name where it is made in the iteration."""
    text: str
    """The part of it that belongs to the iteration; empty for all of it."""
    fresh: bool = False
    """Made in the iteration."""
    cut: str = ""
    """A slice by constant numbers of all iterations' parts, which makes them another tensor's of the same memory."""


def moves_by_tiles(node: ast.AST) -> bool:
    """Whether a number is a multiple of another one, as `i * block` is."""
    return any(isinstance(part, ast.BinOp) and isinstance(part.op, ast.Mult) for part in ast.walk(node))


def uses_name(node: ast.AST, *names: str) -> bool:
    """Whether one of some names stands anywhere below a node."""
    return any(isinstance(part, ast.Name) and part.id in names for part in ast.walk(node))


class LoopView:
    """A loop with the calls that its iterations make.

    Args:
        host: calls of the file.
        site: the loop.
    """

    def __init__(self, host: HostCalls, site: LoopSite) -> None:
        self.site = site
        self.loop, self.frame = site.loop, site.frame
        self.calls = [call for call in host.calls if any(around.loop is site.loop and around.frame is site.frame for around in call.loops)]
        self._values = host.values
        self._tensors = Tensors(host.values)
        self._heads = heads = list(find_heads(self.loop))
        steps = find_counters(self.loop)
        self.counters = {name: step for name, step in steps.items() if self._tensors.is_figure(step, site.frame)}
        self.variables = {part.id for head in heads for part in ast.walk(head.target) if isinstance(part, ast.Name)} | self.counters.keys()
        self.inside = dict(_find_assigned(self.loop))
        self.shortened = {name for name, whole in find_shortened(self.loop) if ast.unparse(whole) == name}
        self.windows = set(find_windows(self.loop))
        self._callers = _find_callers(self.frame)

    def derive(self, *names: str, by_steps: bool = False) -> set[str]:
        """Some names and those that an iteration computes from them; `by_steps` leaves out those that move on by tiles."""
        found = set(names)
        for _ in range(3):
            found |= {
                name
                for name, value in self.inside.items()
                if not isinstance(value, ast.Call) and uses_name(value, *found) and not (by_steps and moves_by_tiles(value))
            }
        return found

    def depends(self, node: ast.AST, frame: Frame, names: set[str], depth: int = _DEPTH) -> bool:
        """Whether an expression, also in a function that the loop enters, rests on names of the loop."""
        if frame is self.frame:
            called = [part.func for part in ast.walk(node) if isinstance(part, ast.Call)]
            again = (f"{RESULT}{getattr(function, 'id', getattr(function, 'attr', ''))}" for function in called)
            return uses_name(node, *names) or any(name in names for name in again)
        for part in ast.walk(node):
            if isinstance(part, ast.Name) and depth > 0 and part.id != "self":
                values = self._values.find_nodes(part.id, frame)
                if any(value is not node and self.depends(value, where, names, depth - 3) for value, where in values):
                    return True
        return False

    def is_independent(self, index: KernelSource, walks: Mapping[str, KernelWalk], call: Call) -> bool:
        """Whether every iteration is proven to work on data of its own: it reads nothing that another one writes."""
        carried = self.find_carried() - self.counters.keys() - self.shortened
        kept = self._find_kept()
        if call.kernel is None:
            return not carried and not isinstance(self.loop, ast.While) and not kept.is_read_by(call.node, call.frame)
        reads: list[TensorPart] = []
        writes = list(self._find_host_writes())
        for launch in self.calls:
            if launch.kernel is None:
                continue
            if launch.kernel not in walks:
                return False
            arguments = read_launch_arguments(index, launch)
            given = [(value, launch.frame) for value in arguments.values()]
            if any(self.depends(value, frame, carried) or kept.is_read_by(value, frame) for value, frame in given):
                return False
            for access in walks[launch.kernel].accesses:
                for root in access.address.roots:
                    if root not in arguments:
                        return False
                    written = access.kind != "load"
                    for choice in self._find_choices(arguments[root], launch.frame):
                        part = self.trace(choice, launch.frame, written)
                        if written and not part.text and self._is_indexed(access, arguments, launch):
                            part = replace(part, text="by an index")
                        (writes if written else reads).append(part)
        own = all(part.fresh or part.text for part in writes)
        return own and all(
            written.fresh or (written.cut, written.text) == (read.cut, read.text)
            for written in writes for read in reads if written.base == read.base
        )  # fmt: skip

    def _find_choices(self, node: ast.expr, frame: Frame) -> list[ast.expr]:
        """Both sides of what is chosen in the iteration: `first if t == 0 else ys[t - 1]`, also by a name."""
        value = self.inside.get(node.id, node) if isinstance(node, ast.Name) and frame is self.frame else node
        if not isinstance(value, ast.IfExp):
            return [node]
        return [choice for side in (value.body, value.orelse) for choice in self._find_choices(side, frame)]

    def _find_kept(self) -> LastingState:
        """What iterations leave in attributes and in names of functions around."""
        entered = {id(call.frame.function): call.frame.function for call in self.calls if call.frame is not self.frame}
        body = self.loop.body if isinstance(self.loop, ast.For | ast.While) else []
        return LastingState(self._values, body, [function for function in entered.values() if function is not None])

    def _is_indexed(self, access: AccessSite, arguments: Mapping[str, ast.expr], launch: Call) -> bool:
        """Whether a kernel writes where an argument says that differs between iterations."""
        given = [dep.partition(":")[2] for dep in access.address.form.deps if dep.startswith("parameter:")]
        names = self.derive(*self.variables)
        return any(name in arguments and self.depends(arguments[name], launch.frame, names) for name in given)

    def trace(self, node: ast.expr, frame: Frame, written: bool, depth: int = _DEPTH) -> TensorPart:
        """The tensor that an argument names."""
        text = ast.unparse(node)
        if depth <= 0:
            return TensorPart(text, "")
        if isinstance(node, ast.Name):
            return self._trace_name(node, frame, written, depth)
        if isinstance(node, ast.Subscript):
            whole = self.trace(node.value, frame, written, depth - 1)
            own, index = self.depends(node.slice, frame, self.derive(*self.variables)), self._write(node.slice, frame)
            if not own and _is_shift(node.slice):
                return replace(whole, cut=f"{whole.cut}[{index}]")
            return replace(whole, text=f"{whole.text}[{index}]") if own else whole
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            method = node.func.attr
            if method in SLICES and any(self.depends(argument, frame, self.derive(*self.variables)) for argument in node.args):
                whole = self.trace(node.func.value, frame, written, depth - 1)
                index = ", ".join(self._write(argument, frame) for argument in node.args)
                return replace(whole, text=f"{whole.text}[{index}]")
            if method == "unbind" and ast.unparse(node.func.value) == "torch" and node.args:
                return self.trace(node.args[0], frame, written, depth - 1)
            if method in (*_VIEWS, *SLICES) or method == "contiguous" and not written:
                return self.trace(node.func.value, frame, written, depth - 1)
        if isinstance(node, ast.Attribute):
            return self.trace(node.value, frame, written, depth - 1) if node.attr in (*_VIEWS, "T", "mT") else TensorPart(text, "")
        if isinstance(node, ast.Call) and not self._stands_outside(node, frame):
            return TensorPart(f"made at {node.lineno}:{node.col_offset}", "", fresh=True)
        return TensorPart(text, "")

    def _trace_name(self, node: ast.Name, frame: Frame, written: bool, depth: int) -> TensorPart:
        if frame is self.frame and node.id in self.variables:
            shifted = self._trace_shifted(node.id, written, depth - 1)
            return shifted or TensorPart(f"item of {node.id}", node.id)
        if frame is self.frame and node.id in self.inside:
            return self.trace(self.inside[node.id], frame, written, depth - 1)
        values = [(value, where) for value, where, part in self._values.find_values(node.id, frame) if isinstance(value, ast.expr)]
        for value, where in values[:1]:
            inner = where is not self.frame or isinstance(value, ast.Name | ast.Subscript | ast.Attribute)
            view = isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in (*_VIEWS, *SLICES)
            if value is not node and (inner or view):
                return self.trace(value, where, written, depth - 1)
        return TensorPart(node.id, "")

    def _trace_shifted(self, name: str, written: bool, depth: int) -> TensorPart | None:
        """The part that a variable stands for, where the loop runs over a slice of a tensor beside others of it."""
        traced = [(head.target, self.trace(head.over, self.frame, written, depth)) for head in self._heads]
        shifted = {part.base for _, part in traced if part.cut}
        own = (part for target, part in traced if isinstance(target, ast.Name) and target.id == name and part.base in shifted)
        return next((replace(part, text=f"{part.text} item") for part in own), None)

    def _stands_outside(self, node: ast.AST, frame: Frame) -> bool:
        """Whether an expression stands before or after the loop: in its own function, or in one that called this one."""
        if frame is not self.frame:
            return frame in self._callers
        return not any(part is node for part in ast.walk(self.loop))

    def _write(self, node: ast.AST, frame: Frame) -> str:
        """An index as it would stand in the loop: with what a function's parameters were given."""
        names = {part.id: frame.given[part.id] for part in ast.walk(node) if isinstance(part, ast.Name) and part.id in frame.given}
        text = ast.unparse(node)
        if frame is not self.frame and text in names:
            return self._write(names[text].node, names[text].frame)
        return text

    def _find_host_writes(self) -> Iterator[TensorPart]:
        """Parts that the loop's own text writes: `y[t] = ...`, `h[i], c[i] = ...`, `y[t].copy_(...)`."""
        for part in ast.walk(self.loop):
            targets = part.targets if isinstance(part, ast.Assign) else [part.target] if isinstance(part, ast.AugAssign) else []
            single = [one for target in targets for one in (target.elts if isinstance(target, ast.Tuple | ast.List) else [target])]
            yield from (self.trace(target, self.frame, True) for target in single if isinstance(target, ast.Subscript))
            if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute):
                if part.func.attr.endswith("_") and not part.func.attr.startswith("_"):
                    yield self.trace(part.func.value, self.frame, True)

    def find_carried(self) -> set[str]:
        """Names that an iteration reads before it sets them."""
        if not isinstance(self.loop, ast.For | ast.While):
            return {part.target.id for part in ast.walk(self.loop) if isinstance(part, ast.NamedExpr)}
        read, _ = _read_before_set(self.loop.body, set())
        return read & {name for statement in self.loop.body for name in _find_names(statement)[1]}


def _read_before_set(statements: Sequence[ast.stmt], before: set[str]) -> tuple[set[str], set[str]]:
    """Names that statements read where nothing has set them yet, and those that are set after them; blocks inside one by one."""
    first: set[str] = set()
    done = set(before)
    for statement in statements:
        blocks = [getattr(statement, name) for name in ("body", "orelse", "finalbody") if getattr(statement, name, None)]
        if not blocks or isinstance(statement, ast.FunctionDef | ast.ClassDef):
            read, written = _find_names(statement)
            first |= read - done
            done |= written
            continue
        heads = [part for part in ast.iter_child_nodes(statement) if isinstance(part, ast.expr | ast.withitem)]
        for read, written in [_find_names(part) for part in reversed(heads)]:  # what a loop runs over comes before its variable
            first |= read - done
            done |= written
        ends = [_read_before_set(block, done) for block in blocks]
        first |= set().union(*(read for read, _ in ends))
        if not isinstance(statement, ast.If):
            done |= set().union(*(after for _, after in ends))
        elif len(ends) == 2:
            done |= ends[0][1] & ends[1][1]
    return first, done


def _find_names(node: ast.AST) -> tuple[set[str], set[str]]:
    """Names that a part reads and sets; a list that something is put into is set, and what a comprehension runs over stays inside it."""
    parts = list(ast.walk(node))
    called = [part.func for part in parts if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute)]
    grown = [method.value for method in called if method.attr in _GROWS]
    targets = [part.target for part in parts if isinstance(part, ast.comprehension)]
    inner = {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}
    names = [part for part in parts if isinstance(part, ast.Name)]
    read = {part.id for part in names if isinstance(part.ctx, ast.Load) and part not in grown}
    return read - inner, {part.id for part in names if isinstance(part.ctx, ast.Store) or part in grown} - inner


def _is_shift(index: ast.expr) -> bool:
    """Whether a slice leaves out some elements at an end, as `[1:]`, `[:-1]` and `[:, 1:]` do."""
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    ends = [end for part in parts if isinstance(part, ast.Slice) for end in (part.lower, part.upper) if end is not None]
    return any(ast.unparse(end).lstrip("-").isdigit() for end in ends)


def _find_callers(frame: Frame) -> list[Frame]:
    """Functions as entered from which a function got its arguments."""
    found: list[Frame] = []
    waiting = [frame]
    while waiting:
        frames = {id(given.frame): given.frame for given in waiting.pop().given.values()}
        new = [caller for caller in frames.values() if caller is not frame and caller not in found]
        found += new
        waiting += new
    return found


def _find_assigned(loop: HostLoop) -> Iterator[tuple[str, ast.expr]]:
    for part in ast.walk(loop):
        if isinstance(part, ast.Assign | ast.NamedExpr):
            for target in part.targets if isinstance(part, ast.Assign) else [part.target]:
                if isinstance(target, ast.Name):
                    yield target.id, part.value
                elif isinstance(target, ast.Tuple) and isinstance(part.value, ast.Tuple) and len(target.elts) == len(part.value.elts):
                    yield from (
                        (one.id, value) for one, value in zip(target.elts, part.value.elts, strict=True) if isinstance(one, ast.Name)
                    )


def find_counters(loop: HostLoop) -> dict[str, ast.expr]:
    """Names that the loop adds the same to in each iteration, with what it adds."""
    found: dict[str, ast.expr] = {}
    stored: dict[str, int] = {}
    for part in ast.walk(loop):
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
            stored[part.id] = stored.get(part.id, 0) + 1
    for part in ast.walk(loop) if isinstance(loop, ast.For | ast.While) else ():
        if isinstance(part, ast.AugAssign) and isinstance(part.target, ast.Name) and isinstance(part.op, ast.Add | ast.Sub):
            found[part.target.id] = part.value
        elif isinstance(part, ast.Assign | ast.NamedExpr) and isinstance(part.value, ast.BinOp):
            if not isinstance(part.value.op, ast.Add | ast.Sub):
                continue
            name = ast.unparse(part.targets[0] if isinstance(part, ast.Assign) else part.target)  # t = t + 1
            sides = {ast.unparse(part.value.left): part.value.right, ast.unparse(part.value.right): part.value.left}
            if name in sides:
                found[name] = sides[name]
    items = {part.id for head in find_heads(loop) for part in ast.walk(head.target) if isinstance(part, ast.Name)}
    return {name: step for name, step in found.items() if stored.get(name) == 1 and not uses_name(step, *(stored.keys() - items))}
