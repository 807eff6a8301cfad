"""Pools of what a norm makes of a convolution: the extremes of the convolution's own windows, and the norm of these.

Where every step between is monotone in the convolution's value, the largest of a window's results is that of its largest value or that of
its least one. Rounding is monotone too, so the result is the same number.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, replace

from tritonsmith.prompts.recipes.regions.cutting.users import Users, has_reshaped
from tritonsmith.prompts.recipes.regions.lowering.pointwise import formula
from tritonsmith.prompts.recipes.regions.lowering.reductions import take
from tritonsmith.prompts.recipes.regions.lowering.views import reshape
from tritonsmith.prompts.recipes.regions.values.columns import fits_block
from tritonsmith.prompts.recipes.regions.values.indices import Shape, count
from tritonsmith.prompts.recipes.regions.values.tensors import Formula, MatrixProduct, Reduction, Tensor, TensorView, rename

_MONOTONE = frozenset((
    "v", "v + c", "c + v", "v - c", "c - v", "v * c", "c * v", "v / c", "v * c + c", "(v - c) * tl.rsqrt(c + c)", "-v",
    "tl.maximum(v, c)", "tl.maximum(c, v)", "tl.minimum(v, c)", "tl.minimum(c, v)", "tanh(v)", "sigmoid(v)",
))  # fmt: skip
"""Steps that rise or fall with `v` everywhere, whatever the numbers `c` are."""
_NUMBER = re.compile(r'-?\b\d+(\.\d*)?(e[-+]?\d+)?\b|float\("-?inf"\)')


@dataclass
class Extremes:
    """Pools that can be swapped with the steps ahead of them."""

    product: MatrixProduct
    pools: list[Reduction]
    """Of the convolution's own windows: the largest and the least of each."""
    path: list[tuple[Tensor, int]]
    """Steps from its value on: each with the operand that it comes in by."""
    value: Tensor
    pool: Reduction

    def swap(self, users: Users) -> None:
        """Have forward read the steps done with both extremes."""
        made = []
        for anchor in self.pools:
            word = "most" if anchor.kind == "max" else "least"
            found = rename(take(anchor, 0, self.value.dtype, keep=False), f"{self.value.name or 'value'}_{word}")
            for step, place in self.path:
                found = self._repeat(step, place, found)
            made.append(found)
        for old in users.results_of(self.pool):
            users.replace(old, formula(f"tl.{self.pool.kind}imum({{0}}, {{1}})", *made, like=old.dtype))

    def _repeat(self, step: Tensor, place: int, operand: Tensor) -> Tensor:
        """A step with another operand, of one number for each window."""
        shape = self._pooled(step.shape)
        if isinstance(step, Formula):
            inputs = tuple(operand if number == place else one for number, one in enumerate(step.inputs))
            return replace(step, inputs=inputs, shape=shape, known={})
        return reshape(operand, shape)

    def _pooled(self, shape: Shape) -> Shape:
        """A shape with windows in the place of places."""
        places, windows = self.product.shape[2:], take(self.pool, 0, self.value.dtype, keep=False).shape[2:]
        return (*shape[: -len(places)], *windows) if shape[-len(places) :] == places else (*shape[:-1], count(windows))


def find_extremes(product: MatrixProduct, made: list[Tensor], users: Users, reduced: Collection[int]) -> Extremes | None:
    """What makes of a product's windows all that is pooled, where nothing but reductions along all places reads it besides.

    Args:
        product: the convolution.
        made: its result, and what elementwise work makes of it.
        users: who reads what.
        reduced: reductions along all places of an image.
    """
    below = users.list_above(product)
    pools = [one for one in users.values.values() if id(one) in below and _is_pool(one, product)]
    if len(pools) != 1 or not isinstance(pools[0], Reduction) or not isinstance(pools[0].source, TensorView):
        return None
    pool, views = pools[0], pools[0].source
    known = {id(one) for one in made}
    path: list[tuple[Tensor, int]] = []
    value, above = views.source, {id(views)}
    if views.source.shape != product.shape:
        return None
    while id(value) not in known:
        if id(value) in users.stored or any(id(one) not in above and id(one) not in reduced for one in users.of(value)):
            return None
        place = _find_way(value, product)
        if place is None:
            return None
        path.append((value, place))
        above, value = {id(value)}, value.operands[place]
    if not path or id(value) in users.stored or not _is_read_for_this(value, known, above, users, reduced):
        return None
    windows = [
        Reduction(shape=one.shape, dtype=value.dtype, source=one, axes=pool.axes, kind=kind, name=pool.name)
        for kind in ("max", "min") for one in [replace(views, source=value, known={})]
    ]  # fmt: skip
    return Extremes(product, windows, path[::-1], value, pool)


def _is_pool(value: Tensor, product: MatrixProduct) -> bool:
    if not isinstance(value, Reduction) or value.kind not in ("max", "min"):
        return False
    return isinstance(value.source, TensorView) and fits_block(value.source.windows, product.shape[2:])


def _find_way(value: Tensor, product: MatrixProduct) -> int | None:
    """The operand of a monotone step that has a value for each place, if the others have none for each; None if it is no such step."""
    if has_reshaped(value):
        return 0 if _has_places(value.shape, product) and _has_places(value.operands[0].shape, product) else None
    if not isinstance(value, Formula) or not _has_places(value.shape, product):
        return None
    rank = 1 if value.shape[-1] == count(product.shape[2:]) else len(product.shape) - 2
    spread = [number for number, one in enumerate(value.inputs) if any(size > 1 for size in one.shape[-rank:])]
    if len(spread) != 1 or value.inputs[spread[0]].shape != value.shape:
        return None
    text = value.template.format(*("v" if number == spread[0] else "c" for number in range(len(value.inputs))))
    return spread[0] if _NUMBER.sub("c", text) in _MONOTONE else None


def _has_places(shape: Shape, product: MatrixProduct) -> bool:
    """Whether a shape ends with the places of the product's result, or with their number."""
    places = product.shape[2:]
    return shape[-len(places) :] == places or shape[-1] == count(places)


def _is_read_for_this(value: Tensor, known: Collection[int], above: Collection[int], users: Users, reduced: Collection[int]) -> bool:
    """Whether the elementwise values are read by each other, by the first step, and by reductions along all places."""
    for one in [users.values[key] for key in known]:
        for user in users.of(one):
            ends = users.of(user) if has_reshaped(user) and id(user) not in above else [user]
            inner = id(user) in known and one is not value or id(user) in above and one is value
            if not inner and not all(id(end) in reduced for end in ends):
                return False
    return True
