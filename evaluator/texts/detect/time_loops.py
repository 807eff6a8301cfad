"""Loops over time steps in host code, by what they run over and what an iteration leaves to the next."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from tritonsmith.evaluator.schema import LaunchFacts, TaskFacts
from tritonsmith.evaluator.texts.detect.host_heads import Head, StepSources, describe_loop, find_conditions, find_heads, is_one, read_number
from tritonsmith.evaluator.texts.detect.host_loops import SLICES, LoopView, moves_by_tiles, uses_name
from tritonsmith.evaluator.texts.detect.library import find_library_call, is_pointwise_call
from tritonsmith.evaluator.texts.detect.records import Trait, TraitHit
from tritonsmith.evaluator.texts.detect.tensors import Tensors
from tritonsmith.evaluator.texts.source.host_calls import HostCalls, LoopSite
from tritonsmith.evaluator.texts.source.host_things import Frame, ThingKind
from tritonsmith.evaluator.texts.source.kernel_file import KernelSource
from tritonsmith.evaluator.texts.source.values import KernelWalk

_FEW_LAUNCHES = 8
"""So many launches of one kernel per forward are no time loop."""


def find_time_loop(
    index: KernelSource, host: HostCalls, walks: Mapping[str, KernelWalk], facts: LaunchFacts | None, task: TaskFacts | None
) -> TraitHit | None:
    """A loop in host code that launches once per step.

    With facts of the launches, a loop counts when its kernel is launched far more often than the reference has layers, and it is no loop
    over layers. Without them, or with few launches, as at a small size, it counts when it runs along an axis of an input, step by step,
    and an iteration may read what the one before wrote.
    """
    counted = {kernel.name: kernel.launches for kernel in facts.kernels} if facts is not None else {}
    layers = _count_layers(task)
    loops = TimeLoops(host)
    for call in host.calls:
        work = bool(call.loops and (call.kernel or find_library_call(call, loops.tensors)))
        if not work and not (call.loops and is_pointwise_call(call, loops.tensors)):
            continue
        line = call.node.lineno
        if call.kernel in counted:
            launches = counted[str(call.kernel)]
            if launches > max(_FEW_LAUNCHES, 2 * layers):
                if all(map(loops.runs_over_layers, call.loops)):
                    continue
                loop = call.loops[-1].loop
                where = f"{call.kernel} is launched {launches} times per forward, from the Python loop in line {loop.lineno}"
                return TraitHit(name=Trait.TIME_LOOP_IN_PYTHON, line=line, evidence=f"{where} ({describe_loop(loop)})")
            if launches <= max(1, layers):
                continue
        for site in reversed(call.loops):
            if not work and not loops.view(site).find_carried():
                continue
            if loops.runs_over_time(site) and not loops.view(site).is_independent(index, walks, call):
                what = f"launches {call.kernel}" if call.kernel else f"calls {ast.unparse(call.node.func)}"
                at = f"the Python loop in line {site.loop.lineno} ({describe_loop(site.loop)})"
                evidence = f"line {line} {what} in every iteration of {at}"
                nearest = "a loop over samples, if no iteration reads what another one wrote"
                return TraitHit(name=Trait.TIME_LOOP_IN_PYTHON, line=line, evidence=evidence, nearest=nearest)
    return None


def _count_layers(task: TaskFacts | None) -> int:
    """Recurrent layers times directions; 0 where unknown."""
    recurrent = [op.attributes for op in task.ops if op.module_type in ("GRU", "LSTM", "RNN")] if task is not None else []
    return sum(int(layer.get("num_layers", 1)) * (2 if layer.get("bidirectional") else 1) for layer in recurrent)


class TimeLoops:
    """Tells loops along an axis of an input from others.

    Args:
        host: calls of the file.
    """

    def __init__(self, host: HostCalls) -> None:
        self._host = host
        self.tensors = Tensors(host.values)
        self._sources = StepSources(host.values, self.tensors)
        self._views: dict[tuple[int, int], LoopView] = {}

    def view(self, site: LoopSite) -> LoopView:
        """A loop with the calls that it makes."""
        key = id(site.loop), id(site.frame)
        if key not in self._views:
            self._views[key] = LoopView(self._host, site)
        return self._views[key]

    def runs_over_time(self, site: LoopSite) -> bool:
        """Whether a loop runs along an axis of an input, one step at a time."""
        view = self.view(site)
        if self._takes_steps(view):
            return True
        if isinstance(site.loop, ast.While):
            asked = list(find_conditions(site.loop))
            bounded = any(self.tensors.is_extent(side, site.frame) for side in asked)
            names = {part.id for side in asked for part in ast.walk(side) if isinstance(part, ast.Name)}
            counted = [name for name in names & view.counters.keys() if self._sources.is_step(view.counters[name], site.frame)]
            steps = [name for name in counted if not self._picks_weights(view, name)]
            return self._shortens_input(view) or any(self._steps_along(view, name, bounded) for name in steps)
        heads = list(find_heads(site.loop))
        moving = [head for head in heads if self._yields_steps(head.over, site.frame) or self._sources.find_range(head.over, site.frame)]
        fixed = [head for head in heads if head not in moving]
        if any(self.tensors.rests_on_model(head.over, site.frame) for head in fixed):
            return False  # over layers or weights
        return any(self._head_runs_over_time(view, head) for head in heads) or self._shortens_input(view)

    def _shortens_input(self, view: LoopView) -> bool:
        """Whether iterations take one step each off an input, and not a few times only."""
        for head in find_heads(view.loop):
            found = self._sources.find_range(head.over, view.frame)
            if found is not None and found[0].args and 0 < read_number(found[0].args[-1]) <= _FEW_LAUNCHES:
                return False
        names = [ast.Name(name, ast.Load()) for name in sorted(view.shortened | view.windows)]
        return any(self.tensors.is_input(name, view.frame) for name in names)

    def runs_over_layers(self, site: LoopSite) -> bool:
        """Whether every iteration has layers or weights of its own: for layer in self.layers, self.layers[i] for i in range(n)."""
        heads = [] if isinstance(site.loop, ast.While) else list(find_heads(site.loop))
        if any(self._sources.gives_steps(head.over, site.frame) or self._yields_steps(head.over, site.frame) for head in heads):
            return False
        names = [head.target.id for head in heads if isinstance(head.target, ast.Name) and self._sources.find_range(head.over, site.frame)]
        others = [head.over for head in heads if not self._sources.find_range(head.over, site.frame)]
        rests = any(self.tensors.rests_on_model(over, site.frame) for over in others)
        return rests or any(self._picks_weights(self.view(site), name) for name in names)

    def _takes_steps(self, view: LoopView) -> bool:
        """Whether iterations take the next step each from an iterator or a queue: next(steps), steps.popleft()."""
        for part in ast.walk(view.loop):
            if isinstance(part, ast.Call) and isinstance(part.func, ast.Name) and part.func.id == "next" and part.args:
                found = self._sources.find_range(part.args[0], view.frame)
                if found is not None and found[0].args and self.tensors.is_extent(found[0].args[-1], found[1]):
                    return True
                if found is None and self._sources.gives_steps(part.args[0], view.frame):
                    return True
            elif isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and _is_taking(part):
                if self._sources.gives_steps(part.func.value, view.frame):
                    return True
        return self._is_sent_steps(view)

    def _is_sent_steps(self, view: LoopView) -> bool:
        """Whether iterations of a generator get their step from whoever runs over time: `x = yield h`, and `generator.send(x)` there."""
        asked = (part.value for part in ast.walk(view.loop) if isinstance(part, ast.Assign | ast.AnnAssign | ast.NamedExpr))
        if not any(isinstance(value, ast.Yield) for value in asked):
            return False
        sending = [call for call in self._host.calls if getattr(call.node.func, "attr", "") == "send"]
        return any(self.runs_over_time(site) for call in sending for site in call.loops if site.loop is not view.loop)

    def _head_runs_over_time(self, view: LoopView, head: Head) -> bool:
        found = self._sources.find_range(head.over, view.frame)
        name = head.target.id if isinstance(head.target, ast.Name) else ""
        if found is None:
            return self._sources.gives_steps(head.over, view.frame) or self._yields_steps(head.over, view.frame)
        over, frame = found
        if not over.args or self._picks_weights(view, name):
            return False
        if len(over.args) == 3 and not is_one(over.args[2]):
            return self._sources.is_step(over.args[2], frame) and (self._passes_to_launch(view, name) or self._slices_input(view, name))
        last = over.args[min(1, len(over.args) - 1)]
        if self._slices_input(view, name):
            number = next((read_number(value) for value, _ in self._host.values.find_definitions(last, frame)), 0)
            return not number or number > _FEW_LAUNCHES or len(over.args) == 3
        bound = last if ast.unparse(over.args[-1]) != "-1" else over.args[0]
        return self.tensors.is_extent(bound, frame) and self._passes_to_launch(view, name)

    def _steps_along(self, view: LoopView, name: str, bounded: bool) -> bool:
        return self._slices_input(view, name) or bounded and self._passes_to_launch(view, name)

    def _yields_steps(self, over: ast.expr, frame: Frame) -> bool:
        """Whether it calls a generator of the file that itself runs over time."""
        if not isinstance(over, ast.Call):
            return False
        for thing in self._host.values.find(over.func, frame):
            if thing.kind is ThingKind.FUNCTION and isinstance(thing.node, ast.FunctionDef):
                inside = self._host.values.enter(thing, over, frame)
                for loop in ast.walk(thing.node):
                    giving = isinstance(loop, ast.For | ast.While) and any(isinstance(part, ast.Yield) for part in ast.walk(loop))
                    if giving and isinstance(loop, ast.For | ast.While) and self.runs_over_time(LoopSite(loop, inside)):
                        return True
        return False

    def _picks_weights(self, view: LoopView, name: str) -> bool:
        """Whether the loop's variable picks weights or layers: self.weights[i], getattr(self, f'w{i}'), w, b = net.layer(i)."""
        for part in ast.walk(view.loop):
            if isinstance(part, ast.Subscript) and uses_name(part.slice, name) and self.tensors.rests_on_model(part.value, view.frame):
                return True
            if isinstance(part, ast.Call) and ast.unparse(part.func) == "getattr" and any(uses_name(each, name) for each in part.args):
                return True
            if isinstance(part, ast.Assign) and isinstance(part.value, ast.Call) and isinstance(part.value.func, ast.Attribute):
                only = [ast.unparse(argument) for argument in part.value.args] == [name]
                owner = part.value.func.value
                if only and part.value.func.attr not in SLICES and self.tensors.rests_on_model(owner, view.frame):
                    return True
        return False

    def _slices_input(self, view: LoopView, name: str) -> bool:
        """Whether the loop's variable picks a step of a tensor, as in x[t], x[:, t], x.select(1, t), also in a function that it enters."""
        if not name:
            return False
        inner = {id(call.frame): call.frame for call in view.calls if call.frame is not view.frame and call.frame.function is not None}
        places = [(view.loop, view.frame), *((frame.function, frame) for frame in inner.values() if frame.function is not None)]
        return any(self._picks_step(view, place, frame, name) for place, frame in places)

    def _picks_step(self, view: LoopView, place: ast.AST, frame: Frame, name: str) -> bool:
        names = view.derive(name, by_steps=True)
        states = view.find_carried() if frame is view.frame else set()
        for part in ast.walk(place):
            if isinstance(part, ast.Subscript) and any(view.depends(index, frame, names) for index in _find_picks(part.slice)):
                if isinstance(part.value, ast.Name) and part.value.id in states:
                    continue  # a part of what an iteration leaves to the next, as of a layer's state
                if not self.tensors.rests_on_model(part.value, frame) and self._is_tensor(part.value, frame):
                    return True
            if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and part.func.attr in SLICES:
                if any(view.depends(argument, frame, names) for argument in part.args):
                    if not self.tensors.rests_on_model(part.func.value, frame):
                        return True
        return False

    def _is_tensor(self, node: ast.expr, frame: Frame) -> bool:
        """Whether an expression may be a tensor of activations: an input, or one that forward makes."""
        if self.tensors.is_input(node, frame):
            return True
        made = [value for value, _ in self._host.values.find_definitions(node, frame) if value is not node]
        return any(isinstance(value, ast.Call | ast.BinOp) for value in made)

    def _passes_to_launch(self, view: LoopView, name: str) -> bool:
        """Whether a kernel launched in the loop gets the loop's variable, or what grows with it."""
        names = view.derive(*view.variables) if name else view.derive(*view.counters)
        for call in view.calls:
            if call.kernel is not None:
                given = [*call.node.args, *(word.value for word in call.node.keywords)]
                if any(view.depends(argument, call.frame, names) for argument in given):
                    return True
        return False


def _is_taking(call: ast.Call) -> bool:
    """Whether a method's call takes an element off, and no entry of a table."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    return name in ("pop", "popleft") or name in ("get", "get_nowait") and not call.args


def _find_picks(place: ast.expr) -> Iterator[ast.expr]:
    """Indices that pick one step; `i * block` picks a tile."""
    for part in place.elts if isinstance(place, ast.Tuple) else [place]:
        if isinstance(part, ast.Slice):
            part = part.lower or part
        if not moves_by_tiles(part):
            yield part
