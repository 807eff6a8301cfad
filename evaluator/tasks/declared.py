"""The sizes that a task declares, one by one; of long spans a few that stand for all."""

from __future__ import annotations

import itertools
import math
import secrets
from typing import NamedTuple

from tritonsmith.evaluator.schema import SizeValue, Task
from tritonsmith.evaluator.tasks.declarations import Shape, Span
from tritonsmith.evaluator.tasks.files import at_meant_size, at_shape, declared_shapes, find_value

_MOST_SHAPES = 8
"""Entries of SHAPES that one promotion is tried at; where more are declared they are drawn anew each time."""
_MOST_VALUES = 8
"""Of one name that are told one by one."""
_MOST_MEMBERS = 16
"""Sizes of one entry of SHAPES."""
_BETWEEN = 5
"""Sizes within a long span; none where it goes together with others that are told one by one."""


def list_members(shape: Shape) -> tuple[list[dict[str, SizeValue]], tuple[str, ...]]:
    """The sizes of an entry, and the names with too long a span to be told one by one.

    Of those there are the lowest, the highest and a few sizes between, in this order; all such names change together.
    """
    few: dict[str, list[SizeValue]] = {}
    spans: dict[str, Span] = {}
    for name, value in shape.items():
        if isinstance(value, tuple) and value[1] - value[0] >= _MOST_VALUES:
            spans[name] = value[0], value[1]
        else:
            few[name] = list(range(value[0], value[1] + 1)) if isinstance(value, tuple) else [value]
    while math.prod(map(len, few.values())) * (2 if spans else 1) > _MOST_MEMBERS:
        longest = max(few, key=lambda name: len(few[name]))
        span = shape[longest]
        if not isinstance(span, tuple):
            break  # single values only
        spans[longest] = span[0], span[1]
        del few[longest]
    rows: list[dict[str, SizeValue]] = [{name: span[end] for name, span in spans.items()} for end in ((0, 1) if spans else (0,))]
    several = math.prod(map(len, few.values())) > 1
    between = {} if several else {name: _pick_between(*span) for name, span in spans.items()}
    for number in range(max(map(len, between.values()), default=0)):
        picked = {name: sizes or [spans[name][0]] for name, sizes in between.items()}
        rows.append({name: sizes[(number + place) % len(sizes)] for place, (name, sizes) in enumerate(picked.items())})
    choices = itertools.product(*few.values())
    return [dict(zip(few, choice, strict=True)) | row for choice in choices for row in rows], tuple(spans)


def _pick_between(low: int, high: int) -> list[int]:
    """All numbers within a short span; of a long one a few odd primes from end to end, which no block divides, in rising order."""
    if high - low <= _BETWEEN + 1:
        return list(range(low + 1, high))
    first = max(low, 1)
    near = [round(first * (high / first) ** (step / (_BETWEEN - 1))) for step in range(_BETWEEN - 1)]
    found = [next((one for one in range(max(start, low + 1, 3), high) if _is_prime(one)), low) for start in near]
    last = next((one for one in range(high - 1, low, -1) if _is_prime(one)), low)
    return [one for one in dict.fromkeys((*found, last)) if one > low]


def _is_prime(number: int) -> bool:
    return number > 2 and all(number % by for by in range(2, math.isqrt(number) + 1))


def note_small(task: Task) -> Task:
    """The task with a line about what its SMALL shrinks and its SHAPES does not cover; as it is where there is nothing to say."""
    if task.meant is None or task.sized:
        return task
    own = at_meant_size(task)
    kept = {name: find_value(own, name) for name in task.overrides}
    shrunk = {name: value for name, value in kept.items() if value != task.overrides[name]}
    told = ", ".join(f"{name} {'' if value is ... else f'{value} -> '}{task.overrides[name]}" for name, value in shrunk.items())
    outside, unnamed = _find_uncovered(declared_shapes(task), shrunk)
    parts = [f"judged at SMALL: {told}"]
    if outside:
        parts.append(f"not proven at {_write_sizes(outside, shrunk)}, outside SHAPES")
    if unnamed:
        parts.append(f"best.py may refuse {_write_sizes(unnamed, shrunk)}: SHAPES does not name {'it' if len(unnamed) == 1 else 'them'}")
    return task.model_copy(update={"sized": "; ".join(parts)}) if shrunk else task


def _find_uncovered(shapes: tuple[Shape, ...], wanted: dict[str, object]) -> tuple[list[str], list[str]]:
    """Of the entry of SHAPES that comes nearest to the wanted sizes: names with other values, and names that it lacks."""
    found = []
    for shape in shapes or ({},):
        unnamed = [name for name in wanted if name not in shape]
        outside = [name for name, value in wanted.items() if name in shape and not _holds(shape[name], value)]
        found.append((outside, unnamed))
    return min(found, key=lambda names: (len(names[1]), len(names[0])))


def _holds(declared: SizeValue | Span, value: object) -> bool:
    if not isinstance(declared, tuple):
        return declared == value
    return isinstance(value, int) and declared[0] <= value <= declared[-1]


def _write_sizes(names: list[str], values: dict[str, object]) -> str:
    return " and ".join(f"{name} as the file sets it" if values[name] is ... else f"{name} = {values[name]}" for name in names)


class DrawnSize(NamedTuple):
    """A size that a task declares besides its own."""

    entry: int
    """Which one of SHAPES it is drawn from, from 0 on."""
    sizes: dict[str, SizeValue]
    """Its names with their values."""
    task: Task
    """The task at that size."""


def draw_sizes(task: Task, most: int = _MOST_SHAPES) -> list[DrawnSize]:
    """One size from each of up to `most` entries of SHAPES, in an order by chance. Raises TaskError."""
    order = secrets.SystemRandom()
    declared = declared_shapes(task)
    drawn = []
    for entry in order.sample(range(len(declared)), min(most, len(declared))):
        sizes = {name: _draw(value) for name, value in declared[entry].items()}
        drawn.append(DrawnSize(entry, sizes, at_shape(task, sizes)))
    return drawn


def _draw(value: SizeValue | tuple[int, int]) -> SizeValue:
    return value[0] + secrets.randbelow(value[1] - value[0] + 1) if isinstance(value, tuple) else value
