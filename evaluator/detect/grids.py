"""Launch grids as the host code writes them, and the values that launches give a kernel's parameters."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from tritonsmith.evaluator.detect.loops import takes_work_in_turn
from tritonsmith.evaluator.detect.records import Trait, TraitHit
from tritonsmith.evaluator.schema import Hardware, KernelFacts
from tritonsmith.evaluator.source.kernel_file import Call, KernelSource
from tritonsmith.evaluator.source.language import get_parameters
from tritonsmith.evaluator.source.values import KernelWalk


def find_one_axis_grid(walk: KernelWalk, known: KernelFacts | None, launches: Sequence[Call], hardware: Hardware | None) -> TraitHit | None:
    """A grid along one axis that fills less than half of the card, where programs share no work.

    Without facts of a launch only a recurrence counts in which each program keeps another axis whole, such as the hidden units: that one
    could be split too. Programs that take work in turn are as many as the host finds right for the card.
    """
    if known is None and takes_work_in_turn(walk):
        return None
    if walk.waits or walk.pid_parts or len(walk.program_axes) > 1 and known is None:
        return None
    if known is not None:
        programs = known.grid[0] * known.grid[1] * known.grid[2]
        if hardware is None or 2 * programs > hardware.processors or sum(extent > 1 for extent in known.grid) > 1:
            return None
        text = f"{walk.name}: the grid {known.grid} covers one axis: {programs} programs on {hardware.processors} processors"
        return TraitHit(name=Trait.ONE_AXIS_GRID, line=launches[0].node.lineno if launches else walk.line, evidence=text)
    inner = any(product.loops and product.summed or len(product.loops) > 1 for product in walk.products)
    if not any(loop.has_dot for loop in walk.loops.values()) and not inner and not _keeps_axis_whole(walk):
        return None
    for call in launches:
        extents = read_grid_extents(call)
        if extents is not None and sum(extent != 1 for extent in extents) <= 1:
            text = f"{walk.name}: the launch in line {call.node.lineno} has a grid of one axis; each program keeps the other one whole"
            nearest = "a full card, if that axis is long enough to fill it"
            return TraitHit(name=Trait.ONE_AXIS_GRID, line=call.node.lineno, evidence=text, nearest=nearest)
    return None


def _keeps_axis_whole(walk: KernelWalk) -> bool:
    """Whether a program reads or stores along an axis that no program id divides: no next program goes on where its elements end."""
    for access in walk.accesses:
        form = access.address.form
        programs = [form.coefficient(f"program:{axis}") for axis in walk.program_axes]
        if not any(unit.terms for unit in programs):
            continue
        for name in {symbol.name for symbol in form.symbols() if symbol.kind == "range"}:
            unit, extent = form.coefficient(name), walk.ranges[name]
            tiled = any(loop.step == extent and loop.name in form.deps for loop in walk.loops.values())
            if unit.terms and not tiled and unit * extent not in programs:
                return True
    return False


def read_grid_extents(call: Call) -> tuple[int | None, ...] | None:
    """Extents of a launch grid that is a tuple, also in a lambda, a function or a local name; None for those not literal."""
    node: ast.expr | None = call.launcher.slice if call.launcher is not None else None
    if isinstance(node, ast.Name):
        node = next(_find_definitions(call.function, node.id), None)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("tuple", "list") and node.args:
        node = node.args[0]
    if isinstance(node, ast.Lambda):
        node = node.body
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return (node.value,)
    if not isinstance(node, ast.Tuple | ast.List):
        return None
    return tuple(extent.value if isinstance(extent, ast.Constant) and isinstance(extent.value, int) else None for extent in node.elts)


def _find_definitions(function: ast.AST, name: str) -> Iterator[ast.expr]:
    for part in ast.walk(function):
        if isinstance(part, ast.Assign) and any(isinstance(target, ast.Name) and target.id == name for target in part.targets):
            yield part.value
        elif isinstance(part, ast.FunctionDef) and part.name == name and part is not function:
            yield from (inner.value for inner in ast.walk(part) if isinstance(inner, ast.Return) and inner.value is not None)


def read_launch_arguments(index: KernelSource, call: Call) -> dict[str, ast.expr]:
    """What a launch gives each parameter of its kernel."""
    kernel = index.jit.get(call.kernel or "")
    if kernel is None:
        return {}
    names = [parameter.arg for parameter in get_parameters(kernel)]
    given = dict(zip(names, call.node.args, strict=False))
    return given | {keyword.arg: keyword.value for keyword in call.node.keywords if keyword.arg}


def read_constants(index: KernelSource, name: str, launches: Sequence[Call], known: KernelFacts | None) -> dict[str, object]:
    """Values of a kernel's parameters: measured ones, else those that every launch gives as a number, else defaults."""
    found: dict[str, object] = {}
    kernel = index.jit[name]
    parameters = [*kernel.args.posonlyargs, *kernel.args.args]
    for parameter, default in zip(parameters[len(parameters) - len(kernel.args.defaults) :], kernel.args.defaults, strict=True):
        if isinstance(default, ast.Constant):
            found[parameter.arg] = default.value
    for place, call in enumerate(launches):
        for parameter_name, value in read_launch_arguments(index, call).items():
            number = _read_number(index, value)
            if place and found.get(parameter_name) != number:
                number = None
            found[parameter_name] = number
    if known is not None:
        found |= known.constexprs
    return {key: value for key, value in found.items() if value is not None}


def _read_number(index: KernelSource, node: ast.expr) -> int | None:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    return index.numbers.get(node.id) if isinstance(node, ast.Name) else None
