"""Windows of convolutions and pools as the traced forward gives them: sides, strides, padding, dilation."""

from __future__ import annotations

from typing import Any

from tritonsmith.author.families.convnet.plan import Pair
from tritonsmith.author.plan import NoPlan
from tritonsmith.evaluator.schema import OpNode
from tritonsmith.prompts.node_names import name_node

_POOL_ARGUMENTS = {
    "max": ("input", "kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices"),
    "avg": ("input", "kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override"),
}
POOLS = {"MaxPool2d": "max", "max_pool2d": "max", "boolean_dispatch": "max", "AvgPool2d": "avg", "avg_pool2d": "avg"}
"""Modules and functions that take the largest value or the mean of a window."""


def as_pair(value: Any) -> Pair:
    """A size for both axes, given once or for each."""
    pair = tuple(value) if isinstance(value, list | tuple) else (value, value)
    if len(pair) == 1:
        pair = pair * 2
    return int(pair[0]), int(pair[1])


def read_convolution(node: OpNode) -> dict[str, Any]:
    """Fields of the layer that one `nn.Conv2d` is, without its weights. Raises NoPlan for padding that is not zeros on both sides."""
    given = node.attributes
    window, dilation = as_pair(given["kernel_size"]), as_pair(given["dilation"])
    if given["padding_mode"] != "zeros":
        raise NoPlan((f"nn.Conv2d with padding_mode={given['padding_mode']!r}", node))
    if given["padding"] == "same":
        reach = [dilation[axis] * (window[axis] - 1) for axis in range(2)]
        if any(one % 2 for one in reach):
            raise NoPlan(("nn.Conv2d with more padding on one side", node))
        padding = reach[0] // 2, reach[1] // 2
    else:
        padding = (0, 0) if given["padding"] == "valid" else as_pair(given["padding"])
    groups = int(given["groups"])
    return {
        "inner": int(given["in_channels"]) // groups, "columns": int(given["out_channels"]), "groups": groups, "window": window,
        "stride": as_pair(given["stride"]), "padding": padding, "dilation": dilation,
    }  # fmt: skip


def read_pool(node: OpNode, kind: str) -> dict[str, Any]:
    """Fields of the step that one pool is. Raises NoPlan for indices, and for means over windows that reach out of the image unevenly."""
    given: dict[str, Any] = dict(node.attributes) | dict(zip(_POOL_ARGUMENTS[kind], node.args, strict=False)) | dict(node.kwargs)
    if given.get("return_indices"):
        raise NoPlan((f"{name_node(node)} with return_indices", node))
    if kind == "avg" and (given.get("ceil_mode") or given.get("divisor_override")):
        raise NoPlan((f"{name_node(node)} with ceil_mode or divisor_override", node))
    stride = given.get("stride")
    return {
        "window": as_pair(given["kernel_size"]), "stride": as_pair(given["kernel_size"] if stride in (None, [], ()) else stride),
        "padding": as_pair(given.get("padding", 0)), "dilation": as_pair(given.get("dilation", 1)), "maximum": kind == "max",
        "counts_padding": bool(given.get("count_include_pad", True)),
    }  # fmt: skip


def read_adaptive_pool(node: OpNode, inputs: Pair, outputs: Pair) -> dict[str, Any]:
    """Fields of the step that a mean over equal parts of the image is. Raises NoPlan where the parts are not equal."""
    if any(size % parts for size, parts in zip(inputs, outputs, strict=True)):
        raise NoPlan((f"{name_node(node)} of {list(inputs)} to {list(outputs)}, whose windows have different sizes", node))
    window = inputs[0] // outputs[0], inputs[1] // outputs[1]
    return {"window": window, "stride": window, "maximum": False}
