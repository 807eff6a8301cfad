"""Which kernels of a forward work for any size of its leading axis, and the text of forward that takes that size from its inputs.

The forward is read a second time with a symbol in place of the axis, whose value is far longer there. A number that follows from the
axis is an expression of the symbol in that reading, and is printed as such. Planning may branch on sizes, which no expression shows.
So a text is for any size only where three things hold: no kernel names the symbol, both readings lead to the same kernels and
statements, and each expression in forward is a multiple of the symbol that gives the first reading's number at the task's own size.
Everything else is made for one size.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from tritonsmith.author.cards.model import CardModel
from tritonsmith.author.compiler.fusing.cut import cut_forward
from tritonsmith.author.compiler.fusing.operands import find_fresh
from tritonsmith.author.compiler.fusing.regions import (
    AttentionRegion,
    CallRegion,
    ProductRegion,
    RowRegion,
    ScatterRegion,
    WorkRegion,
)
from tritonsmith.author.compiler.ir.code import Binary, Call, Expression, Keyword, Module, Name, Number, Return, Subscript
from tritonsmith.author.compiler.ir.sizes import symbol
from tritonsmith.author.compiler.ir.template import statement
from tritonsmith.author.compiler.ir.torch_calls import Expand, Reshape
from tritonsmith.author.compiler.ir.values import Formula, Joined, LibraryCall, Tensor, TensorView
from tritonsmith.author.compiler.ir.walk import Path, find, find_differences, names_in, names_set, put
from tritonsmith.author.compiler.kernels.attention.operands import count_parts
from tritonsmith.author.compiler.module.lengths import lengthen
from tritonsmith.author.compiler.module.module import write_code
from tritonsmith.author.compiler.module.record import ForwardCode, ModuleCode
from tritonsmith.author.compiler.reading.choices import list_apart
from tritonsmith.author.compiler.reading.reader import Forward, list_values, read_forward
from tritonsmith.author.plan import NoPlan
from tritonsmith.author.recipe import Settings
from tritonsmith.evaluator.records.operator_cost import TraceWay
from tritonsmith.evaluator.schema import TaskFacts

_ELEMENTS = 2**31 - 2**17
"""Of the largest tensor: its indices, and those of a block that reaches over its end, are numbers of 32 bits."""
_LONGER = 16
"""Times as long the second reading has to be at least."""
_MOST_NODES = 600
"""Nodes of a forward that is read twice."""
_ROWS = ("conv", "max_pool", "avg_pool", "adaptive_")
"""Functions of a network that do the same with each place of the leading axis of their first operand, whatever their parameters are."""


@dataclass(frozen=True)
class FreeAxis:
    """The leading axis that inputs share."""

    size: int
    names: tuple[str, ...]
    """The inputs that have it."""
    word: str
    """What forward calls its size."""
    longer: int
    """The size of the second reading; the kernels are right up to it."""
    forward: Forward
    """As it is for that size."""
    card: CardModel
    apart: frozenset[str] = frozenset()
    """Nodes whose products share no kernel with another product."""

    @cached_property
    def regions(self) -> tuple[WorkRegion, ...]:
        """Its regions."""
        return tuple(cut_forward(self.forward, self.card, self.longer // self.size, self.apart))

    def takes(self, facts: TaskFacts, others: TaskFacts) -> bool:
        """Whether the inputs of another size differ in nothing but this axis, which is not too long there."""
        holders = [node.target for node in facts.ops if node.op == "placeholder"]
        sizes = set()
        for name, spec, other in zip(holders, facts.inputs, others.inputs, strict=False):
            if name in self.names and spec is not None and other is not None and spec.shape[1:] == other.shape[1:] and other.shape:
                sizes.add(other.shape[0])
            elif spec != other:
                return False
        return len(facts.inputs) == len(others.inputs) and len(sizes) == 1 and max(sizes) <= self.longer


def find_batch(
    facts: TaskFacts, training: bool, regions: Iterable[WorkRegion], called: Collection[str], several: bool, card: CardModel
) -> FreeAxis | None:
    """The leading axis that the inputs share, and the second reading; None where the forward asks for sizes, or for one only.

    A kernel of a product takes any size only where the task declares further sizes: the bounds of its tiles cost time.

    Args:
        facts: of the task.
        training: whether the forward is that of training mode.
        regions: of the forward.
        called: nodes whose products are PyTorch calls.
        several: whether the task declares further sizes.
        card: that it is planned for.
    """
    if not several and any(isinstance(one, ProductRegion) for one in regions):
        return None
    holders = [node.target for node in facts.ops if node.op == "placeholder"]
    given = [(name, spec) for name, spec in zip(holders, facts.inputs, strict=False) if spec is not None and spec.shape]
    recorded = facts.traced_by is not TraceWay.FX and bool(facts.size_lines)
    if not given or given[0][1].shape[0] < 2 or recorded or len(facts.ops) > _MOST_NODES or facts.updates:
        return None
    size = given[0][1].shape[0]
    largest = max((size for region in regions for size in _list_sizes(region)), default=1)
    longer = size * (_ELEMENTS // max(1, largest))
    if longer < _LONGER * size:
        return None
    names = tuple(name for name, spec in given if spec.shape[0] == size)
    word = "batch"
    while word in {*holders, *(node.name for node in facts.ops)}:
        word += "_"
    try:
        read_forward(lengthen(facts, names, size, 1), training, card, called)  # a slice of a fixed length is shorter there
        forward = read_forward(lengthen(facts, names, size, symbol(word, longer)), training, card, called)
    except (NoPlan, ZeroDivisionError):
        return None
    if not all(_is_consistent(one) for one in list_all(forward.stored)):
        return None
    return FreeAxis(size, names, word, longer, forward, card, list_apart(called))


def _list_sizes(region: WorkRegion) -> list[int]:
    """Elements of the tensors of a region, and of the parts of operands that are split in every call."""
    fresh = find_fresh(region).values() if isinstance(region, ProductRegion) else ()
    heads = [count_parts(region.attention)] if isinstance(region, AttentionRegion) else []
    stored = (one.holder for one in region.stores)
    return [*(one.size for one in (*stored, *region.reads.values())), *(one.places * one.padded for one in fresh), *heads]


def list_all(results: Any) -> list[Tensor]:
    """All values that results are made of."""
    seen: dict[int, Tensor] = {}
    todo = list_values(results)
    while todo:
        one = todo.pop()
        if id(one) not in seen:
            seen[id(one)] = one
            todo += one.operands
    return list(seen.values())


def _is_consistent(value: Tensor) -> bool:
    """Whether the shapes of operands go together: a tensor of one size next to one of any size does not show otherwise."""
    if isinstance(value, Joined):
        kept = [(*one.shape[: value.axis], *one.shape[value.axis + 1 :]) for one in (*value.parts, value)]
        return len(set(kept)) == 1
    if isinstance(value, TensorView) and isinstance(value.shown, Reshape):
        return value.size == value.source.size
    spread = isinstance(value, Formula) or isinstance(value, TensorView) and isinstance(value.shown, Expand)
    operands = value.operands if spread else ()
    ends = [zip(reversed(one.shape), reversed(value.shape), strict=False) for one in operands]
    return all(size in (1, wanted) for pairs in ends for size, wanted in pairs)


def pair_regions(plan: tuple[WorkRegion, ...], batch: FreeAxis) -> bool:
    """Prepare the regions of both readings for kernels of any size; False where the readings lead to other regions."""
    others = batch.regions
    if [type(one) for one in plan] != [type(one) for one in others] or not all(_is_parallel(one, batch) for one in others):
        return False
    for one, other in zip(plan, others, strict=True):
        one.free = other.free = True
        if isinstance(one, RowRegion) and isinstance(other, RowRegion):
            other.usual_rows = one.rows
        if isinstance(one, ProductRegion) and isinstance(other, ProductRegion):
            one.twins = other.twins = one, other
    return True


def fix_sizes(plan: tuple[WorkRegion, ...]) -> None:
    """Undo `pair_regions`: each kernel has one size."""
    for one in plan:
        one.free = False
        if isinstance(one, ProductRegion):
            one.twins = None


def write_free(own: ModuleCode, batch: FreeAxis, settings: Settings, taken: set[str]) -> ModuleCode | None:
    """A module with the size of the axis taken from its inputs; None where a kernel depends on it.

    own: the module at the size of the task, written for regions that are paired.
    """
    free = write_code(batch.regions, batch.forward, settings, taken)
    if free.kernels != own.kernels:
        return None
    merged = _generalize(own.forwards[0].body, free.forwards[0].body, batch)
    if merged is None:
        return None
    *statements, returned = merged.body
    assert isinstance(returned, Return) and returned.value is not None, "it is the last statement"
    size = statement("{word} = {name}.shape[0]", word=batch.word, name=batch.names[0])
    return replace(own, forwards=(ForwardCode((size, *statements), returned.value),))


def _generalize(own: Module, free: Module, batch: FreeAxis) -> Module | None:
    """The statements of forward for any size; None where those for the task's size are no case of them.

    Args:
        own: at the task's size, in plain numbers.
        free: of the second reading, where a number that follows from the axis is an expression of it.
    """
    differences = find_differences(own, free, leaves=False)
    if differences is None or batch.word in names_in(own) or batch.word in names_set(own):
        return None
    values: dict[Path, Expression] = {}
    for path, here, there in differences:
        if isinstance(here, Number) and here.value == batch.size * _count_times(there, batch.word):
            values[path] = there
        elif not (isinstance(there, Number) and _is_constant(own, path)):
            return None
    return put(own, values)


def _count_times(node: Expression, word: str) -> int:
    """What the axis is multiplied with in an expression; 0 where that is no multiple of it."""
    match node:
        case Name(name=name) if name == word:
            return 1
        case Binary(left=Name(name=name), operator="*", right=Number(value=int() as times)) if name == word:
            return times
    return 0


def _is_constant(module: Module, path: Path) -> bool:
    """Whether a number is one that a launch names, such as the size of a block: right for any size, and kept."""
    launch = find(module, path[:-2])
    return isinstance(find(module, path[:-1]), Keyword) and isinstance(launch, Call) and isinstance(launch.function, Subscript)


def _is_parallel(region: WorkRegion, batch: FreeAxis) -> bool:
    """Whether a region does the same with each place of the leading axis, whatever its size."""
    if not isinstance(region, CallRegion):
        return not isinstance(region, ScatterRegion)
    call = region.call
    if call.several or not call.shape or not call.inputs or not call.inputs[0].shape:
        return False
    first = call.inputs[0]
    if call.record.is_product:
        return _is_product(call)
    if call.record.function == "linear":
        return call.shape == (*first.shape[:-1], call.inputs[1].shape[0])
    return call.record.function.startswith(_ROWS) and len(first.shape) > 2 and call.shape[0] == first.shape[0]


def _is_product(call: LibraryCall) -> bool:
    """Whether the shapes are those of a product, with the axis in front."""
    left, right = call.inputs[0].shape, call.inputs[1].shape
    if len(right) == 2:
        return len(left) > 1 and call.shape == (*left[:-1], right[-1])
    return len(left) == len(right) > 2 and left[:-2] == right[:-2] and call.shape == (*left[:-1], right[-1])
