"""Counts what one eager forward of a reference launches, moves and computes. Imports torch.

Every operator that computes is one device kernel; views and allocations are none. A convolution with bias is two (cuDNN, then the
addition). Recurrent layers are counted by formula, as cuDNN's general path runs them: per layer and direction one product for
the input side of the whole sequence, then per step one product for the recurrent side and one pointwise kernel.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import nn
from torch._subclasses.fake_tensor import is_fake
from torch.distributions import Distribution
from torch.nn.utils.rnn import PackedSequence
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry
from torch.utils.weak import WeakTensorKeyDictionary

from tritonsmith.evaluator.records.operator_cost import OperatorCost, align_heads
from tritonsmith.evaluator.reference.module import take_plain_layers

Record: TypeAlias = Callable[[OperatorCost, "Steps", Callable[[], Any]], Any]
"""Called with a recurrent module's cost, its serial steps, and the call that does the work."""
Unclaimed: TypeAlias = Callable[[Any, tuple[Any, ...], dict[str, Any], Any], None]
"""Called with an operator, its arguments and its result."""

_GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}
_CELL_GATES = {"LSTMCell": 4, "GRUCell": 3, "RNNCell": 1}
_POINTWISE_FLOPS_PER_GATE = 5
"""Two additions, an activation of about two operations, one product: small next to the matrix products."""
_FREE = {
    "aten::empty", "aten::empty_like", "aten::empty_strided", "aten::new_empty", "aten::new_empty_strided", "aten::detach",
    "aten::lift_fresh", "aten::_unsafe_view", "aten::_reshape_alias", "aten::set_", "aten::resize_", "aten::sym_size",
    "aten::_local_scalar_dense", "aten::is_same_size", "aten::lift",
}  # fmt: skip
_DESCRIBE = {"aten::sym_size", "aten::sym_numel", "aten::sym_stride", "aten::sym_storage_offset", "aten::is_same_size"}
"""Operators that return a number and look at no value."""
_MOVES = {"aten::clone", "aten::copy_", "aten::_to_copy", "aten::cat", "aten::stack", "aten::fill_", "aten::zero_", "aten::contiguous"}
_CONVOLUTION = "aten::convolution"
_SAME_WORK = {"aten::_scaled_dot_product_flash_attention_for_cpu": torch.ops.aten._scaled_dot_product_flash_attention}
"""Operators of the CPU that are counted like one of the card's."""
_HALVES = (torch.float16, torch.bfloat16)


def tensor_bytes(tensor: torch.Tensor) -> float:
    """Bytes that one pass over a tensor moves; broadcast dimensions count once."""
    return float(_count_distinct(tensor)) * tensor.element_size()


def _count_distinct(tensor: torch.Tensor) -> int:
    if tensor.layout is not torch.strided:
        return tensor.numel()
    return math.prod(size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride != 0)


@dataclass(frozen=True)
class Steps:
    """Recurrent steps of a call: one after the other as the reference runs them, and at the least."""

    serial: int
    shortest: int


@dataclass(frozen=True)
class OperatorTrace:
    """One eager forward."""

    costs: list[OperatorCost]
    """In the order of execution."""
    serial_steps: int
    """Recurrent steps that follow each other: layers times time of every recurrent stack, plus every call of a cell; at least 1."""
    shortest_chain: int
    """The same for layers that run as a wavefront."""
    output: Any


def trace_operators(model: nn.Module, inputs: list[Any]) -> OperatorTrace:
    """Trace one forward.

    Args:
        model: in eval mode; on real or fake tensors.
        inputs: arguments of forward, of the same kind.
    """
    with record_costs(model) as recorder:
        output = model(*inputs)
    return OperatorTrace(recorder.costs, recorder.serial_steps, recorder.shortest_chain, output)


@contextlib.contextmanager
def record_costs(model: nn.Module, deadline: float = math.inf) -> Iterator[CostRecorder]:
    """While open, what the model runs is counted. Past the deadline of `time.monotonic`, the next operator raises TimeoutError."""
    recorder = CostRecorder(deadline)
    plain = take_plain_layers()  # the fused way is one operator that hides its kernels
    with torch.no_grad(), plain, _skip_checks(), intercept_cells(model, recorder.recurrent_call), recorder:
        yield recorder


@contextlib.contextmanager
def _skip_checks() -> Iterator[None]:
    """While open, distributions do not check their arguments unless forward asks for it: a check reads values and changes no result."""
    default = Distribution._validate_args
    Distribution.set_default_validate_args(False)
    try:
        yield
    finally:
        Distribution.set_default_validate_args(default)


class CostRecorder(TorchDispatchMode):
    """One OperatorCost per operator that reaches the dispatcher while it is not muted."""

    def __init__(self, deadline: float = math.inf) -> None:
        super().__init__()
        self.costs: list[OperatorCost] = []
        self.value_reads = 0
        """Operators that turned a real tensor's values into a Python number."""
        self.claimed = 0
        """Above 0 while somebody who records calls waits for the costs of one."""
        self.take_unclaimed: Unclaimed | None = None
        """Gets every operator that costs something and that nobody claims."""
        self.lifted: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
        """By fake tensor that the code makes of numbers, as `torch.Tensor` does: the real one, which still knows them."""
        self._steps = Steps(0, 0)
        self._muted = 0
        self._deadline = deadline

    @property
    def serial_steps(self) -> int:
        """Recurrent steps that follow each other; at least 1."""
        return max(1, self._steps.serial)

    @property
    def shortest_chain(self) -> int:
        """Steps that must follow each other: layers of one stack overlap as a wavefront; at least 1."""
        return max(1, self._steps.shortest)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if time.monotonic() > self._deadline:
            raise TimeoutError("it takes too long")
        kwargs = dict(kwargs or {})
        self.claimed += 1  # a mode for torch functions sees this call too
        try:
            result = func(*args, **kwargs)
        finally:
            self.claimed -= 1
        if isinstance(result, bool | int | float | complex) and _reads_values(func, args):
            self.value_reads += 1
        if func is torch.ops.aten.lift_fresh.default and is_fake(result) and not is_fake(args[0]):
            self.lifted[result] = args[0]
        if not self._muted and not _is_free(func):
            self.costs.append(_operator_cost(func, args, kwargs, result))
            if not self.claimed and self.take_unclaimed is not None:
                self.take_unclaimed(func, args, kwargs, result)
        return result

    def recurrent_call(self, cost: OperatorCost, steps: Steps, call: Callable[[], Any]) -> Any:
        """Record the given cost and serial steps for all that the call does."""
        self._muted += 1
        try:
            result = call()
        finally:
            self._muted -= 1
        if not self._muted:
            self.costs.append(cost)
            self._steps = Steps(self._steps.serial + steps.serial, self._steps.shortest + steps.shortest)
        return result


def _reads_values(func: Any, args: tuple[Any, ...]) -> bool:
    """Whether an operator that returns a number reads a tensor's values; fake tensors hold none but the constants of the code."""
    tensors = [tensor for tensor in tree_leaves(args) if isinstance(tensor, torch.Tensor)]
    return func._schema.name not in _DESCRIBE and any(not is_fake(tensor) for tensor in tensors)


def _is_free(func: Any) -> bool:
    name = func._schema.name
    return name in _FREE or name.startswith(("prim::", "profiler::")) or bool(func.is_view)


def _operator_cost(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> OperatorCost:
    name = func._schema.name
    read = [tensor for tensor in tree_leaves((args, kwargs)) if isinstance(tensor, torch.Tensor)]
    written = [tensor for tensor in tree_leaves(result) if isinstance(tensor, torch.Tensor)]
    formula = flop_registry.get(_SAME_WORK.get(name, func.overloadpacket))
    if formula is not None:
        flops = float(formula(*align_heads(name, args), **kwargs, out_val=result)) * _count_seen(func, args, kwargs)
    elif name in _MOVES:
        flops = 0.0
    else:
        flops = float(max((tensor.numel() for tensor in read + written), default=0))
    if name in ("aten::fill_", "aten::zero_", "aten::copy_"):
        read = read[1:]  # the destination is written only
    launches = 2 if name == _CONVOLUTION and len(args) > 2 and args[2] is not None else 1
    if name == "aten::_to_copy" and read and written and read[0].dtype == written[0].dtype and read[0].device != written[0].device:
        launches = 0  # a transfer, not a kernel
    half = formula is not None and bool(read) and read[0].dtype in _HALVES
    return OperatorCost(name.replace("::", "."), launches, flops, sum(map(tensor_bytes, read + written)), half, launches)


def _count_seen(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> float:
    """The share of all keys that the queries of an attention see: with `is_causal` none behind the query's own place. 1 for other work."""
    given = dict(zip((one.name for one in func._schema.arguments), args, strict=False)) | kwargs
    query, key = given.get("query"), given.get("key")
    if given.get("is_causal") is not True or not isinstance(query, torch.Tensor) or not isinstance(key, torch.Tensor):
        return 1.0
    queries, keys = query.shape[-2], key.shape[-2]
    square = min(queries, keys)
    seen = square * (square + 1) / 2 + (queries - square) * keys
    return seen / max(1, queries * keys)


@contextlib.contextmanager
def intercept_cells(model: nn.Module, record: Record | None = None) -> Iterator[None]:
    """While open, recurrent modules report a cost by formula; on fake tensors they return empty tensors of the right shapes."""
    touched = [module for module in model.modules() if isinstance(module, nn.RNNBase | nn.RNNCellBase)]
    for module in touched:
        module.__dict__["forward"] = _intercept(module, module.forward, record or _call_only)
    try:
        yield
    finally:
        for module in touched:
            del module.__dict__["forward"]  # the class's method shows again


def _call_only(cost: OperatorCost, steps: Steps, call: Callable[[], Any]) -> Any:
    return call()


def _intercept(module: nn.RNNBase | nn.RNNCellBase, forward: Callable[..., Any], record: Record) -> Callable[..., Any]:
    def replacement(x: Any, hx: Any = None) -> Any:
        if isinstance(module, nn.RNNCellBase):
            return record(_cell_cost(module, x), Steps(1, 1), lambda: forward(x, hx))
        by_shape = not isinstance(x, PackedSequence) and is_fake(x)
        time_steps, layers = _sequence_shape(module, x)[0], module.num_layers
        serial = time_steps * layers  # the two directions of a layer run side by side, and the next layer waits for both
        steps = Steps(serial, serial if module.bidirectional else time_steps + layers - 1)
        return record(recurrent_cost(module, x), steps, lambda: _make_empty_result(module, x, hx) if by_shape else forward(x, hx))

    return replacement


def _sequence_shape(module: nn.RNNBase, x: torch.Tensor | PackedSequence) -> tuple[int, int]:
    """Steps and batch."""
    if isinstance(x, PackedSequence):
        return len(x.batch_sizes), int(x.batch_sizes[0])
    if x.dim() == 2:
        return x.shape[0], 1
    return (x.shape[1], x.shape[0]) if module.batch_first else (x.shape[0], x.shape[1])


def recurrent_cost(module: nn.RNNBase, x: torch.Tensor | PackedSequence) -> OperatorCost:
    """Cost of a recurrent stack: the recurrent weights are read again in every step."""
    steps, batch = _sequence_shape(module, x)
    directions = 2 if module.bidirectional else 1
    hidden, gates = module.hidden_size, _GATES[module.mode]
    state = module.proj_size or hidden
    weight = next(module.parameters())
    size = weight.element_size()
    flops = moved = 0.0
    width = module.input_size
    for _ in range(module.num_layers):
        outputs = gates * hidden
        flops += directions * steps * batch * (2.0 * outputs * (width + state) + _POINTWISE_FLOPS_PER_GATE * outputs)
        input_side = steps * batch * (width + outputs) + outputs * width
        per_step = outputs * state + batch * (state + 3 * outputs + 2 * hidden)  # weights; row in; product out and in, gates in; state
        moved += directions * size * (input_side + steps * per_step)
        if module.proj_size:
            flops += directions * steps * batch * 2.0 * hidden * state
            moved += directions * size * steps * hidden * state
        width = state * directions
    kernels = 3 if module.proj_size else 2
    launches = module.num_layers * directions * (1 + kernels * steps)  # a library's directions run one after the other (cuDNN on an H200)
    return OperatorCost(f"nn.{type(module).__name__}", launches, flops, moved, weight.dtype in _HALVES)


def _cell_cost(module: nn.RNNCellBase, x: torch.Tensor) -> OperatorCost:
    """One step of a cell: two products and one pointwise kernel."""
    gates = _CELL_GATES[type(module).__name__]
    batch = x.shape[0] if x.dim() == 2 else 1
    outputs, width, hidden = gates * module.hidden_size, module.input_size, module.hidden_size
    flops = batch * (2.0 * outputs * (width + hidden) + _POINTWISE_FLOPS_PER_GATE * outputs)
    moved = x.element_size() * (outputs * (width + hidden) + batch * (width + 4 * outputs + 2 * hidden))
    return OperatorCost(f"nn.{type(module).__name__}", 3, flops, float(moved), x.dtype in _HALVES, 2)


def _make_empty_result(module: nn.RNNBase, x: torch.Tensor, hx: Any) -> Any:
    """What the stack returns, by shape; checks the arguments as the module does."""
    steps, batch = _sequence_shape(module, x)
    directions = 2 if module.bidirectional else 1
    batched = x.dim() == 3
    rows = x if batched else x.unsqueeze(0 if module.batch_first else 1)
    if hx is not None:
        states: Any = hx if batched else tuple(part.unsqueeze(1) for part in hx) if isinstance(hx, tuple) else hx.unsqueeze(1)
        module.check_forward_args(rows, states, None)
    state = module.proj_size or module.hidden_size
    lead = (batch, steps) if module.batch_first else (steps, batch)
    output = x.new_empty((*lead, directions * state) if batched else (steps, directions * state))
    shape = (module.num_layers * directions, batch) if batched else (module.num_layers * directions,)
    last = x.new_empty((*shape, state))
    return (output, (last, x.new_empty((*shape, module.hidden_size)))) if isinstance(module, nn.LSTM) else (output, last)
