"""A reference's forward as a list of records, by running it: every call of a torch function and of a torch.nn module. Imports torch.

This follows what torch.fx cannot: slices by size, branches, *args, in-place operations. The run may be on fake tensors.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import linecache
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakTensorKeyDictionary

from tritonsmith.evaluator.records.operator_cost import OperatorCost
from tritonsmith.evaluator.reference.guards import find_guards
from tritonsmith.evaluator.reference.module import list_held, list_tensors
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
from tritonsmith.evaluator.schema import OpNode

Call: TypeAlias = tuple[str, str, tuple[Any, ...], Mapping[str, Any]]
"""`op` and `target` of a node, and the arguments of the call."""

_OPERATORS = {
    "add": "add", "sub": "sub", "mul": "mul", "div": "truediv", "pow": "pow", "matmul": "matmul", "neg": "neg",
    "gt": "gt", "lt": "lt", "ge": "ge", "le": "le", "eq": "eq", "ne": "ne", "__eq__": "eq", "__ne__": "ne",
    "__floordiv__": "floordiv", "__mod__": "mod", "remainder": "mod", "__invert__": "invert", "__and__": "and_", "__or__": "or_",
    "__iand__": "iand", "__ior__": "ior", "__ixor__": "ixor", "__ilshift__": "ilshift", "__irshift__": "irshift",
    "__xor__": "xor", "__lshift__": "lshift", "__rshift__": "rshift", "__getitem__": "getitem", "__setitem__": "setitem",
}  # fmt: skip
"""Methods by which torch carries out an operator; which of the two the code wrote cannot be told apart."""
_REVERSED = {
    "__rsub__": "sub", "__rdiv__": "truediv", "__rtruediv__": "truediv", "__rpow__": "pow", "__rfloordiv__": "floordiv",
    "__rmatmul__": "matmul", "__rmod__": "mod",
}  # fmt: skip
"""Operators whose left operand is no tensor."""
_ASK_SIZE = {"shape", "size", "dim", "ndim", "numel", "nelement", "__len__", "stride"}
_ASK_VALUES = {"tolist", "numpy", "__array__"}
"""Methods that read values past the dispatcher."""
_ONLY_CHECK = {"torch.cov", "torch.corrcoef", "torch.istft", "istft", "cov", "corrcoef"}
"""Calls that look at values to warn or to refuse them, and give what does not depend on that."""
_CONSTANT = "_tensor_constant"
"""How a tensor is called that neither a call nor the model holds."""
_CHANGE = {"__setitem__", "__set__"}
"""Calls that return nothing and change their first argument."""
_TRANSFORMED = (
    "runs under torch.vmap or another transform of torch.func, which hides the calls on whole tensors; write the axis that it maps over "
    "as an axis of the tensors"
)
"""What a refusal says of a line."""


@dataclass(frozen=True)
class ExecutedForward:
    """What one forward ran."""

    ops: tuple[OpNode, ...]
    costs: list[OperatorCost]
    """Of all nodes, in the order of execution."""
    serial_steps: int
    shortest_chain: int
    output: Any
    size_lines: tuple[int, ...]
    """Lines of the task that ask a tensor for its sizes."""
    value_lines: tuple[int, ...]
    """Lines of the task that turn a tensor into Python values; constants of the code and checks that only raise aside."""
    refusal: str = ""
    """Why there are no nodes; empty where there are."""


def execute_forward(model: nn.Module, inputs: list[Any], file: str, deadline: float = math.inf) -> ExecutedForward:
    """Run forward once and record its calls.

    Args:
        model: in eval mode; on real or fake tensors.
        inputs: arguments of forward, of the same kind.
        file: name that the task was compiled under; nodes get lines in it.
        deadline: of `time.monotonic`; past it the next operator raises TimeoutError.
    """
    with record_costs(model, deadline) as costs:
        recorder = _CallRecorder(model, costs, file)
        recorder.take_inputs(inputs)
        with recorder.watch_modules(), recorder:
            output = model(*inputs)
        recorder.take_output(output)
    guards = find_guards("".join(linecache.getlines(file))) if recorder.value_lines else set()
    sizes, values = (tuple(sorted(found - {0})) for found in (recorder.size_lines, recorder.value_lines - guards))
    ops, refusal = tuple(recorder.ops), ""
    if recorder.transformed is not None:
        place = f"line {recorder.transformed} " if recorder.transformed else "it "
        ops, refusal = (), f"{place}{_TRANSFORMED}"
    return ExecutedForward(ops, costs.costs, costs.serial_steps, costs.shortest_chain, output, sizes, values, refusal)


class _CallRecorder(TorchFunctionMode):
    """One node per call that makes or changes a tensor, in the words of torch.fx; calls within a call are none."""

    def __init__(self, model: nn.Module, costs: CostRecorder, file: str) -> None:
        super().__init__()
        self.ops: list[OpNode] = []
        self.size_lines: set[int] = set()
        self.value_lines: set[int] = set()
        self.transformed: int | None = None
        """The first line that works on the tensors of torch.vmap and its kin, which show neither their whole shapes nor values."""
        self._model, self._costs, self._file = model, costs, file
        self._values = _Values(model, self._add, costs.lifted)
        self._modules: list[str] = []
        """Paths of the modules whose forward runs, innermost last."""
        costs.take_unclaimed = self._take_unclaimed

    def take_inputs(self, inputs: list[Any]) -> None:
        """Add a placeholder per argument that forward gets."""
        names: list[tuple[str, str]] = []
        for parameter in inspect.signature(self._model.forward).parameters.values():
            if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
                names += [(parameter.name, f"*{parameter.name}")] * max(0, len(inputs) - len(names))
            else:
                names.append((parameter.name, parameter.name))
        for value, (name, target) in zip(inputs, names, strict=False):
            self._values.bind(self._add(OpNode(name=name, op="placeholder", target=target, outputs=list_specs(value))), value)

    def take_output(self, output: Any) -> None:
        """Add the last node."""
        self._add(OpNode(name="output", op="output", target="output", args=(self._encode(output),), outputs=list_specs(output)))

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if self._costs.claimed:
            return func(*args, **kwargs)
        return self._record(_describe_call(func, args, kwargs), lambda: func(*args, **kwargs), getattr(func, "__name__", ""))

    @contextlib.contextmanager
    def watch_modules(self) -> Iterator[None]:
        """While open, modules of torch.nn are one call each, and calls within others know their path."""
        with contextlib.ExitStack() as stack:
            for path, module in self._model.named_modules():
                if path and not isinstance(module, torch.jit.ScriptModule):
                    stack.enter_context(_replace_forward(module, functools.partial(self._run_module, path, module)))
            yield

    def _run_module(self, path: str, module: nn.Module, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self._costs.claimed:
            return forward(*args, **kwargs)
        if is_library_module(module):
            fields = describe_module(module, self._model.training)
            return self._record(("call_module", path, args, kwargs), lambda: forward(*args, **kwargs), "", fields)
        self._modules.append(path)
        try:
            return forward(*args, **kwargs)
        finally:
            self._modules.pop()

    def _record(self, call: Call, run: Callable[[], Any], name: str, fields: Mapping[str, Any] | None = None) -> Any:
        """Run a call and add its node, unless it neither costs anything nor makes or changes a tensor."""
        if any(map(torch._C._functorch.is_functorch_wrapped_tensor, list_tensors((call[2], dict(call[3]))))):
            if self.transformed is None:
                self.transformed = find_line(self._file)
            return run()
        costs, reads = len(self._costs.costs), self._costs.value_reads
        self._costs.claimed += 1
        try:
            result = run()
            self._note_lines(call, name, reads)
            if len(self._costs.costs) > costs or name in _CHANGE or list_tensors(result):
                self._add_call(call, result, self._costs.costs[costs:], fields or {})
                if name in _CHANGE:
                    self._values.bind(self.ops[-1].name, call[2][0])
        finally:
            self._costs.claimed -= 1
        return result

    def _note_lines(self, call: Call, name: str, reads: int) -> None:
        """Note the line of a call that asks for sizes or values."""
        op, target, args, kwargs = call
        keeps = op == "call_module" or target in _ONLY_CHECK  # a module of torch.nn gives no number, such as its count of batches
        asked = name in _ASK_VALUES or (self._costs.value_reads > reads and not keeps)
        if asked and any(map(self._values.is_given, list_tensors((args, dict(kwargs))))):
            self.value_lines.add(find_line(self._file))
        if target.rpartition(".")[2] in _ASK_SIZE or name == "__get__" and args[1] in _ASK_SIZE:
            self.size_lines.add(find_line(self._file))

    def _take_unclaimed(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """Add what reaches the dispatcher outside of every call, such as the operators of TorchScript."""
        self._costs.claimed += 1
        try:
            self._add_call(("call_function", f"torch.ops.{func.overloadpacket}", args, kwargs), result, self._costs.costs[-1:], {})
        finally:
            self._costs.claimed -= 1

    def _add_call(self, call: Call, result: Any, costs: list[OperatorCost], fields: Mapping[str, Any]) -> None:
        op, target, args, kwargs = call
        node = OpNode(
            name=target.removeprefix("builtins."),
            op=op,
            target=target,
            module=self._modules[-1] if self._modules else "",
            args=tuple(map(self._encode, list_arguments(target, args))),
            kwargs={key: self._encode(value) for key, value in kwargs.items()},
            outputs=list_specs(result),
            **fields,
        )
        self._values.bind(self._add(add_costs(node, costs)), result)

    def _add(self, node: OpNode) -> str:
        """Add a node under a name that no other has; the name."""
        name = self._values.choose_name(node.name if node.op == "call_module" else node.name.rpartition(".")[2])
        self._values.note_origin(name, node)
        self.ops.append(node.model_copy(update={"name": name, "line": find_line(self._file)}))
        return name

    def _encode(self, value: Any) -> Any:
        return encode_argument(value, self._values.refer)


class _Values:
    """Which node made each tensor that is alive.

    Args:
        model: its parameters, buffers and other tensors become nodes where something reads them.
        add: adds a node and returns its name.
        lifted: real tensors by the fake ones that the code made of numbers.
    """

    def __init__(self, model: nn.Module, add: Callable[[OpNode], str], lifted: Mapping[torch.Tensor, torch.Tensor]) -> None:
        self._add, self._lifted = add, lifted
        self._made: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
        """By tensor: the name of a node, and the way to the tensor in what the node returned."""
        self._held: WeakTensorKeyDictionary = WeakTensorKeyDictionary()
        """By tensor: the path of the model's attribute."""
        self._names: dict[str, int] = {}
        self._constants: set[str] = set()
        """Nodes whose values follow from the code alone."""
        for prefix, module in model.named_modules():
            for name, value in (module._buffers | module._parameters).items():
                if value is not None:
                    self._held.setdefault(value, f"{prefix}.{name}" if prefix else name)
        for prefix, module in model.named_modules():  # what lists hold may be a parameter of any module
            for name, value in list_held(module):
                self._held.setdefault(value, f"{prefix}.{name}" if prefix else name)

    def choose_name(self, base: str) -> str:
        """A name for a node that no other has, as torch.fx makes them: `add`, `add_1`."""
        base = "".join(letter if letter.isalnum() else "_" for letter in base).strip("_") or "value"
        name = base
        while name in self._names:
            self._names[base] += 1
            name = f"{base}_{self._names[base]}"
        self._names[name] = 0
        return name

    def note_origin(self, name: str, node: OpNode) -> None:
        """Note whether a new node's values follow from the code alone."""
        follows = node.op in ("call_function", "call_method") and {*node.references} <= self._constants
        if follows or (node.op == "get_attr" and node.target == _CONSTANT):
            self._constants.add(name)

    def is_given(self, value: torch.Tensor) -> bool:
        """Whether a tensor's values depend on forward's arguments or on the model's state."""
        made = self._made.get(value)
        return made[0] not in self._constants if made is not None else value in self._held

    def bind(self, name: str, value: Any, way: tuple[Any, ...] = ()) -> None:
        """The tensors in a value are what a node made."""
        if isinstance(value, torch.Tensor):
            self._made[value] = (name, way)
        elif isinstance(value, tuple | list):
            for index, part in enumerate(value):
                self.bind(name, part, (*way, index))
        elif isinstance(value, Mapping):
            for key, part in value.items():
                self.bind(name, part, (*way, key))

    def refer(self, value: Any) -> str | None:
        """The node that made a tensor, one that picks it out of a tuple, or one that reads an attribute; None for anything else."""
        if not isinstance(value, torch.Tensor):
            return None
        if value not in self._made:
            path = self._held.get(value)
            name = _CONSTANT if path is None else path
            known = read_constant(self._lifted.get(value, value)) if path is None else None
            attributes = {} if known is None else {"value": known}
            made = self._add(
                OpNode(name=name.replace(".", "_"), op="get_attr", target=name, outputs=list_specs(value), attributes=attributes)
            )
            self.bind(made, value)
        name, way = self._made[value]
        for place, index in enumerate(way, start=1):
            outputs = list_specs(value) if place == len(way) else ()
            args = ({"ref": name}, index)
            name = self._add(OpNode(name="getitem", op="call_function", target="_operator.getitem", args=args, outputs=outputs))
        self.bind(name, value)
        return name


@contextlib.contextmanager
def _replace_forward(module: nn.Module, run: Callable[..., Any]) -> Iterator[None]:
    """While open, `run` gets every call of the module's forward, with the forward itself as its first argument."""
    own = vars(module).get("forward")
    module.__dict__["forward"] = functools.wraps(module.forward)(functools.partial(run, module.forward))
    try:
        yield
    finally:
        if own is None:
            del module.__dict__["forward"]  # the class's method shows again
        else:
            module.__dict__["forward"] = own


def _describe_call(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Call:
    """A call as torch.fx writes it: operators and functions by their public name, methods by their own."""
    name = getattr(func, "__name__", str(func))
    if name in ("__get__", "__set__"):
        target = "builtins.getattr" if name == "__get__" else "builtins.setattr"
        return "call_function", target, (args[0], func.__self__.__name__, *args[1:2]), {}
    if name in _REVERSED:
        return "call_function", f"_operator.{_REVERSED[name]}", args[::-1], kwargs
    method = getattr(torch.Tensor, name, None) is func
    if not kwargs and name in _OPERATORS and (method or getattr(func, "__module__", None) == "torch._tensor"):
        return "call_function", f"_operator.{_OPERATORS[name]}", args, kwargs
    if method:
        return "call_method", name, args, kwargs
    if isinstance(func, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        return "call_function", f"torch.ops.{getattr(func, 'overloadpacket', func)}", args, kwargs
    return "call_function", qualified_name(func), args, kwargs
