"""Facts and operator trace of a task's reference. Imports torch; runs the user's own task file.

Shapes and counts come from fake tensors, which compute nothing. Where a model needs values, the forward runs for real.
"""

from __future__ import annotations

import ast
import contextlib
from collections import Counter
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from tritonsmith.evaluator.operator_cost import OperatorCost
from tritonsmith.evaluator.reference.choose_size import choose_size
from tritonsmith.evaluator.reference.forward import leaf_modules, trace_forward
from tritonsmith.evaluator.reference.module import Reference, flatten, load_reference
from tritonsmith.evaluator.reference.trace import OperatorTrace, tensor_bytes, trace_operators
from tritonsmith.evaluator.schema import FIT, OpNode, Task, TaskFacts, TensorSpec
from tritonsmith.evaluator.tasks import at_chosen_size

_SEED = 0
_MOST_FLOPS = 2e9
"""Operations of a forward that is run for real, which then takes about a second; an oracle runs larger ones on its card."""
_MOST_BYTES = 1e9
"""What such a forward moves at most."""


def spec_of(tensor: torch.Tensor) -> TensorSpec:
    """Shape and dtype of a tensor."""
    return TensorSpec(shape=tuple(int(size) for size in tensor.shape), dtype=str(tensor.dtype).removeprefix("torch."))


_LITERAL_CHARACTERS = 200
"""Longer arguments of a constructor are not written out."""


def write_literal(value: Any) -> str:
    """A value as Python writes it; empty for one that Python cannot read back, such as a tensor, or that is too long to write."""
    text = repr(value)
    with contextlib.suppress(ValueError, SyntaxError):
        if len(text) <= _LITERAL_CHARACTERS and ast.literal_eval(text) == value:
            return text
    return ""


def probe(task: Task) -> tuple[TaskFacts, list[OperatorCost]]:
    """Facts and operator trace of a task's reference, at a size of its choice where it is asked to choose. Raises TaskError."""
    chosen = choose_size(task) if task.size == FIT else None
    reference = load_reference(at_chosen_size(task, chosen))
    try:
        with FakeTensorMode(allow_non_fake_inputs=True):
            facts, costs = _describe(reference)
    except Exception:  # noqa: BLE001 - fake tensors refuse what needs values; the real run below shows a fault of the task
        facts, costs = _describe(reference)
    else:
        if chosen is None and facts.flops <= _MOST_FLOPS and sum(cost.bytes for cost in costs) <= _MOST_BYTES:
            reference.forward(reference.build(_SEED), reference.draw_inputs(_SEED))  # fake tensors accept some calls that fail
    return facts.model_copy(update={"chosen": chosen}), costs


def _describe(reference: Reference) -> tuple[TaskFacts, list[OperatorCost]]:
    model = reference.build(_SEED)
    inputs = reference.draw_inputs(_SEED)
    traces: list[OperatorTrace] = []

    def forward() -> Any:
        traces.append(trace_operators(model, inputs))
        return traces[0].output

    output = reference.check_output(forward)
    outputs = flatten(output)
    reference.require_elements(outputs)
    ops, trace_error = trace_forward(model, inputs, [spec_of(output) for output in outputs], reference.task.path)
    (trace,) = traces
    state = {name: value for name, value in model.state_dict().items() if isinstance(value, torch.Tensor)}
    tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
    facts = TaskFacts(
        inputs=tuple(spec_of(value) if isinstance(value, torch.Tensor) else None for value in inputs),
        outputs=tuple(spec_of(output) for output in outputs),
        returns=describe_return(output, ops),
        parameters={name: spec_of(value) for name, value in state.items()},
        init_inputs=tuple(map(write_literal, reference.init_inputs())),
        ops=ops,
        trace_error=trace_error,
        modules=dict(Counter(type(module).__name__ for _, module in leaf_modules(model))),
        flops=sum(cost.flops for cost in trace.costs),
        min_bytes=_total_bytes([*tensors, *_storages(model), *outputs]),
        reference_launches=sum(cost.launches for cost in trace.costs),
        serial_steps=trace.serial_steps,
    )
    return facts, trace.costs


def _storages(model: nn.Module) -> Iterable[torch.Tensor]:
    """Parameters and persistent buffers, shared ones once."""
    return {id(value): value for value in model.state_dict(keep_vars=True).values() if isinstance(value, torch.Tensor)}.values()


def _total_bytes(tensors: Iterable[torch.Tensor]) -> float:
    return sum(map(tensor_bytes, tensors))


def describe_return(output: Any, ops: tuple[OpNode, ...]) -> str:
    """What forward returns, in words, with the part of a recurrent layer where the trace shows it."""
    specs = [f"{spec.dtype}[{', '.join(map(str, spec.shape))}]" for spec in map(spec_of, flatten(output))]
    several = f"a {type(output).__name__} of {len(specs)} tensors: {'; '.join(specs)}"
    text = f"a tensor {specs[0]}" if isinstance(output, torch.Tensor) else several
    part = _recurrent_part(ops) if isinstance(output, torch.Tensor) else ""
    return f"{text}{', ' if part else ''}{part}"


def _recurrent_part(ops: tuple[OpNode, ...]) -> str:
    by_name = {op.name: op for op in ops}
    at: Any = ops[-1].args[0] if ops and ops[-1].args else None
    path: list[int] = []
    while isinstance(at, dict) and "ref" in at:
        op = by_name[at["ref"]]
        if op.module_type in ("GRU", "LSTM", "RNN"):
            known = {(0,): "the top layer's states of every step", (1, 0): "the last hidden states", (1, 1): "the last cell states"}
            words = known.get(tuple(path)) if op.module_type == "LSTM" or path != [1] else "the last hidden states"
            return f"{words} of {op.target}" if words else ""
        if op.target != "_operator.getitem" or not isinstance(op.args[1], int):
            return ""
        path.insert(0, op.args[1])
        at = op.args[0]
    return ""
