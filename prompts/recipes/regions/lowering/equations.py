"""Equations of `einsum` as products of matrices."""

from __future__ import annotations

from tritonsmith.prompts.recipes.regions.lowering.views import permute
from tritonsmith.prompts.recipes.regions.values.tensors import Tensor


def read_equation(equation: str, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor, tuple[int, ...]] | None:
    """The operands as [..., M, K] and [..., K, N], and which axes of their product [..., M, N] the result has in turn.

    None for equations that are no product of matrices, one for each place along the leading axes.
    """
    given, arrow, result = equation.replace(" ", "").partition("->")
    first, comma, second = given.partition(",")
    letters = (first, second, result)
    if not arrow or not comma or any(not one.isalpha() or len(set(one)) != len(one) for one in letters):
        return None
    leads = [letter for letter in result if letter in first and letter in second]
    rows = [letter for letter in result if letter in first and letter not in second]
    columns = [letter for letter in result if letter in second and letter not in first]
    summed = [letter for letter in first if letter in second and letter not in result]
    if (len(rows), len(columns), len(summed)) != (1, 1, 1) or len(result) != len(leads) + 2:
        return None
    wanted = ([*leads, *rows, *summed], [*leads, *summed, *columns])
    if any(len(want) != len(has) for want, has in zip(wanted, letters[:2], strict=True)):
        return None  # a letter that only one operand has is summed
    turned = [permute(one, tuple(has.index(letter) for letter in want))
              for one, has, want in zip((left, right), letters[:2], wanted, strict=True)]  # fmt: skip
    if turned[0].shape[:-2] != turned[1].shape[:-2]:
        return None
    plain = [*leads, *rows, *columns]
    return turned[0], turned[1], tuple(plain.index(letter) for letter in result)
