"""Reductions of what a norm makes of a convolution, swapped with the norm: then nothing reads the convolution once more.

- Where every step between is monotone in the convolution's value, the largest of a window's results is that of its largest value or that
  of its least one. Rounding of sums and products is monotone too, so the result is the same number.
- Where every step is linear but for what it adds, the mean of the results is what the steps make of the mean.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from tritonsmith.author.compiler.fusing.users import Users, has_reshaped
from tritonsmith.author.compiler.ir.columns import fits_block
from tritonsmith.author.compiler.ir.indices import Shape, count
from tritonsmith.author.compiler.ir.operators import A, Applied, B, Operand, Tree, read_number
from tritonsmith.author.compiler.ir.operators import Operator as Op
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

V, N = A, B
"""In the steps below: the value, and any number or other operand."""
_FALLING: Collection[Tree] = frozenset((N - V, -V))
"""Steps that fall with the value."""
_AFFINE: Collection[Tree] = frozenset(
    (V, V + N, N + V, V - N, V * N, N * V, V / N, V * N + N, (V - N) * Op.RSQRT(N + N), *_FALLING)
)
"""Steps that multiply the value and add to it, whatever the numbers are."""
_RISING = frozenset(
    operator(*given) for operator in Op if operator.rising for given in ((V,), (V, N), (N, V)) if len(given) == operator.arity
)
"""Steps that rise with the value everywhere."""
_MONOTONE: Collection[Tree] = frozenset((*_AFFINE, *_RISING))
"""Steps that rise or fall with the value everywhere."""


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
    value = formula(A * B, way.value, direction, like=way.value.dtype) if isinstance(direction, Tensor) else way.value
    for kind, word in kinds:
        source = replace(views, source=value, known={})
        anchor = Reduction(shape=source.shape, dtype=value.dtype, source=source, axes=pool.axes, kind=kind, name=pool.name)
        found = rename(take(anchor, 0, value.dtype, keep=False), f"{way.value.name or 'value'}_{word}")
        if isinstance(direction, Tensor):
            found = rename(formula(A * B, found, direction, like=value.dtype), f"{way.value.name or 'value'}_extreme")
        made.append(way.repeat(found, lambda shape: _resize(shape, product, windows)))
        swapped.append(anchor)
    join = (Op.MAXIMUM if pool.kind == "max" else Op.MINIMUM)(A, B)
    for old in users.results_of(pool):
        users.replace(old, formula(join, *made, like=old.dtype) if len(made) > 1 else made[0])
    return swapped


def _find_direction(way: _Way, product: MatrixProduct) -> Tensor | int | None:
    """1 where all steps rise with the value; a tensor with 1 or -1 for each channel; None where only the steps' own numbers tell."""
    direction, turns = None, 0
    for step, place in way.steps:
        if not isinstance(step, Formula):
            continue
        turns += _generalize(step.expression, place) in _FALLING
        scale = _find_scale(step.expression, place)
        if scale is None:
            continue
        if not isinstance(scale, Operand):
            number = read_number(scale)
            turns += number is not None and number < 0
            continue
        factor = step.inputs[scale.place]
        if isinstance(factor, Formula) and factor.operator is Op.RSQRT:
            continue
        if step.shape != product.shape or not _is_known(factor):
            return None
        sign = formula(Op.WHERE(A < 0, -1.0, 1.0), factor, like=factor.dtype)
        direction = sign if direction is None else formula(A * B, direction, sign, like="float32")
    if turns % 2 == 0:
        return 1 if direction is None else direction
    return None if direction is None else formula(-A, direction, like="float32")


def _generalize(tree: Tree, place: int) -> Tree:
    """The tree with the operand of a place as `V`, and with `N` for others and for numbers."""
    if isinstance(tree, Operand):
        return V if tree.place == place else N
    if read_number(tree) is not None:
        return N
    return Applied(tree.operator, tuple(_generalize(part, place) for part in tree.arguments)) if isinstance(tree, Applied) else tree


def _find_scale(tree: Tree, place: int) -> Tree | None:
    """What a step multiplies the operand of a place by, or divides it by; a number may be added. None for any other step."""
    value = Operand(place)
    match tree:
        case Applied(Op.ADD, (Applied(Op.MUL | Op.DIV, (first, scale)), _)) if first == value:
            return scale
        case Applied(Op.MUL | Op.DIV, (first, scale)) if first == value:
            return scale
        case Applied(Op.MUL, (scale, second)) if second == value:
            return scale
        case _:
            return None


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
    mean = rename(formula(A / B, added, count(places), like=way.value.dtype), f"{way.value.name or 'value'}_mean")
    done = way.repeat(mean, lambda shape: _resize(shape, product, (1,) * len(places)))
    last = len(places) if old.source.shape[-len(places) :] == places else 1
    others = tuple(axis for axis in old.axes if axis < len(done.shape) - last)
    total = formula(A * B, reduce(done, others, "sum", old.dtype) if others else done, count(places), like=old.dtype)
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


def _follow(value: Tensor, reader: Tensor, ends: Ends, allowed: Collection[Tree]) -> _Way | None:
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


def _find_way(value: Tensor, product: MatrixProduct, allowed: Collection[Tree]) -> int | None:
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
    return spread[0] if _generalize(value.expression, spread[0]) in allowed else None


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
