"""Cuts a forward into regions.

Every reduction and scan begins a region or joins the one whose rows it shares; elementwise work goes where it is read, or where the value
that it gives is stored. A value that several regions would compute from much more memory than it takes itself is stored once.
"""

from __future__ import annotations

from collections.abc import Collection

from tritonsmith.author.cards.model import CardModel
from tritonsmith.author.compiler.fusing.attention import is_cheap, make_region, peel
from tritonsmith.author.compiler.fusing.disguised import write_products
from tritonsmith.author.compiler.fusing.hosts import find_hosts
from tritonsmith.author.compiler.fusing.integers import read_integers
from tritonsmith.author.compiler.fusing.materialize import MOST_NESTED, WHOLE, SharedValues, count_nested
from tritonsmith.author.compiler.fusing.pairs import pair_products
from tritonsmith.author.compiler.fusing.placing import place_parts
from tritonsmith.author.compiler.fusing.regions import (
    AnchoredRegion,
    CallRegion,
    PointwiseRegion,
    ProductRegion,
    RecurrentRegion,
    RowRegion,
    ScatterRegion,
    StackRegion,
    WorkRegion,
    order_regions,
)
from tritonsmith.author.compiler.fusing.space import (
    COLUMN,
    LINE,
    OFFSET,
    Space,
    anchor_coordinates,
    anchor_space,
    find_crowded,
    find_inward,
    list_below,
)
from tritonsmith.author.compiler.fusing.state import CutState
from tritonsmith.author.compiler.fusing.tiles import arrange_tiles
from tritonsmith.author.compiler.fusing.windows import count_repeats, find_windows, is_hard, is_worth_storing, lies_last, list_windows
from tritonsmith.author.compiler.ir.attention import Attention
from tritonsmith.author.compiler.ir.indices import Coordinates, ravel, unravel, variable
from tritonsmith.author.compiler.ir.recurrence import LastCell, Recurrence
from tritonsmith.author.compiler.ir.scatter import Scatter
from tritonsmith.author.compiler.ir.stacks import StackCall
from tritonsmith.author.compiler.ir.values import (
    Anchor,
    AnchorResult,
    ChannelWindows,
    Formula,
    Held,
    Item,
    Joined,
    LibraryCall,
    MatrixProduct,
    Position,
    Reduction,
    Scan,
    Stacked,
    Tensor,
    TensorView,
    base_of,
)
from tritonsmith.author.compiler.lowering.views import MOST_PARTS
from tritonsmith.author.compiler.reading.reader import Forward

_CHEAP = 2.0
"""Operations for each element that a product repeats instead of reading their result."""


def cut_forward(forward: Forward, card: CardModel, times: int = 1, apart: Collection[str] = ()) -> list[WorkRegion]:
    """The regions in the order in which forward runs them.

    Args:
        forward: its values.
        card: that it is cut for.
        times: how many times as long as usual the leading axis is.
        apart: nodes whose products share no kernel with another product.
    """
    write_products(forward)
    arrange_tiles(forward, card)
    pair_products(forward, card, apart)
    results = forward.stored
    sharing = SharedValues()
    while True:
        sharing.begin_round()
        done = Cutter(sharing, card)
        for value in results:
            done.store(base_of(value))
        if not sharing.end_round(done.regions) and not sharing.note_hosts(find_hosts(done.regions, done.homes, times)):
            asked = {id(base_of(value)) for value in results}
            return place_parts(order_regions(done.regions, done.homes), done.homes, asked, done.fill)


def strip_views(value: Tensor) -> Tensor:
    """The value of which this one shows elements."""
    while isinstance(value, TensorView):
        value = value.source
    return value


def _is_cheap(value: Tensor, small: int) -> bool:
    """Whether a product computes an operand as it reads it, several times over: few operations, one step from what lies in memory.

    small: elements so few that a launch takes longer than reading them.
    """
    if not isinstance(value, Formula) or value.flops > _CHEAP:
        return False
    bases = [base_of(one) for one in value.inputs]
    return all(isinstance(one, Held | Formula) and not one.operands for one in bases) and sum(one.size > small for one in bases) < 2


def _has_many_parts(value: Tensor) -> bool:
    """Whether parts are stored at their places: no kernel asks for every element which of so many has it."""
    return isinstance(value, Joined) and len(value.parts) > MOST_PARTS and not isinstance(value, Stacked)


def _is_wider(value: Tensor) -> bool:
    """Whether a value takes more memory than all that it is made of."""
    return all(one.bytes < value.bytes for one in value.operands if not isinstance(one, Position))


class Cutter(CutState):
    """Makes regions from the results backwards."""

    def store(self, value: Tensor) -> None:
        """Have a region store a value."""
        if self.in_memory(value):
            return
        host = self._sharing.hosts.get(id(value))
        if host is not None and id(host) not in self._places and self._may_begin(host):
            self._place(host)
            if self.in_memory(value):
                return
        self._begun.append(value)
        if isinstance(value, Item):
            self.store(value.call)
            self.homes[id(value)] = self.homes[id(value.call)]
        elif isinstance(value, LibraryCall):
            self._call(value)
        elif isinstance(value, Attention):
            self._attend(value)
        elif isinstance(value, Recurrence | LastCell):
            self._run_steps(value.recurrence if isinstance(value, LastCell) else value, value)
        elif isinstance(value, Scatter):
            self._scatter(value)
        else:
            if _has_many_parts(value):
                for part in value.operands:
                    self.store(part)
            self._prepare(value)
            if not self.in_memory(value):
                self._compute(value)
        self._begun.pop()

    def _call(self, value: LibraryCall) -> None:
        kind = StackRegion if isinstance(value, StackCall) else CallRegion
        region = kind(card=self._card, call=value, name=value.name)  # type: ignore[arg-type]  # of the kind's own class
        self._store_operands(region, value)
        self._add(region, value)

    def _run_steps(self, value: Recurrence, asked: Tensor) -> None:
        """All steps of a recurrent layer; its last cells are a result too, though only one of them may be asked for."""
        region = self.homes.get(id(value))
        if region is None:
            region = RecurrentRegion(card=self._card, recurrence=value, name=value.name)
            self._store_operands(region, value)
            self._add(region, value)
        if isinstance(region, RecurrentRegion) and isinstance(asked, LastCell):
            region.cell = asked
            region.stores.append(asked)
            self.homes[id(asked)] = region

    def _store_operands(self, region: WorkRegion, value: Tensor) -> None:
        """Have in memory what a value is made of, where PyTorch can show it as a view of that."""
        for operand in value.operands:
            base = base_of(operand)
            self.store(base)
            region.reads[id(base)] = base
        region.stores.append(value)

    def _scatter(self, value: Scatter) -> None:
        region = ScatterRegion(card=self._card, scatter=value, name=value.name)
        if not value.is_fresh:
            base = base_of(value.base)
            self.store(base)
            region.reads[id(base)] = base
        at = unravel(variable(OFFSET, value.source.size), value.source.shape)
        for one, where in zip((value.source, *value.places), (at, *value.where(at)), strict=True):
            self._prepare(one)
            for anchor in list_below(one, self.in_memory)[1]:
                self._store_results(anchor, one)
            self._note(region, one, where)
        region.stores.append(value)
        self._add(region, value)

    def _attend(self, value: Attention) -> None:
        for operand in value.operands:
            self._prepare(operand)
            if not is_cheap(operand, self.in_memory):
                self.store(peel(operand))
        self._add(make_region(value, self.in_memory, self._card), value)

    def _prepare(self, value: Tensor, itself: bool = True) -> None:
        """Have everything below a value in memory or in a region; a value that shall have a region of its own too, unless that is next."""
        todo = [value]
        seen: set[int] = set()
        while todo:
            one = todo.pop()
            if id(one) in seen or self.in_memory(one):
                continue
            seen.add(id(one))
            if isinstance(one, WHOLE):
                self.store(one)
            elif isinstance(one, AnchorResult):
                self._place(one.anchor)
            elif (id(one) in self._sharing.alone or _has_many_parts(one)) and not (one is value and itself):
                self.store(one)
            elif isinstance(one, Joined) and not (one is value and itself) and count_nested(one, self.in_memory) > MOST_NESTED:
                self.store(one)
            else:
                todo += reversed(one.operands)
        while (crowded := find_crowded(value, self.in_memory)) is not None and crowded is not value:
            self.store(crowded)

    def _place(self, anchor: Anchor) -> AnchoredRegion:
        """The region of an anchor."""
        if id(anchor) not in self._places:
            self._begun.append(anchor)
            self._place_product(anchor) if isinstance(anchor, MatrixProduct) else self._place_rows(anchor)
            self._begun.pop()
        return self._places[id(anchor)]

    def _place_rows(self, anchor: Anchor) -> None:
        windows = anchor.windows if isinstance(anchor, Reduction) else None
        if windows is not None:
            self._store_image(anchor, windows)
        elif isinstance(anchor, Reduction):
            self._store_opened(anchor.source)
        self._prepare(anchor.source, itself=False)
        _, below = list_below(anchor.source, self.in_memory)
        if isinstance(anchor, Reduction) and anchor.product in below and self._reduce_tile(anchor, anchor.product, below):
            return
        anchor.inward = find_inward(anchor, self.in_memory)
        space = anchor_space(anchor)
        home = next((found for one in below if isinstance(found := self._places[id(one)], RowRegion)), None)
        at = anchor_coordinates(anchor)[0]
        if home and (home.space != space or home.split or isinstance(anchor, Scan) or find_windows(home) or windows is not None):
            home = None
        for one in below:
            if self._places[id(one)] is not home:
                self._store_results(one, anchor.source)
        if home and not self._fits(anchor.source, at, home):
            for one in below:
                if self._places[id(one)] is home:
                    self._store_results(one, anchor.source)
            home = None
        joined = home or (self._find_neighbour(anchor) if windows is None or not windows.last else None)
        region = joined or self._begin_rows(anchor, space)
        if region not in self.regions:
            self.regions.append(region)
        region.anchors.append(anchor)
        self._places[id(anchor)] = region
        self._note(region, anchor.source, anchor_coordinates(anchor)[0])
        self._keep_shared(region)

    def _store_opened(self, source: Tensor) -> None:
        """Have in memory what other windows are opened on that lie over each other, where that has an operator of many instructions.

        Without one, reductions that read the same tensors share a kernel, which saves more.
        """
        for opened in list_windows(source, self.in_memory):
            below, anchors = list_below(opened.source, lambda one: self.in_memory(one) or isinstance(one, WHOLE))
            known, repeats = {id(one): one for one in below}, opened.size / opened.source.size
            if not anchors and is_hard(opened.source, known) and is_worth_storing(opened.source, known, repeats, self._card):
                self.store(opened.source)

    def _store_image(self, anchor: Anchor, windows: ChannelWindows) -> None:
        """Have in memory what windows are opened on, where computing it for each tap is predicted to take longer."""
        image = windows.image
        if self.in_memory(base_of(image)):
            return
        below, anchors = list_below(image, lambda one: self.in_memory(one) or isinstance(one, WHOLE))
        trial = RowRegion(card=self._card, space=anchor_space(anchor), anchors=[anchor], reads={id(one): one for one in below})
        repeats = count_repeats(trial, windows)
        turned = windows.last and not lies_last(image, below)
        if turned or (anchors and windows.last) or is_worth_storing(image, trial.reads, repeats, self._card):
            self.store(base_of(image))

    def _begin_rows(self, anchor: Anchor, space: Space) -> RowRegion:
        return RowRegion(card=self._card, space=space, name=anchor.source.name or anchor.kind)

    def _place_product(self, product: MatrixProduct) -> None:
        """Make the region of a product, whose operands lie in memory or are computed as they are read."""
        first, second = product.pair or (product, None)
        region = ProductRegion(card=self._card, product=first, partner=second, name=first.name)
        weights = read_integers(product, self._card)
        if weights is not None:
            self.store(strip_views(product.source))
            self.regions.append(region)
            self._places[id(product)] = region
            self._note(region, product.source, region.left)
            for value, at in weights.values:
                self._note(region, value, at)
            return
        for operand in (one for each in region.products for one in each.operands):
            base = strip_views(operand)
            cheap = _is_cheap(base, self._card.fits.rows.small) and operand not in product.squares and not product.stored
            self._prepare(base, itself=False) if cheap else self.store(base)
        self.regions.append(region)
        for each in region.products:
            self._places[id(each)] = region
            self._note(region, each.source, region.left)
            self._note(region, each.right, region.right)
        for lengths, at in zip(product.squares, region.lines, strict=False):
            self._note(region, lengths, at)

    def _reduce_tile(self, anchor: Reduction, product: MatrixProduct, below: list[Anchor]) -> bool:
        """Have the region of a product do a reduction on its tile; False where it cannot compute what is reduced."""
        region = self._places[id(product)]
        assert isinstance(region, ProductRegion)
        value = anchor.reduced
        for one in below:
            if self._places[id(one)] is not region:
                self._store_results(one, value)
        found = self._find_place(value, region)
        if found is None or not anchor.tile and not _goes_along_tile(anchor, product, found[0]):
            return False
        region.tiled.append(anchor)
        self._places[id(anchor)] = region
        self._note(region, value, found[0])
        return True

    def _compute(self, value: Tensor) -> None:
        """Store a value in the region that has what it needs, or in one of its own."""
        _, below = list_below(value, self.in_memory)
        homes = self._homes_below(value)
        if len(homes) == 1:
            (region,) = homes
            found = self._find_place(value, region)
            if found is not None:
                self._keep(value, region, found[0])
                self._keep_shared(region)
                return
        if isinstance(value, Stacked):
            self._keep_parts(value)
        for one in below:
            self._store_results(one, value)
        if self.in_memory(value) or self._keep_in_host(value):
            return
        at = unravel(variable(OFFSET, value.size), value.shape)
        for other in reversed(self.regions[-3:]):
            if isinstance(other, PointwiseRegion) and other.size == value.size and self._shares(value, at, other):
                self._keep(value, other, at)
                return
        own = PointwiseRegion(card=self._card, size=value.size, name=value.name)
        self.regions.append(own)
        self._keep(value, own, at)

    def _keep_parts(self, value: Stacked) -> None:
        """Have the regions that find what parts of a stack are made of store these parts."""
        for part in value.parts:
            leaves, anchors = list_below(part, self.in_memory)
            homes = [self._places[id(one)] for one in anchors] + [self.homes[id(one)] for one in leaves if id(one) in self.homes]
            home = homes[0] if len({id(one) for one in homes}) == 1 and not self.in_memory(part) else None
            found = self._find_place(part, home) if isinstance(home, RowRegion | ProductRegion) else None
            if home is not None and found is not None:
                self._keep(part, home, found[0])

    def _store_results(self, anchor: Anchor, reader: Tensor) -> None:
        """Store the results of an anchor that a value reads from another region."""
        region = self._places[id(anchor)]
        todo, seen = [reader], set[int]()
        while todo:
            one = todo.pop()
            if id(one) in seen or self.in_memory(one):
                continue
            seen.add(id(one))
            made = isinstance(one, Formula) and not _is_wider(one) and region in self._homes_below(one)
            found = self._find_place(one, region) if made else None
            if isinstance(one, AnchorResult):
                if one.anchor is anchor:
                    region.stores.append(one)
                    self.homes[id(one)] = region
            elif found and not found[1]:
                self._keep(one, region, found[0])  # a number for each row that is made of its results
            else:
                todo += one.operands


def _goes_along_tile(anchor: Reduction, product: MatrixProduct, at: Coordinates) -> bool:
    """Whether a reduction of a value that is known at these coordinates goes along the rows of a tile, or along a few of its columns."""
    if anchor.group:
        lead = anchor.axes[0]
        return ravel(at[lead:], anchor.source.shape[lead:]) == variable(COLUMN, product.sizes[2]) % anchor.group
    return [axis for axis, one in enumerate(at) if LINE in one.names] == [*anchor.axes]
