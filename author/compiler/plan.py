"""Reads any traced forward into regions, and what a module of them needs to know."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from pydantic import Field

from tritonsmith.author.builder import table_lines, write_builder
from tritonsmith.author.cards.model import CardModel
from tritonsmith.author.compiler.fusing.calls import (
    leaves_all_to_library,
    list_layers,
    list_products,
    predict_call,
    predict_kernel,
    prefers_apart,
    prefers_call,
    prefers_library,
)
from tritonsmith.author.compiler.fusing.cut import cut_forward
from tritonsmith.author.compiler.fusing.regions import (
    AttentionRegion,
    CallRegion,
    ProductRegion,
    RecurrentRegion,
    RowRegion,
    WorkRegion,
)
from tritonsmith.author.compiler.fusing.seconds import predict_all
from tritonsmith.author.compiler.fusing.windows import holds_windows
from tritonsmith.author.compiler.ir.attention import Attention
from tritonsmith.author.compiler.ir.indices import Shape
from tritonsmith.author.compiler.ir.values import AnchorResult, Held, MatrixProduct, Reduction
from tritonsmith.author.compiler.kernels.product_tiles import DESCRIPTORS, PLAIN_STAGES
from tritonsmith.author.compiler.module.batch import FreeAxis, find_batch, fix_sizes, list_all, pair_regions, write_free
from tritonsmith.author.compiler.module.guards import require_types, require_values
from tritonsmith.author.compiler.module.joining import OpenSpan, SizedModule, join_modules
from tritonsmith.author.compiler.module.members import LAST, TAPS_FIRST, SizeMembers, list_constructors, rename_constants, write_members
from tritonsmith.author.compiler.module.merging import merge_kernels
from tritonsmith.author.compiler.module.module import write_code
from tritonsmith.author.compiler.module.record import ModuleCode, ModuleText
from tritonsmith.author.compiler.module.rolling import roll_steps
from tritonsmith.author.compiler.module.variants import LongSpan, read_others, require_whole, resemble, varies_in_front
from tritonsmith.author.compiler.reading.choices import CALLS, SETTING, Choice, list_apart, read_cut
from tritonsmith.author.compiler.reading.hoisting import hoist_products
from tritonsmith.author.compiler.reading.layouts import list_layouts
from tritonsmith.author.compiler.reading.reader import Forward, read_forward
from tritonsmith.author.compiler.reading.widths import widen_alike
from tritonsmith.author.constructor import ANY, made_for
from tritonsmith.author.members import Line
from tritonsmith.author.plan import KernelPlan, NoPlan, NoSize, forward_arguments, name_starred
from tritonsmith.author.recipe import Settings
from tritonsmith.author.types import widen
from tritonsmith.author.writes import may_show
from tritonsmith.evaluator.records.operator_cost import TraceWay
from tritonsmith.evaluator.schema import OpNode, PrecisionClass, Task, TaskFacts
from tritonsmith.evaluator.tasks.files import declared_shapes, find_value

PLAIN: Settings = {
    "block": 1024, "num_warps": 4, "tile": 4096, "whole_row": 32768, "per_thread": 16, "parts": 4,
    "query_rows": 128, "key_rows": 64, "attention_warps": 8, "attention_stages": 2, "attention_products": "fp16x3",
    "block_m": 128, "block_n": 128, "block_k": 64, "group": 8, "product_warps": 8, "num_stages": PLAIN_STAGES,
    "scheme": "fp16x3", "replayed": False, "registers": 0, "form": DESCRIPTORS,
}  # fmt: skip
"""Settings for any card: blocks of a few kilobytes, rows up to 128 kB on the chip, four programs for each processor on shared rows.
Blocks of attention are for heads of up to 128 features on sm_90, and so are the tiles of products."""


_IMAGE_AXES = 4
_CERTAIN = 0.85
"""Share of the time with channels ahead of places below which channels come last: smaller differences may be errors of the model."""


class RegionPlan(KernelPlan):
    """A traced forward. Its regions are found when they are first asked for."""

    facts: TaskFacts
    training: bool = False
    precision: PrecisionClass = PrecisionClass.IEEE
    several: bool = False
    """Whether the task declares further sizes of the leading axis."""
    others: tuple[RegionPlan, ...] = ()
    """For sizes that the task declares, and that kernels for its own do not take."""
    spans: tuple[LongSpan, ...] = ()
    """Declared sizes too many for plans of their own."""
    sizes: dict[str, int] = Field(default_factory=dict)
    """What the task calls those sizes, with their values here."""
    constructors: tuple[dict[str, str], ...] = ()
    """The sets of arguments that the module may be made with; `fixed` is the first of them."""
    made: int = 0
    """Which of them it is for."""
    tables: tuple[Line, ...] = ()
    """Lines that keep tensors which no state holds."""
    renamed: dict[str, str] = Field(default_factory=dict)
    """Names of tensors of numbers, where the module for all sizes has others for them."""
    given: tuple[str, ...] = ()
    """The tensors among forward's arguments."""
    wrong_types: str = ""
    """Whether it got other types, or tensors of another device."""
    right: str = ""
    """Whether it got the types, device and values that are right for every size."""
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
    cut: str = ""
    """Choices by node that are not those of predicted costs (`choices.py`)."""

    @cached_property
    def _cut(self) -> tuple[Forward, tuple[WorkRegion, ...], Mapping[str, Choice]]:
        return cut_task(self.facts, self.training, self.precision, self.card, read_cut(self.cut))

    @cached_property
    def _other_cuts(self) -> dict[str, RegionPlan]:
        """The plans of other cuts, for they are asked for by several readers."""
        return {}

    def take_cut(self, cut: str) -> RegionPlan:
        """The plan with other choices. Raises NoPlan where these cannot be written, ValueError where they cannot be read."""
        if cut == self.cut:
            return self
        if cut not in self._other_cuts:
            plans = [one.model_copy(update={"cut": cut}) for one in self.all_sizes]
            for one in plans:
                for name in one.__dict__.keys() - type(one).model_fields.keys():  # what was found for the other cut
                    del one.__dict__[name]
            self._other_cuts[cut] = _join_sizes(plans, self.spans)
        return self._other_cuts[cut]

    @property
    def forward(self) -> Forward:
        """The values of the forward."""
        return self._cut[0]

    @property
    def regions(self) -> tuple[WorkRegion, ...]:
        """The regions in the order in which forward runs them."""
        return self._cut[1]

    @property
    def all_sizes(self) -> tuple[RegionPlan, ...]:
        """This plan, and those for other sizes."""
        return self, *self.others

    @property
    def takes_any(self) -> bool:
        """Whether its kernels take sizes that nobody counts: then graphs are recorded for the first few only."""
        return bool(self.spans) or any(one.batch is not None for one in self.all_sizes)

    @property
    def constants(self) -> dict[str, str]:
        """Tensors of numbers that forward writes out: by the call that makes one its name."""
        return {text: one.name for text, one in self.forward.constants.items()}

    @property
    def called(self) -> Mapping[str, Choice]:
        """The nodes that are PyTorch calls by choice or by what is predicted."""
        return self._cut[2]

    @property
    def turned(self) -> Mapping[str, str]:
        """Weights that only convolutions with channels last read: by their paths how they lie in memory."""
        wanted, others = dict[str, str](), set[str]()
        for region in self.regions:
            last = isinstance(region, CallRegion) and self.called.get(region.call.name) is Choice.CHANNELS_LAST
            last |= isinstance(region, ProductRegion) and region.product.stored
            windows = holds_windows(region) if isinstance(region, RowRegion) else None
            for value in region.reads.values():
                if not isinstance(value, Held) or not value.path:
                    continue
                if windows is not None and value is windows.weights:
                    wanted[value.path] = TAPS_FIRST
                elif last and len(value.shape) == _IMAGE_AXES:
                    wanted[value.path] = LAST
                else:
                    others.add(value.path)
        return {path: order for path, order in wanted.items() if path not in others}

    @property
    def passed(self) -> tuple[str, ...]:
        """The arguments of forward that the task gives."""
        return tuple(one.source for one in self.forward.inputs)

    @property
    def attentions(self) -> tuple[Attention, ...]:
        """The attentions that it has kernels for."""
        return tuple(region.attention for region in self.regions if isinstance(region, AttentionRegion))

    @property
    def kernels(self) -> int:
        """Regions with a kernel of their own."""
        return sum(not isinstance(region, CallRegion) or not region.library for region in self.regions)

    @property
    def calls(self) -> tuple[str, ...]:
        """What stays a PyTorch call, each once, in forward's order."""
        regions = [region for plan in self.all_sizes for region in plan.regions]
        return tuple(dict.fromkeys(region.call.says for region in regions if isinstance(region, CallRegion) and region.library))

    @property
    def headline(self) -> str:
        """What the module is, in a sentence or two."""
        number = len({names[-1] for names in self.kernel_names if names}) + len(self.plain_text.stacks)
        sizes = f", for {len(self.all_sizes)} sizes of its inputs" if self.others else ""
        kernels = f"The reference's forward in {number} {'kernel' if number == 1 else 'kernels'}{sizes}."
        return f"{kernels} PyTorch does {', '.join(self.calls)}." if self.calls else kernels

    @cached_property
    def batch(self) -> FreeAxis | None:
        """The leading axis that its inputs share, if its kernels may take any size of that."""
        found = find_batch(self.facts, self.training, self.regions, self._cut[2], self.several, self.card)
        if found is not None:  # at the longest axis more places may need 64 bits
            widen_alike((self.forward.widths, found.forward.widths))
        return found

    @cached_property
    def kernel_names(self) -> list[tuple[str, ...]]:
        """For each region: the names of its kernels."""
        return self.plain_text.names

    @cached_property
    def plain_text(self) -> ModuleText:
        """The text for plain settings."""
        return self.write(PLAIN)

    @cached_property
    def free(self) -> FreeAxis | None:
        """The same where the text for plain settings takes any size of it."""
        return self._write_alone(PLAIN)[1] if self.batch is not None else None

    def takes(self, facts: TaskFacts) -> bool:
        """Whether the kernels for this size are right at another one: at an equal one, or at one of another leading axis."""
        if not self._is_made_alike(facts) or not resemble(self.facts.ops, facts.ops):
            return False
        if self.facts.inputs == facts.inputs:
            return self.facts.ops == tuple(map(strip_node, facts.ops))
        return self.free is not None and self.free.takes(self.facts, facts)

    def resembles(self, facts: TaskFacts) -> bool:
        """Whether nothing that the module is given tells another size from its own."""
        return self._is_made_alike(facts) and self.facts.inputs == facts.inputs

    def _is_made_alike(self, facts: TaskFacts) -> bool:
        values = self.facts.values == facts.values or not self.values  # torch.fx follows an argument whatever its value is
        return self.facts.init_inputs == facts.init_inputs and values

    def write(self, settings: Settings) -> ModuleText:
        """The text of its regions: for every size that the task declares, and for any of the leading axis where no kernel depends on it."""
        return self.compose(settings).as_text()

    def compose(self, settings: Settings) -> ModuleCode:
        """The module of which `write` gives the text."""
        if (cut := str(settings.get(SETTING, self.cut))) != self.cut:
            return self.take_cut(cut).compose(settings)
        if not self.others:
            return self._guard(self.compose_sized(settings).guard())
        names = {name: tuple(plan.sizes.get(name, 0) for plan in self.all_sizes) for name in self.sizes}
        modules = [plan.compose_sized(settings) for plan in self.all_sizes]
        spans = [OpenSpan(self._name_shapes(one.low), self._name_shapes(one.high), one.within) for one in self.spans]
        return self._guard(join_modules(modules, names, {*self._taken, *self.passed}, len(self.constructors), spans))

    def _name_shapes(self, facts: TaskFacts) -> dict[str, Shape]:
        """The shapes of inputs at another size, by the names that they have here."""
        held = zip(self.forward.inputs, facts.inputs, strict=False)
        return {one.source: spec.shape for one, spec in held if spec is not None}

    def compose_sized(self, settings: Settings) -> SizedModule:
        """The module for this size alone, with what it is for."""
        module, free = self._write_alone(settings)
        held = {one.source: (one.shape, one.dtype) for one in self.forward.inputs if not one.number}
        return SizedModule(module, held, free.names if free else (), free.longer if free else 0, self.made, self.renamed)

    @cached_property
    def _written(self) -> dict[frozenset[tuple[str, object]], tuple[ModuleCode, FreeAxis | None]]:
        """Texts by their settings: a plan is asked for its text by several readers."""
        return {}

    @property
    def _taken(self) -> set[str]:
        return {argument.partition("=")[0] for argument in self.arguments.split(", ")} | {*self.given}

    def _write_alone(self, settings: Settings) -> tuple[ModuleCode, FreeAxis | None]:
        """The module for this size, and the leading axis where it takes any size of that."""
        key = frozenset(settings.items())
        if key not in self._written:
            self._written[key] = self._write_new(settings)
        return self._written[key]

    def _write_new(self, settings: Settings) -> tuple[ModuleCode, FreeAxis | None]:
        if self.batch is not None and pair_regions(self.regions, self.batch):
            own = write_code(self.regions, self.forward, settings, self._taken)
            free = write_free(own, self.batch, settings, self._taken)
            if free is not None:
                return free, self.batch
            fix_sizes(self.regions)
        return write_code(self.regions, self.forward, settings, self._taken), None

    def _guard(self, module: ModuleCode) -> ModuleCode:
        """The module with one kernel for all that differ in numbers alone, with loops, and with what forward refuses."""
        wrong = " or ".join(part for part in (module.frame.wrong, self.wrong_types, self.wrong_values) if part)
        words = f"{module.frame.made_for} on a CUDA device" if self.given else "a call"
        frame = replace(module.frame, wrong=wrong, made_for=f"{words}{self.made_with_values}")
        return roll_steps(merge_kernels(replace(module, frame=frame)))


Cut = tuple[Forward, tuple[WorkRegion, ...], Mapping[str, Choice]]


def cut_task(
    facts: TaskFacts, training: bool, precision: PrecisionClass, card: CardModel, choices: Mapping[str, Choice] | None = None
) -> Cut:
    """The values of a forward, its regions, and the nodes that are calls. Raises NoPlan.

    Scores of an attention are no product of their own. Products that PyTorch should do faster are calls, as far as nobody has chosen.
    Convolutions of each channel by itself have their channels last where all regions together are predicted to be faster so.
    """
    chosen = choices or {}
    best = _cut_with(facts, training, precision, card, chosen)
    layouts = [] if training else list_layouts(best[0], facts, chosen)
    if not layouts:
        return best
    flops = {node.name: node.flops for node in facts.ops if node.flops}
    least = _CERTAIN * predict_all(best[1], flops, precision)
    for layout in layouts:
        found = _cut_with(facts, training, precision, card, chosen, dict.fromkeys(layout, Choice.OWN_LAST))
        if (seconds := predict_all(found[1], flops, precision)) < least:
            best, least = found, seconds
    return best


def _cut_with(
    facts: TaskFacts, training: bool, precision: PrecisionClass, card: CardModel, chosen: Mapping[str, Choice],
    last: Mapping[str, Choice] | None = None,
) -> Cut:  # fmt: skip
    """The same with channels last for the convolutions `last`, as far as these stay kernels."""
    parts = precision is not PrecisionClass.TF32
    first = read_forward(facts, training, card, None)
    needed = dict.fromkeys((one.product.name for one in list_all(first.stored) if isinstance(one, Attention)), Choice.LIBRARY)
    called = needed | dict(last or {}) | {node: choice for node, choice in chosen.items() if choice is not Choice.OWN}
    products: dict[str, MatrixProduct] = {}
    layers: dict[str, int] = {}
    kernels = calls = 0.0  # seconds of either way for the products that become calls
    while True:
        forward = read_forward(facts, training, card, called, parts)
        _forget_places(forward)
        regions = tuple(cut_forward(forward, card, apart=list_apart(called)))
        if lone := _list_lone(regions, precision) - chosen.keys() - called.keys():
            called |= dict.fromkeys(sorted(lone), Choice.APART)
            continue
        products = list_products(regions) | products
        layers = list_layers(regions) | layers
        behind = [one for one in regions if isinstance(one, ProductRegion) and prefers_call(one, precision)]
        behind = [one for one in behind if one.product.node and one.product.node not in chosen and one.partner is None]
        kernels += sum(predict_kernel(one, precision) for one in behind)
        calls += sum(predict_call(one, precision) for one in behind)
        slow = {one.product.node for one in behind}
        slow |= {one.recurrence.node for one in regions if isinstance(one, RecurrentRegion) and prefers_library(one)}
        slow -= chosen.keys() | {node for node, choice in called.items() if choice in CALLS}
        if not slow:
            break
        called |= {node: _choose_call(products, node, called, card) for node in sorted(slow)}
    if not chosen and len(called) > len(needed) and leaves_all_to_library(regions, products, layers, card, kernels / (calls or 1.0)):
        # a slow kernel is more than none
        forward = read_forward(facts, training, card, needed, parts)
        _forget_places(forward)
        return forward, tuple(cut_forward(forward, card)), needed
    return forward, regions, called


def _list_lone(regions: Iterable[WorkRegion], precision: PrecisionClass) -> set[str]:
    """The nodes of pairs of products that are predicted to be no faster as such."""
    return {node for one in regions if isinstance(one, ProductRegion) and prefers_apart(one, precision) for node in one.nodes}


def _choose_call(products: Mapping[str, MatrixProduct], node: str, tried: Mapping[str, Choice], card: CardModel) -> Choice:
    """How a product is done that a plain kernel does slower than PyTorch.

    Several convolutions of 16 bits go on with channels last, as tensor cores read them: by a kernel of their own, unless that is slower
    too, and else by PyTorch.
    """
    if tried.get(node) is Choice.OWN_LAST and not products[node].window:  # a product of matrices, among others with channels last
        return Choice.CHANNELS_LAST
    images = [name for name, one in products.items() if one.window and len(one.shape) == _IMAGE_AXES and widen(one.dtype) != one.dtype]
    if node not in images or len(images) < 2:
        return Choice.LIBRARY
    own = card.fits.products.window_described > 0.0 and node not in tried and products[node].sizes[3] > 1
    return Choice.OWN_LAST if own else Choice.CHANNELS_LAST


def _forget_places(forward: Forward) -> None:
    """Extremes whose places nobody asks for are found without them: torch.max along an axis always gives both."""
    values = list_all(forward.stored)
    asked = {id(one.anchor) for one in values if isinstance(one, AnchorResult) and one.which == 1}
    for one in values:
        if isinstance(one, Reduction) and one.kind in ("argmax", "argmin", "lastmax", "lastmin") and id(one) not in asked:
            one.kind = one.kind.removeprefix("arg").removeprefix("last")


def _list_values(facts: TaskFacts, forward: Forward) -> dict[str, str]:
    """The values of arguments that are no tensors, as far as operators were recorded with them. Raises NoPlan.

    torch.fx follows such an argument like a tensor. A recorded run has its value in it, or has gone by it: a count, a flag.
    """
    if facts.traced_by is not TraceWay.RUN:
        return {}
    numbers = {one.source: literal for one, literal in zip(forward.inputs, facts.values, strict=False) if one.number}
    for one in forward.inputs:
        if one.number and not numbers.get(one.source):
            raise NoPlan((f"the argument {one.source} of forward, which is neither a tensor nor a literal", None))
    return numbers


def read_regions(task: Task, facts: TaskFacts, card: CardModel) -> RegionPlan:
    """The plan of any forward of which at least one region has a kernel.

    Args:
        task: with every size that it declares.
        facts: about its own size.
        card: that the plan is for.

    Raises:
        NoPlan: for what cannot be written.
    """
    several = bool(declared_shapes(task)) and varies_in_front(task, facts)
    own = _read_size(task, facts, several, card)
    nodes = {node.name: node for node in facts.ops}
    if not own.kernels:
        calls = [(region.call.says, nodes.get(region.call.name)) for region in own.regions if isinstance(region, CallRegion)]
        raise NoPlan(*(calls or [("a forward that computes nothing", None)]))
    plans, spans = read_others(task, facts, own, lambda at, other: _read_size(at, other, several, card))
    return _join_sizes(plans, spans)


def _join_sizes(plans: Sequence[RegionPlan], spans: tuple[LongSpan, ...]) -> RegionPlan:
    """The plan for all sizes, the task's own first. Raises NoSize where one module cannot have them all."""
    if spans:  # for which kernels are alike
        _widen_alike(plans)
    members = [SizeMembers(one.facts, one.fixed, one.forward.members, one.constants, one.tables, one.turned) for one in plans]
    constructors = list_constructors(members)
    builders = {one.builder for one in plans if one.builder}
    if len(builders) > 1 or len({(one.arguments, one.wrong_values, one.wrong_types) for one in plans}) > 1:
        raise NoSize(("sizes that SHAPES declares whose constructor, or other arguments of forward than tensors, differ", None))
    others = [
        one.model_copy(update={"renamed": names, "made": constructors.index(one.fixed)})
        for one, names in zip(plans, rename_constants(members), strict=True)
    ]  # fmt: skip
    plan = plans[0].model_copy(update={
        "members": write_members(members), "constructors": tuple(constructors),
        "builder": "".join(builders), "others": tuple(others[1:]), "spans": spans,
    })  # fmt: skip
    if plan.others:
        require_whole(plan.plain_text, spans)
    return plan


def _widen_alike(plans: Sequence[RegionPlan]) -> None:
    """Have the plans of all sizes compute the same whole numbers in 64 bits."""
    free = [plan.batch.forward for plan in plans if plan.batch is not None]
    if widen_alike([forward.widths for forward in (*(plan.forward for plan in plans), *free)]):
        for plan, name in itertools.product(plans, ("_written", "kernel_names", "plain_text", "free")):
            plan.__dict__.pop(name, None)  # texts are written anew when they are next asked for


def _read_size(task: Task, facts: TaskFacts, several: bool, card: CardModel) -> RegionPlan:
    """The plan for one size. Raises NoPlan."""
    training = task.mode == "train"
    facts, arguments, unpacked = name_starred(facts)
    forward = read_forward(facts, training, card)
    signature, fixed = made_for(task.source, facts.init_inputs)
    tables, builder = _write_tables(task, facts, signature)
    tensors = [one for one in forward.inputs if not one.number]
    numbers = _list_values(facts, forward)
    types, values = require_types({one.source: one.dtype for one in tensors}), require_values(numbers)
    needed = TaskFacts(
        inputs=facts.inputs, parameters=facts.parameters, ops=tuple(strip_node(node) for node in facts.ops), updates=facts.updates,
        traced_by=facts.traced_by, size_lines=facts.size_lines, tables=facts.tables, values=facts.values, init_inputs=facts.init_inputs,
    )  # fmt: skip
    return RegionPlan(
        card=card, signature=signature, fixed=fixed, members=(), arguments=arguments, unpacked=unpacked, facts=needed, training=training,
        precision=task.precision, several=several, sizes=_name_sizes(task), builder=builder,
        tables=tables, given=tuple(one.source for one in tensors), right=" and ".join(one.right for one in (*types, *values)) or "True",
        wrong_types=" or ".join(one.wrong for one in types), wrong_values=" or ".join(one.wrong for one in values), values=tuple(numbers),
        call_flops={node.name: node.flops for node in hoist_products(facts).ops if node.flops},
        made_with_values=" with " + ", ".join(f"{name} = {literal}" for name, literal in numbers.items()) if numbers else "",
    )  # fmt: skip


def plan_part(facts: TaskFacts, whole: RegionPlan, cut: str) -> RegionPlan:
    """The plan of a part of a forward, as a module that is made without arguments. Raises NoPlan.

    Args:
        facts: of the part.
        whole: the plan that it is a part of.
        cut: choices by node of the part.
    """
    plan = RegionPlan(
        card=whole.card, signature=ANY, members=(), arguments=forward_arguments(facts), facts=facts, precision=whole.precision,
        given=tuple(node.name for node in facts.ops if node.op == "placeholder"), right="True", cut=cut,
        call_flops={node.name: node.flops for node in facts.ops if node.flops},
    )  # fmt: skip
    return _join_sizes([plan], ())


def _name_sizes(task: Task) -> dict[str, int]:
    """The sizes that the task declares others of, with their values in this one, as far as these are written out."""
    names = dict.fromkeys(name for shape in declared_shapes(task) for name in shape)
    return {name: value for name in names if type(value := find_value(task, name)) is int}


def _write_tables(task: Task, facts: TaskFacts, signature: str) -> tuple[tuple[Line, ...], str]:
    """Lines that keep tensors that no state holds, and the function that makes the reference for them. Raises NoPlan."""
    used = [node for node in facts.ops if node.op == "get_attr" and node.target in facts.tables]
    if not used:
        return (), ""
    builder = write_builder(task.source, task.overrides, signature)
    if not builder:
        raise NoPlan((f"self.{used[0].target}, which no state_dict holds, in a file that imports *", used[0]))
    return tuple(table_lines(dict.fromkeys(node.target for node in used), signature)), builder


def strip_node(node: OpNode) -> OpNode:
    """A node without what only messages and analyses need; a launch of one that may show another says that it copies."""
    launches = min(1, node.launches) if may_show(node) else 0
    return node.model_copy(update={"line": 0, "module": "", "flops": 0.0, "bytes": 0.0, "launches": launches})
