"""Reads the traced forward of a task: is it one matrix product with an elementwise chain behind it?"""

from __future__ import annotations

import math
from dataclasses import replace

from tritonsmith.author.cards.model import CardModel
from tritonsmith.author.compiler.kernels.schemes import SumText
from tritonsmith.author.compiler.operations import OPERATIONS
from tritonsmith.author.families.chain.factors import Factor, flatten, read_equation
from tritonsmith.author.families.chain.plan import ChainPlan, ChainReader
from tritonsmith.author.families.chain.sizes import Source
from tritonsmith.author.members import attribute, list_parents, make_parameter
from tritonsmith.author.plan import NoPlan
from tritonsmith.author.types import IN_PARTS
from tritonsmith.evaluator.schema import OpNode, Record, Task, TaskFacts
from tritonsmith.prompts.node_names import name_node, operation_name

_PRODUCTS = ("linear", "matmul", "mm", "bmm", "addmm", "baddbmm", "einsum")
_VIEWS = ("t", "transpose", "swapaxes", "permute", "T", "mT")
_METHODS = {"__matmul__": "matmul", "swapdims": "swapaxes"}


class FactorPlan(Record):
    """One operand of the product, as forward writes it."""

    source: str
    """A tensor [batch, rows, K] of the left operand, [batch, K, columns] of the right one."""
    kept: bool
    """Whether it is a parameter, whose parts are kept between calls."""
    along: bool
    """Whether its values lie next to each other along K."""
    lines: tuple[str, ...] = ()
    """Operations on its values `v` ahead of the product."""


class ProductPlan(ChainPlan, SumText):
    """A product `total` [batch, rows, columns] with a chain behind it."""

    a: FactorPlan
    w: FactorPlan
    batch: int
    rows: int
    """As the task has them; with `sizes.free` forward takes any number."""
    columns: int
    inner: int
    half: bool
    """Whether it multiplies 16-bit matrices."""
    product_flops: float

    @property
    def activations(self) -> int:
        """Elements of the operands that are new in every call."""
        a, w = self.rows * self.inner, self.inner * self.columns
        return self.batch * ((0 if self.a.kept else a) + (0 if self.w.kept else w))


def read_product(task: Task, facts: TaskFacts, card: CardModel) -> ProductPlan:
    """The plan of a product with elementwise operations behind it. Raises NoPlan."""
    return _ProductReader(task, facts, card).plan()


class _ProductReader(ChainReader):
    """Writes the two operands as 3-d tensors, and what stands behind the product as the chain does."""

    def __init__(self, task: Task, facts: TaskFacts, card: CardModel) -> None:
        super().__init__(task, facts, card)
        self.factors: dict[str, Factor] = {}
        """By node: views of tensors."""
        self.pair: tuple[Factor, Factor] | None = None

    def plan(self) -> ProductPlan:
        """The plan. Raises NoPlan."""
        fields = self.fields()
        if self.pair is None:
            raise NoPlan
        a, w = self.pair
        batch, rows, inner, columns = *a.shape, w.shape[-1]
        if batch * rows * columns != math.prod(self.shape):
            raise NoPlan(("a product whose result is broadcast", None))
        if columns == 1:  # sums along rows, which read both operands once and need no tiles: regions do them
            raise NoPlan(("a product with one column", None))
        return ProductPlan(
            a=FactorPlan(source=a.source, kept=a.kept, along=a.strides[2] <= a.strides[1], lines=a.lines),
            w=FactorPlan(source=w.source, kept=w.kept, along=w.strides[1] < w.strides[2], lines=w.lines),
            batch=batch, rows=rows, columns=columns, inner=inner, half=a.dtype not in IN_PARTS,
            product_flops=2.0 * batch * rows * columns * inner, **fields,
        )  # fmt: skip

    def is_head(self, node: OpNode) -> bool:
        """Whether a node is a product."""
        return node.module_type == "Linear" if node.op == "call_module" else _call_name(node) in _PRODUCTS

    def is_view(self, node: OpNode) -> bool:
        """Whether a node permutes the axes of a tensor, or is the number that addmm has in front."""
        return _call_name(node) in _VIEWS

    def goes_ahead(self, node: OpNode) -> bool:
        """Whether a node is an elementwise operation on one tensor."""
        refs = [value for value in (*node.args, *node.kwargs.values()) if isinstance(value, dict) and "ref" in value]
        return operation_name(node) is not None and len(refs) == 1

    def apply(self, node: OpNode) -> None:
        """Ahead of the product, write an operation on the values of an operand; behind it, on the product."""
        name = operation_name(node)
        if self.pair is not None or name is None or not any(self.is_head(other) for other in self.facts.ops):
            super().apply(node)
            return
        ref = next(value for value in (*node.args, *node.kwargs.values()) if isinstance(value, dict) and "ref" in value)
        factor = self._factor(ref, node)
        self.factors[node.name] = replace(factor, lines=(*factor.lines, f"v = {self.write(node, name, {ref['ref']: 'v'})}"))
        self.flops += OPERATIONS[name].flops * math.prod(factor.shape)

    def is_fixed(self) -> bool:
        """Rows may have any number where they come from one input as it is, and the other operand is a parameter."""
        return not (self.head and self.head[0].inner)

    def name_view(self, node: OpNode) -> None:
        """Keep a view as an operand of the product. Raises ValueError for what cannot be written."""
        factor, arguments = self._factor(node.args[0], node), [*node.args[1:], *node.kwargs.values()]
        name, rank = _call_name(node), len(factor.shape)
        if name in ("t", "T", "mT"):
            order = [*range(rank - 2), rank - 1, rank - 2]
            if name != "mT" and rank != 2:
                raise ValueError(f"{name_node(node)} of {rank} axes")
        else:
            axes = arguments[0] if len(arguments) == 1 and isinstance(arguments[0], list | tuple) else arguments
            if not all(isinstance(axis, int) for axis in axes):
                raise ValueError(f"{name_node(node)} with other arguments than numbers")
            order = [axis % rank for axis in axes]
            if name != "permute":
                first, second = order
                order = list(range(rank))
                order[first], order[second] = second, first
        self.factors[node.name] = factor.permute(order)

    def start(self, node: OpNode) -> None:
        """Read the product. Raises ValueError for what cannot be written."""
        name = "Linear" if node.op == "call_module" else _call_name(node)
        if name == "Linear":
            a, w = self._read_module(node)
        else:
            a, w = self._read_call(node, name)
        if a.dtype != w.dtype:
            raise ValueError(f"{name_node(node)} of {w.dtype} on {a.dtype}")
        if a.shape[-1] != w.shape[-2] or a.shape[:-2] != w.shape[:-2] != ():
            raise ValueError(f"{name_node(node)} whose axes broadcast")
        shape = (*a.shape[:-1], w.shape[-1])
        free = name in ("Linear", "linear") or (len(w.shape) == 2 and not a.moved)
        if a.given and w.kept and free and not a.moved:
            self.head = (Source(a.name, shape, a.dtype, given=True, inner=a.shape[-1]),)
        else:
            self.head = tuple(Source(one.name, one.origin, one.dtype, given=one.given) for one in (a, w))
        self.pair = flatten(a, w)
        self._add_bias(node, name)

    def _read_module(self, node: OpNode) -> tuple[Factor, Factor]:
        if not node.args:
            raise ValueError("nn.Linear with its input by name")
        a = self._factor(node.args[0], node)
        names = [name for name in (f"{node.target}.weight", f"{node.target}.bias") if name in self.facts.parameters]
        self.members.extend(list_parents(names[0]))
        self.members.extend(make_parameter(name, self.facts) for name in names)
        spec = self.facts.parameters[names[0]]
        w = Factor.of(Source(attribute(names[0]), spec.shape, spec.dtype, given=False))
        if a.shape[-1] != spec.shape[1]:
            raise ValueError(f"nn.Linear of {spec.dtype} on {a.dtype}")
        for name in names[1:]:
            spec = self.facts.parameters[name]
            self.sources[name] = Source(attribute(name), spec.shape, spec.dtype, given=False)
        return a, w.permute([1, 0])

    def _read_call(self, node: OpNode, name: str) -> tuple[Factor, Factor]:
        arguments = [*node.args, *node.kwargs.values()]
        if name == "einsum":
            operands = arguments[1] if len(arguments) == 2 and isinstance(arguments[1], list | tuple) else arguments[1:]
            if len(operands) != 2:
                raise ValueError(f"{name_node(node)} of {len(operands)} tensors")
            return read_equation(str(arguments[0]), self._factor(operands[0], node), self._factor(operands[1], node))
        first = 1 if name in ("addmm", "baddbmm") else 0
        given = [value for key, value in node.kwargs.items() if key not in ("beta", "alpha", "bias", "out")]
        operands = [*node.args, *given][first : first + 2]
        if len(operands) != 2 or "out" in node.kwargs:
            raise ValueError(f"{name_node(node)} with these arguments")
        a, w = (self._factor(one, node) for one in operands)
        if name == "linear":
            w = w.permute([1, 0]) if len(w.shape) == 2 else w
        if len(a.shape) < 2 or len(w.shape) < 2:
            raise ValueError(f"{name_node(node)} with a vector")
        if len(w.shape) > 2 and a.shape[:-2] != w.shape[:-2]:
            raise ValueError(f"{name_node(node)} whose batches broadcast")
        return a, w

    def _add_bias(self, node: OpNode, name: str) -> None:
        """Lines for what is added to the product as part of its own node."""
        self.variables[node.name] = "total"
        if name == "Linear":
            bias, beta, alpha = f"{node.target}.bias", 1.0, 1.0
            bias = bias if bias in self.sources else ""
        elif name in ("addmm", "baddbmm", "linear"):
            operands = [*node.args, *(value for key, value in node.kwargs.items() if key not in ("beta", "alpha"))]
            position = 2 if name == "linear" else 0
            bias = operands[position]["ref"] if len(operands) > position and isinstance(operands[position], dict) else ""
            beta, alpha = (_number(node.kwargs.get(key, 1.0), node) for key in ("beta", "alpha"))
        else:
            return
        if bias not in self.sources:
            if bias:
                raise ValueError(f"{name_node(node)} that adds a view")
            return
        self.load(bias)
        total = "total" if alpha == 1.0 else f"{alpha!r} * total"
        added = self.variables[bias] if beta == 1.0 else f"{beta!r} * {self.variables[bias]}"
        self.variables[node.name] = f"t{len(self.lines)}"
        self.lines.append(f"{self.variables[node.name]} = {total} + {added}")

    def _factor(self, value: object, node: OpNode) -> Factor:
        name = value.get("ref") if isinstance(value, dict) else None
        if name in self.factors:
            return self.factors[name]
        if name not in self.sources:
            raise ValueError(f"{name_node(node)} of something else than tensors")
        return Factor.of(self.sources[name])


def _call_name(node: OpNode) -> str:
    """What a function, method, operator or attribute is called; empty for other nodes and for elementwise operations."""
    if node.op not in ("call_function", "call_method") or operation_name(node) is not None:
        return ""
    name = node.target.rpartition(".")[2]
    if name == "getattr" and len(node.args) == 2:
        return str(node.args[1])
    return _METHODS.get(name, name)


def _number(value: object, node: OpNode) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name_node(node)} with {value!r}")
    return float(value)
