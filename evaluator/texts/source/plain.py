"""Host code in plainer words, so that readers meet fewer ways to say one thing. Only positions and meanings are kept, not the text."""

from __future__ import annotations

import ast
from collections.abc import Callable

Resolve = Callable[[ast.AST], str]
"""Gives the full dotted name of an expression, empty for anything else."""

PRODUCT = "operator.matmul"
"""What `a @ b` is called."""
_CHOOSING = ("filter", "itertools.filterfalse", "itertools.dropwhile")
"""Functions that leave elements out of what stands second."""
_TAKING = ("pop", "popleft", "get", "get_nowait", "__next__")
"""Methods that take the next element."""
_ITEM = "item of "
"""How names begin that no text can hold: what an iteration of a map gets, and what a reduce carries."""


def write_plainly(tree: ast.Module, resolve: Resolve) -> ast.Module:
    """The tree with these replaced, in place:

    - `map(f, xs)` and the like by a generator expression, also where f is a lambda or a state is carried (functools.reduce)
    - `while True` around `next(xs)` that ends with StopIteration, and `while xs` around `xs.popleft()`, by a for loop
    - `filter(f, xs)` by xs, `xs.__next__()` by `next(xs)`, and `iter(xs.pop, end)` by xs
    - `a @ b` by a call, `vars(a)["b"]` and `a.__dict__["b"]` by `a.b`
    - tests whether a tensor lies on a card by the side for a card
    """
    plain = _Plainer(resolve, _find_flags(tree)).visit(tree)
    assert isinstance(plain, ast.Module)
    return ast.fix_missing_locations(plain)


class _Plainer(ast.NodeTransformer):
    """Replaces expressions and statements from the innermost outwards."""

    def __init__(self, resolve: Resolve, flags: dict[str, bool]) -> None:
        self._resolve = resolve
        self._flags = flags

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """Visit children, then leave out statements that a card never reaches."""
        super().generic_visit(node)
        for field in ("body", "orelse", "finalbody"):
            block = getattr(node, field, None)
            if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
                setattr(node, field, self._choose_sides(block) or ([ast.Pass()] if field == "body" else []))
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """A kernel stays as it is."""
        if any("jit" in ast.dump(decorator) and "triton" in ast.dump(decorator) for decorator in node.decorator_list):
            return node
        return self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        """`a @ b`."""
        self.generic_visit(node)
        if not isinstance(node.op, ast.MatMult):
            return node
        return _call_at(node, ast.Name(PRODUCT, ast.Load()), [node.left, node.right])

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        """`a @= b`."""
        self.generic_visit(node)
        if not isinstance(node.op, ast.MatMult) or not isinstance(node.target, ast.Name):
            return node
        value = _call_at(node, ast.Name(PRODUCT, ast.Load()), [ast.Name(node.target.id, ast.Load()), node.value])
        return ast.copy_location(ast.Assign([node.target], value), node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """map, starmap, reduce, accumulate, filter and iterators."""
        self.generic_visit(node)
        name = self._resolve(node.func)
        if name in _CHOOSING and len(node.args) == 2:
            return node.args[1]
        if isinstance(node.func, ast.Attribute) and node.func.attr == "__next__":
            return _call_at(node, ast.Name("next", ast.Load()), [node.func.value])
        if name == "iter" and len(node.args) == 2 and (source := _read_source(node.args[0])) is not None:
            return source
        if name == "map" and len(node.args) > 1:
            return _make_generator(node, node.args[0], node.args[1:], carried=None)
        if name == "itertools.starmap" and len(node.args) == 2:
            return _make_generator(node, node.args[0], node.args[1:], carried=None, starred=True)
        if name == "functools.reduce" and len(node.args) > 1:
            return _make_generator(node, node.args[0], node.args[1:2], carried=node.args[2] if len(node.args) > 2 else ast.Constant(None))
        if name == "itertools.accumulate" and len(node.args) > 1:
            start = next((word.value for word in node.keywords if word.arg == "initial"), ast.Constant(None))
            return _make_generator(node, node.args[1], node.args[:1], carried=start)
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        """`vars(a)["b"]` and `a.__dict__["b"]`."""
        self.generic_visit(node)
        key, table = node.slice.value if isinstance(node.slice, ast.Constant) else None, node.value
        owner = table.value if isinstance(table, ast.Attribute) and table.attr == "__dict__" else None
        if isinstance(table, ast.Call) and self._resolve(table.func) == "vars" and len(table.args) == 1:
            owner = table.args[0]
        return ast.copy_location(ast.Attribute(owner, key, node.ctx), node) if owner is not None and isinstance(key, str) else node

    def visit_While(self, node: ast.While) -> ast.AST:
        """`while True: try: x = next(xs) except StopIteration: break`."""
        self.generic_visit(node)
        first = node.body[0]
        if (taken := _read_taken(node)) is not None:
            return taken
        if not isinstance(node.test, ast.Constant) or not isinstance(first, ast.Try) or not first.handlers:
            return node
        ends = all(any(isinstance(part, ast.Break | ast.Return) for part in handler.body) for handler in first.handlers)
        asked = first.body[0]
        if not ends or not isinstance(asked, ast.Assign) or not isinstance(asked.value, ast.Call) or not asked.value.args:
            return node
        if self._resolve(asked.value.func) != "next":
            return node
        body = [*first.body[1:], *first.orelse, *node.body[1:]]
        return ast.copy_location(ast.For(asked.targets[0], asked.value.args[0], body or [ast.Pass()], []), node)

    def _choose_sides(self, block: list[ast.stmt]) -> list[ast.stmt]:
        """A block with conditions about the card decided; what follows a side that leaves is left out."""
        kept: list[ast.stmt] = []
        for statement in block:
            decided = self._decide(statement.test) if isinstance(statement, ast.If) else None
            if not isinstance(statement, ast.If) or decided is None:
                kept.append(statement)
                continue
            side = statement.body if decided else statement.orelse
            kept += side
            if side and isinstance(side[-1], ast.Return | ast.Raise | ast.Continue | ast.Break):
                break
        return kept

    def _decide(self, test: ast.expr) -> bool | None:
        """What a condition is on a machine with a card; None where it asks for something else."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            inner = self._decide(test.operand)
            return None if inner is None else not inner
        if isinstance(test, ast.BoolOp):
            sides = [self._decide(value) for value in test.values]
            deciding = isinstance(test.op, ast.Or)
            if deciding in sides:
                return deciding
            return not deciding if (not deciding) in sides else None  # other sides ask whether the kernel fits, which it is there for
        if isinstance(test, ast.Attribute) and test.attr == "is_cuda":
            return True
        if isinstance(test, ast.Call) and self._resolve(test.func) == "torch.cuda.is_available":
            return True
        if isinstance(test, ast.Name | ast.Attribute):
            return self._flags.get(ast.unparse(test))
        if isinstance(test, ast.Compare) and len(test.ops) == 1 and ast.unparse(test.left).endswith("device.type"):
            other = test.comparators[0]
            if isinstance(other, ast.Constant) and isinstance(test.ops[0], ast.Eq | ast.NotEq) and other.value in ("cuda", "cpu"):
                return (other.value == "cuda") == isinstance(test.ops[0], ast.Eq)
        return None


def _read_source(function: ast.expr) -> ast.expr | None:
    """What a function takes elements from: `xs.pop`, `lambda: next(xs)`, `functools.partial(next, xs)`."""
    if isinstance(function, ast.Lambda) and isinstance(function.body, ast.Call):
        call = function.body
        return call.args[0] if ast.unparse(call.func) == "next" and call.args else _read_source(call.func)
    if isinstance(function, ast.Call) and ast.unparse(function.func).rpartition(".")[2] == "partial" and len(function.args) > 1:
        return function.args[1] if ast.unparse(function.args[0]) == "next" else None
    return function.value if isinstance(function, ast.Attribute) and function.attr in _TAKING else None


def _read_taken(node: ast.While) -> ast.For | None:
    """`while xs: x = xs.popleft()` as a loop over xs, if nothing is put back; also where the item is only a part of a statement."""
    tested = ast.unparse(node.test).removeprefix("len(").removesuffix(" > 0").removesuffix(")")
    grows = any(isinstance(part, ast.Attribute) and part.attr in ("append", "appendleft", "extend") and ast.unparse(part.value) == tested
                for part in ast.walk(node))  # fmt: skip
    for place, statement in enumerate(node.body if not grows else []):
        if hasattr(statement, "body") or (taken := _find_taken(statement, tested)) is None:
            continue
        assert isinstance(taken.func, ast.Attribute)
        value = statement.value if isinstance(statement, ast.Assign) else None
        if isinstance(statement, ast.Assign) and place == 0 and value is not None and _is_made_of(value, taken):
            return ast.copy_location(ast.For(statement.targets[0], taken.func.value, node.body[1:] or [ast.Pass()], []), node)
        item = f"{_ITEM}{taken.lineno}:{taken.col_offset}"
        body = [*node.body[:place], _Item(taken, item).visit(statement), *node.body[place + 1 :]]
        return ast.copy_location(ast.For(ast.Name(item, ast.Store()), taken.func.value, body, []), node)
    return None


def _find_taken(statement: ast.stmt, queue: str) -> ast.Call | None:
    """`queue.popleft()` or `queue.pop()` in a statement."""
    calls = (part for part in ast.walk(statement) if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute))
    taking = (call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr in ("popleft", "pop"))
    return next((call for call in taking if isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) == queue), None)


def _is_made_of(value: ast.expr, taken: ast.Call) -> bool:
    """Whether a value is what is taken, or a method's result on it."""
    while value is not taken and isinstance(value, ast.Call | ast.Attribute | ast.Subscript):
        value = value.func if isinstance(value, ast.Call) else value.value
    return value is taken


class _Item(ast.NodeTransformer):
    """Puts the name of an item in place of the call that takes it."""

    def __init__(self, taken: ast.Call, name: str) -> None:
        self._taken, self._name = taken, name

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """The call itself, else its parts."""
        return ast.copy_location(ast.Name(self._name, ast.Load()), node) if node is self._taken else self.generic_visit(node)


def _find_flags(tree: ast.Module) -> dict[str, bool]:
    """Switches: names and attributes of self that are set once, to a constant, and names that a module sets where an import succeeds."""
    values: dict[str, list[ast.expr]] = {}
    for node in ast.walk(tree):
        for target in node.targets if isinstance(node, ast.Assign) else []:
            assert isinstance(node, ast.Assign)
            values.setdefault(ast.unparse(target), []).append(node.value)
    found = {name: choice for name, given in values.items() if (choice := _read_switch(name, given)) is not None}
    for statement in tree.body:
        if isinstance(statement, ast.Try) and any(isinstance(part, ast.Import | ast.ImportFrom) for part in statement.body):
            for part in [*statement.body, *statement.orelse]:
                if isinstance(part, ast.Assign) and isinstance(part.value, ast.Constant) and isinstance(part.value.value, bool):
                    found |= {target.id: part.value.value for target in part.targets if isinstance(target, ast.Name)}
    return found


def _read_switch(name: str, values: list[ast.expr]) -> bool | None:
    value = values[0].value if len(values) == 1 and isinstance(values[0], ast.Constant) else None
    return value if isinstance(value, bool) and (name.startswith("self.") or name.isupper()) else None


def _call_at(node: ast.expr | ast.stmt, function: ast.expr, arguments: list[ast.expr]) -> ast.Call:
    call = ast.copy_location(ast.Call(ast.copy_location(function, node), arguments, []), node)
    return call


def _make_generator(
    node: ast.Call, function: ast.expr, over: list[ast.expr], carried: ast.expr | None, *, starred: bool = False
) -> ast.GeneratorExp:
    """`(f(item) for item in xs)`, for a lambda its body with its own names; with `carried` the state is a name that each item renews."""
    at = f"{node.lineno}:{node.col_offset}"
    names = [f"{_ITEM}{at}.{place}" for place in range(len(over))]
    state = f"state {_ITEM}{at}"
    if isinstance(function, ast.Lambda) and not starred:
        own = [argument.arg for argument in function.args.args]
        if carried is not None and len(own) == 2:
            state, names = own[0], own[1:]
        elif carried is None and len(own) == len(names):
            names = own
    arguments: list[ast.expr] = [ast.Name(name, ast.Load()) for name in names]
    if starred:
        arguments = [ast.Starred(argument, ast.Load()) for argument in arguments]
    if carried is not None:
        arguments.insert(0, ast.BoolOp(ast.Or(), [ast.Name(state, ast.Load()), carried]))
    if isinstance(function, ast.Lambda) and not starred:
        element: ast.expr = function.body
    else:
        element = _call_at(node, function, arguments)
    if carried is not None:
        element = ast.NamedExpr(ast.Name(state, ast.Store()), element)
    target: ast.expr = ast.Name(names[0], ast.Store())
    source = over[0]
    if len(over) > 1:
        target = ast.Tuple([ast.Name(name, ast.Store()) for name in names], ast.Store())
        source = ast.Call(ast.Name("zip", ast.Load()), over, [])
    return ast.copy_location(ast.GeneratorExp(element, [ast.comprehension(target, source, [], 0)]), node)
