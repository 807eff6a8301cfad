"""A search space over a kernel's text: parameters with their values, and where in the text each value stands."""

from __future__ import annotations

import ast
import itertools
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from tritonsmith.evaluator.schema import Stage
from tritonsmith.evaluator.texts.source.parse import parse

Value = int | float | bool | str | None
"""A value of a parameter; None leaves an option out."""
Values = dict[str, Value]
"""A configuration: parameters by name."""


@dataclass(frozen=True)
class Parameter:
    """One thing that can be varied."""

    name: str
    stage: Stage
    """Which of the three stages of tuning varies it."""
    values: tuple[Value, ...]
    """What it may be, in order; the present value among them."""
    current: Value
    origin: str = ""
    """What it was read from, in words with the line."""
    needed: bool = False
    """Whether its value has to be written even where it is the present one: an autotuner gave it."""
    kernels: tuple[str, ...] = ()
    """The kernels that use it; empty where that is not known, or where it holds for all."""


@dataclass(frozen=True)
class Edit:
    """A place in a text where a value is written, in characters."""

    start: int
    end: int
    before: str = ""
    """What stands ahead of the value where it is inserted, such as `, num_warps=`."""
    after: str = ""

    def text_of(self, value: Value) -> str:
        """What is written there."""
        return f"{self.before}{value!r}{self.after}"


@dataclass(frozen=True)
class TextSpace:
    """What can be varied in one text.

    Args:
        text: the kernel's module.
        parameters: what can be varied, in the order of reading.
        places: by parameter, where its value stands.
        always: what is changed in every text that is written, such as an autotuner that is taken out.
        starts: configurations to try first, such as those that an autotuner lists.
        unread: sentences about what was stated or listed and could not be used.
    """

    text: str
    parameters: tuple[Parameter, ...] = ()
    places: Mapping[str, tuple[Edit, ...]] = field(default_factory=dict)
    always: tuple[tuple[int, int, str], ...] = ()
    starts: tuple[Values, ...] = ()
    unread: tuple[str, ...] = ()

    def write(self, values: Mapping[str, Value]) -> str | None:
        """The text with these values as plain constants; None where that gives no Python. Parameters that are not named stay.

        Where an autotuner is taken out, each value is written, the present ones too.
        """
        changes: list[tuple[int, int, str]] = list(self.always)
        for parameter in self.parameters:
            value = values.get(parameter.name, parameter.current)
            for place in self.places[parameter.name]:
                left_out = place.start == place.end and value is None
                if (value != parameter.current or parameter.needed) and not left_out:
                    changes.append((place.start, place.end, place.text_of(value)))
        text = apply_changes(self.text, changes)
        try:
            parse(text)
        except (SyntaxError, ValueError):
            return None
        return text

    def of_stages(self, stages: tuple[Stage, ...]) -> tuple[Parameter, ...]:
        """The parameters that these stages vary."""
        return tuple(parameter for parameter in self.parameters if parameter.stage in stages and len(parameter.values) > 1)


def apply_changes(text: str, changes: list[tuple[int, int, str]]) -> str:
    """The text with spans replaced; of several insertions at one place the first stands first."""
    pieces, at = [], 0
    for start, end, new in sorted(changes, key=lambda change: (change[0], change[1])):
        if start < at:
            continue  # inside what is replaced already
        pieces += [text[at:start], new]
        at = end
    return "".join([*pieces, text[at:]])


def count_configurations(parameters: tuple[Parameter, ...]) -> int:
    """Points of the space; 0 without parameters."""
    return math.prod(len(parameter.values) for parameter in parameters) if parameters else 0


def list_configurations(parameters: tuple[Parameter, ...]) -> Iterator[Values]:
    """Every point of the space."""
    for choice in itertools.product(*(parameter.values for parameter in parameters)):
        yield {parameter.name: value for parameter, value in zip(parameters, choice, strict=True)}


class Offsets:
    """Places of syntax nodes in characters; the syntax tree counts lines and bytes.

    Args:
        text: the module.
    """

    def __init__(self, text: str) -> None:
        self._lines = text.splitlines(keepends=True) if "\f" not in text else re.findall(r"[^\n]*\n|[^\n]+$", text)
        self._starts = [0, *itertools.accumulate(len(line) for line in self._lines)]

    def at(self, line: int, column: int) -> int:
        """Characters ahead of a line (from 1) and a column in bytes of UTF-8."""
        content = self._lines[line - 1] if line <= len(self._lines) else ""
        return self._starts[min(line - 1, len(self._lines))] + len(content.encode()[:column].decode(errors="ignore"))

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """Start and end of a node."""
        assert node.end_lineno is not None and node.end_col_offset is not None
        return self.at(node.lineno, node.col_offset), self.at(node.end_lineno, node.end_col_offset)
