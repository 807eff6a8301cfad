"""Loops over time steps in host code, by what they run over and what an iteration leaves to the next."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from tritonsmith.evaluator.detect.host_loops import WRAPPERS, Head, describe_loop, find_heads, is_independent, uses_name
from tritonsmith.evaluator.detect.library import find_library_call
from tritonsmith.evaluator.detect.records import Trait, TraitHit
from tritonsmith.evaluator.schema import LaunchFacts, TaskFacts
from tritonsmith.evaluator.source.kernel_file import HostLoop, KernelSource, find_host_calls
from tritonsmith.evaluator.source.values import KernelWalk

_FEW_LAUNCHES = 8
"""So many launches of one kernel per forward are no time loop."""
_SLICES = ("select", "narrow", "index_select", "__getitem__")
"""Methods that pick a part of a tensor by an index."""


def find_time_loop(
    index: KernelSource, walks: Mapping[str, KernelWalk], facts: LaunchFacts | None, task: TaskFacts | None
) -> TraitHit | None:
    """A loop in host code that launches once per step.

    With facts of the launches, a loop counts when its kernel is launched far more often than the reference has layers. Without them it
    counts when it runs along an axis of an input, step by step, and an iteration may read what the one before wrote.
    """
    counted = {kernel.name: kernel.launches for kernel in facts.kernels} if facts is not None else {}
    layers = _count_layers(task)
    calls = find_host_calls(index)
    for call in calls:
        if not call.loops or not (call.kernel or find_library_call(index, call)):
            continue
        line = call.node.lineno
        if call.kernel in counted:
            launches = counted[str(call.kernel)]
            if launches > max(_FEW_LAUNCHES, 2 * layers):
                loop = call.loops[-1]
                where = f"{call.kernel} is launched {launches} times per forward, from the Python loop in line {loop.lineno}"
                return TraitHit(name=Trait.TIME_LOOP_IN_PYTHON, line=line, evidence=f"{where} ({describe_loop(loop)})")
            continue
        for loop in reversed(call.loops):
            function = _find_function(index, loop) or call.function
            if _runs_over_time(index, loop, function) and not is_independent(index, walks, loop, call, function):
                what = f"launches {call.kernel}" if call.kernel else f"calls {ast.unparse(call.node.func)}"
                evidence = f"line {line} {what} in every iteration of the Python loop in line {loop.lineno} ({describe_loop(loop)})"
                nearest = "a loop over samples, if no iteration reads what another one wrote"
                return TraitHit(name=Trait.TIME_LOOP_IN_PYTHON, line=line, evidence=evidence, nearest=nearest)
    return None


def _find_function(index: KernelSource, loop: HostLoop) -> ast.AST | None:
    """The function in whose text a loop stands; a launch may stand in another one that it calls."""
    functions = [*index.functions.values(), *(method for name in index.classes for method in index.find_methods(name).values())]
    around = [function for function in functions if function.lineno <= loop.lineno <= (function.end_lineno or 0)]
    return max(around, key=lambda function: function.lineno, default=None)


def _count_layers(task: TaskFacts | None) -> int:
    """Recurrent layers times directions; 0 where unknown."""
    recurrent = [op.attributes for op in task.ops if op.module_type in ("GRU", "LSTM", "RNN")] if task is not None else []
    return sum(int(layer.get("num_layers", 1)) * (2 if layer.get("bidirectional") else 1) for layer in recurrent)


def _runs_over_time(index: KernelSource, loop: HostLoop, function: ast.AST) -> bool:
    """Whether a loop runs along an axis of an input, one step at a time."""
    if isinstance(loop, ast.While):
        names = {part.id for part in ast.walk(loop.test) if isinstance(part, ast.Name)}
        counters = [name for name in _find_counters(loop, names) if not _indexes_weights(loop, name)]
        bounded = any(_comes_from_shape(ast.Name(name, ast.Load()), function) for name in names - set(counters))
        return any(_slices_input(index, loop, name, function) or bounded and _passes_to_launch(index, loop, name) for name in counters)
    heads = list(find_heads(loop))
    fixed = [head for head in heads if not _yields_steps(index, head.over) and not _find_range(head.over, function)]
    if any(_rests_on_self(head.over, function) for head in fixed):
        return False  # over layers or weights
    return any(_head_runs_over_time(index, head, loop, function) for head in heads)


def _head_runs_over_time(index: KernelSource, head: Head, loop: HostLoop, function: ast.AST) -> bool:
    over = _find_range(head.over, function) or head.over
    name = head.target.id if isinstance(head.target, ast.Name) else ""
    if not _is_range(over):
        return _gives_steps(over, function) or _yields_steps(index, over)
    assert isinstance(over, ast.Call)
    if not over.args or len(over.args) == 3 and ast.unparse(over.args[2]) not in ("1", "-1") or _indexes_weights(loop, name):
        return False
    if _slices_input(index, loop, name, function):
        return not isinstance(over.args[-1], ast.Constant) or _number(over.args[-1]) > _FEW_LAUNCHES or len(over.args) == 3
    bound = over.args[min(1, len(over.args) - 1)] if ast.unparse(over.args[-1]) != "-1" else over.args[0]
    return _comes_from_shape(bound, function) and bool(name) and _passes_to_launch(index, loop, name)


def _yields_steps(index: KernelSource, over: ast.expr) -> bool:
    """Whether it calls a generator of the file that itself runs over time."""
    if not isinstance(over, ast.Call) or not isinstance(over.func, ast.Name | ast.Attribute):
        return False
    name = over.func.id if isinstance(over.func, ast.Name) else over.func.attr
    called = index.functions.get(name) or index.find_model_methods().get(name)
    loops = [part for part in ast.walk(called) if isinstance(part, ast.For | ast.While)] if called else []
    giving = [loop for loop in loops if any(isinstance(part, ast.Yield) for part in ast.walk(loop))]
    return called is not None and any(_runs_over_time(index, loop, called) for loop in giving)


def _find_range(over: ast.expr, function: ast.AST, depth: int = 5) -> ast.expr | None:
    """The range that an expression gives in some order: list(range(n)), a name for it, or a slice of it."""
    if _is_range(over):
        return over
    parts: list[ast.expr] = []
    if isinstance(over, ast.Call) and isinstance(over.func, ast.Name) and over.func.id in (*WRAPPERS, "sorted"):
        parts = over.args[:1]
    elif isinstance(over, ast.Subscript):
        parts = [over.value]
    elif isinstance(over, ast.IfExp):
        parts = [over.body, over.orelse]
    elif isinstance(over, ast.Name):
        parts = list(_find_values(function, over.id))
    return next((found for part in parts if depth and (found := _find_range(part, function, depth - 1)) is not None), None)


def _is_range(over: ast.expr) -> bool:
    return isinstance(over, ast.Call) and ast.unparse(over.func).rpartition(".")[2] in ("range", "arange", "trange")


def _number(node: ast.expr) -> int:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, int) else 0


def _find_counters(loop: ast.While, names: set[str]) -> set[str]:
    """Names of the test, or of a condition that leaves the loop, that the loop itself changes by one."""
    for part in ast.walk(loop):
        if isinstance(part, ast.If) and any(isinstance(inner, ast.Break) for inner in part.body):
            names = names | {inner.id for inner in ast.walk(part.test) if isinstance(inner, ast.Name)}
    counted = {
        part.target.id
        for part in ast.walk(loop)
        if isinstance(part, ast.AugAssign) and isinstance(part.target, ast.Name) and _number(part.value) == 1
    }
    for part in ast.walk(loop):  # t = t + 1
        if isinstance(part, ast.Assign) and isinstance(part.value, ast.BinOp) and isinstance(part.value.op, ast.Add):
            name, sides = ast.unparse(part.targets[0]), (part.value.left, part.value.right)
            if sorted(ast.unparse(side) for side in sides) == sorted((name, "1")):
                counted.add(name)
    return counted & names


def _gives_steps(over: ast.expr, function: ast.AST) -> bool:
    """Whether iterating gives single steps of an input tensor: x, x.unbind(0), torch.unbind(x), x.split(1), x.transpose(0, 1)."""
    if isinstance(over, ast.Call) and isinstance(over.func, ast.Attribute):
        method = over.func.attr
        if method in ("split", "chunk", "tensor_split"):
            sizes = over.args[1:] if ast.unparse(over.func.value) == "torch" else over.args
            if method == "split":
                return bool(sizes) and _number(sizes[0]) == 1 and _is_input(over, function)
            return bool(sizes) and not isinstance(sizes[0], ast.Constant) and _comes_from_shape(sizes[0], function)
    if isinstance(over, ast.ListComp):
        bounds = [head.over for head in find_heads(over) if isinstance(head.over, ast.Call)]
        return _is_input(over.elt, function) and any(_comes_from_shape(bound, function) for bound in bounds)
    if isinstance(over, ast.Name) and (values := [value for value in _find_values(function, over.id) if value is not over]):
        return any(_gives_steps(value, function) for value in values if not uses_name(value, over.id))
    return _is_input(over, function)


def _is_input(node: ast.expr, function: ast.AST, depth: int = 6) -> bool:
    """Whether an expression is a tensor that comes from forward's arguments, and not from self or a list of its own."""
    if depth == 0 or _mentions_self(node):
        return False
    if isinstance(node, ast.Name):
        values = list(_find_values(function, node.id))
        if values:
            return any(_is_input(value, function, depth - 1) for value in values)
        return node.id in _parameters_of(function)
    if isinstance(node, ast.Call):
        inputs = [node.func.value] if isinstance(node.func, ast.Attribute) else []
        return any(_is_input(part, function, depth - 1) for part in [*inputs, *node.args[:1]])
    if isinstance(node, ast.Attribute | ast.Subscript):
        return not (isinstance(node, ast.Attribute) and node.attr == "shape") and _is_input(node.value, function, depth - 1)
    if isinstance(node, ast.BinOp):
        return _is_input(node.left, function, depth - 1) or _is_input(node.right, function, depth - 1)
    return False


def _parameters_of(function: ast.AST) -> set[str]:
    args = function.args if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) else None
    return {parameter.arg for parameter in [*args.posonlyargs, *args.args]} - {"self", "ctx"} if args else set()


def _find_values(function: ast.AST, name: str) -> Iterator[ast.expr]:
    """What a name is set to in a function, loops aside."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name) and target.id == name:
                    yield node.value
                elif isinstance(target, ast.Tuple) and any(isinstance(part, ast.Name) and part.id == name for part in target.elts):
                    yield node.value


def _mentions_self(node: ast.AST) -> bool:
    return any(isinstance(part, ast.Name) and part.id == "self" for part in ast.walk(node))


def _rests_on_self(node: ast.expr, function: ast.AST) -> bool:
    """Whether an expression, or what its names were set to, mentions self."""
    if _mentions_self(node):
        return True
    names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    own = [name for name in names if not _is_input(ast.Name(name, ast.Load()), function)]
    return any(_mentions_self(value) for name in own for value in _find_values(function, name))


def _indexes_weights(loop: HostLoop, name: str) -> bool:
    """Whether the loop's variable picks weights or layers: self.weights[i], getattr(self, f'w{i}')."""
    for part in ast.walk(loop):
        if isinstance(part, ast.Subscript) and _mentions_self(part.value) and uses_name(part.slice, name):
            return True
        if isinstance(part, ast.Call) and ast.unparse(part.func) == "getattr" and any(uses_name(argument, name) for argument in part.args):
            return True
        if isinstance(part, ast.Assign) and isinstance(part.value, ast.Call) and isinstance(part.value.func, ast.Attribute):
            only = [ast.unparse(argument) for argument in part.value.args] == [name]
            if only and part.value.func.attr not in _SLICES:
                return True  # w, b = net.layer(i)
    return False


def _slices_input(index: KernelSource, loop: HostLoop, name: str, function: ast.AST) -> bool:
    """Whether the loop's variable picks a step of a tensor, as in x[t], x[:, t], x.select(1, t) or a kernel's argument x + t * n."""
    del index
    derived = _derive(loop, name)
    for part in ast.walk(loop):
        if isinstance(part, ast.Subscript) and any(_picks(part.slice, one) for one in derived) and not _mentions_self(part.value):
            if _is_tensor(part.value, function):
                return True
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and part.func.attr in _SLICES:
            if any(uses_name(argument, one) for argument in part.args for one in derived) and not _mentions_self(part.func.value):
                return True
    return False


def _derive(loop: HostLoop, name: str) -> set[str]:
    """The loop's variable and names that an iteration computes from it."""
    return {name} | {
        target.id
        for part in ast.walk(loop)
        if isinstance(part, ast.Assign) and uses_name(part.value, name) and isinstance(part.value, ast.BinOp | ast.IfExp)
        for target in part.targets
        if isinstance(target, ast.Name)
    }


def _picks(place: ast.expr, name: str) -> bool:
    """Whether an index is the name itself, up to a constant; `i * block` picks a tile."""
    parts = place.elts if isinstance(place, ast.Tuple) else [place]
    for part in parts:
        if isinstance(part, ast.Slice):
            part = part.lower or part
        if uses_name(part, name) and not any(isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Mult) for inner in ast.walk(part)):
            return True
    return False


def _is_tensor(node: ast.expr, function: ast.AST) -> bool:
    """Whether an expression may be a tensor of activations: an input, or one that forward makes."""
    if _is_input(node, function):
        return True
    names = [part.id for part in ast.walk(node) if isinstance(part, ast.Name)]
    values = [value for name in names for value in _find_values(function, name)]
    return any(isinstance(value, ast.Call | ast.BinOp) and not _mentions_self(value) for value in values)


def _comes_from_shape(bound: ast.expr, function: ast.AST) -> bool:
    """Whether a bound is an extent of a tensor: x.shape[i], x.size(i), len(x), or a name that was set from one."""
    sources = [bound]
    for name in {part.id for part in ast.walk(bound) if isinstance(part, ast.Name)}:
        sources += list(_find_values(function, name))
    if any(isinstance(part, ast.Attribute) and part.attr in ("log2", "bit_length") for source in sources for part in ast.walk(source)):
        return False  # stages of a tree
    for source in sources:
        for part in ast.walk(source):
            if isinstance(part, ast.Attribute) and part.attr in ("shape", "size"):
                return not _mentions_self(part)
            if isinstance(part, ast.Call) and ast.unparse(part.func) == "len" and part.args:
                return _is_input(part.args[0], function)
    return False


def _passes_to_launch(index: KernelSource, loop: HostLoop, name: str) -> bool:
    """Whether a kernel launched in the loop gets the loop's variable."""
    for part in ast.walk(loop):
        if isinstance(part, ast.Call) and index.find_launched_kernel(part):
            given = [*part.args, *(keyword.value for keyword in part.keywords)]
            if any(uses_name(argument, one) for argument in given for one in _derive(loop, name)):
                return True
    return False


