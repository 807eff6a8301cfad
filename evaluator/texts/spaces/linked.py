"""Warps that follow the size of a tile: settings that win only together and belong to two stages of tuning."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tritonsmith.evaluator.schema import Stage
from tritonsmith.evaluator.texts.spaces.space import Parameter, Value, Values

_FOLLOWER = "num_warps"
"""How names of the options begin that follow tiles."""
VARIANTS = 4
"""Choices of warps for one size of tiles."""
_MOST_GROWTH = 8.0
"""Times the present work of a thread from which a tile is tried with more warps only, if its threads would need too many registers."""
_MOST_REGISTERS = 480.0
"""Registers of a thread that are too many: 255 exist, a race takes 64 more as spills, and what growth gives is a rough guess."""


@dataclass(frozen=True)
class _Follower:
    """An option that follows extents of tiles."""

    option: Parameter
    extents: tuple[Parameter, ...]

    def growth(self, values: Mapping[str, Value]) -> float:
        """Elements of the tiles over those of the present ones."""
        return math.prod(_number(values.get(part.name, part.current)) / _number(part.current) for part in self.extents)

    def nearest(self, wanted: float) -> Value:
        """The value that is the fewest doublings away; of two the larger."""
        return min(self.option.values, key=lambda value: (round(abs(math.log2(_number(value) / wanted)), 6), -_number(value)))


@dataclass(frozen=True)
class LinkedWarps:
    """Warps that are proposed together with other tiles.

    Args:
        followers: the options, each with the extents that it follows.
        registers: per thread of the present kernel; None where that is not known.
    """

    followers: tuple[_Follower, ...] = ()
    registers: int | None = None

    @property
    def names(self) -> dict[str, list[str]]:
        """By option, the extents that it follows."""
        return {one.option.name: [part.name for part in one.extents] for one in self.followers}

    def list_variants(self, values: Mapping[str, Value]) -> list[Values]:
        """Warps for these tiles: the present ones, those that keep the work of a thread, those halfway, and twice those that keep it.

        Present or halfway warps whose threads would hold far more than a thread has are replaced by those that keep the work. Twice as many
        give a thread half the work: the best layer norm of 8192 x 8192 has twice the tile and four times the warps (H200, 2026-11-27).
        """
        kept = self._choose(values, 1.0)
        choices = self._choose(values, 0.0), kept, self._choose(values, 0.5), self._choose(values, 1.0, 2.0)
        return [kept if self._overflows(values, found) else found for found in choices]

    def given_by(self, start: Mapping[str, Value]) -> Values:
        """The options as a configuration that is to be tried first has them; the present ones where it has none."""
        options = [one.option for one in self.followers]
        return {option.name: start[option.name] if start.get(option.name) in option.values else option.current for option in options}

    def _choose(self, values: Mapping[str, Value], share: float, factor: float = 1.0) -> Values:
        """Warps that grow by this power of the tiles' growth, times a factor."""
        return {
            one.option.name: one.nearest(factor * _number(one.option.current) * one.growth(values) ** share) for one in self.followers
        }

    def _overflows(self, values: Mapping[str, Value], warps: Values) -> bool:
        each = [one.growth(values) * _number(one.option.current) / _number(warps[one.option.name]) for one in self.followers]
        most = max(each, default=0.0)
        return self.registers is not None and most >= _MOST_GROWTH and self.registers * most > _MOST_REGISTERS


def link_warps(every: Sequence[Parameter], varied: Sequence[Parameter], registers: int | None = None) -> LinkedWarps:
    """The warps that follow the extents among `varied`; none where warps are varied themselves.

    Args:
        every: parameters of the space.
        varied: those of a search.
        registers: per thread of the present kernel.
    """
    taken = {part.name for part in varied}
    extents = [part for part in varied if part.stage is Stage.TUNE_BLOCK and all(map(_counts, part.values))]
    options = [part for part in every if part.name.startswith(_FOLLOWER) and len(part.values) > 1 and part.name not in taken]
    found = []
    for option in options:
        its = tuple(part for part in extents if not part.kernels or not option.kernels or set(part.kernels) & set(option.kernels))
        if its and all(map(_counts, option.values)):
            found.append(_Follower(option, its))
    return LinkedWarps(tuple(found), registers)


def _counts(value: Value) -> bool:
    return type(value) is int and value > 0


def _number(value: Value) -> float:
    assert isinstance(value, int), "only whole numbers are linked"
    return float(value)
