"""A reference's forward as a list of records: torch.fx for the structure, a run over the graph for the shapes. Imports torch."""

from __future__ import annotations

import inspect
import math
import operator
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import torch
from torch import fx, nn

from tritonsmith.evaluator.reference.module import flatten
from tritonsmith.evaluator.reference.trace import intercept_cells
from tritonsmith.evaluator.schema import OpNode, TensorSpec

_NAMESPACES = (("torch.nn.functional", torch.nn.functional), ("torch", torch), ("_operator", operator), ("math", math))
_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
_PLAIN = (bool, int, float, str)
_MESSAGE_CHARACTERS = 300
_LINE = "line of the task"
"""Where a node's `meta` keeps it."""


def leaf_modules(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Modules that the trace does not look into: those of torch.nn except containers, and childless modules of the task."""
    for name, module in model.named_children():
        library = type(module).__module__.startswith("torch.nn") and not isinstance(module, _CONTAINERS)
        if library or not list(module.children()):
            yield name, module
        else:
            yield from ((f"{name}.{inner}", leaf) for inner, leaf in leaf_modules(module))


def trace_forward(model: nn.Module, inputs: list[Any], outputs: list[TensorSpec], file: str) -> tuple[tuple[OpNode, ...], str]:
    """Nodes of the traced forward with the shapes they produce; none, and the reason, where torch.fx cannot follow the code.

    Args:
        model: the reference.
        inputs: arguments of forward, real or fake.
        outputs: what forward really returned; a trace that says otherwise is not used.
        file: name that the task was compiled under; nodes get lines in it.
    """
    try:
        # Arguments that get_inputs does not give keep their defaults, so that `if h0 is None` is decided at trace time.
        rest = list(inspect.signature(model.forward).parameters.values())[len(inputs) :]
        defaults = {parameter.name: parameter.default for parameter in rest if parameter.default is not inspect.Parameter.empty}
        tracer = _LineTracer(file)
        graph = tracer.trace(model, concrete_args=defaults or None)
        _drop_defaults(graph, len(inputs))
        shapes = _Shapes(fx.GraphModule(tracer.root, graph))
        with torch.no_grad(), intercept_cells(model):
            shapes.run(*inputs)
        if shapes.last() != outputs:
            return (), "torch.fx follows another path than the forward itself takes"
        return tuple(_make_node(model, node, shapes.found.get(node.name, ())) for node in graph.nodes), ""
    except Exception as error:  # noqa: BLE001 - tracing runs the task's code on stand-ins; any error is the reason
        text = " ".join(str(error).split())[:_MESSAGE_CHARACTERS]
        return (), f"torch.fx cannot trace forward: {type(error).__name__} ({text})"


def _drop_defaults(graph: fx.Graph, given: int) -> None:
    """Remove the arguments that kept their defaults, with the checks that torch.fx adds for them."""
    extra = [node for node in graph.nodes if node.op == "placeholder"][given:]
    for placeholder in extra:
        for user in list(placeholder.users):  # an assertion, or a comparison whose only user is one
            for assertion in [*user.users]:
                graph.erase_node(assertion)
            graph.erase_node(user)
        graph.erase_node(placeholder)


class _LineTracer(fx.Tracer):
    """Notes for every node which line of the task file asks for it."""

    def __init__(self, file: str) -> None:
        super().__init__()
        self._file = file

    def create_node(self, *args: Any, **kwargs: Any) -> fx.Node:
        """As the base class, with the line in `meta`."""
        node = super().create_node(*args, **kwargs)
        frame: FrameType | None = sys._getframe()
        while frame is not None and frame.f_code.co_filename != self._file:
            frame = frame.f_back
        node.meta[_LINE] = frame.f_lineno if frame is not None else 0
        return node


class _Shapes(fx.Interpreter):
    """Runs the graph and keeps the specification of every tensor that a node returns."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        self.found: dict[str, tuple[TensorSpec, ...]] = {}

    def run_node(self, n: fx.Node) -> Any:
        """As the base class, noting shapes."""
        result = super().run_node(n)
        self.found[n.name] = tuple(
            TensorSpec(shape=tuple(int(size) for size in tensor.shape), dtype=str(tensor.dtype).removeprefix("torch."))
            for tensor in flatten(result)
        )
        return result

    def last(self) -> list[TensorSpec]:
        """Specifications of what the output node returned."""
        return list(self.found["output"])


def _make_node(model: nn.Module, node: fx.Node, outputs: tuple[TensorSpec, ...]) -> OpNode:
    module = model.get_submodule(str(node.target)) if node.op == "call_module" else None
    return OpNode(
        name=node.name,
        op=node.op,
        target=node.target if isinstance(node.target, str) else qualified_name(node.target),
        module_type=type(module).__name__ if module is not None else "",
        attributes=plain_attributes(module) if module is not None else {},
        args=tuple(_encode_argument(value) for value in node.args),
        kwargs={name: _encode_argument(value) for name, value in node.kwargs.items()},
        outputs=outputs,
        line=node.meta.get(_LINE, 0),
    )


def qualified_name(function: Callable[..., Any]) -> str:
    """Public name of a function: `torch.nn.functional.gelu` also where torch implements it in a private module."""
    name = getattr(function, "__name__", str(function))
    for prefix, namespace in _NAMESPACES:
        if getattr(namespace, name, None) is function:
            return f"{prefix}.{name}"
    return f"{getattr(function, '__module__', None) or 'torch'}.{name}"


def plain_attributes(module: nn.Module) -> dict[str, Any]:
    """Constructor attributes with plain values; a parameter slot such as `bias` as True or False."""
    found: dict[str, Any] = {}
    for name, value in vars(module).items():
        if not name.startswith("_") and name != "training" and (encoded := _encode_attribute(value)) is not None:
            found[name] = encoded
    found |= {name: value is not None for name, value in module._parameters.items() if name == "bias"}
    return found


def _encode_attribute(value: Any) -> Any:
    """The value where JSON can hold it; None otherwise."""
    if isinstance(value, tuple | list) and all(isinstance(entry, _PLAIN) for entry in value):
        return list(value)
    return value if isinstance(value, _PLAIN) else None


def _encode_argument(value: Any) -> Any:
    """An argument of a node as JSON: nodes as {"ref": name}, slices, dtypes and infinities as small objects."""
    if isinstance(value, fx.Node):
        return {"ref": value.name}
    if isinstance(value, tuple | list):
        return [_encode_argument(entry) for entry in value]
    if isinstance(value, dict):
        return {str(name): _encode_argument(entry) for name, entry in value.items()}
    if isinstance(value, slice):
        return {"slice": [_encode_argument(value.start), _encode_argument(value.stop), _encode_argument(value.step)]}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    if value is Ellipsis:
        return {"ellipsis": True}
    return value if value is None or isinstance(value, _PLAIN) else str(value)
