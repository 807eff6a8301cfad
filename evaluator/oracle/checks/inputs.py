"""Kinds of inputs for correctness trials: how each is drawn, what it looks for, and which profile uses it. Imports torch.

| kind | floating inputs |
|--|--|
| `own` | what the task's get_inputs draws under a fresh seed |
| `real` | those of the task's INPUTS, where it brings some along |
| `signed` | standard normal |
| `ints` | whole numbers from -2 to 2: sums are exact, so a dropped or doubled term shows |
| `tail` | standard normal, the last sixteenth of the last axis eightfold: a lost tail shows |
| `shifted` | each row with an offset and a scale of its own: mixed-up rows and bad cancellation show |
| `large` | forty times standard normal: saturation, overflow and clipping show |
| `sided` | standard normal, lowered by six in half of the slices along the first axis, raised in the others: padding in a maximum shows |
| `below`, `above` | standard normal, forty lower or higher everywhere: the same for any axis and for padding far from zero |
| `constant` | one value in each row: zero variance, ties |
| `holes` | standard normal over 256; a quarter of the elements, an eighth of the slices along each axis zero: another epsilon shows |
| `ends` | standard normal, the first and last position of the last axis 64-fold: one lost element shows, in a maximum too |
| `edges` | the same along one of the other axes, which one by chance |

Each kind keeps the memory layout of the task's own tensors.
Whole numbers whose range is known have kinds of their own (`domains.py`). Other inputs (masks, codes) are the task's own in every kind.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from tritonsmith.evaluator.channel.strides import distinct, with_values

_TAIL_PART = 16
"""The tail is the last axis length divided by this."""
_TAIL_FACTOR = 8.0
_LARGE = 40.0
"""Standard deviation of `large`."""
_FAR = 6.0
"""Distance from zero of `sided`, in standard deviations."""
_FARTHER = 40.0
"""Distance from zero of `below` and `above`, in standard deviations."""
_SMALL = 2.0**-8
"""Standard deviation of `holes`, near the square root of an epsilon."""
_END = 64.0
"""Factor of the outstanding positions of `ends` and `edges`."""
_HOLES = 0.25
"""Share of elements that are zero in `holes`."""
_EMPTY_SLICES = 8
"""One slice in so many along each axis is zero in `holes`."""
_SHORT_AXIS = 4
"""The ends of an axis up to this length are most of it: none stands out."""
_HIGHEST_INT = 2
_MOVED_TOGETHER = 1 << 24
"""Values that are moved at once: 128 MB of float64."""

Drawing = Callable[[torch.Tensor, torch.Generator], torch.Tensor]
"""Values in the shape of a tensor, of any dtype, drawn by a generator on the tensor's device."""


def _draw_normal(like: torch.Tensor, generator: torch.Generator, shape: Sequence[int] | None = None) -> torch.Tensor:
    """Standard normal float32 values on the device of `like`, in its shape or another one."""
    shape = like.shape if shape is None else shape
    return torch.randn(tuple(shape), generator=generator, device=like.device, dtype=torch.float32)


def _row_shape(like: torch.Tensor) -> tuple[int, ...]:
    """The shape with one value in each row."""
    return (*like.shape[:-1], 1) if like.ndim else ()


def _draw_ints(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    lowest, end = -_HIGHEST_INT, _HIGHEST_INT + 1
    return torch.randint(lowest, end, tuple(like.shape), generator=generator, device=like.device, dtype=torch.int8)


def _draw_constant(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return _draw_normal(like, generator, _row_shape(like)).expand(like.shape)


def _draw_tail(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    values = _draw_normal(like, generator)
    if like.ndim:
        values[..., -max(1, like.shape[-1] // _TAIL_PART) :] *= _TAIL_FACTOR
    return values


def _draw_shifted(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    row = _row_shape(like)
    values = _draw_normal(like, generator).mul_(0.5 + _draw_normal(like, generator, row).abs())
    return values.add_(2.0 * _draw_normal(like, generator, row))


def _draw_large(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return _draw_normal(like, generator).mul_(_LARGE)


def _draw_sided(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return _draw_normal(like, generator).add_(_FAR * draw_sides(like, generator))


def _draw_holes(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    values = _draw_normal(like, generator).mul_(_SMALL)
    return values.masked_fill_(_draw_holes_in(like, generator), 0.0)


def _draw_ends(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return raise_ends(_draw_normal(like, generator), "ends", generator)


def _draw_edges(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return raise_ends(_draw_normal(like, generator), "edges", generator)


def _draw_below(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return _draw_normal(like, generator).sub_(_FARTHER)


def _draw_above(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    return _draw_normal(like, generator).add_(_FARTHER)


@dataclass(frozen=True)
class InputKind:
    """One kind of inputs, and what the acceptance rule must know about it."""

    name: str
    about: str
    """What floating inputs of the kind are, in words for a person."""
    draw: Drawing | None = None
    """How floating values are drawn; None for the task's own values."""
    natural: bool = False
    """The acceptance rule stands as it is; on other kinds a task may be ill-conditioned."""
    structural: bool = False
    """It looks for values that do not belong into a result; how well a kernel rounds there is no question."""
    uneven: bool = False
    """One term stands far above the others of its sum; it looks for lost terms, not for the last bits of an operand."""
    hidden: bool = False
    """It stands between a candidate and promotion, and no message names it."""
    ties: bool = False
    """It has equal values; an index output may then name another place with equal right."""
    exact: bool = False
    """Its values are whole numbers, which every precision class represents."""


KINDS = {
    kind.name: kind
    for kind in (
        InputKind("own", "what get_inputs draws, under another seed", natural=True),
        InputKind("real", "the inputs that the task brings along", natural=True, ties=True),
        InputKind("signed", "standard normal values", _draw_normal, natural=True),
        InputKind("sided", "standard normal values, six lower or higher in each slice of the first axis", _draw_sided, structural=True),
        InputKind("ints", "whole numbers from -2 to 2", _draw_ints, ties=True, exact=True),
        InputKind("tail", "standard normal values, the last sixteenth of the last axis eightfold", _draw_tail),
        InputKind("shifted", "standard normal values, each row with an offset and a scale of its own", _draw_shifted, hidden=True),
        InputKind("large", "standard normal values times 40", _draw_large, hidden=True),
        InputKind("constant", "one value in each row", _draw_constant, hidden=True, ties=True),
        InputKind("below", "standard normal values less 40", _draw_below, structural=True, hidden=True),
        InputKind("above", "standard normal values plus 40", _draw_above, structural=True, hidden=True),
        InputKind("holes", "standard normal values over 256, many of them zero", _draw_holes, structural=True, hidden=True, ties=True),
        InputKind("ends", "standard normal values, 64-fold at the ends of the last axis", _draw_ends, uneven=True, hidden=True),
        InputKind("edges", "standard normal values, 64-fold at the ends of another axis", _draw_edges, uneven=True, hidden=True),
    )
}
"""Every kind by its name."""


def stress_kinds(profile: str, *, hidden: bool = True, interpreted: bool = False) -> tuple[str, ...]:
    """The kinds that are not natural: `quick` takes `sided` and another public one, `strict` all, in an order that nobody foresees.

    Without `hidden` the hidden half is left out. `interpreted`, where a call takes seconds, `quick` takes `sided` alone: only padding in a
    maximum passes every natural kind and is still an ordinary mistake.
    """
    order = secrets.SystemRandom()
    public = [kind.name for kind in KINDS.values() if not (kind.natural or kind.hidden)]
    if profile == "quick":
        return ("sided",) if interpreted else ("sided", order.choice([name for name in public if name != "sided"]))
    names = public + [kind.name for kind in KINDS.values() if kind.hidden and hidden]
    return tuple(order.sample(names, len(names)))


def redraw(kind: str, tensors: Sequence[torch.Tensor], seed: int) -> list[torch.Tensor]:
    """Tensors like the given ones, strides included, with floating values of the kind, drawn under the seed on their device."""
    draw = KINDS[kind].draw
    if draw is None or not tensors:
        return list(tensors)
    generator = torch.Generator(device=tensors[0].device).manual_seed(seed)
    return [_draw_like(tensor, draw, generator) if tensor.is_floating_point() else tensor for tensor in tensors]


def _draw_like(tensor: torch.Tensor, draw: Drawing, generator: torch.Generator) -> torch.Tensor:
    once = distinct(tensor)
    return with_values(tensor, draw(once, generator).to(once.dtype).contiguous())


def map_to_unit_range(tensors: Sequence[torch.Tensor], own: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors, brought into 0 to 1 (ends included) wherever the task's own values all lie there."""
    return [
        with_values(natural, torch.sigmoid(distinct(drawn).float()).to(drawn.dtype).contiguous()) if _is_share(natural) else drawn
        for drawn, natural in zip(tensors, own, strict=True)
    ]


def _is_share(tensor: torch.Tensor) -> bool:
    """Whether every value lies between 0 and 1."""
    return tensor.is_floating_point() and tensor.numel() > 0 and bool(((tensor >= 0) & (tensor <= 1)).all())


def draw_sides(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """-1 for half of the slices along the first axis, which ones by chance, and 1 for the others; a single one is negative."""
    count = like.shape[0] if like.ndim else 1
    order = torch.randperm(count, generator=generator, device=like.device)
    signs = torch.where(order < (count + 1) // 2, -1.0, 1.0)
    return signs.view(-1, *(1,) * (like.ndim - 1)) if like.ndim else signs[0]


def _draw_holes_in(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Where there are holes; along each axis of more than one position at least one slice is empty."""
    holes = torch.rand(like.shape, generator=generator, device=like.device) < _HOLES
    for axis, extent in enumerate(like.shape):
        if extent > 1:
            empty = torch.randperm(extent, generator=generator, device=like.device)[: max(1, extent // _EMPTY_SLICES)]
            holes.index_fill_(axis, empty, True)
    return holes


def _long_axes(like: torch.Tensor) -> list[int]:
    """Axes whose ends are few of their positions; all axes where each is short."""
    return [axis for axis, extent in enumerate(like.shape) if extent > _SHORT_AXIS] or [*range(like.ndim)]


def raise_ends(
    values: torch.Tensor, kind: str, generator: torch.Generator, numbers: tuple[int, int] | None = None
) -> torch.Tensor:
    """The values with the ends of one axis changed in place: the last axis for `ends`, another one, by chance, for `edges`.

    They are made large, so that other results stay free of large terms; or all of the one end is the first of `numbers`, and of the other
    the second.
    """
    inner = values.ndim - 1
    if not values.ndim:
        return values
    axes = [axis for axis in _long_axes(values) if axis != inner] or [inner]
    chosen = int(torch.randint(len(axes), (1,), generator=generator, device=values.device)) if kind == "edges" else 0
    axis = axes[chosen] if kind == "edges" else inner
    for place, number in {0: 0, values.shape[axis] - 1: 1}.items():
        end = values.narrow(axis, place, 1)
        _ = end.mul_(_END) if numbers is None else end.fill_(numbers[number])
    return values


def perturb_last_place(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Floating tensors in float64, each value moved by up to one unit of float32's last place: what rounding of the inputs may do."""
    return move_values([tensor.double() if tensor.is_floating_point() else tensor for tensor in tensors], torch.finfo(torch.float32).eps)


def move_values(tensors: Sequence[torch.Tensor], step: float) -> list[torch.Tensor]:
    """Copies in the tensors' own types, each floating value moved by up to `step` as a share of it."""
    return [_move(tensor, step) if tensor.is_floating_point() and tensor.numel() else tensor for tensor in tensors]


def _move(tensor: torch.Tensor, step: float) -> torch.Tensor:
    moved = tensor.clone(memory_format=torch.contiguous_format)
    least, most = (float(end) for end in torch.aminmax(tensor))
    for values in moved.view(-1).split(_MOVED_TOGETHER):
        doubled = values.double()
        doubled.mul_(torch.rand_like(doubled).mul_(2.0 * step).add_(1.0 - step)).clamp_(least, most)  # a share stays one
        values.copy_(doubled)
    return moved


def scale_by_chance(tensor: torch.Tensor, step: float, generator: torch.Generator, *, alike: bool = False) -> torch.Tensor:
    """The tensor itself, each value made larger or smaller by `step` as a share of it; 16-bit ones are rounded to the nearest.

    `alike`: the same is done to all of them.
    """
    whole = alike or tensor.numel() <= _MOVED_TOGETHER
    pieces = (tensor,) if whole else tensor.view(-1).split(_MOVED_TOGETHER) if tensor.is_contiguous() else tensor.unbind(0)
    for values in pieces:
        shape = () if alike else values.shape
        wide = torch.promote_types(values.dtype, torch.float32).to_real()
        up = torch.randint(2, tuple(shape), generator=generator, device=values.device, dtype=torch.int8)
        factors = up.to(wide).mul_(2.0 * step).add_(1.0 - step)
        if values.dtype in (torch.float16, torch.bfloat16):
            values.copy_(values * factors if alike else factors.mul_(values))
        else:
            values.mul_(factors)
    return tensor
