"""Views: the same elements at other places, padded, repeated or one behind the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tritonsmith.author.compiler.ir.indices import ZERO, Coordinates, Guard, Index, Shape, ravel, unravel
from tritonsmith.author.compiler.ir.operators import A, B, C, Constant, D, Operand
from tritonsmith.author.compiler.ir.operators import Operator as Op
from tritonsmith.author.compiler.ir.torch_calls import Cut, Expand, Permute, Reshape, Select, Unfold, ViewStep, call_function
from tritonsmith.author.compiler.ir.values import ZERO_POINT, Held, Item, Joined, LibraryCall, Position, Stacked, Tensor, TensorView
from tritonsmith.author.compiler.lowering.calls import Lower, Lowered, NodeCall, NotCovered, find_axes
from tritonsmith.author.compiler.lowering.pointwise import cast, formula, round_number, to_constant

MOST_PARTS = 8
"""Tensors that a kernel reads as one; it asks for each element which of them has it."""
_MOST_PLACED, _MOST_COPIED = 64, 2
"""Parts of a tensor that kernels store at their places, and those that are copied there besides."""
Move = Callable[[Coordinates], Coordinates]


def view(
    source: Tensor, shape: Shape, move: Move, shown: ViewStep | None = None, guard: Any = None, fill: Constant = ZERO_POINT
) -> TensorView:
    """A view of a value."""
    return TensorView(shape=tuple(shape), dtype=source.dtype, source=source, move=move, shown=shown, guard=guard, fill=fill)


def reshape(source: Tensor, shape: Shape) -> Tensor:
    """The elements in the same order under another shape."""
    if tuple(shape) == source.shape:
        return source
    if [size for size in shape if size != 1] == [size for size in source.shape if size != 1]:
        return _pad_axes(source, tuple(shape))
    if isinstance(source, Stacked) and source.axis == len(source.shape) - 1 and shape and shape[-1] == source.shape[-1]:
        return Stacked.of([reshape(part, (*shape[:-1], 1)) for part in source.parts], len(shape) - 1)
    return view(source, shape, lambda at: unravel(ravel(at, tuple(shape)), source.shape), Reshape(tuple(shape)))


def _pad_axes(source: Tensor, shape: Shape) -> Tensor:
    """The same with other axes of one element."""
    own = [axis for axis, size in enumerate(shape) if size != 1]
    if isinstance(source, Stacked):
        axis = own[sum(size != 1 for size in source.shape[: source.axis])]
        return Stacked.of([reshape(part, (*shape[:axis], 1, *shape[axis + 1 :])) for part in source.parts], axis)

    def move(at: Coordinates) -> Coordinates:
        left = iter(own)
        return tuple(ZERO if size == 1 else at[next(left)] for size in source.shape)

    return view(source, shape, move, Reshape(shape))


def permute(source: Tensor, order: tuple[int, ...]) -> Tensor:
    """The axes in another order."""
    if order == tuple(range(len(order))):
        return source
    if isinstance(source, TensorView) and isinstance(source.shown, Permute):
        axes = source.shown.order
        return permute(source.source, tuple(axes[axis] for axis in order))
    places = tuple(order.index(axis) for axis in range(len(order)))
    return view(
        source, tuple(source.shape[axis] for axis in order), lambda at: tuple(at[place] for place in places),
        Permute(order),
    )  # fmt: skip


def expand(source: Tensor, shape: Shape) -> Tensor:
    """The value repeated along axes of one element."""
    if tuple(shape) == source.shape:
        return source
    lead = len(shape) - len(source.shape)
    sizes = source.shape
    return view(
        source, shape, lambda at: tuple(ZERO if size == 1 else index for index, size in zip(at[lead:], sizes, strict=True)),
        Expand(tuple(shape)),
    )  # fmt: skip


def cut(source: Tensor, axis: int, start: int, length: int, step: int = 1) -> Tensor:
    """Every `step`-th element along an axis."""
    if (start, length, step) == (0, source.shape[axis], 1):
        return source
    if isinstance(source, Stacked) and source.axis == axis:
        return Stacked.of(source.parts[start : start + length * step : step], axis)
    shape = (*source.shape[:axis], length, *source.shape[axis + 1 :])
    end = start + (length - 1) * step + 1
    return view(source, shape, lambda at: (*at[:axis], at[axis] * step + start, *at[axis + 1 :]), Cut(axis, start, end, step))


def count_along(shape: Shape, axis: int) -> Tensor:
    """For each element of a shape its place along an axis."""
    return Position(shape=shape, dtype="int64", index=lambda at: at[axis])


def pick(source: Tensor, axis: int, place: int) -> Tensor:
    """One place of an axis, without the axis."""
    place %= source.shape[axis]
    shape = (*source.shape[:axis], *source.shape[axis + 1 :])
    if isinstance(source, Stacked) and source.axis == axis:
        return reshape(source.parts[place], shape)
    return view(source, shape, lambda at: (*at[:axis], Index(constant=place), *at[axis:]), Select(axis, place))


def stack(parts: list[Tensor], axis: int) -> Tensor:
    """Values of one shape and type beside each other along a new axis."""
    first = parts[0]
    shape = (*first.shape[:axis], len(parts), *first.shape[axis:])
    if len(parts) <= MOST_PARTS:
        shown = (reshape(one, (*one.shape[:axis], 1, *one.shape[axis:])) for one in parts)
        return Joined(shape=shape, dtype=first.dtype, parts=tuple(shown), axis=axis)
    record = call_function("torch.stack", list(map(Operand, range(len(parts)))), axis)
    return LibraryCall(shape=shape, dtype=first.dtype, name="stack", record=record, inputs=tuple(parts), says="torch.stack")


def flip(source: Tensor, axes: tuple[int, ...]) -> Tensor:
    """The elements along axes in the opposite order."""
    sizes = source.shape
    found = view(
        source, sizes, lambda at: tuple(at[axis] * -1 + (sizes[axis] - 1) if axis in axes else at[axis] for axis in range(len(sizes)))
    )
    found.flipped = axes
    return found


def pad(source: Tensor, before: tuple[int, ...], after: tuple[int, ...], fill: Any = 0.0) -> Tensor:
    """The value with a rim of one number; a negative rim cuts."""
    shape = tuple(size + low + high for size, low, high in zip(source.shape, before, after, strict=True))
    sizes = source.shape
    return view(
        source, shape, lambda at: tuple(index - low for index, low in zip(at, before, strict=True)), None,
        lambda at: tuple(Guard(index, low, low + size) for index, low, size in zip(at, before, sizes, strict=True)),
        to_constant(round_number(fill, source.dtype), source.dtype),
    )  # fmt: skip


def _reshape(call: NodeCall) -> Lowered:
    return reshape(call.tensor(0, "input", "self"), call.shape)


def _permute(call: NodeCall) -> Lowered:
    source = call.tensor(0, "input", "self")
    rank = len(source.shape)
    name = call.node.target.rpartition(".")[2]
    if name == "permute":
        given = call.kwargs.get("dims", call.args[1:])
        order = list(given[0] if given and isinstance(given[0], list | tuple) else given)
        return permute(source, tuple(axis % rank for axis in order))
    if name in ("movedim", "moveaxis"):
        moved, targets = ([one] if isinstance(one, int) else list(one) for one in (call.get(1, "source"), call.get(2, "destination")))
        rest = [axis for axis in range(rank) if axis not in [one % rank for one in moved]]
        for target, axis in sorted((target % rank, axis % rank) for target, axis in zip(targets, moved, strict=True)):
            rest.insert(target, axis)
        return permute(source, tuple(rest))
    first, second = (0, 1) if name == "t" else (call.get(1, "dim0", "axis0"), call.get(2, "dim1", "axis1"))
    return swap(source, first, second) if rank > 1 else source


def swap(source: Tensor, first: int, second: int) -> Tensor:
    """Two axes exchanged."""
    order = list(range(len(source.shape)))
    order[first], order[second] = order[second], order[first]
    return permute(source, tuple(order))


def _expand(call: NodeCall) -> Lowered:
    return expand(call.tensor(0, "input", "self"), call.shape)


def _repeat(call: NodeCall) -> Lowered:
    source, shape = call.tensor(0, "input", "self"), call.shape
    lead = len(shape) - len(source.shape)
    return view(source, shape, lambda at: tuple(index % size for index, size in zip(at[lead:], source.shape, strict=True)))


def _repeat_each(call: NodeCall) -> Lowered:
    source, times, axis = call.tensor(0, "input", "self"), call.get(1, "repeats"), call.get(2, "dim", default=None)
    if not isinstance(times, int):
        raise NotCovered("with several counts")
    source = reshape(source, (source.size,)) if axis is None else source
    place = (axis or 0) % len(source.shape)
    return view(source, call.shape, lambda at: (*at[:place], at[place] // times, *at[place + 1 :]))


def _split(call: NodeCall) -> Lowered:
    """`chunk`, `split`, `unbind`, `tensor_split`: the results' shapes say it all."""
    source = call.tensor(0, "input", "self")
    if call.node.target.rpartition(".")[2] == "unbind":
        axis = call.get(1, "dim", default=0) % len(source.shape)
        if source.shape[axis] != len(call.node.outputs):
            raise NotCovered("of an axis of another size than the trace shows")
        return tuple(pick(source, axis, place) for place in range(source.shape[axis]))
    axis = call.get(2, "dim", default=0) % len(source.shape)
    found: list[Tensor] = []
    start = 0
    for spec in call.node.outputs:
        found.append(cut(source, axis, start, spec.shape[axis]))
        start += spec.shape[axis]
    return tuple(found)


def _roll(call: NodeCall) -> Lowered:
    source, shifts, axes = call.tensor(0, "input", "self"), call.get(1, "shifts"), call.get(2, "dims", default=None)
    if axes is None:
        size = source.size
        return reshape(view(reshape(source, (size,)), (size,), lambda at: ((at[0] + -shifts % size) % size,)), source.shape)
    by = dict(zip(find_axes(axes, len(source.shape)) if isinstance(axes, int) else [axis % len(source.shape) for axis in axes],
                  [shifts] if isinstance(shifts, int) else shifts, strict=True))  # fmt: skip
    sizes = source.shape
    return view(
        source, sizes,
        lambda at: tuple((index + (-by[axis]) % sizes[axis]) % sizes[axis] if axis in by else index for axis, index in enumerate(at)),
    )  # fmt: skip


def _are_placed(parts: list[Tensor], call: NodeCall) -> bool:
    """Whether kernels that make the parts are likely to store each at its place: they are computed, and nobody else reads most of them."""
    bases = [_strip(part) for part in parts]
    own = call.node.references
    again = {name for node in call.facts.ops if node.name != call.node.name for name in node.references} & {*own}
    made = all(not isinstance(base, Held | LibraryCall | Item) for base in bases)
    return made and len(again) <= _MOST_COPIED and len({*own}) == len(parts) <= _MOST_PLACED


def _strip(value: Tensor) -> Tensor:
    while isinstance(value, TensorView):
        value = value.source
    return value


def _join(call: NodeCall) -> Lowered:
    given = call.get(0, "tensors")
    if not all(isinstance(one, Tensor) for one in given):
        raise NotCovered("of something that is no tensor")
    parts = [cast(one, call.dtype) for one in given]
    rank, name = len(call.shape), call.node.target.rpartition(".")[2]
    if name.endswith("stack") and name != "stack":
        return _stack(parts, name, call)
    if name == "stack":
        axis = call.get(1, "dim", default=0) % rank
        parts = [reshape(one, (*one.shape[:axis], 1, *one.shape[axis:])) for one in parts]
    axis = call.get(1, "dim", "axis", default=0) % rank
    parts = [one for one in parts if one.size]
    if len(parts) > MOST_PARTS and not _are_placed(parts, call):
        raise NotCovered(f"of {len(parts)} tensors")
    return parts[0] if len(parts) == 1 else Joined(shape=call.shape, dtype=call.dtype, parts=tuple(parts), axis=axis)


def _stack(parts: list[Tensor], name: str, call: NodeCall) -> Lowered:
    """`vstack` and its kin: behind each other along an axis that vectors get first."""
    if name in ("vstack", "row_stack"):
        axis, shapes = 0, [one.shape if len(one.shape) > 1 else (1, one.size) for one in parts]
    elif name == "hstack":
        axis, shapes = len(call.shape) > 1, [one.shape or (1,) for one in parts]
    elif name == "column_stack":
        axis, shapes = 1, [one.shape if len(one.shape) > 1 else (one.size, 1) for one in parts]
    else:
        axis, shapes = 2, [one.shape if len(one.shape) > 2 else (*(one.shape if len(one.shape) > 1 else (1, one.size)), 1) for one in parts]
    if len(parts) > MOST_PARTS:
        raise NotCovered(f"of {len(parts)} tensors")
    shown = tuple(reshape(one, shape) for one, shape in zip(parts, shapes, strict=True))
    return shown[0] if len(shown) == 1 else Joined(shape=call.shape, dtype=call.dtype, parts=shown, axis=int(axis))


def _differ(call: NodeCall) -> Lowered:
    """`diff`: each place of an axis minus the one before."""
    source, times = call.tensor(0, "input", "self"), call.get(1, "n", default=1)
    axis = call.get(2, "dim", default=-1) % len(source.shape)
    if call.get(3, "prepend", default=None) is not None or call.get(4, "append", default=None) is not None or source.dtype == "bool":
        raise NotCovered("with more at the ends")
    value: Tensor = source
    for _ in range(times):
        length = value.shape[axis] - 1
        value = formula(A - B, cut(value, axis, 1, length), cut(value, axis, 0, length), like=call.dtype)
    return value


def _cross(call: NodeCall) -> Lowered:
    """The cross product of vectors of three elements along an axis."""
    left, right = (expand(call.tensor(place, name), call.shape) for place, name in enumerate(("input", "other")))
    axis = call.get(2, "dim", default=None)
    axis = (next(place for place, size in enumerate(call.shape) if size == 3) if axis is None else axis) % len(call.shape)
    if call.node.target.startswith("torch.linalg") and "dim" not in call.kwargs:
        axis = len(call.shape) - 1
    sides = [[cut(one, axis, place, 1) for place in range(3)] for one in (left, right)]
    parts = [
        formula(A * B - C * D, sides[0][first], sides[1][second], sides[0][second], sides[1][first], like=call.dtype)
        for first, second in ((1, 2), (2, 0), (0, 1))
    ]
    return Joined(shape=call.shape, dtype=call.dtype, parts=tuple(parts), axis=axis)


def _turn(call: NodeCall) -> Lowered:
    """`rot90`: a quarter turn, or several, of a plane."""
    source, times = call.tensor(0, "input", "self"), call.get(1, "k", default=1) % 4
    first, second = (axis % len(source.shape) for axis in call.get(2, "dims", default=(0, 1)))
    if times == 0:
        return source
    if times == 2:
        return flip(source, (first, second))
    return flip(swap(source, first, second), (first,)) if times == 1 else swap(flip(source, (first,)), first, second)


def unfold_axis(call: NodeCall) -> Lowered:
    """Tensor.unfold: windows along one axis, as a last axis."""
    source, axis, step = call.tensor(0, "self"), call.get(1, "dimension"), call.get(3, "step")
    axis %= len(source.shape)
    return view(
        source, call.shape, lambda at: (*at[:axis], at[axis] * step + at[-1], *at[axis + 1 : -1]),
        Unfold(axis, call.get(2, "size"), step),
    )  # fmt: skip


def _diagonal(call: NodeCall) -> Lowered:
    """Diagonals of matrices, and matrices of which nothing else is left: `diag`, `diagonal`, `diag_embed`."""
    source, name = call.tensor(0, "input", "self", "A"), call.node.target.rpartition(".")[2]
    offset = call.get(1, "diagonal", "offset", default=0)
    plain = (-2, -1) if name == "diag_embed" or "linalg" in call.node.target else (0, 1)
    first, second = (call.get(place, f"dim{place - 1}", default=axis) for place, axis in zip((2, 3), plain, strict=True))
    rank = max(len(call.shape), len(source.shape))
    if len(call.shape) > len(source.shape):
        return embed_diagonal(source, call.shape, offset, first % rank, second % rank)
    ends = {first % rank: max(-offset, 0), second % rank: max(offset, 0)}

    def move(at: Coordinates) -> Coordinates:
        rest = iter(at[:-1])
        return tuple(at[-1] + ends[axis] if axis in ends else next(rest) for axis in range(rank))

    return view(source, call.shape, move)


def embed_diagonal(source: Tensor, shape: Shape, offset: int, down: int, across: int) -> TensorView:
    """Matrices along two axes with the source's last axis as a diagonal, and zeros beside it."""
    return view(
        source, shape, lambda at: (*(one for axis, one in enumerate(at) if axis not in (down, across)), at[down] - max(-offset, 0)), None,
        lambda at: (Guard(at[across] - at[down], offset, offset + 1),), to_constant(0, source.dtype),
    )  # fmt: skip


def _shuffle(call: NodeCall) -> Lowered:
    """Channels to pixels, pixels to channels, channels among groups."""
    source = call.tensor(0, "input")
    name = (call.node.module_type or call.node.target.rpartition(".")[2]).lower().replace("_", "")
    if name == "channelshuffle":
        groups = call.option(1, "groups", None)
        batch, channels, *rest = source.shape
        swapped = permute(reshape(source, (batch, groups, channels // groups, *rest)), (0, 2, 1, *range(3, 3 + len(rest))))
        return reshape(swapped, source.shape)
    if len(source.shape) != 4:
        raise NotCovered("of other than four axes")
    factor = call.option(1, "upscale_factor" if name == "pixelshuffle" else "downscale_factor", None)
    batch, channels, height, width = source.shape
    if name == "pixelshuffle":
        parts = reshape(source, (batch, channels // factor**2, factor, factor, height, width))
        return reshape(permute(parts, (0, 1, 4, 2, 5, 3)), call.shape)
    parts = reshape(source, (batch, channels, height // factor, factor, width // factor, factor))
    return reshape(permute(parts, (0, 1, 3, 5, 2, 4)), call.shape)


def _gate(call: NodeCall) -> Lowered:
    """`glu`: the first half times the sigmoid of the second one."""
    source = call.tensor(0, "input")
    axis = call.option(1, "dim", -1) % len(source.shape)
    half = source.shape[axis] // 2
    return formula(A * Op.SIGMOID(B), cut(source, axis, 0, half), cut(source, axis, half, half), like=call.dtype)


def _spread(call: NodeCall) -> Lowered:
    """`outer` and `ger`: every element of one vector times every element of another one."""
    left, right = call.tensor(0, "input", "self"), call.tensor(1, "vec2", "other")
    return formula(A * B, reshape(left, (left.size, 1)), right, like=call.dtype, shape=call.shape)


def _mesh(call: NodeCall) -> Lowered:
    """`meshgrid`: each vector along an axis of its own."""
    given = call.args[0] if isinstance(call.args[0], list | tuple) else call.args
    order = list(range(len(given)))
    if call.kwargs.get("indexing", "ij") == "xy" and len(order) > 1:
        order[:2] = 1, 0
    places = range(len(order))
    sides = (reshape(one, tuple(one.size if place == axis else 1 for place in places)) for axis, one in zip(order, given, strict=True))
    return tuple(expand(one, call.shape) for one in sides)


def _expand_all(call: NodeCall) -> Lowered:
    """`broadcast_tensors`: each tensor in the shape that all have together."""
    given = call.args[0] if isinstance(call.args[0], list | tuple) else call.args
    return tuple(expand(one, call.shape) for one in given)


def _glance(call: NodeCall) -> Lowered:
    """Attributes that are views: `.T` and `.mT`."""
    source, name = call.tensor(0, "self"), call.get(1, "name")
    if name == "T":
        return permute(source, tuple(reversed(range(len(source.shape)))))
    if name == "mT":
        return swap(source, -1, -2)
    if name == "data":
        return source
    raise NotCovered(f"the attribute {name}")


TABLE: dict[str, Lower] = {
    **dict.fromkeys(("view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze", "view_as", "reshape_as", "ravel"), _reshape),
    **dict.fromkeys(("atleast_1d", "atleast_2d"), _reshape),
    **dict.fromkeys(("nn.Flatten", "nn.Unflatten"), _reshape),
    **dict.fromkeys(("permute", "transpose", "t", "swapaxes", "swapdims", "movedim", "moveaxis"), _permute),
    **dict.fromkeys(("expand", "expand_as", "broadcast_to"), _expand),
    **dict.fromkeys(("repeat", "tile"), _repeat),
    "repeat_interleave": _repeat_each, "roll": _roll, "unfold": unfold_axis,
    **dict.fromkeys(("chunk", "split", "unbind", "tensor_split"), _split),
    **dict.fromkeys(("cat", "concat", "concatenate", "stack", "vstack", "row_stack", "hstack", "dstack", "column_stack"), _join),
    "diff": _differ, "cross": _cross, "rot90": _turn,
    **dict.fromkeys(("diag", "diagonal", "diag_embed"), _diagonal),
    **dict.fromkeys(("nn.PixelShuffle", "nn.PixelUnshuffle", "nn.ChannelShuffle"), _shuffle),
    **dict.fromkeys(("pixel_shuffle", "pixel_unshuffle", "channel_shuffle"), _shuffle),
    "glu": _gate, "nn.GLU": _gate, "outer": _spread, "ger": _spread, "meshgrid": _mesh, "getattr": _glance,
    "broadcast_tensors": _expand_all,
}  # fmt: skip
