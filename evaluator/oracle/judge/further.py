"""Processes of one baseline each, beside that of all of them: for the further sessions of `strict`, and where memory is short."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from tritonsmith.evaluator.oracle.timing.baselines import BaselineProcess


class FurtherBaselines:
    """Makes these processes; where the memory plan has room they stay alive between candidates.

    Args:
        main: the process of all baselines, which knows the chosen settings.
    """

    def __init__(self, main: BaselineProcess) -> None:
        self._main = main
        self._kept: dict[int, tuple[str, BaselineProcess]] = {}
        """By the number of the draw of weights, with the baseline's name."""

    @property
    def count(self) -> int:
        """How many are alive."""
        return len(self._kept)

    @contextlib.contextmanager
    def take(self, name: str, number: int) -> Iterator[BaselineProcess]:
        """A process for one baseline, in the session with this draw of weights."""
        session, modes = self._main.session, self._main.modes
        if not session.plan.keeps_sessions:
            with contextlib.closing(BaselineProcess(session, modes)) as baselines:
                yield baselines
            return
        if number in self._kept and self._kept[number][0] != name:
            self._kept.pop(number)[1].close()
        yield self._kept.setdefault(number, (name, BaselineProcess(session, modes)))[1]

    def close(self) -> None:
        """End those that are alive."""
        for _, baselines in self._kept.values():
            baselines.close()
        self._kept.clear()
