"""Reads any traced forward into regions, and what a module of them needs to know."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

from pydantic import Field

from tritonsmith.evaluator.operator_cost import TraceWay
from tritonsmith.evaluator.schema import OpNode, PrecisionClass, Task, TaskFacts
from tritonsmith.evaluator.tasks import declared_shapes
from tritonsmith.prompts.recipes.builder import table_lines, write_builder
from tritonsmith.prompts.recipes.constructor import made_for
from tritonsmith.prompts.recipes.members import assign, complete_members, parent_lines
from tritonsmith.prompts.recipes.plan import KernelPlan, NoPlan, name_starred
from tritonsmith.prompts.recipes.recipe import Settings
from tritonsmith.prompts.recipes.regions.batch import FreeAxis, describe_free, find_batch, fix_sizes, list_all, pair_regions, write_free
from tritonsmith.prompts.recipes.regions.cutting.cut import cut_forward
from tritonsmith.prompts.recipes.regions.cutting.layers import prefers_library
from tritonsmith.prompts.recipes.regions.cutting.rates import prefers_call
from tritonsmith.prompts.recipes.regions.cutting.regions import (
    AttentionRegion,
    CallRegion,
    ProductRegion,
    RecurrentRegion,
    WorkRegion,
)
from tritonsmith.prompts.recipes.regions.reading.reader import Forward, read_forward
from tritonsmith.prompts.recipes.regions.shares import leaves_all_to_library, list_layers, list_products
from tritonsmith.prompts.recipes.regions.values.attention import Attention
from tritonsmith.prompts.recipes.regions.values.tensors import AnchorResult, MatrixProduct, Reduction
from tritonsmith.prompts.recipes.regions.writing.module import ModuleText, describe_tensor, write_regions

PLAIN: Settings = {
    "block": 1024, "num_warps": 4, "tile": 4096, "whole_row": 16384, "per_thread": 16, "parts": 4,
    "query_rows": 128, "key_rows": 64, "attention_warps": 8, "attention_stages": 2, "attention_products": "fp16x3",
    "block_m": 128, "block_n": 128, "block_k": 64, "group": 8, "product_warps": 8, "num_stages": 3, "scheme": "fp16x3", "replayed": False,
}  # fmt: skip
"""Settings for any card: blocks of a few kilobytes, rows up to 64 kB on the chip, four programs for each processor on shared rows.
Blocks of attention are for heads of up to 128 features on sm_90, and so are the tiles of products."""


_SINGLE = ("None", "True", "False")
"""Values that there is one object of: another one may equal `True`, and a tensor cannot be compared with `None`."""


class RegionPlan(KernelPlan):
    """A traced forward. Its regions are found when they are first asked for."""

    facts: TaskFacts
    training: bool = False
    precision: PrecisionClass = PrecisionClass.IEEE
    several: bool = False
    """Whether the task declares further sizes."""
    given: tuple[str, ...] = ()
    """The tensors among forward's arguments."""
    wrong_shapes: str = ""
    """Whether forward got other shapes than the task's."""
    wrong_types: str = ""
    """Whether it got other types, or tensors of another device."""
    made_for: str = ""
    """What they are made for, in words."""
    wrong_values: str = ""
    """Whether forward got other values that are no tensors than those that its operators were recorded with."""
    values: tuple[str, ...] = ()
    """The names of those."""
    made_with_values: str = ""
    """What they were, in words."""
    unpacked: str = ""
    """The line that gives several arguments `*rest` their names."""
    builder: str = ""
    """A function that makes the reference, where forward reads tensors that no state holds."""
    call_flops: dict[str, float] = Field(default_factory=dict)
    """What PyTorch calls compute, by node."""

    @cached_property
    def _cut(self) -> tuple[Forward, tuple[WorkRegion, ...], frozenset[str]]:
        return cut_task(self.facts, self.training, self.precision)

    @property
    def forward(self) -> Forward:
        """The values of the forward."""
        return self._cut[0]

    @property
    def regions(self) -> tuple[WorkRegion, ...]:
        """The regions in the order in which forward runs them."""
        return self._cut[1]

    @property
    def attentions(self) -> tuple[Attention, ...]:
        """The attentions that it has kernels for."""
        return tuple(region.attention for region in self.regions if isinstance(region, AttentionRegion))

    @property
    def kernels(self) -> int:
        """Regions with a kernel of their own."""
        return sum(not isinstance(region, CallRegion) for region in self.regions)

    @property
    def calls(self) -> tuple[str, ...]:
        """What stays a PyTorch call, each once, in forward's order."""
        return tuple(dict.fromkeys(region.call.says for region in self.regions if isinstance(region, CallRegion)))

    @property
    def headline(self) -> str:
        """What the module is, in a sentence or two."""
        number = len({names[-1] for names in self.kernel_names if names})
        kernels = f"The reference's forward in {number} {'kernel' if number == 1 else 'kernels'}."
        return f"{kernels} PyTorch does {', '.join(self.calls)}." if self.calls else kernels

    @cached_property
    def batch(self) -> FreeAxis | None:
        """The leading axis that its inputs share, if its kernels may take any size of that."""
        return find_batch(self.facts, self.training, self.regions, self._cut[2], self.several)

    @cached_property
    def kernel_names(self) -> list[tuple[str, ...]]:
        """For each region: the names of its kernels."""
        return self.write(PLAIN).names

    def write(self, settings: Settings) -> ModuleText:
        """The text of its regions: for any size of the leading axis where no kernel depends on it."""
        taken = {argument.partition("=")[0] for argument in self.arguments.split(", ")} | {*self.given}
        if self.batch is not None and pair_regions(self.regions, self.batch):
            own = write_regions(self.regions, self.forward, settings, taken)
            free = write_free(own, self.batch, settings, taken)
            if free is not None:
                shapes, words = describe_free(self.facts, self.batch)
                return self._guard(free, shapes, f"{words} on a CUDA device")
            fix_sizes(self.regions)
        text = write_regions(self.regions, self.forward, settings, taken)
        return self._guard(text, self.wrong_shapes, self.made_for)

    def _guard(self, text: ModuleText, wrong_shapes: str, words: str) -> ModuleText:
        """The text with what forward refuses."""
        wrong = " or ".join(part for part in (wrong_shapes, self.wrong_types, self.wrong_values) if part)
        return replace(text, wrong=wrong, made_for=f"{words}{self.made_with_values}")


def cut_task(
    facts: TaskFacts, training: bool, precision: PrecisionClass
) -> tuple[Forward, tuple[WorkRegion, ...], frozenset[str]]:
    """The values of a forward, its regions, and the nodes whose products are calls. Raises NoPlan.

    Scores of an attention are no product of their own. Products that PyTorch should do faster are calls.
    """
    parts = precision is not PrecisionClass.TF32
    first = read_forward(facts, training, None)
    called = {one.product.name for one in list_all(first.stored) if isinstance(one, Attention)}
    needed = frozenset(called)
    products: dict[str, MatrixProduct] = {}
    layers: dict[str, int] = {}
    while True:
        forward = read_forward(facts, training, called, parts)
        _forget_places(forward)
        regions = tuple(cut_forward(forward.stored))
        products = list_products(regions) | products
        layers = list_layers(regions) | layers
        slow = {one.product.node for one in regions if isinstance(one, ProductRegion) and prefers_call(one, precision)}
        slow |= {one.recurrence.node for one in regions if isinstance(one, RecurrentRegion) and prefers_library(one)}
        if not slow - called:
            break
        called |= slow
    if called - needed and leaves_all_to_library(regions, products, layers):  # a slow kernel is more than none
        forward = read_forward(facts, training, needed, parts)
        _forget_places(forward)
        return forward, tuple(cut_forward(forward.stored)), needed
    return forward, regions, frozenset(called)


def _forget_places(forward: Forward) -> None:
    """Extremes whose places nobody asks for are found without them: torch.max along an axis always gives both."""
    values = list_all(forward.stored)
    asked = {id(one.anchor) for one in values if isinstance(one, AnchorResult) and one.which == 1}
    for one in values:
        if isinstance(one, Reduction) and one.kind in ("argmax", "argmin") and id(one) not in asked:
            one.kind = one.kind.removeprefix("arg")


def _guard_values(facts: TaskFacts, forward: Forward) -> tuple[str, dict[str, str]]:
    """Whether forward got other values than those that its operators were recorded with, and these by name. Raises NoPlan.

    torch.fx follows such an argument like a tensor. A recorded run has its value in it, or has gone by it: a count, a flag.
    """
    if facts.traced_by is not TraceWay.RUN:
        return "", {}
    numbers = {one.source: literal for one, literal in zip(forward.inputs, facts.values, strict=False) if one.number}
    for one in forward.inputs:
        if one.number and not numbers.get(one.source):
            raise NoPlan((f"the argument {one.source} of forward, which is neither a tensor nor a literal", None))
    return " or ".join(f"{name} {'is not' if text in _SINGLE else '!='} {text}" for name, text in numbers.items()), numbers


def read_regions(task: Task, facts: TaskFacts) -> RegionPlan:
    """The plan of any forward of which at least one region has a kernel. Raises NoPlan."""
    training = task.mode == "train"
    facts, arguments, unpacked = name_starred(facts)
    forward = read_forward(facts, training)
    own = [line.partition("|") for line in forward.members]
    made = [part for path, _, text in own for part in (*parent_lines(path), assign(path, text))]
    names = [name for name in facts.parameters if not any(name.startswith(f"{path}.") for path, _, _ in own)]
    signature, fixed = made_for(task.source, facts.init_inputs)
    lines, builder = _write_tables(task, facts, forward, signature)
    tensors = [one for one in forward.inputs if not one.number]
    shapes_differ = " or ".join(f"{one.source}.shape != {one.shape}" for one in tensors)
    tests = [f"{one.source}.dtype is not torch.{one.dtype}" for one in tensors]
    if tensors:
        cards = " and ".join(f"{one.source}.is_cuda" for one in tensors)
        tests.append(f"COMPILED and not {f'({cards})' if len(tensors) > 1 else cards}")
    shapes = {one.source: spec for one, spec in zip(forward.inputs, facts.inputs, strict=False) if spec is not None}
    wrong_values, numbers = _guard_values(facts, forward)
    needed = TaskFacts(
        inputs=facts.inputs, parameters=facts.parameters, ops=tuple(strip_node(node) for node in facts.ops), updates=facts.updates,
        traced_by=facts.traced_by, size_lines=facts.size_lines, tables=facts.tables,
    )  # fmt: skip
    plan = RegionPlan(
        signature=signature, fixed=fixed, members=(*complete_members(made, names, facts), *lines), arguments=arguments, unpacked=unpacked,
        facts=needed, training=training, precision=task.precision,
        several=bool(declared_shapes(task)), builder=builder, given=tuple(one.source for one in tensors),
        wrong_shapes=shapes_differ, wrong_types=" or ".join(tests),
        made_for=", ".join(describe_tensor(name, spec) for name, spec in shapes.items()) + (" on a CUDA device" if tensors else "a call"),
        wrong_values=wrong_values, values=tuple(numbers),
        made_with_values=" with " + ", ".join(f"{name} = {literal}" for name, literal in numbers.items()) if numbers else "",
    )  # fmt: skip
    nodes = {node.name: node for node in facts.ops}
    calls = [region.call for region in plan.regions if isinstance(region, CallRegion)]
    if not plan.kernels:
        raise NoPlan(*((call.says, nodes.get(call.name)) for call in calls))
    return plan.model_copy(update={"call_flops": {call.name: nodes[call.name].flops for call in calls if call.name in nodes}})


def _write_tables(task: Task, facts: TaskFacts, forward: Forward, signature: str) -> tuple[list[str], str]:
    """Lines that keep tensors that no state holds, and the function that makes the reference for them. Raises NoPlan."""
    lines = [f'self.register_buffer("{one.name}", {text}, persistent=False)' for text, one in forward.constants.items()]
    used = [node for node in facts.ops if node.op == "get_attr" and node.target in facts.tables]
    if not used:
        return lines, ""
    builder = write_builder(task.source, task.overrides, signature)
    if not builder:
        raise NoPlan((f"self.{used[0].target}, which no state_dict holds, in a file that imports *", used[0]))
    return [*lines, *table_lines(dict.fromkeys(node.target for node in used), signature)], builder


def strip_node(node: OpNode) -> OpNode:
    """A node without what only messages and analyses need."""
    return node.model_copy(update={"line": 0, "module": "", "flops": 0.0, "bytes": 0.0, "launches": 0})
