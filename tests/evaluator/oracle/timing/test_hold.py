"""Waiting for the card: a process that did not run meanwhile must know it. The clock is a stand-in."""

import math

import pytest

from tritonsmith.evaluator.oracle.timing import hold


class Clock:
    """Reads a microsecond more each time; `busy`: after which readings (below zero: looks) others have the processor for a millisecond."""

    def __init__(self, *busy: int) -> None:
        self.busy, self.readings, self.now = busy, 0, 5.0

    def __call__(self) -> float:
        self.now += 1e-6
        read = self.now
        self.readings += 1
        self.pause(self.readings)
        return read

    def pause(self, place: int) -> None:
        """Somebody else has the processor here."""
        self.now += 1e-3 if place in self.busy else 0.0


@pytest.mark.parametrize(
    ("busy", "slept"), [((), False), ((4,), False), ((-4,), False), ((5,), True), ((-5,), True), ((6,), True), ((-6,), True)]
)
def test_a_process_knows_that_it_did_not_run(
    busy: tuple[int, ...], slept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that did not run before it saw something knows it."""
    clock, looks = Clock(*busy), 0
    monkeypatch.setattr(hold.time, "perf_counter", clock)

    def come() -> bool:  # what is looked for comes after five looks
        nonlocal looks
        looks += 1
        seen = looks > 5
        clock.pause(-looks)  # after the look, before the clock is read
        return seen

    seen, before = hold.wait_until(come)
    assert (seen - before > 50e-6) is slept and seen == clock.now


def test_an_event_before_the_first_look_may_be_old() -> None:
    """What has come before the first look may have come long ago."""
    assert hold.wait_until(lambda: True)[1] == -math.inf
