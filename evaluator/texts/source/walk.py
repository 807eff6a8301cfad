"""Follows values through one Triton kernel: on which program ids, loops and earlier iterations an address or a value rests.

An abstract run over the syntax tree: statements in order, both sides of a branch, loop bodies twice (so that what an iteration leaves
is seen by the next), helper jit functions entered with their arguments. Nothing is executed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import replace

from tritonsmith.evaluator.texts.source.forms import ONE, Polynomial, make_number, make_opaque, make_symbol
from tritonsmith.evaluator.texts.source.kernel_file import KernelSource
from tritonsmith.evaluator.texts.source.language import Language, get_parameters
from tritonsmith.evaluator.texts.source.loop_heads import (
    Evaluate,
    find_polled_parts,
    note_trips,
    open_loop,
    read_head,
    read_loop_test,
    read_updates,
)
from tritonsmith.evaluator.texts.source.notes import WalkNotes
from tritonsmith.evaluator.texts.source.values import (
    NOTHING,
    Env,
    KernelWalk,
    Loop,
    Use,
    Value,
    join_ways,
    put_to_use,
    take_apart,
    turn,
    union,
)

_MAX_DEPTH = 6
"""Helpers within helpers that are entered; deeper ones only pass on what their arguments depend on."""


def walk_kernel(
    index: KernelSource, node: ast.FunctionDef, constants: Mapping[str, object] | None = None, same: Mapping[str, str] | None = None
) -> KernelWalk:
    """Facts of one kernel.

    Args:
        index: the file.
        node: the kernel.
        constants: values of parameters where a launch shows them, as numbers or by others.
        same: parameters that a launch gives the buffer of another one, with that one's name.
    """
    annotated = ((parameter.arg, parameter.annotation) for parameter in get_parameters(node))
    compiled = {name for name, annotation in annotated if annotation is not None and "constexpr" in ast.dump(annotation)}
    facts = KernelWalk(node.name, node.lineno, compiled=compiled)
    scalars = compiled | _scalar_parameters(node)
    env: Env = {}
    for parameter in get_parameters(node):
        name, known = parameter.arg, (constants or {}).get(parameter.arg)
        whole = name if name in scalars else (same or {}).get(name, name)
        form = known if isinstance(known, Polynomial) else make_symbol("parameter", whole)
        form = make_number(known) if isinstance(known, int) and not isinstance(known, bool) else form
        env[name] = Value(hash(("parameter", name)), roots=frozenset() if name in scalars else frozenset({whole}), form=form)
    Walker(index, facts).walk_function(node, env, ())
    return facts


def _scalar_parameters(node: ast.FunctionDef) -> set[str]:
    """Parameters that cannot be pointers, since they are multiplied or compared, or bound a range."""
    scalars: set[str] = set()
    for part in ast.walk(node):
        operands: list[ast.AST] = []
        if isinstance(part, ast.BinOp) and not isinstance(part.op, ast.Add | ast.Sub):
            operands = [part.left, part.right]
        elif isinstance(part, ast.Compare) and not any(isinstance(op, ast.Is | ast.IsNot) for op in part.ops):
            operands = [part.left, *part.comparators]
        elif isinstance(part, ast.Call) and isinstance(part.func, ast.Name) and part.func.id == "range":
            operands = list(part.args)
        scalars |= {operand.id for operand in operands if isinstance(operand, ast.Name)}
    assigned: dict[str, list[ast.expr]] = {}
    for part in ast.walk(node):
        if isinstance(part, ast.Assign) and isinstance(part.targets[0], ast.Name):
            assigned.setdefault(part.targets[0].id, []).append(part.value)
    for name in scalars & assigned.keys():
        if all(_is_plain_sum(value) for value in assigned[name]):  # `k = K - 1` of a k that is compared
            scalars |= {part.id for value in assigned[name] for part in ast.walk(value) if isinstance(part, ast.Name)}
    return scalars


def _is_plain_sum(node: ast.expr) -> bool:
    """Whether an expression is made of names and numbers by sums and differences."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        return _is_plain_sum(node.left) and _is_plain_sum(node.right)
    return isinstance(node, ast.Name | ast.Constant)


class Walker:
    """Walks through statements, loops and calls with an environment of values.

    Args:
        index: the file with the kernel.
        facts: what is found out about the kernel, in part by way of `notes`.
    """

    def __init__(self, index: KernelSource, facts: KernelWalk) -> None:
        self.index = index
        self.facts = facts
        self.notes = WalkNotes(index, facts, self.evaluate)
        self.language = Language(self)
        self.path: tuple[int, ...] = ()
        """Places of the calls by which the function that is walked through was entered."""
        self.returned: list[list[Value]] = [[]]

    def walk_function(self, node: ast.FunctionDef, env: Env, path: tuple[int, ...]) -> Value:
        """Walk through a function; gives what it may return."""
        self.returned.append([])
        self.path = path
        self.walk_block(node.body, env)
        values = self.returned.pop()
        return join_ways(values, hash(tuple(value.signature for value in values))) if values else NOTHING

    def walk_block(self, body: list[ast.stmt], env: Env) -> None:
        """Walk through statements in order; behind a branch that returns, those that did not take it go on."""
        around = self.notes.around
        for statement in body:
            self.walk_statement(statement, env)
        self.notes.around = around

    def walk_statement(self, node: ast.stmt, env: Env) -> None:
        """Walk through a statement, both sides of a branch included."""
        self.index.count_step()
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            self.assign(node.targets if isinstance(node, ast.Assign) else [node.target], node.value, env)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            if isinstance(node.op, ast.Add | ast.Sub):
                self.notes.note_products(node.target.id, node.value, env)
            self.notes.note_scaling(node.target.id, node.value, env, isinstance(node.op, ast.Mult))
            env[node.target.id] = self.evaluate_binary(ast.Name(node.target.id, ast.Load()), node.op, node.value, env)
        elif isinstance(node, ast.For | ast.While):
            self.walk_loop(node, env)
        elif isinstance(node, ast.If):
            self._walk_branch(node, env)
        elif isinstance(node, ast.Return):
            self.notes.note_products("", node.value, env, needs_name=True)
            self.returned[-1].append(self.evaluate(node.value, env))
        elif isinstance(node, ast.Expr):
            self.evaluate(node.value, env)
        elif isinstance(node, ast.With):
            self.walk_block(node.body, env)

    def _walk_branch(self, node: ast.If, env: Env) -> None:
        """Both sides; what stands there, or behind a side that returns, is noted with the condition."""
        test, other, around = self.evaluate(node.test, env), dict(env), self.notes.around
        leaves = isinstance(node.body[-1], ast.Return) and not node.orelse
        side = -1 if leaves and len(node.body) == 1 else 1  # what goes on then is the side that is meant
        self.notes.note_condition(test, side)
        self.notes.around = around.under(test, side)
        self.walk_block(node.body, env)
        self.notes.around = around.under(test, -side)
        self.walk_block(node.orelse, other)
        if not leaves:
            self.notes.around = around
        _merge(env, other)

    def assign(self, targets: list[ast.expr], value: ast.expr, env: Env) -> None:
        """Give names new values, and note what an assignment adds to a total."""
        for target in targets:
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
                parts = [self.evaluate(element, env) for element in value.elts]
                for name, part in zip(target.elts, parts, strict=True):
                    _bind(name, part, env)
                continue
            if isinstance(target, ast.Name):
                self.notes.note_products(target.id, value, env, needs_name=True)
                self.notes.note_scaling(target.id, value, env, direct=False)
            _bind(target, self.evaluate(value, env), env)

    def walk_loop(self, node: ast.For | ast.While, env: Env) -> None:
        """Walk twice through a loop's body, so that the second pass sees what the first one leaves."""
        key = abs(hash((self.path, node.lineno, node.col_offset))) + 1
        loop = self.facts.loops.setdefault(key, open_loop(key, node, self.notes.loops, self.notes.around.guards))
        outer, entry, loop.guards = self.notes.loops, dict(env), self.notes.around.guards  # of the last pass over a loop around
        variable = read_head(node, loop, env, self.evaluate) if isinstance(node, ast.For) else NOTHING
        self.notes.loops = (*outer, loop.id)
        parts = (part for statement in node.body for part in ast.walk(statement))
        parts_assigned = {part.id for part in parts if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
        assigned = parts_assigned & entry.keys()
        left: dict[str, Value] = {}
        for last in (False, True):
            loop.variables, loop.counters, loop.leaps = [variable.form] if isinstance(node, ast.For) else [], [], []
            for name in assigned:
                env[name] = self._enter_iteration(name, loop, entry[name], left.get(name))
            if isinstance(node, ast.For):
                _bind(node.target, variable, env)
            self.notes.silent += not last
            self.notes.stored.clear()
            at_test, stored = dict(env), len(self.facts.accesses)
            if isinstance(node, ast.While):
                self.evaluate(node.test, env)
            self.walk_block(node.body, env)
            self.notes.silent -= not last
            left = dict(env)
        if isinstance(node, ast.While):
            accesses = self.facts.accesses[stored:]
            find_polled_parts(node, loop, at_test, left, accesses, self.evaluate)
            read_loop_test(node.test, loop, at_test, self.evaluate)
        note_trips(loop)
        pointers = {name for name in assigned if entry[name].roots and not left[name].roots}  # a name that is used again for what it led to
        read_updates(loop, dict(take_apart({name: left[name] for name in assigned - pointers})))
        self.notes.loops = outer
        _leave_loop(loop, parts_assigned, env)
        _merge(env, entry)

    def _enter_iteration(self, name: str, loop: Loop, entry: Value, left: Value | None) -> Value:
        """What a name holds as an iteration begins: itself plus even steps where it grows by those, else what the last one left."""
        if entry.elements and (left is None or len(left.elements) == len(entry.elements)):
            pairs = enumerate(entry.elements)
            elements = [self._enter_iteration(f"{name}.{at}", loop, part, left.elements[at] if left else None) for at, part in pairs]
            return replace(union(*elements, signature=hash(("carried", name, loop.id))), elements=tuple(elements))
        loop.entries[name], symbol = entry, make_symbol("carried", f"{loop.id}:{name}")
        if left is None:
            return replace(entry, form=symbol, carried=entry.carried | {(loop.id, name, Use.COPY)}, reads=frozenset(), origins=frozenset())
        step = left.form - symbol
        if not left.reads and not left.atomic and symbol.terms and not any(dep.startswith("carried:") for dep in step.deps):
            if step.terms and loop.name not in step.deps and not _is_masked(step):
                form = entry.form + step * make_symbol("loop", str(loop.id))
                loop.variables.append(form)
                loop.counters += [] if entry.roots else [form]
                signature = hash((entry.signature, step, loop.id))
                return replace(entry, signature=signature, form=form, loops=entry.loops | {loop.id}, pids=entry.pids | left.pids)
        loop.leaps += [entry.form + step * make_symbol("loop", str(loop.id)) for step in _find_leaps(left.form, symbol)]
        before = union(entry, left, signature=hash(("carried", name, loop.id)), form=symbol)
        if before.roots and not left.reads:
            loop.pointers.add(name)
        carried = frozenset(item for item in before.carried if item[0] != loop.id) | {(loop.id, name, Use.COPY)}
        return replace(before, carried=carried, strides=entry.strides, block=entry.block)

    def evaluate(self, node: ast.AST | None, env: Env) -> Value:
        """What is known about an expression."""
        self.index.count_step()
        if node is None:
            return NOTHING
        if isinstance(node, ast.Name):
            return env.get(node.id) or _read_global(self.index, node.id)
        if isinstance(node, ast.Constant):
            return _read_constant(node)
        if isinstance(node, ast.BinOp):
            return self.evaluate_binary(node.left, node.op, node.right, env)
        if isinstance(node, ast.Call):
            return self.language.evaluate_call(node, env)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            value = self.evaluate(node.operand, env)
            return replace(put_to_use(value, Use.SUM), form=value.form.scaled(-1), signature=hash(("-", value.signature)))
        parts = (child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr | ast.keyword | ast.slice))
        values = [self.evaluate(part, env) for part in parts]
        kind = type(node).__name__ + "".join(type(op).__name__ for op in getattr(node, "ops", ()))
        signature = hash((kind, *(value.signature for value in values)))
        if isinstance(node, ast.Subscript):
            return self.language.places.evaluate_subscript(node, env)
        if isinstance(node, ast.Tuple):
            return replace(union(*values, signature=signature), elements=tuple(values))
        result = union(*values, signature=signature, form=make_opaque(kind, *(value.form for value in values)))
        result = turn(result) if isinstance(node, ast.Attribute) and node.attr == "T" else result
        if isinstance(node, ast.Attribute | ast.List | ast.keyword):
            return result
        return put_to_use(result, Use.FULL if isinstance(node, ast.Compare) else Use.SUM)

    def evaluate_binary(self, left: ast.expr, op: ast.operator, right: ast.expr, env: Env) -> Value:
        """What is known about a sum, product, quotient or remainder."""
        first, second = self.evaluate(left, env), self.evaluate(right, env)
        name = type(op).__name__
        signature = hash((name, first.signature, second.signature))
        form = _combine_forms(name, first.form, second.form)
        self.notes.note_operation(name, signature, first, second, getattr(left, "lineno", 0))
        if isinstance(op, ast.MatMult):
            self.notes.note_dot()
        use = _choose_use(op, first, second)
        first = put_to_use(first, use)
        second = put_to_use(second, Use.FULL if isinstance(op, ast.Div) else use)
        result = union(first, second, signature=signature, roots=isinstance(op, ast.Add | ast.Sub), form=form)
        if isinstance(op, ast.FloorDiv | ast.Mod) and first.pids and first.rank == 0:
            result = _part_programs(op, first, second, result)
            self.facts.pid_parts |= result.pids
        return result

    def enter_helper(self, function: ast.FunctionDef, node: ast.Call, env: Env) -> Value:
        """Walk through another jit function with the values of its arguments."""
        arguments = [self.evaluate(argument, env) for argument in node.args]
        named = {keyword.arg or "": self.evaluate(keyword.value, env) for keyword in node.keywords}
        if len(self.path) >= _MAX_DEPTH:
            return union(*arguments, *named.values())
        given = dict(zip([parameter.arg for parameter in get_parameters(function)], arguments, strict=False))
        inner, outer = _read_defaults(function, self.evaluate) | given | named, self.path
        result = self.walk_function(function, inner, (*outer, node.lineno * 1000 + node.col_offset))
        self.path = outer
        return result


def _read_constant(node: ast.Constant) -> Value:
    whole = isinstance(node.value, int) and not isinstance(node.value, bool)
    form = make_number(int(str(node.value))) if whole else make_symbol("constant", str(node.value))
    return Value(hash(("constant", str(node.value))), form=form)


def _read_global(index: KernelSource, name: str) -> Value:
    known = index.numbers.get(name)
    return Value(hash(("global", name)), form=make_symbol("parameter", name) if known is None else make_number(known))


def _read_defaults(function: ast.FunctionDef, evaluate: Evaluate) -> Env:
    """Values of parameters that a call may leave out."""
    parameters, defaults = [*function.args.posonlyargs, *function.args.args], function.args.defaults
    later = parameters[len(parameters) - len(defaults) :]
    return {parameter.arg: evaluate(default, {}) for parameter, default in zip(later, defaults, strict=True)}


def _leave_loop(loop: Loop, assigned: set[str], env: Env) -> None:
    """What holds after a loop: nothing rests on its earlier iterations any more."""
    for name in assigned & env.keys():
        value = env[name]
        if any(owner == loop.id for owner, *_ in value.carried):
            env[name] = replace(value, carried=frozenset(item for item in value.carried if item[0] != loop.id))


def _choose_use(op: ast.operator, first: Value, second: Value) -> Use:
    """What an operator does to its left side."""
    if isinstance(op, ast.Mult) and {item[:2] for item in first.carried} & {item[:2] for item in second.carried}:
        return Use.FULL
    if isinstance(op, ast.Add | ast.Sub | ast.BitAnd | ast.BitOr | ast.BitXor):
        return Use.SUM
    return Use.SCALE if isinstance(op, ast.Mult | ast.Div | ast.LShift | ast.RShift) else Use.FULL


def _part_programs(op: ast.operator, first: Value, second: Value, result: Value) -> Value:
    """A quotient or remainder of a program's number: a part of it."""
    sign = "//" if isinstance(op, ast.FloorDiv) else "%"
    return replace(result, pids=frozenset(f"{pid}{sign}{second.signature}" for pid in first.pids) | second.pids)


def _is_masked(step: Polynomial) -> bool:
    """Whether a step differs between the elements of a tile."""
    return any(dep.startswith(("range:", "program:")) for dep in step.deps)


def _combine_forms(op: str, first: Polynomial, second: Polynomial) -> Polynomial:
    if op == "Add":
        return first + second
    if op == "Sub":
        return first - second
    if op == "Mult":
        return first * second
    left, right = first.constant, second.constant
    if left is not None and right is not None and right > 0 and op in ("FloorDiv", "Mod", "LShift"):
        return make_number(left // right if op == "FloorDiv" else left % right if op == "Mod" else left << min(right, 64))
    if op == "FloorDiv" and second == ONE:
        return first
    return make_opaque(op, first, second)


def _find_leaps(form: Polynomial, before: Polynomial) -> Iterator[Polynomial]:
    """By how much some iterations move a number on, where others leave it."""
    for symbol in form.symbols():
        if symbol.kind == "opaque" and symbol.key.startswith("either") and before in symbol.parts:
            steps = (part - before for part in symbol.parts if part != before)
            yield from (step for step in steps if not any(dep.startswith("carried:") for dep in step.deps))


def _merge(env: Env, other: Mapping[str, Value]) -> None:
    for name, value in other.items():
        own = env.get(name)
        if own is None:
            env[name] = value
        elif own != value:
            form = own.form if own.form == value.form else make_opaque("either", own.form, value.form)
            merged = union(own, value, signature=hash((own.signature, value.signature)), form=form)
            env[name] = replace(merged, strides=own.strides or value.strides, block=own.block or value.block)


def _bind(target: ast.expr, value: Value, env: Env) -> None:
    if isinstance(target, ast.Name):
        env[target.id] = value
    elif isinstance(target, ast.Tuple):
        known = value.elements if len(value.elements) == len(target.elts) else ()
        for number, element in enumerate(target.elts):
            part = known[number] if known else replace(value, signature=hash((value.signature, number)))
            _bind(element, part, env)
