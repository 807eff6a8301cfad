"""The search space of any kernel text: constants of tiles and grids, options of launches, hints of loads, autotuners, statements."""

from __future__ import annotations

import ast
from collections.abc import Collection
from dataclasses import replace

from tritonsmith.evaluator.errors import KernelFileError
from tritonsmith.evaluator.schema import Stage
from tritonsmith.evaluator.texts.source.kernel_file import KernelSource, calls_of, read_kernel_source
from tritonsmith.evaluator.texts.spaces.collect import Collected
from tritonsmith.evaluator.texts.spaces.hints import list_hints
from tritonsmith.evaluator.texts.spaces.options import DEFAULTS, read_loop_stages, read_options, read_tuner, take_out, tuned_names
from tritonsmith.evaluator.texts.spaces.space import Edit, Parameter, TextSpace, Value
from tritonsmith.evaluator.texts.spaces.stated import Statement, read_statements
from tritonsmith.evaluator.texts.spaces.usage import ConstantUse, KernelUses

_MOST_PARAMETERS = 24
"""Parameters that are read from one text."""
_LEAST_PRODUCT_TILE = 16
"""The least extent that tl.dot takes."""
_LARGEST_TILE = 16384
_LARGEST_PRODUCT_TILE = 256
_MOST_PROGRAMS = 1 << 16


def read_space(text: str, dimensions: Collection[int] = ()) -> TextSpace:
    """What can be tuned in a text; without parameters where it cannot be read or launches nothing.

    Args:
        text: a kernel file.
        dimensions: sizes of the task's tensors. A constant that counts or orders programs and equals one of them is no tunable.
    """
    try:
        index = read_kernel_source(text, "kernel")
        return _Reader(text, index, frozenset(dimensions)).read()
    except (KernelFileError, RecursionError, MemoryError):
        return TextSpace(text)


class _Reader:
    """Reads one file.

    Args:
        text: the file.
        index: the same, indexed.
        dimensions: sizes of the task's tensors.
    """

    def __init__(self, text: str, index: KernelSource, dimensions: frozenset[int]) -> None:
        self._text = text
        self._index = index
        self._dimensions = dimensions
        self._found = Collected(text, index)

    def read(self) -> TextSpace:
        """The space of the file."""
        launches = [(call, name) for call in calls_of(self._index.tree) if (name := self._find_launched(call))]
        names = dict.fromkeys(name for _, name in launches)
        for name in names:
            kernel = self._index.jit[name]
            calls = [call for call, launched in launches if launched == name]
            tuner = read_tuner(self._found, kernel)
            uses = KernelUses(self._index, kernel)
            if tuner is not None:
                take_out(self._found, kernel, tuner, calls, uses)
            self._read_constants(kernel, calls, uses, set(tuned_names(tuner)))
            self._read_grid(calls, uses, name)
            read_options(self._found, name, calls, uses, set(tuned_names(tuner)), alone=len(names) == 1)
        read_loop_stages(self._found, names)
        kernels = sorted((self._index.jit[name] for name in names), key=lambda kernel: -len(ast.dump(kernel)))  # the main one first
        for parameter, places in list_hints(self._index, kernels, self._found.offsets, self._found.ends.of):
            self._found.add(parameter, places)
        self._apply_statements()
        needed = [entry for entry in self._found.found.values() if entry[0].needed]
        kept = [*needed, *(entry for entry in self._found.found.values() if entry not in needed)][: max(len(needed), _MOST_PARAMETERS)]
        return TextSpace(
            self._text, tuple(parameter for parameter, _ in kept), {parameter.name: places for parameter, places in kept},
            tuple(self._found.always), tuple(self._found.starts), tuple(self._found.unread),
        )  # fmt: skip

    def _find_launched(self, call: ast.Call) -> str | None:
        """The kernel of a launch; one that comes out of a table or a factory is known by the names of its arguments."""
        name = self._index.find_launched_kernel(call)
        if name is not None or not isinstance(call.func, ast.Subscript) or not call.keywords:
            return name
        words = {word.arg for word in call.keywords if word.arg}
        fitting = [
            name for name, kernel in self._index.jit.items()
            if words <= {argument.arg for argument in (*kernel.args.args, *kernel.args.kwonlyargs)} | set(DEFAULTS)
            and words & set(_constant_names(kernel))
        ]  # fmt: skip
        return fitting[0] if len(fitting) == 1 else None

    # ---- constants

    def _read_constants(self, kernel: ast.FunctionDef, calls: list[ast.Call], uses: KernelUses, tuned: set[str]) -> None:
        arguments = [*kernel.args.posonlyargs, *kernel.args.args, *kernel.args.kwonlyargs]
        for name in _constant_names(kernel):
            if name in tuned:
                continue
            for call in calls:
                given = self._found.given(kernel, call).get(name)
                self._read_constant(name, given if given is not None else _default_of(kernel, name), call, uses.of(name), uses)
        shadowed = {argument.arg for argument in arguments}
        for node in ast.walk(kernel):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and _is_constexpr(node.annotation):
                self._read_constant(node.target.id, node.value, None, uses.of(node.target.id), uses)
        read = {node.id for node in ast.walk(kernel) if isinstance(node, ast.Name)} - shadowed
        for statement in self._index.tree.body:
            if isinstance(statement, ast.Assign | ast.AnnAssign):
                target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
                if isinstance(target, ast.Name) and target.id in read:
                    self._read_constant(target.id, statement.value, None, uses.of(target.id), uses)

    def _read_constant(self, name: str, value: ast.expr | None, call: ast.Call | None, usage: ConstantUse, uses: KernelUses) -> None:
        if value is None:
            return
        if call is not None:
            definition = self._found.definitions.find(value, call)
            node, at_launch = (definition.node, definition.at_launch) if definition else (None, False)
        else:
            value = value.args[0] if isinstance(value, ast.Call) and value.args and _is_constexpr(value.func) else value
            node, at_launch = (value if isinstance(value, ast.Constant) else None), False
        if node is None or type(node.value) is not int:
            return
        stage = self._choose_stage(usage, node.value, call)
        if stage is None:
            return
        places = [node, *(self._repeated(call, node) if at_launch and call is not None else ())]
        values = _values_around(node.value, stage, uses.has_dot, usage)
        self._found.put(name, stage, values, node, places, f"constant {name}, line {node.lineno}", uses.kernel)

    def _choose_stage(self, usage: ConstantUse, value: int, call: ast.Call | None) -> Stage | None:
        """The stage that varies a constant; None where it is no tunable: the number of something that the task has."""
        if usage.extent:
            power = value > 0 and value & (value - 1) == 0
            return Stage.TUNE_BLOCK if usage.stepped and power else None
        if usage.pipeline:
            return Stage.TUNE_MEMORY
        if value in self._dimensions and value > 8:
            return None
        if usage.ordered or (usage.counted and usage.stepped):
            return Stage.TUNE_GRID
        return None

    def _repeated(self, call: ast.Call, node: ast.Constant) -> list[ast.Constant]:
        """The same number in the launch's grid."""
        grid = self._found.definitions.find_grid(call)
        return [part for part in ast.walk(grid) if isinstance(part, ast.Constant) and part.value == node.value] if grid is not None else []

    def _read_grid(self, calls: list[ast.Call], uses: KernelUses, kernel: str) -> None:
        """Numbers of programs, where a kernel asks how many there are, or is told: then it works with any number of them."""
        for call in calls:
            told = [self._found.definitions.find(value, call) for value in self._found.given(self._index.jit[kernel], call).values()]
            nodes = [found.node for found in told if found is not None and not found.at_launch]
            for part in _grid_numbers(self._found.definitions.find_grid(call)):
                found = self._found.definitions.find(part, call)
                if found is None or type(found.node.value) is not int or found.node.value < 2:
                    continue
                count = found.node.value
                if (uses.asks_programs or found.node in nodes) and not (count in self._dimensions and count > 8):
                    small = {1, 2, 4, 8, 16} if count <= 16 else set[int]()
                    values = tuple(sorted({max(1, count // 2), count, 2 * count, 4 * count} if not small else small | {count}))
                    origin = f"programs of {kernel}, line {found.node.lineno}"
                    self._found.put(f"programs_{kernel}", Stage.TUNE_GRID, values, found.node, [found.node], origin)

    # ---- statements and records

    def _apply_statements(self) -> None:
        statements, unread = read_statements(self._text)
        self._found.unread += unread
        for stated in statements:
            chosen = [name for name in self._found.found if name == stated.name or name.startswith(f"{stated.name}_")]
            for name in chosen or self._find_constant(stated):
                parameter, places = self._found.found[name]
                values = tuple(dict.fromkeys((*stated.values, parameter.current)))
                stage, origin = stated.stage or parameter.stage, f"stated in line {stated.line}"
                self._found.found[name] = replace(parameter, values=values, stage=stage, origin=origin), places

    def _find_constant(self, stated: Statement) -> list[str]:
        """A constant of this name anywhere in the file, made a parameter; a sentence where there is none."""
        assigned = [
            node
            for node in ast.walk(self._index.tree)
            if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Constant) and stated.name in _target_names(node)
        ]
        words = [
            word for node in ast.walk(self._index.tree) if isinstance(node, ast.Call)
            for word in node.keywords if word.arg == stated.name and isinstance(word.value, ast.Constant)
        ]  # fmt: skip
        nodes = [node.value for node in (*assigned, *words) if isinstance(node.value, ast.Constant)]
        if len({repr(node.value) for node in nodes}) != 1:
            self._found.unread.append(f"line {stated.line}: {stated.name} is not one constant of this file")
            return []
        current = nodes[0].value
        if not isinstance(current, int | float | str | None):
            return []
        parameter = Parameter(stated.name, stated.stage or Stage.TUNE_GRID, stated.values, current)
        self._found.add(parameter, tuple(Edit(*self._found.offsets.span(node)) for node in nodes))
        return [stated.name]

def _is_constexpr(node: ast.expr | None) -> bool:
    return node is not None and ast.unparse(node).split("[")[0].endswith("constexpr")


def _constant_names(kernel: ast.FunctionDef) -> list[str]:
    """Parameters of a kernel that are declared tl.constexpr."""
    arguments = [*kernel.args.posonlyargs, *kernel.args.args, *kernel.args.kwonlyargs]
    return [argument.arg for argument in arguments if _is_constexpr(argument.annotation)]


def _default_of(kernel: ast.FunctionDef, name: str) -> ast.expr | None:
    places = [argument.arg for argument in (*kernel.args.posonlyargs, *kernel.args.args)]
    return dict(zip(places[::-1], kernel.args.defaults[::-1], strict=False)).get(name)


def _target_names(node: ast.Assign | ast.AnnAssign) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _values_around(value: int, stage: Stage, has_dot: bool, usage: ConstantUse) -> tuple[Value, ...]:
    """Powers of two around a tile's extent, small numbers for the pipeline, and multiples for counts of programs or turns."""
    if stage is Stage.TUNE_MEMORY:
        return tuple(sorted({*range(1, 6), value}))
    if stage is Stage.TUNE_BLOCK:
        least, most = (_LEAST_PRODUCT_TILE, _LARGEST_PRODUCT_TILE) if has_dot else (1 if value < 16 else 16, _LARGEST_TILE)
        around = {value // 4, value // 2, value, 2 * value, 4 * value}
        return tuple(sorted({size for size in around if least <= size <= most} | {value}))
    if usage.ordered and value <= 16:
        return tuple(sorted({1, 2, 4, 8, 16, value}))
    return tuple(sorted({size for size in (value // 4, value // 2, value, 2 * value, 4 * value) if 1 <= size <= _MOST_PROGRAMS}))


def _grid_numbers(grid: ast.expr | None) -> list[ast.expr]:
    """Numbers and names that are extents of a grid, also inside min(...)."""
    found: list[ast.expr] = []
    waiting = [grid.body if isinstance(grid, ast.Lambda) else grid] if grid is not None else []
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, ast.Tuple | ast.List):
            waiting += node.elts
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "min":
            waiting += node.args[:1]
        elif isinstance(node, ast.Constant | ast.Name | ast.Attribute):
            found.append(node)
    return found
