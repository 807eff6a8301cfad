"""Values for the arguments of a module: plain ones, and those at which operators have corners. Imports torch."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

import torch

from tritonsmith.benchmarks.operators.special import list_specials
from tritonsmith.benchmarks.random_modules.module import Argument, RandomModule, run_step

KINDS = ("plain", "ties", "zeros", "infinities", "nan", "ends")
"""Sets of values, in the order in which they are tried."""
_TIES = (0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0)
_ZEROS = (-0.0, 0.0, -0.0, 1.0, -1.0)
_SHARE = 0.15
"""Of the elements that are special in the last three sets."""
_ENDS = 0.3
"""Of whole numbers that are at an end of their type."""
_FINITE = re.compile(
    r"conv_transpose|scaled_dot_product|softmax\(.* @ |logsumexp|std_mean|var_mean|instance_norm|softsign"
)
"""Operators that give other things than PyTorch's CPU code for infinities or NaN: docs/values.md says what, and why."""
_NO_ENDS = re.compile(
    r"norm|var|std|prod|sum|mean|trapezoid|"
    r"conv|@|matmul|mm\(|einsum|linear|scaled_dot|square|\*\* [23]|pow|hypot|dist|cosine|lp_pool|mse|[^a-z]dot|outer|\* A"
)
"""Squares and products that leave the range on the way (docs/values.md)."""


def list_kinds(text: str) -> list[str]:
    """The sets of values that a module is tried with.

    Args:
        text: the lines of its forward.
    """
    return [kind for kind in KINDS if kind != "ends" or not _NO_ENDS.search(text)]


def is_known(module: RandomModule, values: Sequence[torch.Tensor]) -> bool:
    """Whether an operator meets values of which docs/values.md says that its results are others. Raises what PyTorch raises."""
    known = {argument.name: value.clone() for argument, value in zip(module.arguments, values, strict=True)}
    for step in module.steps:
        if _FINITE.search(step.text) and any(not bool(known[name].isfinite().all()) for name in step.uses):
            return True
        if "cosine_similarity" in step.text and any(map(_leaves_range, (known[name] for name in step.uses))):
            return True
        run_step(step, known)
    return False


def _leaves_range(value: torch.Tensor) -> bool:
    """Whether a sum of squares of a float's elements may leave the range of its type."""
    if not value.is_floating_point() or not value.numel():
        return False
    return bool((value.double().abs().max() ** 2 * value.numel() >= torch.finfo(value.dtype).max).item())


def draw_values(arguments: Sequence[Argument], kind: str, seed: int) -> list[torch.Tensor]:
    """A contiguous tensor for each argument.

    Args:
        arguments: their shapes and types.
        kind: one of `KINDS`.
        seed: of what stands where.
    """
    chance = random.Random(f"{seed} {kind}")
    return [_draw(argument, kind, chance) for argument in arguments]


def _draw(argument: Argument, kind: str, chance: random.Random) -> torch.Tensor:
    count = torch.Size(argument.shape).numel()
    if argument.dtype == torch.bool:
        return torch.tensor([chance.random() < 0.5 for _ in range(count)], dtype=torch.bool).reshape(
            argument.shape
        )
    if argument.dtype.is_floating_point:
        numbers = [_draw_float(argument.dtype, kind, chance) for _ in range(count)]
        return torch.tensor(numbers, dtype=torch.float64).to(argument.dtype).reshape(argument.shape)
    whole = [_draw_whole(argument.dtype, kind, chance) for _ in range(count)]
    return torch.tensor(whole, dtype=torch.int64).to(argument.dtype).reshape(argument.shape)


def _draw_float(dtype: torch.dtype, kind: str, chance: random.Random) -> float:
    if kind == "ties":
        return chance.choice(_TIES)
    if kind == "zeros":
        return chance.choice(_ZEROS)
    plain = chance.gauss(0.0, 1.0)
    if kind == "plain" or chance.random() > _SHARE:
        return plain
    if kind == "infinities":
        return chance.choice([float("inf"), float("-inf"), float("inf"), 0.0, -0.0])
    if kind == "nan":
        return chance.choice([float("nan"), float("nan"), 0.5, -0.0])
    ends = (
        torch.float32 if dtype == torch.float64 else dtype
    )  # beyond fp32's range no wider type tells what a sum should be
    return float(chance.choice(list_specials(ends)[:-3]))


def _draw_whole(dtype: torch.dtype, kind: str, chance: random.Random) -> int:
    if kind == "ends" and chance.random() < _ENDS:
        return int(chance.choice(list_specials(dtype)[:5]))
    least = 0 if dtype == torch.uint8 else -9
    return chance.randint(0 if kind == "ties" else least, 3 if kind == "ties" else 12)
