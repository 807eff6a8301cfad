"""Writes in place: which nodes change a tensor, and which tensors are read again after that."""

from __future__ import annotations

from collections.abc import Iterable

from tritonsmith.author.types import TYPES
from tritonsmith.evaluator.schema import OpNode

RESHAPED = ("view", "unsqueeze", "squeeze", "unflatten", "view_as", "reshape", "flatten", "reshape_as", "ravel")
"""Calls that show a tensor under another shape."""
TURNED = ("permute", "transpose", "t", "swapaxes", "swapdims", "movedim", "moveaxis")
"""Calls that show its axes in another order."""
SPLIT = ("chunk", "split", "unbind", "tensor_split", "split_with_sizes", "hsplit", "vsplit", "dsplit")
"""Calls that show parts of it."""
OVERLAID = ("unfold", "as_strided", "adjoint", "broadcast_to", "broadcast_tensors", "einsum", "atleast_1d", "atleast_2d", "atleast_3d")
"""Calls that show its elements in other ways. What is written to such a view is not known of the tensor."""
MIXED = ("meshgrid", "einsum", "broadcast_tensors", "atleast_1d", "atleast_2d", "atleast_3d")
"""Calls that may show several tensors, or one that is not the first of their arguments."""
PICKED = ("getitem", "select", "narrow", "expand", "expand_as", "diagonal", "getattr")
"""Calls that show some of its elements."""
_DROPOUTS = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout", "nn.Dropout", "nn.Dropout1d",
             "nn.Dropout2d", "nn.Dropout3d", "nn.AlphaDropout", "nn.FeatureAlphaDropout")  # fmt: skip
SAME = ("detach", "contiguous", "alias", "to", "type", "type_as", *(row.method for row in TYPES.values()), "cpu", "cuda", "requires_grad_",
        "positive", "pos", "real", "conj", "conj_physical", "resolve_conj", "resolve_neg", "sum_to_size", *_DROPOUTS,
        "nn.Identity", "nn.Flatten", "nn.Unflatten")  # fmt: skip
"""Calls that may return the tensor that they are given."""
_WRITING = ("iadd", "isub", "imul", "itruediv", "ipow", "ifloordiv", "imod", "iand", "ior", "ixor", "ilshift", "irshift", "setitem")
_ENDING = ("and_", "or_", "requires_grad_")
"""Names that end like a write and are none."""


def name_call(node: OpNode) -> str:
    """What a node calls, without where that is from: `add`, `nn.ReLU`."""
    return f"nn.{node.module_type}" if node.op == "call_module" else node.target.rpartition(".")[2]


def shows_other(node: OpNode) -> bool:
    """Whether a node may give another node's elements as they lie in memory, and no copy of them, which takes a launch."""
    return may_show(node) and not node.launches


def may_show(node: OpNode) -> bool:
    """Whether a node's call gives elements of another node's tensor wherever no copy is needed."""
    return name_call(node) in (*RESHAPED, *TURNED, *SPLIT, *PICKED, *OVERLAID, *SAME) and not asks_copy(node)


def asks_copy(node: OpNode) -> bool:
    """Whether a node is `x.to(..., copy=True)`, which gives a tensor of its own whatever the types are."""
    flags = [argument for argument in node.args if isinstance(argument, bool)]
    return name_call(node) == "to" and bool(node.kwargs.get("copy", flags[1:] == [True]))


def is_write(node: OpNode) -> bool:
    """Whether a node changes its first operand."""
    if node.op not in ("call_module", "call_function", "call_method"):
        return False
    name = name_call(node)
    inside = bool(node.attributes.get("inplace") or node.kwargs.get("inplace"))
    return inside or name in _WRITING or (name.endswith("_") and not name.endswith("__") and name not in _ENDING)


def refer(node: OpNode) -> str | None:
    """The node that gives the first operand."""
    first = node.args[0] if node.args else node.kwargs.get("input")
    return str(first["ref"]) if isinstance(first, dict) and "ref" in first else None


def list_given_writes(nodes: Iterable[OpNode]) -> tuple[str, ...]:
    """Arguments of forward that it writes to, such as a cache."""
    family: dict[str, str] = {}
    """By node that shows elements of an argument: that argument."""
    found: dict[str, None] = {}
    for node in nodes:
        source = refer(node)
        if node.op == "placeholder":
            family[node.name] = node.name
        elif source in family and (shows_other(node) or is_write(node)):
            family[node.name] = family[source]
            if is_write(node):
                found[family[source]] = None
    return tuple(found)


def find_overwritten(nodes: Iterable[OpNode]) -> OpNode | None:
    """The first node that reads a tensor, by an older node, after a write in place has changed it."""
    family: dict[str, str] = {}
    """By node: the node that made the tensor that it shows."""
    stale: set[str] = set()
    for node in nodes:
        if any(name in stale for name in node.references):
            return node
        source = refer(node)
        if source is not None and (shows_other(node) or is_write(node)):
            family[node.name] = family.get(source, source)
        if source is not None and is_write(node):
            maker = family[node.name]
            stale |= {maker, *(name for name, one in family.items() if one == maker)} - {node.name}
    return None
