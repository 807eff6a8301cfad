"""Follows values through one Triton kernel: on which program ids, loops and earlier iterations an address or a value rests.

An abstract run over the syntax tree: statements in order, both sides of a branch, loop bodies twice (so that what an iteration leaves
is seen by the next), helper jit functions entered with their arguments. Nothing is executed.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import replace

from tritonsmith.evaluator.source.kernel_file import KernelSource
from tritonsmith.evaluator.source.notes import WalkNotes
from tritonsmith.evaluator.source.values import NOTHING, Env, KernelWalk, Loop, Value, union

_MAX_DEPTH = 6
"""Helpers within helpers that are entered; deeper ones only pass on what their arguments depend on."""
_KEEP_ADDRESS = {"multiple_of", "max_contiguous", "max_constancy", "cast", "where", "advance", "make_block_ptr", "make_tensor_descriptor"}
"""Functions of the language that give back an address in the same buffer."""
_REDUCTIONS = {"sum", "max", "min", "argmax", "argmin", "reduce", "xor_sum"}
"""Functions of the language that take an axis away, or all of them."""
_SHAPED = {"zeros", "full", "reshape", "view", "broadcast_to"}
"""Functions of the language whose result has the shape that they are given."""
_ASSEMBLY = "inline_asm_elementwise"
"""Inline assembly, which may read memory."""


def walk_kernel(index: KernelSource, node: ast.FunctionDef) -> KernelWalk:
    """Facts of one kernel."""
    facts = KernelWalk(node.name, node.lineno)
    scalars = _scalar_parameters(node)
    names = [parameter.arg for parameter in _parameters(node)]
    env = {name: Value(hash(("parameter", name)), roots=frozenset() if name in scalars else frozenset({name})) for name in names}
    Walker(index, facts).walk_function(node, env, ())
    return facts


def _scalar_parameters(node: ast.FunctionDef) -> set[str]:
    """Parameters that cannot be pointers: constants, and those that are multiplied, compared or bound a range."""
    annotated = ((parameter.arg, parameter.annotation) for parameter in _parameters(node))
    scalars = {name for name, annotation in annotated if annotation is not None and "constexpr" in ast.dump(annotation)}
    for part in ast.walk(node):
        operands: list[ast.AST] = []
        if isinstance(part, ast.BinOp) and not isinstance(part.op, ast.Add | ast.Sub):
            operands = [part.left, part.right]
        elif isinstance(part, ast.Compare):
            operands = [part.left, *part.comparators]
        elif isinstance(part, ast.Call) and isinstance(part.func, ast.Name) and part.func.id == "range":
            operands = list(part.args)
        scalars |= {operand.id for operand in operands if isinstance(operand, ast.Name)}
    return scalars


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
        self.path: tuple[int, ...] = ()
        """Places of the calls by which the function that is walked through was entered."""
        self.returned: list[list[Value]] = [[]]

    def walk_function(self, node: ast.FunctionDef, env: Env, path: tuple[int, ...]) -> Value:
        """Walk through a function; gives what it may return."""
        self.returned.append([])
        self.path = path
        self.walk_block(node.body, env)
        values = self.returned.pop()
        return union(*values, signature=hash(tuple(value.signature for value in values))) if values else NOTHING

    def walk_block(self, body: list[ast.stmt], env: Env) -> None:
        """Walk through statements in order."""
        for statement in body:
            self.walk_statement(statement, env)

    def walk_statement(self, node: ast.stmt, env: Env) -> None:
        """Walk through a statement, both sides of a branch included."""
        self.index.count_step()
        if isinstance(node, ast.Assign):
            self.assign(node.targets, node.value, env)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            self.assign([node.target], node.value, env)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            if isinstance(node.op, ast.Add | ast.Sub):
                self.notes.note_products(node.target.id, node.value, env)
            self.notes.note_scaling(node.target.id, node.value, env, isinstance(node.op, ast.Mult))
            env[node.target.id] = self.evaluate_binary(ast.Name(node.target.id, ast.Load()), node.op, node.value, env)
        elif isinstance(node, ast.For | ast.While):
            self.walk_loop(node, env)
        elif isinstance(node, ast.If):
            self.evaluate(node.test, env)
            other = dict(env)
            self.walk_block(node.body, env)
            self.walk_block(node.orelse, other)
            _merge(env, other)
        elif isinstance(node, ast.Return):
            self.returned[-1].append(self.evaluate(node.value, env) if node.value is not None else NOTHING)
        elif isinstance(node, ast.Expr):
            self.evaluate(node.value, env)
        elif isinstance(node, ast.With):
            self.walk_block(node.body, env)

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
        loop = self._open_loop(node, env)
        outer, entry = self.notes.loops, dict(env)
        self.notes.loops = (*outer, loop.id)
        parts = (part for statement in node.body for part in ast.walk(statement))
        assigned = {part.id for part in parts if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
        loop.assigned = frozenset(assigned)
        left: Mapping[str, Value] = {}
        for last in (False, True):
            for name in assigned & entry.keys():
                before = union(entry[name], left.get(name, NOTHING), signature=hash(("carried", name, loop.id)))
                env[name] = replace(before, carried=before.carried | {(loop.id, name)})
            if isinstance(node, ast.For):
                variable = union(self.evaluate(node.iter, env), signature=hash(("loop", loop.id)), roots=False)
                _bind(node.target, replace(variable, loops=variable.loops | {loop.id}, rank=0), env)
            self.notes.silent += not last
            if isinstance(node, ast.While):
                self.evaluate(node.test, env)
            self.walk_block(node.body, env)
            self.notes.silent -= not last
            left = dict(env)
        self.notes.loops = outer
        _merge(env, entry)

    def _open_loop(self, node: ast.For | ast.While, env: Env) -> Loop:
        key = hash((self.path, node.lineno, node.col_offset))
        loop = Loop(key, node.lineno, "for" if isinstance(node, ast.For) else "while", self.notes.loops)
        loop = self.facts.loops.setdefault(key, loop)
        if isinstance(node, ast.For) and isinstance(node.iter, ast.Call):
            bounds = node.iter.args
            literals = [bound.value if isinstance(bound, ast.Constant) and isinstance(bound.value, int) else None for bound in bounds]
            loop.bound = ast.unparse(bounds[min(1, len(bounds) - 1)]) if bounds else ""
            loop.unit_step = len(bounds) < 3 or literals[2] == 1
            if bounds and None not in literals:
                loop.trips = len(range(*(int(literal) for literal in literals if literal is not None)))
            if len(bounds) == 3:
                loop.strided_by_programs = bool(self.evaluate(bounds[0], env).pids)
        return loop

    def evaluate(self, node: ast.AST | None, env: Env) -> Value:
        """What is known about an expression."""
        self.index.count_step()
        if node is None:
            return NOTHING
        if isinstance(node, ast.Name):
            return env.get(node.id, Value(hash(("global", node.id))))
        if isinstance(node, ast.Constant):
            return Value(hash(("constant", str(node.value))))
        if isinstance(node, ast.BinOp):
            return self.evaluate_binary(node.left, node.op, node.right, env)
        if isinstance(node, ast.Call):
            return self.evaluate_call(node, env)
        parts = (child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr | ast.keyword | ast.slice))
        values = [self.evaluate(part, env) for part in parts]
        result = union(*values, signature=hash((type(node).__name__, *(value.signature for value in values))))
        if isinstance(node, ast.Subscript):
            base = self.evaluate(node.value, env)
            indices = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            added = sum(isinstance(index, ast.Constant) and index.value is None for index in indices)
            return replace(result, rank=base.rank + added, signature=hash((base.signature, ast.dump(node.slice))))
        return result

    def evaluate_binary(self, left: ast.expr, op: ast.operator, right: ast.expr, env: Env) -> Value:
        """What is known about a sum, product, quotient or remainder."""
        first, second = self.evaluate(left, env), self.evaluate(right, env)
        signature = hash((type(op).__name__, first.signature, second.signature))
        result = union(first, second, signature=signature, roots=isinstance(op, ast.Add | ast.Sub))
        if isinstance(op, ast.FloorDiv | ast.Mod) and first.pids and first.rank == 0:
            sign = "//" if isinstance(op, ast.FloorDiv) else "%"
            result = replace(result, pids=frozenset(f"{pid}{sign}{second.signature}" for pid in first.pids) | second.pids)
            self.facts.pid_parts |= result.pids
        return result

    def evaluate_call(self, node: ast.Call, env: Env) -> Value:
        """What is known about the result of a call; accesses, products of tiles and polls are noted."""
        name = self.index.resolve_language_name(node.func)
        if name == "program_id":
            axis = node.args[0] if node.args else next((keyword.value for keyword in node.keywords if keyword.arg == "axis"), None)
            text = str(axis.value) if isinstance(axis, ast.Constant) else "?"
            self.facts.program_axes.add(text)
            return Value(hash(("program", text)), pids=frozenset({text}))
        if isinstance(node.func, ast.Name) and node.func.id in self.index.jit:
            return self.enter_helper(self.index.jit[node.func.id], node, env)
        receiver = [self.evaluate(node.func.value, env)] if isinstance(node.func, ast.Attribute) and not name else []
        arguments = receiver + [self.evaluate(argument, env) for argument in node.args]
        named = {keyword.arg or "": self.evaluate(keyword.value, env) for keyword in node.keywords}
        values = [*arguments, *named.values()]
        signature = hash((ast.dump(node.func), *(value.signature for value in values)))
        result = union(*values, signature=signature, roots=False)
        if name in ("load", "store") or name.startswith("atomic_"):
            return self.evaluate_access(name, node, arguments, named, signature)
        if name in ("dot", "dot_scaled"):
            self.notes.note_dot()
            return replace(result, rank=2)
        if name == _ASSEMBLY or (not name and isinstance(node.func, ast.Name) and node.func.id in self.index.aliases):
            self.notes.note_poll()  # a function of another file may read memory too
        self.notes.note_softmax(name, node, env, result)
        if arguments and (name in _KEEP_ADDRESS or receiver):
            pointers = [*arguments, named.get("base", NOTHING)] if name == "where" or not receiver else receiver
            result = replace(result, roots=frozenset().union(*(pointer.roots for pointer in pointers)))
        return replace(result, rank=_rank_of(name or getattr(node.func, "attr", ""), node, arguments, result.rank))

    def enter_helper(self, function: ast.FunctionDef, node: ast.Call, env: Env) -> Value:
        """Walk through another jit function with the values of its arguments."""
        arguments = [self.evaluate(argument, env) for argument in node.args]
        named = {keyword.arg or "": self.evaluate(keyword.value, env) for keyword in node.keywords}
        if len(self.path) >= _MAX_DEPTH:
            return union(*arguments, *named.values())
        names = [parameter.arg for parameter in _parameters(function)]
        outer = self.path
        inner = dict(zip(names, arguments, strict=False)) | named
        result = self.walk_function(function, inner, (*outer, node.lineno * 1000 + node.col_offset))
        self.path = outer
        return result

    def evaluate_access(self, name: str, node: ast.Call, arguments: list[Value], named: dict[str, Value], signature: int) -> Value:
        """What is known about the result of a load, a store or an atomic."""
        address = arguments[0] if arguments else named.get("pointer", NOTHING)
        value = arguments[1] if len(arguments) > 1 else named.get("value", NOTHING)
        if name != "store":
            self.notes.note_poll(lock=name == "atomic_cas")
        if name in ("load", "store"):
            self.notes.note_access(name, node.lineno, address, value)
        return Value(signature, pids=address.pids, loops=address.loops, rank=address.rank)


def _parameters(function: ast.FunctionDef) -> list[ast.arg]:
    return [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]


def _merge(env: Env, other: Mapping[str, Value]) -> None:
    for name, value in other.items():
        own = env.get(name)
        if own is None:
            env[name] = value
        elif own != value:
            env[name] = union(own, value, signature=hash((own.signature, value.signature)))


def _bind(target: ast.expr, value: Value, env: Env) -> None:
    if isinstance(target, ast.Name):
        env[target.id] = value
    elif isinstance(target, ast.Tuple):
        for number, element in enumerate(target.elts):
            _bind(element, replace(value, signature=hash((value.signature, number))), env)


def _rank_of(name: str, node: ast.Call, arguments: list[Value], rank: int) -> int:
    if name == "arange":
        return 1
    if name in _REDUCTIONS:
        has_axis = len(node.args) > 1 or any(keyword.arg in ("axis", "dim") for keyword in node.keywords)
        own = arguments[0].rank if arguments else 0
        return max(0, own - 1) if has_axis else 0
    if name in _SHAPED:
        shape = node.args[-1] if name not in ("zeros", "full") or len(node.args) == 1 else node.args[0]
        return len(shape.elts) if isinstance(shape, ast.Tuple | ast.List) else max(1, rank)
    return rank + 1 if name == "expand_dims" else rank
