"""What each part of a kernel's forward takes, as the answer of a run tells it."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from tritonsmith.evaluator.schema import Record, Verdict
from tritonsmith.prompts.author import Brief


class RegionRow(Record):
    """One part of a forward: a kernel of its own, or a call that was left to the library."""

    what: str
    """A kernel's name, or a call as people write it."""
    own: bool = True
    """Whether it is the candidate's own kernel."""
    launches: int | None = None
    """Per forward; None where nobody counted."""
    ms: float | None = None
    """Milliseconds of the card per forward, as the profiled forward had them; None where nobody measured it by itself."""
    before_ms: float | None = None
    """The same of the library's calls in its place; None where nobody measured them."""
    least_ms: float | None = None
    """What its bytes and products need at the card's rates; None where nobody knows."""
    why: str = ""
    """Why it was left to the library; empty for an own kernel."""


@runtime_checkable
class Accounting(Protocol):
    """An author that knows which parts its kernels do, and what it left to the library."""

    def account(self, brief: Brief) -> tuple[RegionRow, ...]:
        """The parts of `brief.current` in forward's order, with the times of its verdict."""
        ...


def list_kernels(verdict: Verdict | None) -> tuple[RegionRow, ...]:
    """A row for each own kernel of a verdict, and for each operator that a library does."""
    if verdict is None:
        return ()
    facts = verdict.facts
    kernels = [RegionRow(what=kernel.name, launches=kernel.launches, ms=kernel.device_ms) for kernel in facts.kernels]
    return (*kernels, *(RegionRow(what=name, own=False, launches=count) for name, count in facts.library_calls.items()))


def time_library_calls(rows: tuple[RegionRow, ...], verdict: Verdict | None) -> float | None:
    """Milliseconds of all library calls together: what the profiled forward took beyond its own kernels. None where nobody knows."""
    facts = verdict.facts if verdict else None
    if facts is None or facts.device_ms is None or all(row.own for row in rows):
        return None
    own = [kernel.device_ms for kernel in facts.kernels]
    known = [value for value in own if value is not None]
    return max(0.0, facts.device_ms - sum(known)) if len(known) == len(own) else None
