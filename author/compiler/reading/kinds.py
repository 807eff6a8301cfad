"""The kinds of operation that regions are made of: one file of `lowering` each. A new kind is a new file and one line here."""

from __future__ import annotations

from tritonsmith.author.compiler.lowering import (
    attention,
    constants,
    convolutions,
    equations,
    functions,
    losses,
    multihead,
    norms,
    patches,
    picks,
    pointwise,
    pools,
    products,
    recurrent,
    reductions,
    resampling,
    scans,
    views,
)
from tritonsmith.author.compiler.lowering.calls import Lower
from tritonsmith.evaluator.schema import OpNode
from tritonsmith.prompts.node_names import operation_name

KINDS = (
    pointwise, functions, constants, views, picks, patches, reductions, norms, losses, scans, pools, resampling, products,
    equations, convolutions, attention, multihead, recurrent,
)  # fmt: skip
_TABLE: dict[str, Lower] = {name: lower for kind in KINDS for name, lower in kind.TABLE.items()}


def find_lowering(node: OpNode) -> Lower | None:
    """What writes a node; None where nothing does."""
    if node.op == "call_module":
        found = _TABLE.get(f"nn.{node.module_type}")
    else:
        name = node.target.rpartition(".")[2]
        found = _TABLE.get(name) or _TABLE.get(name.rstrip("_"))
    return found or (pointwise.KNOWN if operation_name(node) else None)
