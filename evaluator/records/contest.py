"""Contests: the ways to write a region of a forward, and how long each takes on the card."""

from __future__ import annotations

import hashlib
from functools import cached_property

from tritonsmith.evaluator.records.op_node import TensorSpec
from tritonsmith.evaluator.records.plain import Record


class Alternative(Record):
    """One way to write a region."""

    name: str
    """What it is, such as `own` or `library`."""
    text: str
    """A complete module with a class `ModelNew`, whose constructor needs no arguments."""


class ContestInput(Record):
    """A tensor that every alternative is called with, of random values."""

    spec: TensorSpec
    below: int = 2
    """Whole numbers are drawn from 0 up to this one."""


class Contest(Record):
    """Several ways to write the same region."""

    inputs: tuple[ContestInput, ...]
    """Of forward, by position."""
    alternatives: tuple[Alternative, ...]
    tf32: bool = False
    """Whether PyTorch's calls may use TF32."""

    @cached_property
    def key(self) -> str:
        """A digest of all that the answer depends on, but for the card and its software."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()


class AlternativeTime(Record):
    """What an alternative takes, or why nobody knows."""

    name: str
    us: float | None = None
    """Median microseconds of the card, with a cold L2 cache."""
    spread_us: float = 0.0
    """Half of the range that the middle half of its times has."""
    reason: str = ""
    """Why it has no time, in one sentence."""


class ContestTimes(Record):
    """The answer to one contest, in the order of its alternatives; none where the seconds were spent before its turn."""

    times: tuple[AlternativeTime, ...] = ()

    def find(self, name: str) -> AlternativeTime | None:
        """The time of an alternative, where it has one."""
        return next((one for one in self.times if one.name == name and one.us is not None), None)


class ContestReport(Record):
    """The answer to several contests, in their order."""

    contests: tuple[ContestTimes, ...] = ()
    seconds: float = 0.0
    note: str = ""
    """Why nothing was timed, where nothing was."""


NO_CARD = "there is no card to race regions on, so what each way takes is predicted"
"""The note of an evaluator that cannot race regions."""
