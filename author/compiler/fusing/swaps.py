"""Reductions of what a norm makes of a convolution, swapped with the norm: then nothing reads the convolution once more.

- Where every step between is monotone in the convolution's value, the largest of a window's results is that of its largest value or that
  of its least one. Rounding of sums and products is monotone too, so the result is the same number.
- Where every step is linear but for what it adds, the mean of the results is what the steps make of the mean.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from tritonsmith.author.compiler.fusing.users import Users, has_reshaped
from tritonsmith.author.compiler.ir.columns import fits_block
from tritonsmith.author.compiler.ir.indices import Shape, count
from tritonsmith.author.compiler.ir.values import (
    AnchorResult,
    Formula,
    Held,
    MatrixProduct,
    Reduction,
    Tensor,
    TensorView,
    base_of,
    rename,
)
from tritonsmith.author.compiler.lowering.pointwise import formula
from tritonsmith.author.compiler.lowering.reductions import reduce, take
from tritonsmith.author.compiler.lowering.views import reshape

_AFFINE = frozenset(("v", "v + c", "c + v", "v - c", "c - v", "v * c", "c * v", "v / c", "v * c + c", "(v - c) * tl.rsqrt(c + c)", "-v"))
"""Steps that multiply `v` and add to it, whatever the numbers `c` are."""
_MONOTONE = _AFFINE | {
    "tl.maximum(v, c)", "tl.maximum(c, v)", "tl.minimum(v, c)", "tl.minimum(c, v)", "tanh(v)", "sigmoid(v)",
}  # fmt: skip
"""Steps that rise or fall with `v` everywhere."""
_FALLING = frozenset(("c - v", "-v"))
"""Of these: steps that fall with `v`."""
_SCALED = re.compile(r"v [*/] (\S+)(?: \+ \S+)?|(\S+) \* v")
"""Steps that rise or fall as the sign of a number says: a number's text, or the braces of an operand."""
_NUMBER = re.compile(r'\(-[\d.e+-]+\)|-?\b\d+(\.\d*)?(e[-+]?\d+)?\b|float\("-?inf"\)')


@dataclass(frozen=True)
class Ends:
    """What is known of a convolution's result.

    Args:
        product: the convolution.
        made: its result, and what elementwise work makes of it.
        users: who reads what.
        reduced: reductions that are done on the tile.
    """

    product: MatrixProduct
    made: list[Tensor]
    users: Users
    reduced: Collection[int]


@dataclass(frozen=True)
class _Way:
    """Steps from what elementwise work makes of a convolution to what is reduced: each with the operand that it comes in by."""

    value: Tensor
    steps: list[tuple[Tensor, int]]

    def repeat(self, operand: Tensor, resize: Callable[[Shape], Shape]) -> Tensor:
        """The steps done with another operand."""
        for step, place in self.steps:
            shape = resize(step.shape)
            if isinstance(step, Formula):
                inputs = tuple(operand if number == place else one for number, one in enumerate(step.inputs))
                operand = replace(step, inputs=inputs, shape=shape, known={})
            else:
                operand = reshape(operand, shape)
        return operand


def swap_extremes(ends: Ends) -> list[Reduction]:
    """Swap a pool of extremes with the monotone steps ahead of it, if only they read the convolution; returns what takes its place."""
    product, users = ends.product, ends.users
    for pool in _list_reductions(ends, ("max", "min")):
        views = pool.source
        if not isinstance(views, TensorView) or not fits_block(views.windows, product.shape[2:]) or views.source.shape != product.shape:
            continue
        if (way := _follow(views.source, views, ends, _MONOTONE)) is not None:
            break
    else:
        return []
    swapped, made = [], []
    windows = take(pool, 0, pool.dtype, keep=False).shape[2:]
    direction = _find_direction(way, product)
    kinds = [("max", "most"), ("min", "least")] if direction is None else [(pool.kind, "most" if pool.kind == "max" else "least")]
    value = formula("{0} * {1}", way.value, direction, like=way.value.dtype) if isinstance(direction, Tensor) else way.value
    for kind, word in kinds:
        source = replace(views, source=value, known={})
        anchor = Reduction(shape=source.shape, dtype=value.dtype, source=source, axes=pool.axes, kind=kind, name=pool.name)
        found = rename(take(anchor, 0, value.dtype, keep=False), f"{way.value.name or 'value'}_{word}")
        if isinstance(direction, Tensor):
            found = rename(formula("{0} * {1}", found, direction, like=value.dtype), f"{way.value.name or 'value'}_extreme")
        made.append(way.repeat(found, lambda shape: _resize(shape, product, windows)))
        swapped.append(anchor)
    for old in users.results_of(pool):
        users.replace(old, formula(f"tl.{pool.kind}imum({{0}}, {{1}})", *made, like=old.dtype) if len(made) > 1 else made[0])
    return swapped


def _find_direction(way: _Way, product: MatrixProduct) -> Tensor | int | None:
    """1 where all steps rise with the value; a tensor with 1 or -1 for each channel; None where only the steps' own numbers tell."""
    direction, turns = None, 0
    for step, place in way.steps:
        if not isinstance(step, Formula):
            continue
        text = step.template.format(*("v" if number == place else f"{{{number}}}" for number in range(len(step.inputs))))
        turns += _NUMBER.sub("c", re.sub(r"\{\d+\}", "c", text)) in _FALLING
        scaled = _SCALED.fullmatch(text)
        if scaled is None:
            continue
        word = scaled[1] or scaled[2]
        if not word.startswith("{"):
            turns += word.startswith(("-", "(-"))
            continue
        factor = step.inputs[int(word[1:-1])]
        if isinstance(factor, Formula) and factor.template.startswith("tl.rsqrt("):
            continue
        if step.shape != product.shape or not _is_known(factor):
            return None
        sign = formula("tl.where({0} < 0, -1.0, 1.0)", factor, like=factor.dtype)
        direction = sign if direction is None else formula("{0} * {1}", direction, sign, like="float32")
    if turns % 2 == 0:
        return 1 if direction is None else direction
    return None if direction is None else formula("-{0}", direction, like="float32")


def _is_known(value: Tensor) -> bool:
    """Whether forward has a value ahead of its kernels: a parameter, an argument, a part of one, or elementwise work on such."""
    while isinstance(value, TensorView):
        value = value.source
    if isinstance(value, Formula):
        return all(_is_known(one) for one in value.inputs)
    return isinstance(value, Held) and value.dtype == "float32"


def swap_means(ends: Ends, goes_along: Callable[[Reduction], bool]) -> tuple[Reduction, Tensor] | None:
    """Swap a sum along all places with the affine steps ahead of it, if only they read the convolution.

    Returns the sum along places that takes its place, and what it sums. `goes_along` says whether a reduction goes along all places.
    """
    product, users, places = ends.product, ends.users, ends.product.shape[2:]
    for old in _list_reductions(ends, ("sum",)):
        fits = id(old) not in ends.reduced and old.source.size == product.size and goes_along(old)
        if fits and (way := _follow(old.source, old, ends, _AFFINE)) is not None:
            break
    else:
        return None
    rank = len(product.shape)
    added = reduce(way.value, tuple(range(2, rank)), "sum", way.value.dtype, keep=True)
    mean = rename(formula("{0} / {1}", added, count(places), like=way.value.dtype), f"{way.value.name or 'value'}_mean")
    done = way.repeat(mean, lambda shape: _resize(shape, product, (1,) * len(places)))
    last = len(places) if old.source.shape[-len(places) :] == places else 1
    others = tuple(axis for axis in old.axes if axis < len(done.shape) - last)
    total = formula("{0} * {1}", reduce(done, others, "sum", old.dtype) if others else done, count(places), like=old.dtype)
    for result in users.results_of(old):
        users.replace(result, reshape(total, result.shape))
    sums = base_of(added)
    assert isinstance(sums, AnchorResult) and isinstance(sums.anchor, Reduction)
    return sums.anchor, way.value


def _list_reductions(ends: Ends, kinds: tuple[str, ...]) -> list[Reduction]:
    """Reductions of what is made of the convolution."""
    below = ends.users.list_above(ends.product)
    return [one for one in ends.users.values.values() if isinstance(one, Reduction) and one.kind in kinds and id(one) in below]


def _resize(shape: Shape, product: MatrixProduct, sizes: Shape) -> Shape:
    """A shape with other numbers in the place of places."""
    places = product.shape[2:]
    return (*shape[: -len(places)], *sizes) if shape[-len(places) :] == places else (*shape[:-1], count(sizes))


def _follow(value: Tensor, reader: Tensor, ends: Ends, allowed: Collection[str]) -> _Way | None:
    """The steps from an elementwise value to this one, if nothing but reductions on the tile reads any value on the way besides."""
    known = {id(one) for one in ends.made}
    steps: list[tuple[Tensor, int]] = []
    above = {id(reader)}
    while id(value) not in known:
        if id(value) in ends.users.stored or any(id(one) not in above and id(one) not in ends.reduced for one in ends.users.of(value)):
            return None
        place = _find_way(value, ends.product, allowed)
        if place is None:
            return None
        steps.append((value, place))
        above, value = {id(value)}, value.operands[place]
    if not steps or id(value) in ends.users.stored or not _is_read_for_this(value, known, above, ends):
        return None
    return _Way(value, steps[::-1])


def _find_way(value: Tensor, product: MatrixProduct, allowed: Collection[str]) -> int | None:
    """The operand of an allowed step that has a value for each place, if the others have none for each; None if it is no such step."""
    places = product.shape[2:]
    if has_reshaped(value) or isinstance(value, TensorView) and value.windows == places:
        return 0 if _has_places(value.shape, product) and _has_places(value.operands[0].shape, product) else None
    if not isinstance(value, Formula) or not _has_places(value.shape, product):
        return None
    rank = 1 if value.shape[-1] == count(places) else len(places)
    spread = [number for number, one in enumerate(value.inputs) if any(size > 1 for size in one.shape[-rank:])]
    if len(spread) != 1 or value.inputs[spread[0]].shape != value.shape:
        return None
    text = value.template.format(*("v" if number == spread[0] else "c" for number in range(len(value.inputs))))
    return spread[0] if _NUMBER.sub("c", text) in allowed else None


def _has_places(shape: Shape, product: MatrixProduct) -> bool:
    """Whether a shape ends with the places of the product's result, or with their number."""
    places = product.shape[2:]
    return shape[-len(places) :] == places or shape[-1] == count(places)


def _is_read_for_this(value: Tensor, known: Collection[int], above: Collection[int], ends: Ends) -> bool:
    """Whether the elementwise values are read by each other, by the first step, and by reductions on the tile."""
    for one in ends.made:
        for user in ends.users.of(one):
            read = ends.users.of(user) if has_reshaped(user) and id(user) not in above else [user]
            inner = id(user) in known and one is not value or id(user) in above and one is value
            if not inner and not all(id(end) in ends.reduced for end in read):
                return False
    return True
