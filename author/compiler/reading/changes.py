"""Writes in place: a node that changes a tensor, or a part of it, also changes what other nodes show of that tensor."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from tritonsmith.author.compiler.ir.operators import A, B
from tritonsmith.author.compiler.ir.operators import Operator as Op
from tritonsmith.author.compiler.ir.torch_calls import Clone, Permute
from tritonsmith.author.compiler.ir.values import Held, Position, Tensor, TensorView, base_of
from tritonsmith.author.compiler.lowering.calls import NotCovered
from tritonsmith.author.compiler.lowering.patches import put
from tritonsmith.author.compiler.lowering.pointwise import formula, select_where
from tritonsmith.author.compiler.lowering.views import embed_diagonal, permute, reshape, view
from tritonsmith.author.compiler.reading.complexes import ComplexPair
from tritonsmith.author.plan import NoPlan
from tritonsmith.author.writes import MIXED, OVERLAID, PICKED, RESHAPED, SAME, SPLIT, TURNED, is_write, name_call, refer, shows_other
from tritonsmith.evaluator.schema import OpNode
from tritonsmith.prompts.node_names import name_node


def is_overwritten(held: OpNode, nodes: Sequence[OpNode]) -> bool:
    """Whether forward reads nothing of a tensor before `copy_` gives all of it other values, as of a state that is an argument."""
    if sum(node.op == held.op and node.target == held.target for node in nodes) > 1:
        return False
    first = next((node for node in nodes if held.name in node.references), None)
    return first is not None and name_call(first) == "copy_" and refer(first) == held.name and list(first.references).count(held.name) == 1


def _shows_all(value: Any, given: Any) -> bool:
    """Whether a value has the type and the shape of another one, as a call without work gives it back."""
    return isinstance(value, Tensor) and isinstance(given, Tensor) and (value.dtype, value.shape) == (given.dtype, given.shape)


class Aliases:
    """Which nodes show elements of which others, so that a change of one is seen in all.

    Args:
        made: by node what it gives.
        again: makes the value of a node anew.
    """

    def __init__(self, made: dict[str, Any], again: Callable[[OpNode], Any]) -> None:
        self._made, self._again = made, again
        self._shown: dict[str, tuple[str, OpNode | None]] = {}
        """By node: the node of which it shows elements, and itself where it shows others than that one does."""
        self._mixed: dict[str, tuple[str, ...]] = {}
        """By node that may show elements of several nodes: those nodes. What a write to one of them changes is not known."""

    def note(self, node: OpNode) -> None:
        """Note what a node shows, if it makes no tensor of its own."""
        name, source = name_call(node), refer(node)
        if name in MIXED and not node.launches and (name == "meshgrid" or {*node.references} != {source}):
            self._mixed[node.name] = tuple(node.references)
            return
        if source is None or is_write(node) or not shows_other(node):
            return
        value, given = self._made[node.name], self._made.get(source)
        if name in SAME and (value is given or _shows_all(value, given)):
            self.bind(node.name, source)
        elif name == "getattr":
            if node.args[1] in ("T", "mT", "data"):
                self._shown[node.name] = (source, node)
        elif name in (*RESHAPED, *TURNED, *SPLIT, *PICKED, *OVERLAID, "nn.Flatten", "nn.Unflatten"):
            if not any(isinstance(one, Tensor) for one in _keys(node, self._made)):
                self._shown[node.name] = (source, node)

    def write(self, node: OpNode, name: str, value: Any) -> str:
        """Let a node's tensor have another value; the node that holds the tensor. Raises NoPlan where it is unknown what that changes."""
        path: list[tuple[str, OpNode | None]] = []
        root = name
        while root in self._shown:
            path.append((root, self._shown[root][1]))
            root = self._shown[root][0]
        if any(root == shown or root in map(self._find_root, sources) for shown, sources in self._mixed.items()):
            raise NoPlan((f"{name_node(node)} in place on a view of several tensors", node))
        for shown, via in path:
            source = self._made[self._shown[shown][0]]
            value = value if via is None else self._put_back(node, via, source, value)
        self._made[root] = value
        for shown, (source, via) in self._shown.items():  # in forward's order
            if self._find_root(shown) == root:
                self._made[shown] = self._made[source] if via is None else self._again(via)
        return root

    def bind(self, name: str, source: str) -> None:
        """A node returns the tensor of another one."""
        self._shown[name] = (source, None)
        self._made[name] = self._made[source]

    def copy_given(self, name: str, given: Collection[str]) -> None:
        """Let a result that the reference has in memory of its own, as `x.clone()`, be a copy, and no argument that `given` has."""
        if self._find_root(name) not in given:
            self._made[name] = _copy_given(self._made[name])

    def _find_root(self, name: str) -> str:
        while name in self._shown:
            name = self._shown[name][0]
        return name

    def _put_back(self, node: OpNode, via: OpNode, source: Any, value: Tensor) -> Any:
        """What a tensor becomes when a view of it gets a value."""
        name = name_call(via) if via.op != "call_module" else "view"
        shown = self._made[via.name]
        if isinstance(value, ComplexPair):
            return self._put_parts_back(node, via, source, value)
        if isinstance(source, tuple):  # one of the parts of a split
            return tuple(value if place == via.args[1] % len(source) else one for place, one in enumerate(source))
        if isinstance(shown, tuple):
            return _join_parts(via, source, value)
        if name in RESHAPED and (not isinstance(source, Tensor) or value.dtype != source.dtype):
            raise NoPlan((f"{name_node(node)} in place on a view of another type", node))
        if name in RESHAPED:
            return reshape(value, source.shape)
        if name in TURNED or name == "getattr":
            return self._turn_back(via, source, value)
        try:
            if name in ("getitem", "select", "narrow"):
                return put(source, _keys(via, self._made), value)
        except NotCovered:
            pass
        if name == "diagonal":
            return _put_diagonal(via, source, value)
        raise NoPlan((f"{name_node(node)} in place on a view", node))

    def _put_parts_back(self, node: OpNode, via: OpNode, source: Any, value: ComplexPair) -> ComplexPair:
        """The same for both parts of a complex tensor. Raises NoPlan where the view is no plain one."""
        if not isinstance(source, ComplexPair) or name_call(via) not in (*RESHAPED, "getitem", "select", "narrow"):
            raise NoPlan((f"{name_node(node)} in place on a view of complex numbers", node))
        parts = zip((source.real, source.imag), (value.real, value.imag), strict=True)
        return ComplexPair(*(self._put_back(node, via, one, other) for one, other in parts))

    def _turn_back(self, via: OpNode, source: Tensor, value: Tensor) -> Tensor:
        """A tensor whose axes a node shows in another order."""
        name = refer(via)
        assert name is not None, "a view has a source"
        self._made[name] = Held(shape=source.shape, dtype=source.dtype, source="_")  # turns of turned tensors are put together
        turned = self._again(via)
        self._made[name] = source
        if not isinstance(turned, TensorView) or not isinstance(turned.shown, Permute):
            return value
        order = turned.shown.order
        return permute(value, tuple(order.index(axis) for axis in range(len(order))))


def _copy_given(value: Any) -> Any:
    """A value, or several, with copies of those that are arguments or views of them."""
    if isinstance(value, tuple):
        return tuple(map(_copy_given, value))
    base = base_of(value) if isinstance(value, Tensor) else None
    if not isinstance(base, Held) or not base.given:
        return value
    return view(value, value.shape, lambda at: at, Clone(contiguous=value is not base))


def _keys(node: OpNode, made: dict[str, Any]) -> list[Any]:
    """The index of a node that picks elements, as the operator [] has it."""
    name = name_call(node)
    given = [made.get(one["ref"]) if isinstance(one, dict) and "ref" in one else one for one in node.args[1:]]
    given += [made.get(one["ref"]) if isinstance(one, dict) and "ref" in one else one for one in node.kwargs.values()]
    if name == "getitem":
        keys = given[0] if isinstance(given[0], list | tuple) else [given[0]]
        return [made.get(one["ref"]) if isinstance(one, dict) and "ref" in one else one for one in keys]
    if name not in ("select", "narrow") or not isinstance(given[0], int) or (name == "narrow" and isinstance(given[1], Tensor)):
        return []
    source = made[str(refer(node))]
    lead: list[Any] = [{"slice": [None, None, None]}] * (given[0] % len(source.shape))
    start: Any = given[1]
    return [*lead, start if name == "select" else {"slice": [start, start + given[2], None]}]


def _put_diagonal(via: OpNode, source: Tensor, value: Tensor) -> Tensor:
    """Matrices whose diagonal has got a value."""
    given = dict(zip(("offset", "dim1", "dim2"), via.args[1:], strict=False)) | via.kwargs
    offset, *axes = (int(given.get(name, plain)) for name, plain in (("offset", 0), ("dim1", 0), ("dim2", 1)))
    down, across = (axis % len(source.shape) for axis in axes)
    place = Position(shape=source.shape, dtype="int32", index=lambda at: at[across] - at[down])
    chosen = formula(Op.EQ(A, B), place, offset, like="int32", result="bool")
    return select_where(chosen, embed_diagonal(value, source.shape, offset, down, across), source, source.dtype, source.shape)


def _join_parts(via: OpNode, source: Tensor, parts: Any) -> Tensor:
    """A tensor of which every part of a split is known."""
    name = name_call(via)
    place_of_axis = 1 if name == "unbind" else 2
    given: Any = via.kwargs.get("dim", via.args[place_of_axis] if len(via.args) > place_of_axis else 0)
    given = {"hsplit": min(1, len(source.shape) - 1), "vsplit": 0, "dsplit": 2}.get(name, given)
    axis, start = given % len(source.shape), 0
    lead: list[Any] = [{"slice": [None, None, None]}] * axis
    value = source
    for place, part in enumerate(parts):
        length = 1 if name == "unbind" else part.shape[axis]
        key = place if name == "unbind" else {"slice": [start, start + length, None]}
        value = put(value, [*lead, key], part)
        start += length
    return value
