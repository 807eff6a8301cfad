"""Draws a module by its seed: each step is one that the values so far admit. Imports torch."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable

import torch

from tritonsmith.benchmarks.random_modules import elementwise, layers, moves
from tritonsmith.benchmarks.random_modules.module import (
    Argument,
    RandomModule,
    Step,
    Values,
    drop_unused,
    run_step,
)
from tritonsmith.benchmarks.random_modules.scope import FLOATS, TYPES, Scope
from tritonsmith.benchmarks.random_modules.values import draw_values

_SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 31, 33, 65)
_LONG = (129, 257, 1025, 2049, 4099)
"""Sizes at which rows are read in pieces, and a kernel has several programs."""
_MOST_ELEMENTS = 2048
"""Of a value: the interpreter takes milliseconds for it."""
_MOST_OF_LONG = 20_000
"""Of a value that has a long axis."""
_MOST_AXES = 5
_ATTEMPTS = 40
"""Draws of one step until it is one that PyTorch takes."""
_MOST_RESULTS = 6
_DRAWERS: tuple[tuple[Callable[[Scope], str], int], ...] = (
    (elementwise.draw_function, 14),
    (elementwise.draw_arithmetic, 14),
    (elementwise.draw_mixed, 6),
    (elementwise.draw_comparison, 4),
    (elementwise.draw_question, 2),
    (elementwise.draw_whole, 6),
    (elementwise.draw_logical, 3),
    (elementwise.draw_choice, 5),
    (elementwise.draw_cast, 6),
    (elementwise.draw_write, 5),
    (moves.draw_view, 9),
    (moves.draw_copy, 6),
    (moves.draw_join, 3),
    (moves.draw_index, 5),
    (moves.draw_scatter, 3),
    (moves.draw_rotation, 2),
    (moves.draw_made, 3),
    (moves.draw_search, 2),
    (moves.draw_masked, 2),
    (layers.draw_reduction, 9),
    (layers.draw_scan, 6),
    (layers.draw_whole_reduction, 4),
    (layers.draw_norm, 4),
    (layers.draw_product, 7),
    (layers.draw_convolution, 3),
    (layers.draw_pool, 3),
    (layers.draw_loss, 2),
    (layers.draw_attention, 1),
    (layers.draw_order, 1),
)
"""Kinds of steps, and how often each is tried."""


def draw_module(seed: int) -> RandomModule:
    """The module of a seed, the same in every process.

    Args:
        seed: any whole number.
    """
    chance = random.Random(seed)
    arguments = _draw_arguments(chance)
    values = {
        argument.name: argument.lay_out(value)
        for argument, value in zip(arguments, draw_values(arguments, "plain", seed), strict=True)
    }
    writes = chance.random() < 0.04
    frozen = set() if writes else {value.untyped_storage().data_ptr() for value in values.values()}
    scope = Scope(chance, dict(values), frozen)
    steps: list[Step] = []
    for _ in range(chance.randint(2, 12)):
        step = _draw_step(scope, len(scope.values))
        if step is not None:
            steps.append(step)
    used = frozenset().union(*(step.uses for step in steps), frozenset())
    leaves = [name for step in steps for name in step.targets if name not in used]
    made = [name for step in steps for name in step.targets]
    if made and chance.random() < 0.3:
        leaves.append(chance.choice(made))
    outputs = tuple(dict.fromkeys(leaves))[-_MOST_RESULTS:]
    if not outputs:
        return draw_module(seed + (1 << 40))
    return drop_unused(RandomModule(tuple(arguments), tuple(steps), outputs))


def _draw_arguments(chance: random.Random) -> list[Argument]:
    """One to four tensors whose sizes are drawn from a few, so that they go together."""
    sizes = [chance.choice(_SIZES) for _ in range(3)]
    if chance.random() < 0.03:
        sizes[0] = 0
    most = _MOST_ELEMENTS
    if chance.random() < 0.06:
        sizes, most = [chance.choice(_LONG), chance.choice((1, 2, 3)), 1], _MOST_OF_LONG
    main = chance.choices([*FLOATS, *TYPES], weights=[12, 3, 4, 3, *[1] * len(TYPES)])[0]
    arguments = []
    for number in range(chance.randint(1, 4)):
        axes = chance.choices(range(5), weights=[1, 4, 8, 5, 3])[0]
        while True:
            shape = tuple(
                chance.choice([*sizes, *sizes, 1] if chance.random() < 0.9 else _SIZES) for _ in range(axes)
            )
            if torch.Size(shape).numel() <= most:
                break
            sizes = [max(1, size // 2) for size in sizes] if chance.random() < 0.3 else sizes
        dtype = main if chance.random() < 0.65 else chance.choice(TYPES)
        layout = chance.choices(["plain", "turned", "gaps", "shifted"], weights=[8, 1, 1, 1])[0]
        arguments.append(Argument(f"x{number}", shape, dtype, layout))
    return arguments


def _draw_step(scope: Scope, number: int) -> Step | None:
    """A step that PyTorch takes, whose values are then in the scope; None where none was met."""
    for _ in range(_ATTEMPTS):
        (drawer,) = scope.chance.choices(
            [drawer for drawer, _ in _DRAWERS], weights=[weight for _, weight in _DRAWERS]
        )
        try:
            text = drawer(scope)
        except LookupError:
            continue
        if "] = " in text:
            step = Step((), text)
            made = _try_step(step, scope.values)
        else:
            step, made = _try_expression(text, number, scope.values)
        if made is None:
            continue
        scope.values.update(made)
        return step
    return None


def _try_expression(text: str, number: int, values: Values) -> tuple[Step, Values | None]:
    """A step for an expression, whose targets are as many as its results."""
    trial = Step(("v_trial",), text)
    made: Values = dict(values)
    try:
        _run_quietly(trial, made)
    except Exception:  # noqa: BLE001 - whatever PyTorch refuses is drawn again
        return trial, None
    result = made.pop("v_trial")
    parts = list(result) if isinstance(result, tuple | list) else [result]
    alone = f"{text}[0]" if isinstance(result, tuple | list) and len(parts) == 1 else text
    step = Step(tuple(f"v{number + place}" for place in range(len(parts))), alone)
    if not all(map(_is_admitted, parts)) or not 0 < len(parts) <= 4:
        return step, None
    return step, dict(zip(step.targets, parts, strict=True))


def _try_step(step: Step, values: Values) -> Values | None:
    try:
        _run_quietly(step, dict(values))
    except Exception:  # noqa: BLE001 - whatever PyTorch refuses is drawn again
        return None
    return {}


def _run_quietly(step: Step, values: Values) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run_step(step, values)


def _is_admitted(value: object) -> bool:
    return (
        isinstance(value, torch.Tensor)
        and value.numel() <= _MOST_ELEMENTS
        and value.ndim <= _MOST_AXES
        and value.dtype in TYPES
    )
