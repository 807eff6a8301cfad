"""Values that are cheaper to store than to compute again: several regions read them, or they are joined many times."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from tritonsmith.author.compiler.fusing.regions import PointwiseRegion, WorkRegion
from tritonsmith.author.compiler.ir.attention import Attention
from tritonsmith.author.compiler.ir.recurrence import LastCell, Recurrence
from tritonsmith.author.compiler.ir.scatter import Scatter
from tritonsmith.author.compiler.ir.values import Anchor, AnchorResult, Formula, Held, Item, Joined, LibraryCall, Tensor

WHOLE = LibraryCall | Item | Attention | Recurrence | LastCell | Scatter
"""Values that a region gives as a whole."""
MOST_NESTED = 2
"""Joined values around each other that one kernel takes apart: each further one makes places, and the text, some four times as long."""
_SHARED = 2.0
"""A value that several regions read is stored once where computing it reads more than this many times its own elements."""
_MOST_FORMULAS = 64
"""Elementwise values that one kernel computes for a value that others read too."""
_MOST_REPEATED, _MOST_TIMES = 512, 4
"""Values that elementwise regions compute, and times that they compute each on average, beyond which they are asked what they share."""


def find_shared(regions: Iterable[WorkRegion], stored: Collection[int]) -> set[int]:
    """Values that several regions compute, and that are cheaper to store.

    One that is part of another such value waits for the next round, unless a region computes it and none of those that it is part of.
    """
    homes: dict[int, list[WorkRegion]] = {}
    values: dict[int, Tensor] = {}
    for region in regions:
        own = {id(one) for one in region.stores}
        for key, value in region.evaluated.items():
            if isinstance(value, Formula) and value.inputs and key not in own:
                homes.setdefault(key, []).append(region)
                values[key] = value
    found = {key for key, users in homes.items() if len(users) > 1 and key not in stored and _is_costly(values[key], stored)}
    above: dict[int, set[int]] = {}
    for key in found:
        for one in _list_formulas(values[key], stored)[0]:
            if id(one) != key:
                above.setdefault(id(one), set()).update(map(id, homes[key]))
    return {key for key in found if key not in above or {id(user) for user in homes[key]} - above[key]} or found


def _is_costly(value: Tensor, stored: Collection[int]) -> bool:
    formulas, leaves = _list_formulas(value, stored)
    return sum(one.size for one in leaves) > _SHARED * value.size or len(formulas) > _MOST_FORMULAS


def _list_formulas(value: Tensor, stored: Collection[int]) -> tuple[list[Tensor], list[Tensor]]:
    """Values that are computed for one, and values that are read from memory."""
    seen: dict[int, Tensor] = {}
    leaves: dict[int, Tensor] = {}
    todo = [value]
    while todo:
        one = todo.pop()
        if id(one) in seen:
            continue
        if one is not value and (id(one) in stored or isinstance(one, Held | AnchorResult | WHOLE)):
            leaves[id(one)] = one
            continue
        seen[id(one)] = one
        todo += one.operands
    return list(seen.values()), list(leaves.values())


def count_nested(value: Tensor, in_memory: Callable[[Tensor], bool]) -> int:
    """Joined values around each other that an element of a value goes through, at most; what lies in memory ends the way."""
    depths: dict[int, int] = {}
    todo = [value]
    while todo:
        one = todo[-1]
        if id(one) in depths:
            todo.pop()
            continue
        inside = () if in_memory(one) or isinstance(one, WHOLE | AnchorResult) else one.operands
        open_ = [operand for operand in inside if id(operand) not in depths]
        if open_:
            todo += open_
            continue
        depths[id(todo.pop())] = isinstance(one, Joined) + max((depths[id(operand)] for operand in inside), default=0)
    return depths[id(value)]


class SharedValues:
    """What to store so that not every region computes it anew.

    A loop in forward gives elementwise regions that each compute all steps ahead of them, and that store nothing besides their results.
    Where that goes far, what they share is noted before the round is over. So a round takes time by its steps, not by their square.
    """

    def __init__(self) -> None:
        self.shared: set[int] = set()
        """Values that the first region that computes them stores as well."""
        self.alone: set[int] = set()
        """Values that have a region of their own: no region that computes them could store them."""
        self.hosts: dict[int, Anchor] = {}
        """By value: an anchor whose region shall store it, so that it needs no kernel of its own."""
        self.begin_round()

    def begin_round(self) -> None:
        """Forget the regions of the round before."""
        self._changed = False
        """Whether values were noted on the way, so that the first regions did not know them."""
        self._begin_count()

    def _begin_count(self) -> None:
        self._counted: dict[int, PointwiseRegion] = {}
        self._repeated = 0
        self._distinct: set[int] = set()

    def watch(self, region: WorkRegion, computed: Collection[int], stored: Collection[int]) -> None:
        """Note what the last elementwise regions share, if they compute the same again and again.

        Args:
            region: one that computes further values.
            computed: those values.
            stored: values in memory.
        """
        if not isinstance(region, PointwiseRegion):
            return
        self._counted[id(region)] = region
        self._distinct.update(computed)
        self._repeated += len(computed)
        if self._repeated > max(_MOST_REPEATED, _MOST_TIMES * len(self._distinct)):
            more = find_shared(self._counted.values(), stored)
            self._changed |= bool(more - self.alone)
            self.alone |= more
            self.shared |= more
            self._begin_count()

    def end_round(self, regions: Collection[WorkRegion]) -> bool:
        """Note what all regions share; whether another round is needed."""
        more = find_shared(regions, {id(one) for region in regions for one in region.stores})
        fresh = bool(more - self.alone)
        self.alone |= more & self.shared
        self.shared |= more
        return fresh or self._changed

    def note_hosts(self, hosts: Mapping[int, Anchor]) -> bool:
        """Note which regions shall store more; whether another round is needed."""
        fresh = hosts.keys() - self.hosts.keys()
        self.hosts |= {key: hosts[key] for key in fresh}
        return bool(fresh)
