"""What all processes of a task know of its baselines: the setting that counts, which of them do not count, and why."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tritonsmith.evaluator.channel.doorbell import AUTOTUNED_BASELINES, mode_number
from tritonsmith.evaluator.oracle.handles.runner import RunnerFault

EXEMPT = "eager"
"""The module itself. The rule of results is made from it, so it always counts."""
_NOTE_LENGTH = 200
"""Characters of a baseline's failure that are noted."""


class KnownBaselines:
    """What the processes of one task have found out.

    Args:
        modes: settings of baselines that were chosen before.
    """

    def __init__(self, modes: dict[str, int] | None = None) -> None:
        self.modes = dict(modes or {})
        """The chosen setting of each baseline by its name."""
        self.notes: list[str] = []
        """A sentence about each baseline that could not be run, or does not count."""
        self._left_out: dict[str, str] = {}
        """A sentence about each baseline that nobody tries again, by its name."""
        self._wrong: dict[tuple[int, int], str] = {}
        """By setting and number of the weights: what is wrong with a baseline's result, empty where it is right."""

    def list_usable(self, names: Iterable[str]) -> tuple[str, ...]:
        """Those that are not left out."""
        return tuple(name for name in names if name not in self._left_out)

    def list_settings(self, name: str, weights: int, *, tf32: bool) -> list[int]:
        """Numbers of a baseline's settings that count.

        Where TF32 is allowed both do: a stricter setting is a fair bar as well. Once chosen, a setting stays. One whose result is wrong
        does not count.
        """
        settings = (False, True) if tf32 else (False,)
        modes = [self.modes[name]] if name in self.modes else [mode_number(name, tf32) for tf32 in settings]
        return [mode for mode in modes if not self._wrong.get((mode, weights))]

    def must_autotune(self, name: str) -> bool:
        """Whether nobody knows yet that building it has an end. A known setting was built before, and torch has kept its choices."""
        return name in AUTOTUNED_BASELINES and name not in self.modes

    def check(self, name: str, settings: Iterable[int], weights: int, asked: str, find_wrong: Callable[[int], str]) -> None:
        """Leave a baseline out where the results of all its settings break the rule of the class that is asked for.

        `find_wrong` says what is wrong with a setting's result, and is asked once for each setting and draw of weights.
        """
        if name == EXEMPT:
            return
        found = [self._look(mode, weights, find_wrong) for mode in settings]
        if found and all(found):
            self.leave_out(name, f"baseline {name} left out: its result breaks the rule of class {asked} ({found[0][:_NOTE_LENGTH]})")

    def _look(self, mode: int, weights: int, find_wrong: Callable[[int], str]) -> str:
        if (mode, weights) not in self._wrong:
            try:
                self._wrong[mode, weights] = find_wrong(mode)
            except RunnerFault:  # one that cannot run is noted where its setting is chosen, or where it is timed
                return ""
        return self._wrong[mode, weights]

    def leave_out(self, name: str, why: str) -> None:
        """Let nobody try this baseline again; a note says why."""
        self._left_out[name] = why
        self.modes.pop(name, None)
        self._note(why)

    def miss(self, name: str, fault: RunnerFault) -> None:
        """Note that a baseline could not be run this time."""
        self.modes.pop(name, None)
        self._note(describe_missing(name, fault))

    def _note(self, sentence: str) -> None:
        if sentence not in self.notes:
            self.notes.append(sentence)

    def explain(self, name: str) -> str:
        """Why a baseline is left out; empty where it is not."""
        return self._left_out.get(name, "")

    def forget_notes(self) -> None:
        """Forget which baselines could not be run; those that are left out stay noted."""
        self.notes[:] = self._left_out.values()


def describe_missing(name: str, fault: RunnerFault) -> str:
    """Why a baseline could not be had."""
    return f"baseline {name} could not be had: {str(fault)[:_NOTE_LENGTH]}"
