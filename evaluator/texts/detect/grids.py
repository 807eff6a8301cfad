"""Launch grids as the host code writes them, and the values that launches give a kernel's parameters."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from tritonsmith.evaluator.schema import Hardware, KernelFacts
from tritonsmith.evaluator.texts.detect.loops import takes_work_in_turn
from tritonsmith.evaluator.texts.detect.records import Trait, TraitHit
from tritonsmith.evaluator.texts.source.forms import Polynomial, make_symbol
from tritonsmith.evaluator.texts.source.host_calls import Call
from tritonsmith.evaluator.texts.source.host_results import read_elements
from tritonsmith.evaluator.texts.source.host_things import Frame, Thing, ThingKind
from tritonsmith.evaluator.texts.source.host_values import HostValues
from tritonsmith.evaluator.texts.source.kernel_file import KernelSource
from tritonsmith.evaluator.texts.source.language import get_parameters
from tritonsmith.evaluator.texts.source.values import AccessSite, KernelWalk, Loop, Use


def find_one_axis_grid(
    values: HostValues, walk: KernelWalk, known: KernelFacts | None, launches: Sequence[Call], hardware: Hardware | None
) -> TraitHit | None:
    """A grid along one axis that fills less than half of the card, where programs share no work.

    Without facts of a launch only a recurrence counts in which each program keeps another axis whole, such as the hidden units: that one
    could be split too. Programs that take work in turn are as many as the host finds right for the card.
    """
    if known is None and takes_work_in_turn(walk):
        return None
    if walk.waits or _parts_places(walk) or len(walk.program_axes) > 1 and known is None:
        return None
    if known is not None:
        programs = known.grid[0] * known.grid[1] * known.grid[2]
        if hardware is None or 2 * programs > hardware.processors or sum(extent > 1 for extent in known.grid) > 1:
            return None
        many = f"{programs} program{'s' * (programs != 1)}"
        text = f"{walk.name}: the grid {known.grid} covers one axis: {many} on {hardware.processors} processors"
        return TraitHit(name=Trait.ONE_AXIS_GRID, line=launches[0].node.lineno if launches else walk.line, evidence=text)
    if not _keeps_axis_whole(walk):
        return None
    for call in launches:
        extents = read_grid_extents(values, call)
        if extents is not None and sum(extent != 1 for extent in extents) <= 1:
            text = f"{walk.name}: the launch in line {call.node.lineno} has a grid of one axis; each program keeps the other one whole"
            nearest = "a full card, if that axis is long enough to fill it"
            return TraitHit(name=Trait.ONE_AXIS_GRID, line=call.node.lineno, evidence=text, nearest=nearest)
    return None


def _parts_places(walk: KernelWalk) -> bool:
    """Whether programs store at places that rest on parts of their number: it stands for two axes then."""
    return any(not part.isdigit() for access in walk.accesses if access.kind == "store" for part in access.address.pids)


def _keeps_axis_whole(walk: KernelWalk) -> bool:
    """Whether a program reads or stores along an axis that no program id divides: no next program goes on where its elements end.

    An address that also moves along a divided axis, such as a weight's, counts only in a store: its other axis may be an inner one. An
    axis over which a loop goes tile by tile is whole in each program where results are stored so in each step. So is one over which a loop
    goes that makes a recurrence anew in each iteration, such as the samples of a batch.
    """
    names = [f"program:{axis}" for axis in walk.program_axes]
    placed = [access for access in walk.accesses if access.kind != "atomic" and any(name in access.address.form.deps for name in names)]
    apart = any(access.address.rank == 0 for access in placed)  # a number for each program: it has no tile of that axis
    apart |= any(loop.mixed & loop.updates.keys() for loop in walk.loops.values())  # a tile of which all elements make the next ones
    for access in placed:
        form = access.address.form
        if access.kind == "store" and any(_repeats_recurrence(walk, walk.loops[number], access) for number in access.loops):
            return True
        programs = [form.coefficient(name) for name in names]
        ranges = {symbol.name for symbol in form.symbols() if symbol.kind == "range" and form.coefficient(symbol.name).terms}
        divided = {name for name in ranges if not apart and form.coefficient(name) * walk.ranges[name] in programs}
        inside = [loop for loop in walk.loops.values() if loop.name in form.deps]
        over = {name: [loop for loop in inside if loop.step == walk.ranges[name]] for name in ranges}
        tiled = {name for name, loops in over.items() if loops and not (access.kind == "store" and any(loop.outer for loop in loops))}
        if ranges - divided - tiled and (access.kind == "store" or not divided):
            return True
    return False


def _repeats_recurrence(walk: KernelWalk, loop: Loop, store: AccessSite) -> bool:
    """Whether a loop that carries nothing goes from one row of results to the next, each of which an inner loop makes step by step."""
    inner = [walk.loops[number] for number in store.loops if loop.id in walk.loops[number].outer]
    recurs = any(use >= Use.LINEAR for other in inner for use in other.updates.values())
    return recurs and not loop.updates and loop.trips is None and loop.name in store.address.form.deps


def read_grid_extents(values: HostValues, call: Call) -> tuple[int | None, ...] | None:
    """Extents of a launch grid that is a tuple, also in a lambda, a function or a name; None for those not literal."""
    if call.launcher is None or call.launcher_frame is None:
        return None
    for node, frame in values.find_definitions(call.launcher.slice, call.launcher_frame):
        if (extents := _read_extents(values, node, frame)) is not None:
            return extents
    return next((found for node in _find_grid_functions(values, call) if (found := _read_extents(values, *node)) is not None), None)


def _find_grid_functions(values: HostValues, call: Call) -> Iterator[tuple[ast.expr, Frame]]:
    """What a function returns that is given as a grid, that makes one, or that makes a function for one."""
    assert call.launcher is not None and call.launcher_frame is not None
    grid, frame = call.launcher.slice, call.launcher_frame
    entered: list[tuple[Thing, ast.Call | None]] = [(thing, None) for thing in values.find(grid, frame)]
    if isinstance(grid, ast.Call):
        entered += [(thing, grid) for thing in values.find(grid.func, frame)]
    for thing, made_by in entered:
        inside = values.enter(thing, made_by, frame) if thing.kind is ThingKind.FUNCTION else frame
        if isinstance(thing.node, ast.Lambda):
            yield thing.node.body, inside
        elif isinstance(thing.node, ast.FunctionDef):
            yield from ((value, inside) for value in values.names.read_results(thing.node)[0])


def _read_extents(values: HostValues, node: ast.expr, frame: Frame, depth: int = 8) -> tuple[int | None, ...] | None:
    if depth <= 0:
        return None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("tuple", "list") and node.args:
        node = node.args[0]
    if isinstance(node, ast.Lambda):
        node = node.body
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return (node.value,)
    if isinstance(node, ast.Tuple | ast.List):
        return tuple(extent.value if isinstance(extent, ast.Constant) and isinstance(extent.value, int) else None for extent in node.elts)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = (_read_extents(values, side, frame, depth - 1) for side in (node.left, node.right))
        return None if left is None or right is None else left + right
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        part, times = _read_extents(values, node.left, frame, depth - 1), _read_axes(node.right)
        return None if part is None or times is None else part * times
    if isinstance(node, ast.Subscript) and getattr(node.value, "attr", "") == "shape" and isinstance(node.slice, ast.Slice):
        count = _read_axes(node.slice.upper) if node.slice.lower is None else None
        return None if count is None else (None,) * count
    sides: list[tuple[ast.expr, Frame]] = []
    if isinstance(node, ast.Name):
        sides = list(values.find_definitions(node, frame))
    elif isinstance(node, ast.IfExp):
        sides = [(node.orelse, frame), (node.body, frame)]
    elif isinstance(node, ast.Subscript):
        sides = list(_find_entries(values, node, frame))
    found = (_read_extents(values, *side, depth - 1) for side in sides if side[0] is not node)
    return next((extents for extents in found if extents is not None), None)


def _read_axes(node: ast.expr | None) -> int | None:
    """A number of axes."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, int) and 0 < node.value <= 3 else None


def _find_entries(values: HostValues, node: ast.Subscript, frame: Frame) -> Iterator[tuple[ast.expr, Frame]]:
    """What a key picks of a table, also of one that a function gives back."""
    for table, where in values.find_definitions(node.value, frame):
        tables = [(table, where)]
        for thing in values.find(table.func, where) if isinstance(table, ast.Call) else ():
            if isinstance(thing.node, ast.FunctionDef):
                inside = values.enter(thing, table if isinstance(table, ast.Call) else None, where)
                tables += [(value, inside) for value in values.names.read_results(thing.node)[0]]
        yield from ((entry, around) for whole, around in tables for entry in read_elements(whole, node.slice))


def read_launch_arguments(index: KernelSource, call: Call) -> dict[str, ast.expr]:
    """What a launch gives each parameter of its kernel; of starred arguments only those before and behind them are known."""
    kernel = index.jit.get(call.kernel or "")
    if kernel is None:
        return {}
    named = {keyword.arg: keyword.value for keyword in call.node.keywords if keyword.arg}
    names, arguments = [parameter.arg for parameter in get_parameters(kernel)], call.node.args
    stars = [place for place, argument in enumerate(arguments) if isinstance(argument, ast.Starred)]
    if not stars:
        return dict(zip(names, arguments, strict=False)) | named
    given = dict(zip(names, arguments[: stars[0]], strict=False))
    written = len(kernel.args.posonlyargs) + len(kernel.args.args) - len(kernel.args.defaults)
    places = [name for name in names[:written] if name not in named]  # those that no default fills
    behind = dict(zip(reversed(places), reversed(arguments[stars[-1] + 1 :]), strict=False))
    return behind | given | named


def read_constants(values: HostValues, name: str, launches: Sequence[Call], known: KernelFacts | None) -> dict[str, object]:
    """Values of a kernel's parameters: measured ones, else those that every launch gives as a number, else defaults.

    Of what is tuned the first choice stands for all: a number that no size decides.
    """
    index = values.index
    kernel = index.jit[name]
    found: dict[str, object] = dict(_read_tuned(index, kernel))
    parameters = [*kernel.args.posonlyargs, *kernel.args.args]
    compiled = {one.arg for one in get_parameters(kernel) if one.annotation is not None and "constexpr" in ast.dump(one.annotation)}
    for parameter, default in zip(parameters[len(parameters) - len(kernel.args.defaults) :], kernel.args.defaults, strict=True):
        if isinstance(default, ast.Constant):
            found[parameter.arg] = default.value
    for place, call in enumerate(launches):
        for parameter_name, value in read_launch_arguments(index, call).items():
            number = _read_number(index, value)
            if number is None and parameter_name in compiled:
                number = _read_settled_number(values, value, call.frame)
            if place and found.get(parameter_name) != number:
                number = None
            found[parameter_name] = number
    if known is not None:
        found |= known.constexprs
    return {key: value for key, value in found.items() if value is not None}


def read_multiples(values: HostValues, launches: Sequence[Call]) -> dict[str, Polynomial]:
    """Parameters that each launch gives a multiple of another one's number, as a window of `w` beside a hop of `w // 4`."""
    found: list[dict[str, Polynomial]] = []
    for call in launches:
        arguments = read_launch_arguments(values.index, call)
        places = {ast.unparse(value): name for name, value in arguments.items() if not isinstance(value, ast.Constant)}
        found.append({})
        for name, value in arguments.items():
            parts = [part for part, _ in values.find_definitions(value, call.frame)]
            part = parts[0] if len(parts) == 1 else None
            if isinstance(part, ast.BinOp) and isinstance(part.op, ast.FloorDiv) and (whole := places.get(ast.unparse(part.left))):
                if isinstance(part.right, ast.Constant) and isinstance(part.right.value, int):
                    found[-1][whole] = make_symbol("parameter", name).scaled(part.right.value)
    return {name: form for name, form in found[0].items() if all(other.get(name) == form for other in found)} if found else {}


def _read_tuned(index: KernelSource, kernel: ast.FunctionDef) -> Iterator[tuple[str, int]]:
    """Numbers that the configurations of an autotuner give, the first one last."""
    parts = [part for decorator in kernel.decorator_list for part in ast.walk(decorator)]
    for part in reversed([part for part in parts if isinstance(part, ast.Call) and index.resolve_name(part.func) == "triton.Config"]):
        for choice in (part.args or [word.value for word in part.keywords if word.arg == "kwargs"])[:1]:
            for key, value in zip(choice.keys, choice.values, strict=True) if isinstance(choice, ast.Dict) else ():
                if isinstance(key, ast.Constant) and isinstance(value, ast.Constant) and type(value.value) is int:
                    yield str(key.value), value.value


def _read_settled_number(values: HostValues, node: ast.expr, frame: Frame) -> int | None:
    """The number that a name is set to once and that nothing is added to."""
    settled = list(values.find_values(node.id, frame)) if isinstance(node, ast.Name) else []
    value, where, part = settled[0] if len(settled) == 1 else (None, frame, None)
    grown = [each.target for each in ast.walk(where.function or values.index.tree) if isinstance(each, ast.AugAssign)]
    if part is not None or not isinstance(value, ast.expr) or ast.unparse(node) in map(ast.unparse, grown):
        return None
    return _read_number(values.index, value)


def _read_number(index: KernelSource, node: ast.expr) -> int | None:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    return index.numbers.get(node.id) if isinstance(node, ast.Name) else None
