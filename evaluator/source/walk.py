"""Follows values through one Triton kernel: which program ids, loop variables and earlier iterations an address or a value rests on.

An abstract run over the syntax tree: statements in order, both sides of a branch, loop bodies twice (so that what an iteration leaves
is seen by the next), helper jit functions entered with their arguments. Nothing is executed.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import replace

from tritonsmith.evaluator.source.kernel_file import KernelSource
from tritonsmith.evaluator.source.values import NOTHING, Access, KernelWalk, Loop, Product, Rescale, Value, union

_MAX_DEPTH = 6
_KEEP_ADDRESS = {"multiple_of", "max_contiguous", "max_constancy", "cast", "where", "advance", "make_block_ptr", "make_tensor_descriptor"}
_REDUCTIONS = {"sum", "max", "min", "argmax", "argmin", "reduce", "xor_sum"}
_SHAPED = {"zeros", "full", "reshape", "view", "broadcast_to"}
_ASSEMBLY = "inline_asm_elementwise"


def walk_kernel(index: KernelSource, node: ast.FunctionDef) -> KernelWalk:
    """Facts of one kernel."""
    walk = KernelWalk(node.name, node.lineno)
    scalars = _scalar_parameters(node)
    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    env = {
        one.arg: Value(hash(("parameter", one.arg)), roots=frozenset() if one.arg in scalars else frozenset({one.arg}))
        for one in arguments
    }
    _Runner(index, walk).run(node, env, ())
    return walk


def _scalar_parameters(node: ast.FunctionDef) -> set[str]:
    """Parameters that cannot be pointers: constants, and those that are multiplied, compared or bound a range."""
    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    scalars = {one.arg for one in arguments if one.annotation is not None and "constexpr" in ast.dump(one.annotation)}
    for one in ast.walk(node):
        operands: list[ast.AST] = []
        if isinstance(one, ast.BinOp) and not isinstance(one.op, ast.Add | ast.Sub):
            operands = [one.left, one.right]
        elif isinstance(one, ast.Compare):
            operands = [one.left, *one.comparators]
        elif isinstance(one, ast.Call) and isinstance(one.func, ast.Name) and one.func.id == "range":
            operands = list(one.args)
        scalars |= {operand.id for operand in operands if isinstance(operand, ast.Name)}
    return scalars


class _Runner:
    """Walks statements with an environment of values; records only in the last pass over a loop body."""

    def __init__(self, index: KernelSource, walk: KernelWalk) -> None:
        self.index = index
        self.walk = walk
        self.stack: tuple[int, ...] = ()
        self.silent = 0
        self.returned: list[list[Value]] = [[]]

    def run(self, node: ast.FunctionDef, env: dict[str, Value], path: tuple[int, ...]) -> Value:
        self.returned.append([])
        self.path = path
        self.block(node.body, env)
        values = self.returned.pop()
        return union(*values, signature=hash(tuple(value.signature for value in values))) if values else NOTHING

    # statements

    def block(self, body: list[ast.stmt], env: dict[str, Value]) -> None:
        for statement in body:
            self.statement(statement, env)

    def statement(self, node: ast.stmt, env: dict[str, Value]) -> None:
        self.index.step()
        if isinstance(node, ast.Assign):
            self.assign(node.targets, node.value, env)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            self.assign([node.target], node.value, env)
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            self.accumulate(node.target.id, node.value, env, additive=isinstance(node.op, ast.Add | ast.Sub))
            self._note_scaling(node.target.id, node.value, env, isinstance(node.op, ast.Mult))
            env[node.target.id] = self.binary(ast.Name(node.target.id, ast.Load()), node.op, node.value, env)
        elif isinstance(node, ast.For | ast.While):
            self.loop(node, env)
        elif isinstance(node, ast.If):
            self.value(node.test, env)
            other = dict(env)
            self.block(node.body, env)
            self.block(node.orelse, other)
            _merge(env, other)
        elif isinstance(node, ast.Return):
            self.returned[-1].append(self.value(node.value, env) if node.value is not None else NOTHING)
        elif isinstance(node, ast.Expr):
            self.value(node.value, env)
        elif isinstance(node, ast.With):
            self.block(node.body, env)

    def assign(self, targets: list[ast.expr], value: ast.expr, env: dict[str, Value]) -> None:
        for target in targets:
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
                found = [self.value(one, env) for one in value.elts]
                for one, each in zip(target.elts, found, strict=True):
                    _bind(one, each, env)
                continue
            if isinstance(target, ast.Name):
                self.accumulate(target.id, value, env, additive=True, needs_name=True)
                self._note_scaling(target.id, value, env, direct=False)
            _bind(target, self.value(value, env), env)

    def loop(self, node: ast.For | ast.While, env: dict[str, Value]) -> None:
        loop = self._open_loop(node, env)
        outer, entry = self.stack, dict(env)
        self.stack = (*outer, loop.id)
        assigned = {one.id for part in node.body for one in ast.walk(part) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
        loop.assigned = frozenset(assigned)
        left: Mapping[str, Value] = {}
        for last in (False, True):
            for name in assigned & entry.keys():
                before = union(entry[name], left.get(name, NOTHING), signature=hash(("carried", name, loop.id)))
                env[name] = replace(before, carried=before.carried | {(loop.id, name)})
            if isinstance(node, ast.For):
                variable = union(self.value(node.iter, env), signature=hash(("loop", loop.id)), roots=False)
                _bind(node.target, replace(variable, loops=variable.loops | {loop.id}, rank=0), env)
            self.silent += not last
            if isinstance(node, ast.While):
                self.value(node.test, env)
            self.block(node.body, env)
            self.silent -= not last
            left = dict(env)
        self.stack = outer
        _merge(env, entry)

    def _open_loop(self, node: ast.For | ast.While, env: dict[str, Value]) -> Loop:
        key = hash((self.path, node.lineno, node.col_offset))
        loop = Loop(key, node.lineno, "for" if isinstance(node, ast.For) else "while", self.stack)
        loop = self.walk.loops.setdefault(key, loop)
        if isinstance(node, ast.For) and isinstance(node.iter, ast.Call):
            bounds = node.iter.args
            literals = [one.value if isinstance(one, ast.Constant) and isinstance(one.value, int) else None for one in bounds]
            loop.bound = ast.unparse(bounds[min(1, len(bounds) - 1)]) if bounds else ""
            loop.unit_step = len(bounds) < 3 or literals[2] == 1
            if bounds and None not in literals:
                loop.trips = len(range(*(int(one) for one in literals if one is not None)))
            if len(bounds) == 3:
                loop.strided_by_programs = bool(self.value(bounds[0], env).pids)
        return loop

    # expressions

    def value(self, node: ast.AST | None, env: dict[str, Value]) -> Value:
        self.index.step()
        if node is None:
            return NOTHING
        if isinstance(node, ast.Name):
            return env.get(node.id, Value(hash(("global", node.id))))
        if isinstance(node, ast.Constant):
            return Value(hash(("constant", str(node.value))))
        if isinstance(node, ast.BinOp):
            return self.binary(node.left, node.op, node.right, env)
        if isinstance(node, ast.Call):
            return self.call(node, env)
        children = [self.value(one, env) for one in ast.iter_child_nodes(node) if isinstance(one, ast.expr | ast.keyword | ast.slice)]
        result = union(*children, signature=hash((type(node).__name__, *(one.signature for one in children))))
        if isinstance(node, ast.Subscript):
            base = self.value(node.value, env)
            parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            added = sum(isinstance(one, ast.Constant) and one.value is None for one in parts)
            return replace(result, rank=base.rank + added, signature=hash((base.signature, ast.dump(node.slice))))
        return result

    def binary(self, left: ast.expr, op: ast.operator, right: ast.expr, env: dict[str, Value]) -> Value:
        one, two = self.value(left, env), self.value(right, env)
        signature = hash((type(op).__name__, one.signature, two.signature))
        result = union(one, two, signature=signature, roots=isinstance(op, ast.Add | ast.Sub))
        if isinstance(op, ast.FloorDiv | ast.Mod) and one.pids and one.rank == 0:
            sign = "//" if isinstance(op, ast.FloorDiv) else "%"
            result = replace(result, pids=frozenset(f"{pid}{sign}{two.signature}" for pid in one.pids) | two.pids)
            self.walk.pid_parts |= result.pids
        return result

    def call(self, node: ast.Call, env: dict[str, Value]) -> Value:
        name = self.index.language(node.func)
        if name == "program_id":
            axis = node.args[0] if node.args else next((one.value for one in node.keywords if one.arg == "axis"), None)
            text = str(axis.value) if isinstance(axis, ast.Constant) else "?"
            self.walk.program_axes.add(text)
            return Value(hash(("program", text)), pids=frozenset({text}))
        if isinstance(node.func, ast.Name) and node.func.id in self.index.jit:
            return self.helper(self.index.jit[node.func.id], node, env)
        receiver = [self.value(node.func.value, env)] if isinstance(node.func, ast.Attribute) and not name else []
        arguments = receiver + [self.value(one, env) for one in node.args]
        named = {one.arg or "": self.value(one.value, env) for one in node.keywords}
        every = [*arguments, *named.values()]
        signature = hash((ast.dump(node.func), *(one.signature for one in every)))
        result = union(*every, signature=signature, roots=False)
        if name in ("load", "store") or name.startswith("atomic_"):
            return self.access(name, node, arguments, named, signature)
        if name in ("dot", "dot_scaled"):
            self._mark_dot()
            return replace(result, rank=2)
        if name == _ASSEMBLY or (not name and isinstance(node.func, ast.Name) and node.func.id in self.index.aliases):
            self._mark_poll()  # a function of another file may read memory too
        self._note_softmax(name, node, env, result)
        if arguments and (name in _KEEP_ADDRESS or receiver):
            pointers = [*arguments, named.get("base", NOTHING)] if name == "where" or not receiver else receiver
            result = replace(result, roots=frozenset().union(*(one.roots for one in pointers)))
        return replace(result, rank=_rank_of(name or getattr(node.func, "attr", ""), node, arguments, result.rank))

    def helper(self, function: ast.FunctionDef, node: ast.Call, env: dict[str, Value]) -> Value:
        """Enter another jit function with the values of its arguments."""
        arguments = [self.value(one, env) for one in node.args]
        named = {one.arg or "": self.value(one.value, env) for one in node.keywords}
        if len(self.path) >= _MAX_DEPTH:
            return union(*arguments, *named.values())
        names = [one.arg for one in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
        outer = self.path
        inner = dict(zip(names, arguments, strict=False)) | named
        result = self.run(function, inner, (*outer, node.lineno * 1000 + node.col_offset))
        self.path = outer
        return result

    def access(self, name: str, node: ast.Call, arguments: list[Value], named: dict[str, Value], signature: int) -> Value:
        address = arguments[0] if arguments else named.get("pointer", NOTHING)
        value = arguments[1] if len(arguments) > 1 else named.get("value", NOTHING)
        if name != "store":
            self._mark_poll(lock=name == "atomic_cas")
        if not self.silent and name in ("load", "store"):
            self.walk.accesses.append(Access(name, node.lineno, address, value, self.stack))
        return Value(signature, pids=address.pids, loops=address.loops, rank=address.rank)

    # marks

    def _mark_dot(self) -> None:
        self.walk.has_dot = True
        for one in self.stack:
            self.walk.loops[one].has_dot = True

    def _mark_poll(self, lock: bool = False) -> None:
        if self.stack and self.walk.loops[self.stack[-1]].kind == "while":
            loop = self.walk.loops[self.stack[-1]]
            loop.lock = lock and (loop.lock or not loop.polls)
            loop.polls = True

    def accumulate(self, target: str, value: ast.expr, env: dict[str, Value], *, additive: bool, needs_name: bool = False) -> None:
        """Record the products that are added to a total."""
        if self.silent or not self.stack or not additive:
            return
        terms = list(_terms(value))
        if needs_name and not any(isinstance(one, ast.Name) and one.id == target for one in terms):
            return
        self.silent += 1
        for one in terms:
            pair = _factors(self.index, one)
            if pair:
                left, right = (self.value(each, env) for each in pair)
                outer = all(isinstance(each, ast.Subscript) for each in pair) and _indexing(pair[0]) != _indexing(pair[1])
                self.walk.products.append(Product(one.lineno, left, right, self.stack, target, outer))
        self.silent -= 1

    def _note_softmax(self, name: str, node: ast.Call, env: dict[str, Value], result: Value) -> None:
        if self.silent or not self.stack:
            return
        loop = self.stack[-1]
        if name == "maximum" and any(one == loop for one, _ in result.carried):
            self.walk.rescales.append(Rescale("maximum", node.lineno, self.stack))
        if name in ("exp", "exp2", "math.exp", "math.exp2", "libdevice.exp") and node.args:
            for one in ast.walk(node.args[0]):
                if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Sub) and isinstance(one.left, ast.Name):
                    if (loop, one.left.id) in env.get(one.left.id, NOTHING).carried:
                        self.walk.rescales.append(Rescale("exponential", node.lineno, self.stack))

    def _note_scaling(self, target: str, value: ast.expr, env: dict[str, Value], direct: bool) -> None:
        """`total *= factor`, or `total = total * factor ...`, of a carried total by a factor that rests on another carried name."""
        if self.silent or not self.stack or target not in env or (self.stack[-1], target) not in env[target].carried:
            return
        factors = [value] if direct else [
            other
            for one in ast.walk(value) if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Mult)
            for own, other in ((one.left, one.right), (one.right, one.left))
            if any(isinstance(each, ast.Name) and each.id == target for each in ast.walk(own))
        ]  # fmt: skip
        self.silent += 1
        found = any(name != target and loop == self.stack[-1] for one in factors for loop, name in self.value(one, env).carried)
        self.silent -= 1
        if found:
            self.walk.rescales.append(Rescale("scaling", value.lineno, self.stack))


def _merge(env: dict[str, Value], other: Mapping[str, Value]) -> None:
    for name, value in other.items():
        mine = env.get(name)
        if mine is None:
            env[name] = value
        elif mine != value:
            env[name] = union(mine, value, signature=hash((mine.signature, value.signature)))


def _bind(target: ast.expr, value: Value, env: dict[str, Value]) -> None:
    if isinstance(target, ast.Name):
        env[target.id] = value
    elif isinstance(target, ast.Tuple):
        for number, one in enumerate(target.elts):
            _bind(one, replace(value, signature=hash((value.signature, number))), env)


def _terms(node: ast.expr) -> list[ast.expr]:
    """Terms of a sum."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        return [*_terms(node.left), *_terms(node.right)]
    return [node]


def _factors(index: KernelSource, node: ast.expr) -> tuple[ast.expr, ast.expr] | None:
    """The two factors of a product, looking through tl.sum(...) and fma."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return node.left, node.right
    if isinstance(node, ast.Call):
        name = index.language(node.func)
        if name == "sum" and node.args:
            return _factors(index, node.args[0])
        if name.endswith("fma") and len(node.args) >= 2:
            return node.args[0], node.args[1]
    return None


def _indexing(node: ast.expr) -> str:
    return ast.unparse(node.slice) if isinstance(node, ast.Subscript) else ""


def _rank_of(name: str, node: ast.Call, arguments: list[Value], rank: int) -> int:
    if name == "arange":
        return 1
    if name in _REDUCTIONS:
        has_axis = len(node.args) > 1 or any(one.arg in ("axis", "dim") for one in node.keywords)
        own = arguments[0].rank if arguments else 0
        return max(0, own - 1) if has_axis else 0
    if name in _SHAPED:
        shape = node.args[-1] if name not in ("zeros", "full") or len(node.args) == 1 else node.args[0]
        return len(shape.elts) if isinstance(shape, ast.Tuple | ast.List) else max(1, rank)
    return rank + 1 if name == "expand_dims" else rank
