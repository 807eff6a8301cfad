"""The runs of this process that are under way. Light: who handles signals asks before anything else is loaded."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol


class ActiveRun(Protocol):
    """A run that can be asked to stop."""

    folder: Path

    def stop(self, reason: str = ...) -> None:
        """Ask it to stop at the next safe point; from any thread."""


_active: list[ActiveRun] = []


def active_runs() -> tuple[ActiveRun, ...]:
    """The runs of this process that are under way."""
    return tuple(_active)


@contextmanager
def under_way(run: ActiveRun) -> Iterator[None]:
    """Count a run as under way until the block ends."""
    _active.append(run)
    try:
        yield
    finally:
        _active.remove(run)
