"""How many pairs of calls one take has with each baseline, and how many of their outputs have an oracle of their own. Pure arithmetic."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from tritonsmith.evaluator.oracle.timing.paired import pair_count

_SECONDS_PER_BASELINE = {"quick": 1.0, "strict": 2.0, "size": 0.5}
"""By profile: what the pairs with one baseline may take; `size` is another size of a task in a strict verdict."""
_MAX_CONTROL_PAIRS = 30
"""Pairs of the strongest baseline with itself."""
_FEW_PAIRS = 16
"""Pairs, at the most, with each baseline before the strongest of them is known; with that one as many as its noise calls for."""
_SHORT_MS = 10.0
"""Milliseconds of the fastest baseline up to which a score has at least `LEAST_PAIRS`."""
LEAST_PAIRS = 30
"""Pairs with the strongest baseline that count, at the least, of short calls."""
_MOST_FOR_THAT = 3
"""Times the planned pairs that may be taken where calls are left out because the clocks disagree."""
_FAR_FROM_BEST = 2.0
"""Times the fastest baseline's time from which on no noise makes a baseline the strongest."""
_PAIRS_FAR_OFF = 6
"""Pairs with such a baseline."""
_OUTPUTS_PER_ORACLE = 6
"""One timed output in so many is compared with an oracle of its own; nobody knows which before. The others: `oracle/timing/screen.py`."""
ORACLE_SECONDS = 2.0
"""What these oracles may take in one session, where one takes long: of larger tasks fewer outputs have one."""


@dataclass(frozen=True)
class PairPlan:
    """Counts of pairs, fixed from the baselines' times alone so that a candidate cannot choose how often it is timed."""

    pairs: Mapping[str, int]
    """With each baseline, before the strongest of them is known."""
    needed: int
    """With the strongest."""
    control: int
    """Of the strongest with itself."""

    @classmethod
    def make(cls, rough: Mapping[str, float], most: int, profile: str) -> PairPlan:
        """The plan for baselines that take so many milliseconds; their noise calls for `most` pairs."""
        best, seconds = min(rough.values()), _SECONDS_PER_BASELINE[profile]
        few, far = min(most, _FEW_PAIRS), _FAR_FROM_BEST * best
        pairs = {name: _PAIRS_FAR_OFF if ms > far else pair_count(ms, seconds, few) for name, ms in rough.items()}
        needed = max(pair_count(best, seconds, most), LEAST_PAIRS if best < _SHORT_MS else 0)
        return cls(pairs, needed, pair_count(best, seconds, min(most, _MAX_CONTROL_PAIRS)))

    def outputs_per_oracle(self, oracle_seconds: float) -> int:
        """One timed output in so many has an oracle of its own, where one takes so long."""
        return max(_OUTPUTS_PER_ORACLE, math.ceil((sum(self.pairs.values()) + self.needed) * oracle_seconds / ORACLE_SECONDS))

    def count_open(self, taken: int, counted: int, *, far_slower: bool) -> int:
        """Pairs with the strongest baseline that are still to be taken; few do for a candidate that is far slower by these pairs.

        More than planned are taken where so many were left out that few count.
        """
        wanted = min(self.needed, LEAST_PAIRS) if far_slower else self.needed
        missing = min(wanted, LEAST_PAIRS) - counted
        if taken < wanted or missing <= 0 or taken >= _MOST_FOR_THAT * self.needed:
            return wanted - taken
        return 2 * math.ceil(missing / 2)
