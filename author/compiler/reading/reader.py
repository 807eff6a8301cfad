"""Walks the traced forward once and makes values of its nodes."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from tritonsmith.author.cards.model import CardModel
from tritonsmith.author.compiler.ir.stacks import StackCall
from tritonsmith.author.compiler.ir.torch_calls import Global, TorchCall, call_function
from tritonsmith.author.compiler.ir.values import (
    TRITON_TYPES,
    AnchorResult,
    Formula,
    Held,
    Item,
    MatrixProduct,
    Tensor,
    TensorView,
)
from tritonsmith.author.compiler.lowering.calls import NodeCall, NotCovered, hold_constant, hold_member
from tritonsmith.author.compiler.lowering.patches import put
from tritonsmith.author.compiler.lowering.pointwise import constant
from tritonsmith.author.compiler.reading.changes import Aliases, is_overwritten
from tritonsmith.author.compiler.reading.channels import keep_channels_last
from tritonsmith.author.compiler.reading.choices import Choice
from tritonsmith.author.compiler.reading.complexes import (
    COMPLEX,
    ComplexPair,
    concerns_complex,
    hold_complex,
    lower_complex,
    put_complex,
)
from tritonsmith.author.compiler.reading.constants import is_of_constants
from tritonsmith.author.compiler.reading.hoisting import hoist_products
from tritonsmith.author.compiler.reading.kinds import find_lowering
from tritonsmith.author.compiler.reading.library import TUPLES, call_library, put_by_call
from tritonsmith.author.compiler.reading.masked import Masked, list_masked, read_masked
from tritonsmith.author.compiler.reading.passes import EqualPasses
from tritonsmith.author.compiler.reading.widths import PlaceWidths
from tritonsmith.author.members import attribute
from tritonsmith.author.plan import NoPlan
from tritonsmith.author.writes import is_write, list_given_writes, refer
from tritonsmith.evaluator.schema import OpNode, TaskFacts, TensorSpec
from tritonsmith.prompts.node_names import name_node

_ARITHMETIC: dict[str, Callable[..., Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "floordiv": operator.floordiv, "truediv": operator.truediv,
    "mod": operator.mod, "pow": operator.pow, "neg": operator.neg, "getitem": operator.getitem, "eq": operator.eq, "ne": operator.ne,
    "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge, "len": len, "int": int, "float": float, "sqrt": math.sqrt,
    "min": min, "max": max, "ceil": math.ceil, "floor": math.floor, "prod": math.prod, "abs": abs, "log": math.log, "log2": math.log2,
    "round": round,
}  # fmt: skip
"""Calls on numbers, which follow from the sizes that the task has."""
_MISREAD = (TypeError, ValueError, KeyError, IndexError, AttributeError, StopIteration, ZeroDivisionError)
"""What a file raises that did not foresee some argument. PyTorch then does the call, as for any other that is not covered."""
_AS_NUMPY = {"axis": "dim", "keepdims": "keepdim"}
"""Names that torch takes for arguments besides its own; its calls that quantize have an axis of their own."""
_STACK_ARGUMENTS = ("input_size", "hidden_size", "num_layers", "nonlinearity", "bias", "batch_first", "dropout", "bidirectional")
"""Arguments of nn.LSTM and its kin that the class of a stack takes."""
_DEVICE = "<device>"
"""What stands for a tensor's device among arguments; all tensors of a kernel lie on the same one."""


@dataclass(frozen=True)
class NamedValues:
    """Values under names, such as a named tuple or a dataclass."""

    name: str
    fields: dict[str, Any]


@dataclass
class Forward:
    """The values of a forward."""

    inputs: list[Held]
    results: Any
    """What it returns: a value, or tuples, lists and dicts of them."""
    members: dict[str, TorchCall] = field(default_factory=dict)
    """By path: what makes a module that PyTorch calls need."""
    updates: dict[str, Tensor] = field(default_factory=dict)
    """By buffer that forward writes: its value behind it."""
    constants: dict[str, Held] = field(default_factory=dict)
    """Tensors of numbers that forward writes out, by the call that makes them."""
    written: dict[str, Any] = field(default_factory=dict)
    """By argument that forward writes to: its value behind it."""
    widths: PlaceWidths = field(default_factory=lambda: PlaceWidths(()))
    """Which of its whole numbers kernels have in 64 bits."""
    made: dict[str, Any] = field(default_factory=dict)
    """By node of the trace: what it gives, a value, several, or numbers."""

    @property
    def stored(self) -> list[Tensor]:
        """Everything that forward leaves: what it returns, and what it writes to buffers and arguments."""
        return [*list_values(self.results), *self.updates.values(), *list_values([*self.written.values()])]


def read_forward(
    facts: TaskFacts, training: bool, card: CardModel, called: Collection[str] | None = (), parts: bool = True
) -> Forward:
    """The values of a traced forward. Raises NoPlan with what cannot be written.

    Args:
        facts: the trace.
        training: whether the module is in training mode.
        card: that it is planned for.
        called: nodes that shall be PyTorch calls, with choices where these are known; None for all products.
        parts: whether products of fp32 values are those of their fp16 parts.
    """
    forward = ForwardReader(hoist_products(facts), training, card, called, parts).read()
    if list_masked(forward.results):
        raise NoPlan(("results whose number follows from a mask", None))
    forward.widths = PlaceWidths(forward.stored)
    return forward


class ForwardReader:
    """Makes values of nodes, in forward's order."""

    def __init__(
        self, facts: TaskFacts, training: bool, card: CardModel, called: Collection[str] | None = (), parts: bool = True
    ) -> None:
        self.facts, self.training, self.card, self.parts = facts, training, card, parts
        choices = called if isinstance(called, Mapping) else {}
        self.last = {node for node, choice in choices.items() if choice is Choice.OWN_LAST}
        own = (Choice.OWN_LAST, Choice.APART)
        self.called = {node: choice for node, choice in choices.items() if choice not in own} if choices else called
        self.made: dict[str, Any] = {}
        """By node: a value, several, or numbers."""
        self.members: dict[str, Held] = {}
        self.aliases = Aliases(self.made, self._make)
        self.paths: dict[str, str] = {}
        """By node that gives a parameter or buffer: its path."""
        self.passes = EqualPasses(training)
        self.given: dict[str, str] = {}
        """By node that gives an argument: its name in forward."""
        self.forward = Forward([], None, made=self.made)
        self.stacks: dict[str, str] = {}
        """By class of another family's kernels: its text, under the family's own names."""

    def read(self) -> Forward:
        """Read every node."""
        for node in self.facts.ops:
            self._visit(node)
        if self.forward.results is None:
            raise NoPlan(("a forward that returns nothing", None))
        if not all(one.size for one in list_values(self.forward.results)):
            raise NoPlan(("a result without elements", None))
        for name in list_given_writes(self.facts.ops):
            if not isinstance(self.made[name], Held):  # else what was written to was a copy
                self.forward.written[self.given[name]] = self.made[name]
        if missing := [name for name in self.facts.updates if name not in self.forward.updates]:
            raise NoPlan((f"a forward that updates {missing[0]}", None))
        return self.forward

    def _visit(self, node: OpNode) -> None:
        if node.op == "placeholder":
            self._take_input(node)
        elif node.op == "get_attr" and "value" in node.attributes:
            value, spec = node.attributes["value"], node.outputs[0]
            several = isinstance(value, list)
            self.made[node.name] = (
                hold_constant(self.forward.constants, value, spec, self.facts) if several else constant(value, spec.dtype, spec.shape)
            )
        elif node.op == "get_attr":
            if node.target in self.facts.parameters or node.target in self.facts.tables:
                self.made[node.name] = self._take_member(node.target)
                self.paths[node.name] = node.target
            elif is_overwritten(node, self.facts.ops):
                self.made[node.name] = constant(0, node.outputs[0].dtype, node.outputs[0].shape)  # a value that nobody sees
            else:
                unknown = node.target.startswith("_tensor_constant")
                what = "a tensor that forward neither gets nor makes, and that" if unknown else f"self.{node.target}, which"
                raise NoPlan((f"{what} is neither a parameter nor a persistent buffer", node))
        elif node.op == "output":
            for name in node.references:
                self.aliases.copy_given(name, self.given)
            self.forward.results = self._resolve(node.args[0])
        elif is_write(node) and (held := refer(node)) is not None and self._shows_tensor(held):
            self._change(node, held)
        elif node.outputs:
            self.made[node.name] = self.passes.make_once(node, self._make)
            self.aliases.note(node)
        else:
            self.made[node.name] = _compute(node, [self._resolve(one) for one in node.args])

    def _take_member(self, name: str) -> Held | ComplexPair:
        """A parameter, a buffer or a table."""
        spec = self.facts.parameters.get(name) or self.facts.tables[name]
        if spec.dtype == COMPLEX:
            return hold_complex(spec, attribute(name), name.rpartition(".")[2])
        return self._member(name)

    def _shows_tensor(self, name: str) -> bool:
        return isinstance(self.made.get(name), Tensor | ComplexPair)

    def _change(self, node: OpNode, held: str) -> None:
        """A node that writes to a tensor: from here on that has another value, wherever it is shown."""
        self.passes.forget()
        value = self._set_item(node, held) if node.target.endswith("setitem") else self._make(node)
        try:
            root = self.aliases.write(node, held, value)
        except NotCovered as error:
            raise NoPlan((f"{name_node(node)} {error}", node)) from None
        self.aliases.bind(node.name, held)
        if root in self.paths:
            self.forward.updates[self.paths[root]] = self.made[root]

    def _set_complex(self, node: OpNode, held: ComplexPair, keys: list[Any], value: Any) -> ComplexPair:
        try:
            return put_complex(held, keys, value)
        except NotCovered:
            raise NoPlan((f"{name_node(node)} of complex numbers", node)) from None

    def _set_item(self, node: OpNode, held: str) -> Tensor | ComplexPair:
        """`tensor[keys] = value`."""
        given, value = self._resolve(node.args[1]), self._resolve(node.args[2])
        keys = given if isinstance(given, list) else [given]
        if isinstance(self.made[held], ComplexPair):
            return self._set_complex(node, self.made[held], keys, value)
        if isinstance(value, Masked):
            return value.put_into(self.made[held], keys, node)
        try:
            return put(self.made[held], keys, value)
        except NotCovered:
            return put_by_call(self.made[held], [self._hold_places(one) for one in keys], value, node)

    def _hold_places(self, key: Any) -> Any:
        """A key of an index; places that forward writes out as a tensor that the module keeps."""
        if not isinstance(key, list) or not all(type(one) is int for one in key):
            return key
        return hold_constant(self.forward.constants, key, TensorSpec(shape=(len(key),), dtype="int64"), self.facts)

    def _take_input(self, node: OpNode) -> None:
        position = len(self.forward.inputs)
        if position >= len(self.facts.inputs):
            raise NoPlan((f"the argument {node.target} of forward, which the task gives no input for", node))
        spec = self.facts.inputs[position] or TensorSpec(shape=(), dtype="float32")
        number = self.facts.inputs[position] is None
        if number and node.outputs:
            raise NoPlan((f"the argument {node.target} of forward, which holds several tensors", node))
        if spec.dtype not in (*TRITON_TYPES, COMPLEX):
            raise NoPlan((f"the {spec.dtype} input {node.target}", node))
        held = Held(shape=spec.shape, dtype=spec.dtype, name=node.target, source=node.target, given=True, number=number)
        self.given[node.name] = node.target
        self.made[node.name] = held if spec.dtype != COMPLEX else hold_complex(spec, f"{node.target}.contiguous()", node.target)
        self.forward.inputs.append(held)

    def _member(self, name: str) -> Held:
        if name not in self.members:
            self.members[name] = hold_member(name, self.facts)
        return self.members[name]

    def _resolve(self, argument: Any) -> Any:
        if isinstance(argument, dict):
            if "ref" in argument:
                return self.made[argument["ref"]]
            if "float" in argument:
                return float(argument["float"])
            if "complex" in argument:
                return complex(*argument["complex"])
            if "record" in argument:
                return NamedValues(argument["record"], {key: self._resolve(one) for key, one in argument["fields"].items()})
            if "mapping" in argument:
                keys, values = argument["mapping"]
                return {_make_key(key): self._resolve(one) for key, one in zip(keys, values, strict=True)}
            return {key: self._resolve(one) for key, one in argument.items()}
        if isinstance(argument, list | tuple):
            return [self._resolve(one) for one in argument]
        return argument

    def _make(self, node: OpNode) -> Any:
        """What a node gives."""
        args = tuple(self._resolve(one) for one in node.args)
        if node.target == "_operator.getitem" and isinstance(args[0], tuple):
            return args[0][args[1]]
        if node.target == "builtins.getattr" and isinstance(args[0], tuple) and args[1] in ("values", "indices"):
            return args[0][args[1] == "indices"]
        names = _AS_NUMPY if "quantize" not in node.target else {}
        kwargs = {names.get(key, key): self._resolve(one) for key, one in node.kwargs.items()}
        training = bool(node.attributes.get("training", self.training))  # of a module in a mode of its own
        call = NodeCall(
            node, self.facts, args, kwargs, training, self._member, self.card, self.called or (), self.parts, node.name in self.last,
            self.forward.updates, self.forward.constants,
        )  # fmt: skip
        if any(spec.dtype not in (*TRITON_TYPES, COMPLEX) for spec in node.outputs):
            raise NoPlan((f"{name_node(node)} that gives {node.outputs[0].dtype}", node))
        if not concerns_complex(call):
            masked = read_masked(call, self.made, _name)
            return masked if masked is not None else self._make_value(call)
        try:
            return lower_complex(call, self._make_value)
        except (NotCovered, *_MISREAD):
            return call_library(call, self.forward.members)

    def _make_value(self, call: NodeCall) -> Any:
        """What a call of real numbers gives."""
        node = call.node
        if len(node.outputs) == 1 and node.outputs[0].dtype in TRITON_TYPES and 0 in call.shape and node.module_type not in TUPLES:
            return constant(0, call.dtype, call.shape)  # of which nobody sees an element
        lower = None if self.called and node.name in self.called else find_lowering(node)
        made: Any = None
        if lower is not None:
            try:
                made = lower(call)
            except (NotCovered, *_MISREAD):
                made = None
        if self.called is None and _is_product(made, node.name):
            made = None
        if made is not None and (not _is_as_shown(made, node) or is_of_constants([*call.args, *call.kwargs.values()], list_values(made))):
            made = None  # this reader is wrong about the call, or no kernel has a row of it
        if made is None:
            made = call_library(call, self.forward.members)
            if isinstance(self.called, Mapping) and self.called.get(node.name) is Choice.CHANNELS_LAST:
                made = keep_channels_last(made)
        elif (stack := _find_stack(made)) is not None:
            self._hold_stack(stack, call)
        first = made[0] if isinstance(made, tuple) else made
        _name(first, call.name)
        self._check(node, first)
        for source, turned in call.images.values():
            self.made.update({name: turned for name, value in self.made.items() if value is source})
        return made

    def _hold_stack(self, call: StackCall, node: NodeCall) -> None:
        """Have the module hold the class of a stack, under a name that only equal texts share."""
        own, number = call.stack, 1
        prefix = node.node.module_type.lower()
        named = own.rename(prefix)
        while self.stacks.setdefault(named.title, own.text) != own.text:
            number += 1
            named = own.rename(f"{prefix}{number}")
        call.stack = named
        given = {key: value for key, value in (node.node.constructor or {}).items() if key in _STACK_ARGUMENTS}
        if call.dtype != "float32":
            given["dtype"] = Global(f"torch.{call.dtype}")
        self.forward.members[node.node.target] = call_function(named.title, **given)

    def _check(self, node: OpNode, first: Any) -> None:
        """The value has the shape that the trace shows, or this reader is wrong about the call."""
        if isinstance(first, Tensor) and first.shape != node.outputs[0].shape:
            raise NoPlan((f"{name_node(node)} of these arguments", node))


def _find_stack(made: Any) -> StackCall | None:
    """The call of a stack whose results these are."""
    first = made[0] if isinstance(made, tuple) and made else None
    return first.call if isinstance(first, Item) and isinstance(first.call, StackCall) else None


def _compute(node: OpNode, args: list[Any]) -> Any:
    """A node that makes no tensor: a size, an attribute, arithmetic on numbers."""
    name = node.target.rpartition(".")[2]
    if args and isinstance(args[0], Tensor | ComplexPair):
        value = args[0]
        if name == "size":
            given = args[1] if len(args) > 1 else node.kwargs.get("dim")
            return value.shape if given is None else value.shape[given]
        if name in ("dim", "ndimension", "numel", "nelement", "__len__", "len"):
            return len(value.shape) if "dim" in name else value.shape[0] if "len" in name else value.size
        if name == "getattr":
            known = {"shape": value.shape, "ndim": len(value.shape), "dtype": f"torch.{value.dtype}"}
            return known.get(args[1], _DEVICE if args[1] == "device" else f"<{args[1]}>")
    if name == "getitem" and isinstance(args[0], tuple) and isinstance(args[1], int) and args[1] >= len(args[0]):
        return None  # what a module does not return, such as weights of attention
    if name in ("numel", "__len__") and args and isinstance(args[0], tuple):
        return math.prod(args[0]) if name == "numel" else len(args[0])
    if name in _ARITHMETIC and all(not isinstance(one, Tensor) for one in args):
        try:
            return _ARITHMETIC[name](*map(_as_python, args))
        except (TypeError, ValueError, ArithmeticError, IndexError, KeyError):
            raise NoPlan((name_node(node), node)) from None
    if name in ("_assert", "_assert_scalar"):
        return None
    raise NoPlan((name_node(node), node))


def _make_key(key: Any) -> Any:
    """The key of a dict: tuples are written as lists."""
    return tuple(map(_make_key, key)) if isinstance(key, list) else key


def _as_python(argument: Any) -> Any:
    """An argument of a call on numbers: sizes are tuples, so that they can be added, and slices are slices."""
    if isinstance(argument, dict) and "slice" in argument:
        return slice(*argument["slice"])
    return tuple(argument) if isinstance(argument, list) else argument


def _name(value: Any, name: str) -> None:
    """Name what a view shows, where it has no name."""
    while isinstance(value, TensorView) and value.source.name == "":
        value = value.source
    if isinstance(value, Tensor) and not value.name:
        value.name = name
    if isinstance(value, AnchorResult) and not value.anchor.name:
        value.anchor.name = name


def _is_as_shown(made: Any, node: OpNode) -> bool:
    """Whether values have the shapes and types that the trace shows."""
    values = list_values(made)
    pairs = zip(values, node.outputs, strict=False)
    return len(values) == len(node.outputs) and all((one.shape, one.dtype) == (spec.shape, spec.dtype) for one, spec in pairs)


def _is_product(value: Any, node: str) -> bool:
    """Whether a value is the product of a node, with its bias."""
    while isinstance(value, TensorView | Formula) and value.operands:
        value = value.operands[0]
    return isinstance(value, AnchorResult) and isinstance(value.anchor, MatrixProduct) and value.anchor.node == node


def list_values(results: Any) -> list[Tensor]:
    """The tensors in what forward returns, in order."""
    if isinstance(results, Tensor):
        return [results]
    if isinstance(results, ComplexPair):
        return [results.stored]
    results = results.fields if isinstance(results, NamedValues) else results
    if isinstance(results, dict):
        return [one for part in results.values() for one in list_values(part)]
    return [one for part in results for one in list_values(part)] if isinstance(results, list | tuple) else []
