"""Parameters that launches give one tensor, whole or as views that overlap."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tritonsmith.evaluator.texts.detect.grids import read_launch_arguments
from tritonsmith.evaluator.texts.source.forms import ONE, Polynomial, make_number, make_symbol
from tritonsmith.evaluator.texts.source.host_calls import Call
from tritonsmith.evaluator.texts.source.host_things import Frame
from tritonsmith.evaluator.texts.source.host_values import HostValues
from tritonsmith.evaluator.texts.source.values import KernelWalk

_SAME_PLACE = ("view", "view_as", "reshape", "flatten", "ravel", "detach", "squeeze", "unsqueeze")
"""Methods of a tensor that give the same numbers at the same place, in another shape."""
_DEPTH = 4
"""Names and methods from an argument to its tensor."""


@dataclass(frozen=True)
class _View:
    """A slice of a tensor along its first axis."""

    name: str
    begin: int = 0
    end: int | None = 0
    """Below 1 it is counted from the tensor's end; None for a size that the text does not give."""

    @property
    def is_whole(self) -> bool:
        """Whether it is the tensor itself."""
        return self.begin == 0 and self.end == 0

    def overlaps(self, other: _View) -> bool:
        """Whether both have elements in common; a size is taken to be larger than numbers that are written out."""
        ends = [(one.begin, two.end) for one, two in ((self, other), (other, self))]
        return self.name == other.name and all(end is None or end < 1 or begin < end for begin, end in ends)


def read_shared_buffers(values: HostValues, launches: Sequence[Call]) -> dict[str, str]:
    """Parameters that a launch gives the same tensor as an earlier one, by one name or by two names for it."""
    found: dict[str, str] = {}
    for call in launches:
        first: dict[str, str] = {}
        for parameter, value in read_launch_arguments(values.index, call).items():
            name = _find_first_name(values, value, call.frame)
            if isinstance(name, ast.Name | ast.Attribute) and (other := first.setdefault(ast.unparse(name), parameter)) != parameter:
                found[parameter] = other
    return found


def read_overlaps(values: HostValues, launches: Sequence[Call]) -> dict[str, tuple[str, Polynomial]]:
    """Parameters that a launch gives a view which overlaps an earlier one's, with that one's name and the place in its terms."""
    found: dict[str, tuple[str, Polynomial]] = {}
    for call in launches:
        earlier: dict[str, _View] = {}
        for parameter, value in read_launch_arguments(values.index, call).items():
            view = _read_view(values, value, call.frame)
            if view is None:
                continue
            other = next((name for name, first in earlier.items() if first.overlaps(view)), None)
            if other is None:
                earlier[parameter] = view
            else:
                ahead = view.begin - earlier[other].begin
                found[parameter] = other, make_symbol("parameter", other) + make_number(ahead)
    return found


def keeps_to_runs(walk: KernelWalk) -> bool:
    """Whether each program touches one run of elements alone, so that a view which begins elsewhere reaches another program's."""
    forms = [access.address.form for access in walk.accesses]
    steps = [form.coefficient(symbol.name) for form in forms for symbol in form.symbols() if symbol.kind == "range"]
    return not walk.loops and all(step == ONE for step in steps) and all(access.address.rank < 2 for access in walk.accesses)


def _find_first_name(values: HostValues, node: ast.expr, frame: Frame, depth: int = _DEPTH) -> ast.expr:
    """The name that an argument stands for: `y` for `y.view(-1)`, and for `out` after `out = y` if both are set once."""
    if depth and isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _SAME_PLACE:
        return _find_first_name(values, node.func.value, frame, depth - 1)
    value = _find_only_value(values, node, frame)
    if not depth or value is None:
        return node
    first = _find_first_name(values, value, frame, depth - 1)
    once = isinstance(first, ast.Name) and len(values.names.read(frame.function).get(first.id, [])) <= 1
    return first if once else node


def _find_only_value(values: HostValues, node: ast.expr, frame: Frame) -> ast.expr | None:
    """What a name of a function is set to, if once and no parameter."""
    bound = values.names.read(frame.function)
    given = values.names.read_parameters(frame.function) if frame.function is not None else []
    own = bound.get(node.id, []) if isinstance(node, ast.Name) and node.id not in given else []
    value = own[0][0] if len(own) == 1 and own[0][1] is None else None
    return value if isinstance(value, ast.expr) else None


def _read_view(values: HostValues, node: ast.expr, frame: Frame, depth: int = _DEPTH) -> _View | None:
    """The part of a tensor that an argument is, if it is a slice along the first axis or the whole."""
    if isinstance(node, ast.Subscript):
        index, whole = node.slice, _read_view(values, node.value, frame, depth - 1) if depth else None
        first, *others = index.elts if isinstance(index, ast.Tuple) and index.elts else [index]
        if whole is None or not whole.is_whole or not isinstance(first, ast.Slice) or not all(map(_is_full, others)):
            return None
        begin, end = _read_bound(first.lower), _read_bound(first.upper)
        return replace(whole, begin=begin, end=end) if first.step is None and begin is not None and begin >= 0 else None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and depth:
        whole = _read_view(values, node.func.value, frame, depth - 1)
        if node.func.attr in _SAME_PLACE or whole is None:
            return whole if node.func.attr in _SAME_PLACE else None
        if node.func.attr != "narrow" or len(node.args) != 3 or not whole.is_whole:
            return None
        dim, begin, length = map(_read_bound, node.args)
        fits = dim == 0 and begin is not None and begin >= 0
        return replace(whole, begin=begin, end=begin + length if length is not None else None) if fits and begin is not None else None
    value = _find_only_value(values, node, frame)
    if depth and isinstance(value, ast.Name | ast.Subscript | ast.Call):
        view = _read_view(values, value, frame, depth - 1)
        if view is not None and len(values.names.read(frame.function).get(view.name, [])) <= 1:
            return view
    return _View(ast.unparse(node)) if isinstance(node, ast.Name | ast.Attribute) else None


def _read_bound(node: ast.expr | None) -> int | None:
    """A bound of a slice that is written out, 0 where none is given."""
    if node is None:
        return 0
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        return -node.operand.value if type(node.operand.value) is int else None
    return node.value if isinstance(node, ast.Constant) and type(node.value) is int else None


def _is_full(node: ast.expr) -> bool:
    """Whether an index keeps all of an axis."""
    return (
        isinstance(node, ast.Slice)
        and node.lower is node.upper is node.step is None
        or isinstance(node, ast.Constant)
        and node.value is ...
    )
