"""A reference's forward as a list of records, by torch.fx: it follows the code without sizes or values. Imports torch."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import math
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from operator import attrgetter
from typing import Any

from torch import fx, nn
from torch.utils._pytree import tree_unflatten

from tritonsmith.evaluator.records.operator_cost import OperatorCost
from tritonsmith.evaluator.reference.calls import ExecutedForward
from tritonsmith.evaluator.reference.nodes import (
    add_costs,
    describe_module,
    encode_argument,
    find_line,
    is_library_module,
    list_arguments,
    list_specs,
    qualified_name,
    read_constant,
)
from tritonsmith.evaluator.reference.trace import CostRecorder, record_costs
from tritonsmith.evaluator.schema import OpNode, TensorSpec

_CONSTANT = "_tensor_constant"
"""How torch.fx names tensors that forward makes of Python's numbers."""
_CHECKS = ("_assert", "_assert_is_none", "eq", "is_")
"""Functions by which torch.fx checks an argument that kept its default."""
_MESSAGE_CHARACTERS = 300
_LINE = "line of the task"
"""Where a node's `meta` keeps it."""


def leaf_modules(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Modules that the trace does not look into: those of torch.nn except containers, and childless modules of the task."""
    for name, module in model.named_children():
        if is_library_module(module) or not list(module.children()):
            yield name, module
        else:
            yield from ((f"{name}.{inner}", leaf) for inner, leaf in leaf_modules(module))


def trace_forward(
    model: nn.Module, inputs: list[Any], executed: ExecutedForward, file: str, deadline: float = math.inf
) -> tuple[tuple[OpNode, ...], str]:
    """Nodes of the forward with the shapes they produce and what they cost; none, and the reason, where torch.fx cannot follow the code.

    Args:
        model: the reference.
        inputs: arguments of forward, real or fake.
        executed: what forward itself ran; a trace that runs anything else is not used.
        file: name that the task was compiled under; nodes get lines in it.
        deadline: of `time.monotonic`.
    """
    try:
        # Arguments that get_inputs does not give keep their defaults, so that `if h0 is None` is decided at trace time.
        rest = list(inspect.signature(model.forward).parameters.values())[len(inputs) :]
        defaults = {parameter.name: parameter.default for parameter in rest if parameter.default is not inspect.Parameter.empty}
        tracer = _LineTracer(file)
        with _keep_members(model):
            graph = tracer.trace(model, concrete_args=defaults or None)
            _drop_defaults(graph, len(inputs))
            _restore_results(graph)
            with record_costs(model, deadline) as recorder:
                run = _Run(fx.GraphModule(tracer.root, graph), recorder)
                run.run(*inputs)
        if other := _find_difference(recorder.costs, executed.costs):
            return (), f"torch.fx follows another path than the forward itself takes: {other}"
        nodes = tuple(_make_node(model, node, run) for node in graph.nodes if not _list_record_fields(node))
        if unknown := [node.target for node in nodes if node.target.startswith(_CONSTANT) and "value" not in node.attributes]:
            return (), f"torch.fx does not show what numbers the tensor {unknown[0]} of forward is made of"
        return nodes, ""
    except Exception as error:  # noqa: BLE001 - tracing runs the task's code on stand-ins; any error is the reason
        text = " ".join(str(error).split())[:_MESSAGE_CHARACTERS]
        return (), f"torch.fx cannot trace forward: {type(error).__name__} ({text})"


@contextlib.contextmanager
def _keep_members(model: nn.Module) -> Iterator[None]:
    """What forward makes of members while it is traced, as `self.seen += x` does, are stand-ins: the members come back behind it."""
    held = [named for module in model.modules() for named in (module._parameters, module._buffers, vars(module))]
    before = [dict(named) for named in held]
    try:
        yield
    finally:
        for named, old in zip(held, before, strict=True):
            for name in [name for name, value in named.items() if isinstance(value, fx.Proxy)]:
                if name in old:
                    named[name] = old[name]
                else:
                    del named[name]


def _find_difference(traced: Sequence[OperatorCost], executed: Sequence[OperatorCost]) -> str:
    """The first operator in which a trace and the forward itself differ; empty where both run the same."""
    for ours, theirs in zip_longest(traced, executed):
        if ours != theirs:
            names = [one.name if one is not None else "the end" for one in (ours, theirs)]
            return f"{names[0]} in place of {names[1]}" if names[0] != names[1] else f"{names[0]} of other sizes"
    return ""


def _drop_defaults(graph: fx.Graph, given: int) -> None:
    """Remove the arguments that kept their defaults, with the checks that torch.fx adds. Raises ValueError where forward uses one."""
    extra = [node for node in graph.nodes if node.op == "placeholder"][given:]
    for placeholder in extra:
        for user in list(placeholder.users):  # an assertion, or a comparison whose only user is one
            for assertion in [*user.users]:
                _erase_check(graph, assertion)
            _erase_check(graph, user)
        graph.erase_node(placeholder)


def _restore_results(graph: fx.Graph) -> None:
    """Give what forward returns its structure again, of which torch.fx makes a list where a default is a tuple, a list or a dict."""
    info = getattr(graph._codegen, "pytree_info", None)
    if info is None:
        return
    (output,) = (node for node in graph.nodes if node.op == "output")
    output.args = (tree_unflatten(list(output.args[0]), info.out_spec),)
    graph.set_codegen(fx.graph.CodeGen())


def _erase_check(graph: fx.Graph, node: fx.Node) -> None:
    """Remove a node that only checks an argument. Raises ValueError for any other."""
    if node.op != "call_function" or getattr(node.target, "__name__", "") not in _CHECKS:
        raise ValueError(f"forward uses an argument that get_inputs() does not give: {node.format_node()}")
    graph.erase_node(node)


class _LineTracer(fx.Tracer):
    """Notes for every node which line of the task file asks for it."""

    proxy_buffer_attributes = True
    """What is computed of buffers alone is a node too."""

    def __init__(self, file: str) -> None:
        super().__init__()
        self._file = file

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Whether a module is one operator."""
        return is_library_module(m)

    def create_node(self, *args: Any, **kwargs: Any) -> fx.Node:
        """As the base class, with the line in `meta`."""
        node = super().create_node(*args, **kwargs)
        node.meta[_LINE] = find_line(self._file)
        return node


class _Run(fx.Interpreter):
    """Runs the graph and keeps the specification of every tensor that a node returns, and what the node cost."""

    def __init__(self, module: fx.GraphModule, recorder: CostRecorder) -> None:
        super().__init__(module)
        self.outputs: dict[str, tuple[TensorSpec, ...]] = {}
        self.costs: dict[str, list[OperatorCost]] = {}
        self._recorder = recorder

    def run_node(self, n: fx.Node) -> Any:
        """As the base class, noting shapes and costs."""
        before = len(self._recorder.costs)
        result = super().run_node(n)
        self.outputs[n.name] = list_specs(result)
        self.costs[n.name] = self._recorder.costs[before:]
        return result


def _make_node(model: nn.Module, node: fx.Node, run: _Run) -> OpNode:
    module = model.get_submodule(str(node.target)) if node.op == "call_module" else None
    target = node.target if isinstance(node.target, str) else qualified_name(node.target)
    made = OpNode(
        name=node.name,
        op=node.op,
        target=target,
        module=_find_module(node),
        args=tuple(encode_argument(_show_records(value), _refer) for value in list_arguments(target, node.args)),
        kwargs={name: encode_argument(_show_records(value), _refer) for name, value in node.kwargs.items()},
        outputs=run.outputs[node.name],
        line=node.meta.get(_LINE, 0),
        **(describe_module(module, model.training) if module is not None else {}),
    )
    if node.op == "get_attr" and (number := _find_number(run.module, str(node.target))) is not None:
        made = made.model_copy(update={"attributes": {"value": number}})
    return add_costs(made, run.costs[node.name])


def _find_number(module: nn.Module, path: str) -> Any:
    """What a tensor that forward makes of numbers holds, such as `torch.tensor(0.5)`; None for any other."""
    return read_constant(attrgetter(path)(module)) if path.startswith(_CONSTANT) else None


def _list_record_fields(node: Any) -> tuple[str, ...]:
    """The fields of the named tuple or dataclass that a node makes of others; none for any other node."""
    made = node.target if isinstance(node, fx.Node) and node.op == "call_function" and isinstance(node.target, type) else None
    if made is None:
        return ()
    if dataclasses.is_dataclass(made):
        return tuple(field.name for field in dataclasses.fields(made))
    return tuple(getattr(made, "_fields", ()))


def _show_records(value: Any) -> Any:
    """An argument with records in place of the nodes that make them."""
    fields = _list_record_fields(value)
    if fields:
        given = {name: _show_records(part) for name, part in (dict(zip(fields, value.args, strict=False)) | value.kwargs).items()}
        return dataclasses.make_dataclass(value.target.__name__, list(given))(**given)
    if isinstance(value, tuple | list):
        return [_show_records(part) for part in value]
    return {name: _show_records(part) for name, part in value.items()} if isinstance(value, dict) else value


def _refer(value: Any) -> str | None:
    return value.name if isinstance(value, fx.Node) else None


def _find_module(node: fx.Node) -> str:
    """Path of the innermost module whose forward asks for a node; a module that is called does not count."""
    paths = [path for path, _ in node.meta.get("nn_module_stack", {}).values() if path != node.target]
    return str(paths[-1]) if paths else ""
