"""Facts about a module that is one call, traced at once. The evaluator's probe finds the same ones with several runs.

A test compares the two. Imports torch.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import fx, nn

from tritonsmith.author.writes import is_write
from tritonsmith.evaluator.records.operator_cost import TraceWay
from tritonsmith.evaluator.reference.module import flatten
from tritonsmith.evaluator.reference.nodes import encode_argument, list_arguments, list_specs, qualified_name
from tritonsmith.evaluator.reference.watch import ForwardWatch, find_class
from tritonsmith.evaluator.schema import OpNode, TaskFacts

_DRAWS = ("rand", "dropout", "bernoulli", "multinomial", "normal", "poisson", "uniform", "exponential", "cauchy", "geometric", "rrelu")


class _Run(fx.Interpreter):
    """Runs a graph and keeps the specification of every tensor that a node returns."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        self.outputs: dict[str, Any] = {}

    def run_node(self, n: fx.Node) -> Any:
        """As the base class, noting shapes."""
        result = super().run_node(n)
        self.outputs[n.name] = list_specs(result)
        return result


def trace_call(model: nn.Module, inputs: Sequence[torch.Tensor]) -> TaskFacts | None:
    """The facts that a plan is made from; None where the probe must look: a tensor that is written to, chance, and no trace at all.

    A write in place needs the launches of each node, which tell whether `reshape` gave a view or a copy.

    Args:
        model: without parameters and buffers.
        inputs: the arguments of its forward, which stay as they are.
    """
    if any(word in inspect.getsource(type(model).forward) for word in _DRAWS):
        return None
    copies = [tensor.clone() for tensor in inputs]
    try:
        graph = fx.Tracer().trace(model)
        run = _Run(fx.GraphModule(model, graph))
        with torch.no_grad():
            outputs = flatten(run.run(*copies))
    except Exception:  # noqa: BLE001 - the probe tells what is wrong
        return None
    changed = any(not _equal(before, after) for before, after in zip(inputs, copies, strict=True))
    ops = tuple(_make_node(node, run) for node in graph.nodes)
    called = all(node.op in ("placeholder", "call_function", "call_method", "output") for node in ops)
    if changed or not called or any(map(is_write, ops)):
        return None
    return TaskFacts(
        inputs=tuple(list_specs(tensor)[0] for tensor in inputs), values=("",) * len(inputs), outputs=list_specs(outputs), parameters={},
        init_inputs=(), ops=ops, traced_by=TraceWay.FX,
        precision=find_class(inputs, (), outputs, ForwardWatch()),
    )  # fmt: skip


def _equal(before: torch.Tensor, after: torch.Tensor) -> bool:
    return torch.equal(before.nan_to_num(), after.nan_to_num()) if before.is_floating_point() else torch.equal(before, after)


def _make_node(node: fx.Node, run: _Run) -> OpNode:
    target = node.target if isinstance(node.target, str) else qualified_name(node.target)
    return OpNode(
        name=node.name, op=node.op, target=target,
        args=tuple(encode_argument(value, _refer) for value in list_arguments(target, node.args)),
        kwargs={name: encode_argument(value, _refer) for name, value in node.kwargs.items()}, outputs=run.outputs[node.name],
    )  # fmt: skip


def _refer(value: Any) -> str | None:
    return value.name if isinstance(value, fx.Node) else None
