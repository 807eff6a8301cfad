"""What reading a candidate's text suggests before anything runs: one sentence per place. Fast feedback, never a gate.

Every rule can be evaded and some right kernels do odd things, so a verdict never depends on this. Pure ast; nothing is imported or run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from tritonsmith.evaluator.schema import PrecisionClass
from tritonsmith.evaluator.texts.advice import host, kernels
from tritonsmith.evaluator.texts.advice.text import Remark, Text, read_text

_MOST_CHARACTERS = 200_000
"""A longer text is not read."""
_MOST_ADVICE = 12
"""Sentences per candidate; more would bury the first."""

_RULES: tuple[Callable[[Text], Iterator[Remark]], ...] = (*kernels.RULES, *host.RULES)
"""All rules, in the order in which they are asked."""


class Kind(StrEnum):
    """How much a piece of advice matters."""

    WARNING = "warning"
    """Right kernels have no need of this."""
    NOTE = "note"
    """Right kernels may do this; it often costs speed, accuracy or the label."""


@dataclass(frozen=True)
class Advice:
    """One sentence about one place."""

    line: int
    text: str
    kind: Kind = Kind.WARNING

    def __str__(self) -> str:
        return f"line {self.line}: {'note: ' if self.kind is Kind.NOTE else ''}{self.text}"


def advise(source: str, precision: PrecisionClass = PrecisionClass.IEEE) -> tuple[Advice, ...]:
    """Advice about a candidate's text in order of lines, warnings before notes; empty when nothing stands out.

    Args:
        source: the module that defines ModelNew.
        precision: the arithmetic that the task asks for.
    """
    if len(source) > _MOST_CHARACTERS:
        return (Advice(1, f"the file has {len(source)} characters and was not read; write less", Kind.NOTE),)
    found: dict[tuple[int, str], Advice] = {}
    try:
        text = read_text(source, precision)
        for rule in _RULES:
            for remark in rule(text):
                advice = Advice(remark.line, remark.text, Kind.NOTE if remark.note else Kind.WARNING)
                found.setdefault((advice.line, advice.text), advice)
    except SyntaxError as error:
        return (Advice(error.lineno or 1, f"Python cannot read this ({error.msg}); fix the syntax"),)
    except (ValueError, RecursionError, MemoryError):  # null bytes, or nested deeper than the parser goes
        return (Advice(1, "Python cannot read this file; write plain Python of ordinary depth"),)
    ranked = sorted(found.values(), key=lambda advice: (advice.kind is Kind.NOTE, advice.line, advice.text))
    return tuple(ranked[:_MOST_ADVICE])


def advice_lines(source: str, precision: PrecisionClass = PrecisionClass.IEEE) -> tuple[str, ...]:
    """Advice as sentences, as a verdict carries them."""
    return tuple(str(advice) for advice in advise(source, precision))
