"""Inputs for correctness trials that a task's own generator does not draw, and which of them each profile uses. Imports torch.

| kind | floating inputs |
|--|--|
| `own` | what the task's get_inputs draws under a fresh seed |
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
Other inputs (indices, masks) are the task's own in every kind, since nothing is known about what they may be.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import torch

from tritonsmith.evaluator.channel.strides import distinct, with_values

NATURAL = ("own", "signed")
"""Kinds on which the acceptance rule stands as it is; the others may be ill-conditioned for a task."""
STRUCTURAL = ("sided", "below", "above", "holes")
"""Kinds that look for values which do not belong into a result: how well a kernel rounds far from zero or near it is no question there."""
UNEVEN = ("ends", "edges")
"""Kinds in which one term stands far above the others of its sum: they look for lost terms, not for the last bits of an operand."""
HIDDEN = ("shifted", "large", "constant", "below", "above", "holes", "ends", "edges")
"""Kinds that stand between a candidate and promotion, and that no message names."""
TIES = ("ints", "constant", "holes")
"""Kinds with equal values: an index output may then name another place with equal right."""
_ROTATING = ("ints", "tail")
_TAIL_SHARE, _TAIL_FACTOR = 16, 8.0
_LARGE = 40.0
_FAR, _FARTHER = 6.0, 40.0
_SMALL = 2.0**-8
_END = 64.0
_HOLES, _EMPTY_SLICES = 0.25, 8
_SHORT_AXIS = 4  # the ends of such an axis are most of it: none stands out
_HIGHEST_INT = 2


def stress_kinds(profile: str, *, hidden: bool = True) -> tuple[str, ...]:
    """The kinds beside `own` and `signed`: `quick` takes `sided` and another public one, `strict` all, in an order that nobody foresees.

    Without `hidden` the hidden half is left out.
    """
    order = secrets.SystemRandom()
    if profile == "quick":
        return ("sided", order.choice(_ROTATING))
    kinds = ("sided", *_ROTATING, *(HIDDEN if hidden else ()))
    return tuple(order.sample(kinds, len(kinds)))


def redraw(kind: str, tensors: Sequence[torch.Tensor], seed: int) -> list[torch.Tensor]:
    """Tensors like the given ones, strides included, with floating values of the kind, drawn under the seed on their device."""
    if kind == "own" or not tensors:
        return list(tensors)
    generator = torch.Generator(device=tensors[0].device).manual_seed(seed)
    return [with_values(tensor, _values(kind, distinct(tensor), generator)) if tensor.is_floating_point() else tensor for tensor in tensors]


def squeezed(tensors: Sequence[torch.Tensor], own: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The same where the task's own values may leave the range from 0 to 1; elsewhere brought into it, the ends included."""
    return [
        with_values(mine, torch.sigmoid(distinct(tensor).float()).to(tensor.dtype).contiguous()) if _is_share(mine) else tensor
        for tensor, mine in zip(tensors, own, strict=True)
    ]


def _is_share(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() and tensor.numel() > 0 and bool(((tensor >= 0) & (tensor <= 1)).all())


def _values(kind: str, like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    def normal(shape: Sequence[int]) -> torch.Tensor:
        return torch.randn(tuple(shape), generator=generator, device=like.device, dtype=torch.float32)

    row = (*like.shape[:-1], 1) if like.ndim else ()
    if kind == "ints":
        whole = torch.randint(-_HIGHEST_INT, _HIGHEST_INT + 1, tuple(like.shape), generator=generator, device=like.device)
        return whole.to(like.dtype)
    if kind == "constant":
        return normal(row).expand(like.shape).to(like.dtype).contiguous()
    values = normal(like.shape)
    if kind == "tail" and like.ndim:
        count = max(1, like.shape[-1] // _TAIL_SHARE)
        values[..., -count:] *= _TAIL_FACTOR
    elif kind == "shifted":
        values = values * (0.5 + normal(row).abs()) + 2.0 * normal(row)
    elif kind == "large":
        values = values * _LARGE
    elif kind == "sided":
        values = values + _FAR * _sides(values, generator)
    elif kind == "holes":
        values = values * _SMALL * _kept(values, generator)
    elif kind in ("ends", "edges"):
        values = values * _ends(values, kind, generator)
    elif kind in ("below", "above"):
        values = values + (_FARTHER if kind == "above" else -_FARTHER)
    return values.to(like.dtype)


def _sides(values: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """-1 for half of the slices along the first axis, which ones by chance, and 1 for the others; a single one is negative."""
    count = values.shape[0] if values.ndim else 1
    order = torch.randperm(count, generator=generator, device=values.device)
    signs = torch.where(order < (count + 1) // 2, -1.0, 1.0)
    return signs.view(-1, *(1,) * (values.ndim - 1)) if values.ndim else signs[0]


def _kept(values: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """0 where there are holes, 1 elsewhere; along each axis of more than one position at least one slice is empty."""
    kept = torch.rand(values.shape, generator=generator, device=values.device) >= _HOLES
    for axis, extent in enumerate(values.shape):
        if extent > 1:
            empty = torch.randperm(extent, generator=generator, device=values.device)[: max(1, extent // _EMPTY_SLICES)]
            kept.index_fill_(axis, empty, False)
    return kept.to(values.dtype)


def _ends(values: torch.Tensor, kind: str, generator: torch.Generator) -> torch.Tensor:
    """A factor for each element: large at the two ends of one axis, so that other results stay free of large terms."""
    factors = torch.ones_like(values)
    axes = [axis for axis, extent in enumerate(values.shape) if extent > _SHORT_AXIS] or [*range(values.ndim)]
    if not axes:
        return factors
    inner = values.ndim - 1
    others = [axis for axis in axes if axis != inner] or [inner]
    axis = inner if kind == "ends" else others[int(torch.randint(len(others), (1,), generator=generator, device=values.device))]
    for place in {0, values.shape[axis] - 1}:
        factors.narrow(axis, place, 1).fill_(_END)
    return factors


def nudged(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Floating tensors in float64, every value moved by up to one unit of float32's last place: what rounding of the inputs may do."""
    moved = []
    for tensor in tensors:
        if tensor.is_floating_point():
            step = min(torch.finfo(torch.float32).eps, torch.finfo(tensor.dtype).eps)
            tensor = tensor.double()
            moved_by = 1.0 + step * (2.0 * torch.rand_like(tensor) - 1.0)
            tensor = (tensor * moved_by).clamp(tensor.min(), tensor.max()) if tensor.numel() else tensor  # a share stays one
        moved.append(tensor)
    return moved
