"""The parts of a plan that may be written in several ways, each way as a module of its own that a card can time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tritonsmith.author.compiler.costs import predict_region, time_regions
from tritonsmith.author.compiler.cutting_out import count_places, cut_out, list_owners, turn_images
from tritonsmith.author.compiler.fusing.described import takes_channels
from tritonsmith.author.compiler.fusing.regions import (
    AttentionRegion,
    CallRegion,
    PointwiseRegion,
    ProductRegion,
    RecurrentRegion,
    ScatterRegion,
    WorkRegion,
)
from tritonsmith.author.compiler.ir.values import MatrixProduct, Tensor
from tritonsmith.author.compiler.module.batch import list_all
from tritonsmith.author.compiler.plan import RegionPlan, plan_part
from tritonsmith.author.compiler.reading.channels import can_keep_channels_last, find_image
from tritonsmith.author.compiler.reading.choices import Choice, write_cut
from tritonsmith.author.compiler.reading.hoisting import hoist_products
from tritonsmith.author.compiler.reading.layouts import may_come_last
from tritonsmith.author.compiler.reading.reader import read_forward
from tritonsmith.author.compiler.recipes import PLAIN_RECIPE
from tritonsmith.author.plan import NoPlan
from tritonsmith.author.types import AS_THEY_ARE, widen
from tritonsmith.evaluator.records.contest import Alternative, Contest, ContestInput
from tritonsmith.evaluator.schema import Hardware, PrecisionClass, TaskFacts, Verdict

_LEAST_SHARE = 0.01
"""Share of the kernels' time from which on a part is worth a race, with all that are equal to it."""
_LAST = (Choice.CHANNELS_LAST.value, Choice.OWN_LAST.value)
"""Ways with channels last, which a part may be written in between others with channels last."""
_MOST_CONTESTS = 32
"""Contests of a race: one takes about a second, most of it compilation."""


@dataclass(frozen=True)
class Part:
    """A region, or a call and the region behind it, that may be written in several ways."""

    number: int
    """Of its region, from 1, in forward's order."""
    what: str
    """Its operations, in words."""
    nodes: tuple[str, ...]
    """Nodes of the trace that one choice is made for."""
    now: Choice
    ms: float
    """What it takes, as measured in the whole module or else as predicted."""
    contest: Contest
    chained: Contest | None = None
    """The convolution alone between images whose channels are neighbours already."""
    paired: bool = False
    """Whether its nodes are two products that one kernel may compute."""

    def choose(self, choice: Choice) -> dict[str, Choice]:
        """What becomes of each node."""
        return choose_nodes(self.nodes, choice, self.paired)


def choose_nodes(nodes: Sequence[str], choice: Choice, paired: bool) -> dict[str, Choice]:
    """What a choice means for each node of a part; of two products that stay apart the second one is a call."""
    return dict.fromkeys(nodes, choice) | ({nodes[1]: Choice.LIBRARY} if paired and choice is Choice.APART else {})


def list_parts(plan: RegionPlan, hardware: Hardware, verdict: Verdict | None = None) -> list[Part]:
    """The parts of a plan that are worth a race, the costliest first; equal ones have equal contests.

    Args:
        plan: of an inference forward.
        hardware: the card.
        verdict: about the module of this plan, with device times of its kernels.
    """
    if plan.training or plan.forward.updates or plan.forward.written:
        return []
    times = [one.measured_ms for one in time_regions(plan, verdict)] if verdict is not None else [None] * len(plan.regions)
    predicted = [predict_region(region, plan, plan.precision) * 1e3 for region in plan.regions]
    spent = [measured if measured is not None else guess for measured, guess in zip(times, predicted, strict=True)]
    writer = _Contests(plan, hardware)
    found = _join_parts(part for place, ms in enumerate(spent) if (part := writer.write(place, ms)) is not None)
    together: dict[str, float] = {}
    for part in found:
        together[part.contest.key] = together.get(part.contest.key, 0.0) + part.ms
    least = _LEAST_SHARE * sum(spent)
    worth = [key for key in sorted(together, key=lambda key: -together[key]) if together[key] >= least][:_MOST_CONTESTS]
    return sorted((part for part in found if part.contest.key in worth), key=lambda part: worth.index(part.contest.key))


def _join_parts(parts: Iterable[Part]) -> list[Part]:
    """The parts, those of the same nodes as one: what a node does may take several regions."""
    found: dict[tuple[str, ...], Part] = {}
    for part in parts:
        known = found.get(part.nodes)
        found[part.nodes] = part if known is None else replace(known, ms=known.ms + part.ms)
    return list(found.values())


class _Contests:
    """Writes contests, equal ones once."""

    def __init__(self, plan: RegionPlan, hardware: Hardware) -> None:
        self._plan, self._hardware = plan, hardware
        self._facts = hoist_products(plan.facts)
        self._owners = list_owners(self._facts, plan.forward)
        self._homes = {id(value): region for region in plan.regions for value in region.stores}
        self._known: dict[str, tuple[Contest | None, Contest | None]] = {}

    def write(self, place: int, ms: float) -> Part | None:
        """The part of a region; None where it has one way only, or where it cannot be cut out."""
        region = self._plan.regions[place]
        if (pair := self._find_pair(region)) is not None and (part := self._write_part(place, ms, *pair, paired=True)) is not None:
            return part
        nodes = self._list_nodes(region)
        if not nodes:
            return None
        return self._write_part(place, ms, nodes, self._plan.called.get(nodes[0], Choice.OWN), [region, *self._find_behind(region)])

    def _write_part(
        self, place: int, ms: float, nodes: tuple[str, ...], now: Choice, together: Sequence[WorkRegion], paired: bool = False
    ) -> Part | None:
        """The part of these regions; None where it has one way only, or where it cannot be cut out."""
        inside = {id(value) for one in together for value in one.stores}
        values = {key: value for one in together for key, value in one.reads.items() if key not in inside}
        read = {*values, *(id(image) for value in values.values() if (image := find_image(value)) is not None)}
        try:
            results = {self._owners[id(value)] for value in together[-1].stores}
            facts, names = cut_out(self._facts, self._plan.forward, self._owners, read, results)
            own = tuple(names[node] for node in nodes)
        except (NoPlan, KeyError):
            return None
        key = f"{own} {now if now is Choice.APART else ''} {facts.model_dump_json()}"
        if key not in self._known:
            contest = write_contest(facts, own, self._plan.precision, self._hardware, self._plan, now, paired)
            ways = [Choice(one.name) for one in contest.alternatives if one.name in _LAST] if contest is not None else []
            self._known[key] = contest, write_chained(facts, own, self._plan, self._hardware, ways) if ways else None
        contest, chained = self._known[key]
        if contest is None or now.value not in [one.name for one in contest.alternatives]:
            return None
        what = ", ".join(dict.fromkeys(self._tell(node) for node in nodes))
        return Part(place + 1, what, nodes, now, ms, contest, chained, paired)

    def _find_pair(self, region: WorkRegion) -> tuple[tuple[str, str], Choice, list[WorkRegion]] | None:
        """Two products of 16 bits that meet in a region, what became of them, and their regions, the one where they meet last; or None."""
        if self._plan.card.fits.products.gated <= 0.0:
            return None
        if isinstance(region, ProductRegion) and len(region.nodes) > 1:
            first, second = region.nodes
            return (first, second), Choice.OWN, [region]
        last = self._find_reader(region) if isinstance(region, CallRegion) else region
        calls = [one for one in self._plan.regions if isinstance(one, CallRegion) and self._find_reader(one) is last]
        calls = [one for one in calls if self._is_product(one)]
        if isinstance(last, PointwiseRegion) and len(calls) == 2:  # noqa: PLR2004 - a pair
            first, second = (one.call.name for one in calls)
            return ((first, second), Choice.LIBRARY, [*calls, last]) if region in (*calls, last) else None
        if isinstance(last, ProductRegion) and len(calls) == 1 and last.product.node in self._plan.forward.made:
            own = last.product.node
            apart = self._plan.called.get(own) is Choice.APART
            return ((own, calls[0].call.name), Choice.APART, [*calls, last]) if apart and region in (*calls, last) else None
        return None

    def _list_readers(self, region: WorkRegion) -> list[WorkRegion]:
        return [one for one in self._plan.regions if any(id(value) in one.reads for value in region.stores)]

    def _find_reader(self, region: CallRegion) -> WorkRegion | None:
        """The only region that reads what a call gives."""
        readers = self._list_readers(region)
        kept = any(value is one for value in region.stores for one in self._plan.forward.stored)
        return readers[0] if len(readers) == 1 and not kept else None

    def _is_product(self, region: CallRegion) -> bool:
        """Whether a call of 16 bits could be a kernel of its own."""
        name = region.call.name
        return self._plan.called.get(name) is Choice.LIBRARY and name in self._plan.forward.made and region.call.dtype in AS_THEY_ARE

    def _list_nodes(self, region: WorkRegion) -> tuple[str, ...]:
        """The nodes that a choice is made for; none for elementwise work, and for calls that have no kernel."""
        if isinstance(region, CallRegion):
            node = region.call.name if region.call.name in self._plan.called else ""
            return (node,) if node in self._plan.forward.made else ()
        if isinstance(region, ProductRegion):
            return (region.product.node,) if region.product.node in self._plan.forward.made else ()
        if isinstance(region, RecurrentRegion):
            return (region.recurrence.node,)
        whole = (region.attention,) if isinstance(region, AttentionRegion) else region.whole
        whole = (region.scatter,) if isinstance(region, ScatterRegion) else whole
        return tuple(dict.fromkeys(self._owners[id(one)] for one in whole if id(one) in self._owners))

    def _find_behind(self, region: WorkRegion) -> list[WorkRegion]:
        """The region that goes on with what a call gives, where there is one."""
        if not isinstance(region, CallRegion):
            return []
        readers = self._list_readers(region)
        return readers if len(readers) == 1 and not isinstance(readers[0], CallRegion | ProductRegion | AttentionRegion) else []

    def _tell(self, node: str) -> str:
        found = next(one for one in self._facts.ops if one.name == node)
        return f"nn.{found.module_type} {node}" if found.op == "call_module" else node


def write_contest(
    facts: TaskFacts, nodes: Sequence[str], precision: PrecisionClass, hardware: Hardware, like: RegionPlan, now: Choice = Choice.OWN,
    paired: bool = False,
) -> Contest | None:  # fmt: skip
    """The contest of a part; None where there are not two ways to write it.

    Args:
        facts: of the part.
        nodes: those that a choice is made for.
        precision: of the task.
        hardware: the card.
        like: the plan that it is a part of.
        now: what became of it there.
        paired: whether the nodes are two products that one kernel shall compute; None where it cannot.
    """
    alternatives: dict[str, Alternative] = {}
    for choice, cut in _list_cuts(facts, nodes, precision, like, now, paired):
        try:
            plan = plan_part(facts, like, cut)
            if paired and choice is Choice.OWN and not any(isinstance(one, ProductRegion) and one.partner for one in plan.regions):
                return None
            settings = PLAIN_RECIPE.defaults(plan, hardware, precision)
            if settings is None or choice is Choice.OWN and not plan.kernels:
                continue
            text = PLAIN_RECIPE.render(plan, settings | {"replayed": False})
        except NoPlan:
            continue
        alternatives.setdefault(text, Alternative(name=choice.value, text=text))
    if len(alternatives) < 2:  # noqa: PLR2004 - one way is no contest
        return None
    places = count_places(facts)
    names = [node.name for node in facts.ops if node.op == "placeholder"]
    inputs = tuple(
        ContestInput(spec=spec, below=places.get(name, 2)) for name, spec in zip(names, facts.inputs, strict=True) if spec is not None
    )
    return Contest(inputs=inputs, alternatives=tuple(alternatives.values()), tf32=precision is PrecisionClass.TF32)


def write_chained(
    facts: TaskFacts, nodes: Sequence[str], like: RegionPlan, hardware: Hardware, ways: Sequence[Choice]
) -> Contest | None:
    """The contest of a convolution alone that is given images with channels last, and gives such; None where it cannot be written.

    A convolution among others needs no change of order: what is elementwise ahead of it and behind it has its order.
    `ways`: those with channels last.
    """
    found = next(one for one in facts.ops if one.name == nodes[0])
    turned = turn_images(facts, len(found.outputs[0].shape))
    alternatives: list[Alternative] = []
    for choice in ways:
        try:
            plan = plan_part(turned, like, write_cut({nodes[0]: choice}))
            settings = PLAIN_RECIPE.defaults(plan, hardware, like.precision)
            if settings is None:
                return None
            alternatives.append(Alternative(name=choice.value, text=PLAIN_RECIPE.render(plan, settings | {"replayed": False})))
        except NoPlan:
            return None
    inputs = tuple(ContestInput(spec=spec) for spec in turned.inputs if spec is not None)
    return Contest(inputs=inputs, alternatives=tuple(alternatives), tf32=like.precision is PrecisionClass.TF32)


def _list_cuts(
    facts: TaskFacts, nodes: Sequence[str], precision: PrecisionClass, like: RegionPlan, now: Choice, paired: bool
) -> Iterator[tuple[Choice, str]]:
    """The choices that a part may have, each with its setting."""
    apart = (Choice.APART,) if paired or now is Choice.APART else ()
    for choice in (*apart, Choice.OWN, Choice.LIBRARY):
        yield choice, write_cut(choose_nodes(nodes, choice, paired))
    if len(nodes) > 1:
        return
    try:
        made = _read_call(facts, nodes[0], like)
        last = list(_list_last(facts, nodes[0], like))
    except NoPlan:
        return
    narrow = made is not None and widen(getattr(made, "dtype", "float32")) != getattr(made, "dtype", "")
    if precision is PrecisionClass.TF32 or narrow or Choice.CHANNELS_LAST not in last:
        for choice in last:
            yield choice, write_cut({nodes[0]: choice})
    elif _is_own_last(facts, nodes[0], like):  # an image of fp32 has tensor cores in neither order
        yield Choice.OWN_LAST, write_cut({nodes[0]: Choice.OWN_LAST})


def _list_last(facts: TaskFacts, node: str, like: RegionPlan) -> Iterator[Choice]:
    """The ways in which a convolution has its channels last."""
    keeps = can_keep_channels_last(_read_call(facts, node, like))
    if keeps:
        yield Choice.CHANNELS_LAST
    if keeps and _can_be_described(facts, node, like) or _is_own_last(facts, node, like):
        yield Choice.OWN_LAST


def _read_call(facts: TaskFacts, node: str, like: RegionPlan) -> Any:
    """What a node gives where it stays PyTorch's call."""
    return read_forward(facts, False, like.card, {node: Choice.LIBRARY}).made.get(node)


def _is_own_last(facts: TaskFacts, node: str, like: RegionPlan) -> bool:
    """Whether a convolution of each channel, or one of one place, has a kernel of its own with channels last."""
    found = next((one for one in facts.ops if one.name == node), None)
    return found is not None and may_come_last(found, facts, read_forward(facts, False, like.card, {}).made.get(node))


def _can_be_described(facts: TaskFacts, node: str, like: RegionPlan) -> bool:
    """Whether a convolution has a kernel of its own that reads an image with channels last."""
    made = read_forward(facts, False, like.card, {node: Choice.OWN_LAST}).made.get(node)
    products = [one for one in list_all([made]) if isinstance(one, MatrixProduct)] if isinstance(made, Tensor) else []
    return like.card.fits.products.window_described > 0.0 and any(one.stored and takes_channels(one) for one in products)
