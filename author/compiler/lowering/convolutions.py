"""Convolutions and transposed convolutions as products whose right operand is never stored: its addresses are computed.

Rows are the filters of a group, columns the places of the result, the depth is taps and channels (Chetlur et al., "cuDNN: Efficient
Primitives for Deep Learning", 2014). Places are neighbours in memory, in what is read and in what is stored. A convolution of each channel
by itself is a sum over its window instead.
"""

from __future__ import annotations

import math
from typing import Any

from tritonsmith.author.cards.model import CardModel
from tritonsmith.author.compiler.ir.indices import Coordinates, Guard, Index, count, unravel
from tritonsmith.author.compiler.ir.operators import A, B
from tritonsmith.author.compiler.ir.values import (
    ZERO_POINT,
    ChannelWindows,
    Held,
    Tensor,
    TensorView,
    widen,
)
from tritonsmith.author.compiler.lowering.calls import Lower, Lowered, NodeCall, NotCovered
from tritonsmith.author.compiler.lowering.orders import (
    convolve_channels_last,
    multiply_last,
    note_windows,
    order_back,
    order_last,
    turn_image,
)
from tritonsmith.author.compiler.lowering.pointwise import formula
from tritonsmith.author.compiler.lowering.pools import Sizes, open_windows, spread
from tritonsmith.author.compiler.lowering.products import add_bias, refuse_types, take_product
from tritonsmith.author.compiler.lowering.reductions import reduce
from tritonsmith.author.compiler.lowering.resampling import pad_by_itself
from tritonsmith.author.compiler.lowering.views import permute, reshape, view

_IMAGE = 2
"""Axes of an image."""
_STEP, _WASTE = 32, 1.2
"""Channels of a step of a product's loop that has one tap, and how many more than there are may be filled up with zeros."""
_ALIGNED, _RUN_WASTE = 8, 1.4
"""The same where a step has a line of the window: channels that one load takes, and how many more may be filled up."""
_FOLDS = (2, 4)
"""Strides of a transposed convolution's last axis whose phases are computed together, so that neighbours are stored together."""
_FILL_WASTE = 3.0
"""The same where channels themselves are filled up. Steps of such an image are loads and products alone."""


def _is_deep(channels: int, taps: int) -> bool:
    """Whether each step of the loop has one tap; else a step has several taps of several channels."""
    return taps > 1 and -(-channels // _STEP) * _STEP <= _WASTE * channels


def _is_run(channels: int, side: int) -> bool:
    """Whether each step of the loop has a line of the window, whose channels lie one behind the other in an image that has them last."""
    return channels % _ALIGNED == 0 and -(-side * channels // _STEP) * _STEP <= _RUN_WASTE * side * channels


def _read_window(call: NodeCall, axes: int, transposed: bool) -> tuple[Sizes, Sizes, Sizes, int]:
    """Stride, padding, dilation and groups of a call. Raises NotCovered."""
    stride, dilation = spread(call.option(3, "stride", 1), axes), spread(call.option(7 if transposed else 5, "dilation", 1), axes)
    padding = call.option(4, "padding", 0)
    if padding == "valid":
        padding = 0
    if isinstance(padding, str):
        weight = call.weight(1, "weight")
        assert weight is not None
        padding = tuple(step * (size - 1) // 2 for step, size in zip(dilation, weight.shape[2:], strict=True))
    return stride, spread(padding, axes), dilation, call.option(6, "groups", 1)


def _convolve(call: NodeCall) -> Lowered:
    source, weight, bias = call.tensor(0, "input"), call.weight(1, "weight"), call.weight(2, "bias")
    if weight is None or len(source.shape) != len(weight.shape):
        raise NotCovered("without a batch")
    axes = len(weight.shape) - 2
    stride, padding, dilation, groups = _read_window(call, axes, transposed=False)
    mode = call.option(-1, "padding_mode", "zeros")
    if mode != "zeros":
        same = call.option(4, "padding", 0) == "same"  # an odd rim has its larger part behind
        behind = [step * (size - 1) - rim for step, size, rim in zip(dilation, weight.shape[2:], padding, strict=True)] if same else padding
        source, padding = pad_by_itself(source, (0, 0, *padding), (0, 0, *behind), mode), (0,) * axes
    outputs, window = call.shape[2:], weight.shape[2:]
    if weight.shape[1] == 1 and groups > 1:
        steps = (stride, padding, dilation)
        if call.last and axes <= _IMAGE and weight.shape[0] == groups and isinstance(weight, Held) and weight.path:
            return convolve_channels_last(call, source, weight, bias, steps)
        windows = open_windows(source, window, stride, padding, dilation, outputs, ZERO_POINT)
        found = note_windows(_convolve_channels(windows, weight, call), ChannelWindows(source, weight, window, *steps))
        return add_bias(found, _for_places(bias, axes), call.dtype)
    refuse_types(weight, source)
    if call.last and groups == 1 and count(window) == 1 and set(stride) == {1} and not any(padding):
        return multiply_last(call, source, weight, bias)
    if call.last and (axes, groups, set(stride), set(dilation)) == (_IMAGE, 1, {1}, {1}) and isinstance(weight, Held) and weight.path:
        return add_bias(_convolve_last(call, source, weight, padding), _for_places(bias, axes), call.dtype)
    filters, channels, taps = weight.shape[0] // groups, weight.shape[1], count(window)
    flops = 2.0 * weight.size * source.shape[0] * count(outputs)
    if groups == 1 and dilation[-1] == 1 and call.parts and _is_worth_filling(source, window, flops, call.card):
        channels = -(-channels // _ALIGNED) * _ALIGNED
        source = _fill_channels(source, channels)
    windows = open_windows(source, window, stride, padding, dilation, outputs, ZERO_POINT)
    deep, side = _is_deep(channels, taps), window[-1]
    filled = channels > weight.shape[1]
    run = filled or not deep and dilation[-1] == 1 and _is_run(channels, side) and source.dtype == "float32"

    def split(tap: Index, depth: Index) -> Coordinates:
        """Channel and place in the window."""
        if run:
            return (depth % channels, *unravel(tap, window[:-1]), depth // channels)
        return (depth, *unravel(tap, window)) if deep else unravel(depth, (channels, *window))

    shape = (taps, channels) if deep else (taps // side, side * channels) if run else (1, taps * channels)
    left = view(
        weight, (groups, filters, *shape), lambda at: (at[0] * filters + at[1], *split(at[2], at[3])),
        guard=(lambda at: (Guard(split(at[2], at[3])[0], 0, weight.shape[1]),)) if filled else None,
    )  # fmt: skip
    places = (source.shape[0], *outputs)

    def find(at: Coordinates) -> Coordinates:
        channel, *inside = split(at[1], at[2])
        image, *place = unravel(at[3], places)
        return (image, at[0] * channels + channel, *place, *inside)

    right = view(windows, (groups, *shape, count(places)), find)

    def locate(at: Coordinates) -> Coordinates:
        image, *place = unravel(at[2], places)
        return (image, at[0] * filters + at[1], *place)

    product = take_product(left, right, call.shape, locate, call.name, call.node.name, window=True, groups=groups, flops=flops)
    return add_bias(product, _for_places(bias, axes), call.dtype)


def _convolve_last(call: NodeCall, source: Tensor, weight: Held, padding: Sizes) -> Tensor:
    """The product of a convolution that reads an image, and a parameter, whose channels are neighbours in memory."""
    image = turn_image(source)
    filters, channels, *window = weight.shape
    axes = len(window)
    turned = Held(
        shape=(filters, *window, channels), dtype=weight.dtype, name=weight.name, path=weight.path,
        source=f"{weight.source}.permute{order_last(axes)}.contiguous()",  # no copy: the parameter lies so
    )  # fmt: skip
    windows = open_windows(permute(image, order_back(axes)), tuple(window), (1, 1), padding, (1, 1), call.shape[2:], ZERO_POINT)
    places = (source.shape[0], *call.shape[2:])
    left = view(
        turned, (1, filters, count(tuple(window)), channels), lambda at: (at[1], *unravel(at[2], tuple(window)), at[3]),
    )  # fmt: skip

    def find(at: Coordinates) -> Coordinates:
        one, *place = unravel(at[3], places)
        return (one, at[2], *place, *unravel(at[1], tuple(window)))

    right = view(windows, (1, count(tuple(window)), channels, count(places)), find)

    def locate(at: Coordinates) -> Coordinates:
        one, *place = unravel(at[2], places)
        return (one, at[1], *place)

    flops = 2.0 * weight.size * count(places)
    return take_product(
        left, right, call.shape, locate, call.name, call.node.name, window=True, stored=True, flops=flops,
    )  # fmt: skip


def _is_worth_filling(source: Tensor, window: Sizes, flops: float, card: CardModel) -> bool:
    """Whether an image with few channels gets more of them, zeros, so that a line of a window lies one behind the other."""
    channels, side, lines = source.shape[1], window[-1], count(window[:-1])
    wide = -(-channels // _ALIGNED) * _ALIGNED
    depth, filled = -(-lines * side * channels // _STEP) * _STEP, lines * -(-side * wide // _STEP) * _STEP
    paying = filled <= _FILL_WASTE * depth and flops >= card.fits.products.filled_flops * source.size * wide / channels
    return source.dtype == "float32" and wide > channels and side > 1 and paying and not _is_deep(channels, side * lines)


def _fill_channels(source: Tensor, channels: int) -> TensorView:
    """An image with more channels; the further ones are zeros."""
    filled = view(
        source, (source.shape[0], channels, *source.shape[2:]), lambda at: at, guard=lambda at: (Guard(at[1], 0, source.shape[1]),),
    )  # fmt: skip
    filled.widened, filled.name = True, source.name
    return filled


def _for_places(bias: Tensor | None, axes: int) -> Tensor | None:
    return None if bias is None else reshape(bias, (bias.size, *(1,) * axes))


def _convolve_channels(windows: TensorView, weight: Tensor, call: NodeCall) -> Tensor:
    """A convolution in which every channel has its own windows, and no other channel enters."""
    batch, channels, *rest = windows.shape
    axes, filters = len(rest) // 2, weight.shape[0] // channels
    read: Tensor = windows
    if filters > 1:
        shape = (batch, weight.shape[0], *rest)
        read = view(windows, shape, lambda at: (at[0], at[1] // filters, *at[2:]))
    kernel = reshape(weight, (weight.shape[0], *(1,) * axes, *weight.shape[2:]))
    behind = tuple(range(2 + axes, 2 + 2 * axes))
    return reduce(formula(A * B, read, kernel, like=widen(call.dtype)), behind, "sum", call.dtype)


def _spread_out(call: NodeCall) -> Lowered:
    """A transposed convolution: places of the result that lie alike between those of the input share a product."""
    source, weight, bias = call.tensor(0, "input"), call.weight(1, "weight"), call.weight(2, "bias")
    if weight is None or len(source.shape) != len(weight.shape):
        raise NotCovered("without a batch")
    refuse_types(weight, source)
    axes = len(weight.shape) - 2
    stride, padding, dilation, groups = _read_window(call, axes, transposed=True)
    common = tuple(math.gcd(*pair) for pair in zip(stride, dilation, strict=True))
    if max(common) > 1:  # most places get nothing: those that get something are a transposed convolution of their own
        shared = [_Shared(*one) for one in zip(source.shape[2:], weight.shape[2:], stride, padding, dilation, strict=True)]
        outputs = tuple(one.outputs for one in shared)
        stride, dilation = tuple(one.stride for one in shared), tuple(one.dilation for one in shared)
        dense = _multiply_phases(call, source, weight, outputs, (stride, (0,) * axes, dilation), groups)
        return add_bias(_thin_out(dense, call.shape, shared), _for_places(bias, axes), call.dtype)
    product = _multiply_phases(call, source, weight, call.shape[2:], (stride, padding, dilation), groups)
    return add_bias(product, _for_places(bias, axes), call.dtype)


def _thin_out(dense: Tensor, shape: Sizes, shared: list[_Shared]) -> Tensor:
    """The places that get something, and zeros between them."""

    def guard(at: Coordinates) -> tuple[Guard, ...]:
        return tuple(found for one, index in zip(shared, at[2:], strict=True) for found in one.guards(index))

    return view(
        dense, shape, lambda at: (*at[:2], *(one.find(index) for one, index in zip(shared, at[2:], strict=True))), guard=guard,
    )  # fmt: skip


def _multiply_phases(
    call: NodeCall, source: Tensor, weight: Tensor, outputs: Sizes, steps: tuple[Sizes, Sizes, Sizes], groups: int
) -> Tensor:
    """The product of a transposed convolution; `steps`: stride, padding and dilation, which have no common factor with the stride."""
    result = (source.shape[0], weight.shape[1] * groups, *outputs)
    *others, own = zip(outputs, weight.shape[2:], *steps, strict=True)
    folds = steps[0][-1] in _FOLDS and steps[2][-1] == 1
    ways = [*(_Axis(*one) for one in others), _FoldedAxis(*own) if folds else _Axis(*own)]
    channels, filters, fold = weight.shape[0] // groups, weight.shape[1], ways[-1].folded
    phases, taps = tuple(one.apart for one in ways), tuple(one.taps for one in ways)
    deep, side = _is_deep(channels, count(taps)), taps[-1]
    run = not deep and steps[2][-1] == 1 and _is_run(channels, side) and source.dtype == "float32"
    shape = (count(taps), channels) if deep else (count(taps) // side, side * channels) if run else (1, count(taps) * channels)
    places = (source.shape[0], *(one.places for one in ways))
    batch = groups * count(phases)

    def split(at: Index, tap: Index, depth: Index) -> tuple[Index, Index, Coordinates, Coordinates]:
        """Group, channel, phases and taps."""
        group, *phase = unravel(at, (groups, *phases))
        if run:  # the last axis backwards, as the input lies
            channel, inside = depth % channels, [*unravel(tap, taps[:-1]), (depth // channels) * -1 + (side - 1)]
        else:
            channel, *inside = (depth, *unravel(tap, taps)) if deep else unravel(depth, (channels, *taps))
        return group, group * channels + channel, tuple(phase), tuple(inside)

    def weigh(at: Coordinates) -> Coordinates:
        _, channel, phase, inside = split(at[0], at[2], at[3])
        if fold > 1:
            phase = (*phase[:-1], at[1] % fold)
        return (channel, at[1] // fold, *(one.weight(*pair) for one, *pair in zip(ways, phase, inside, strict=True)))

    def has_weight(at: Coordinates) -> tuple[Guard, ...]:
        return tuple(Guard(index, 0, size) for index, size in zip(weigh(at)[2:], weight.shape[2:], strict=True))

    left = view(weight, (batch, filters * fold, *shape), weigh, guard=has_weight)

    def find(at: Coordinates) -> Coordinates:
        _, channel, phase, inside = split(at[0], at[1], at[2])
        image, *place = unravel(at[3], places)
        return (image, channel, *(one.source(*rest) for one, *rest in zip(ways, place, phase, inside, strict=True)))

    def has_value(at: Coordinates) -> tuple[Guard, ...]:
        return tuple(Guard(index, 0, size) for index, size in zip(find(at)[2:], source.shape[2:], strict=True))

    right = view(source, (batch, *shape, count(places)), find, guard=has_value)

    def locate(at: Coordinates) -> Coordinates:
        group, *phase = unravel(at[0], (groups, *phases))
        image, *place = unravel(at[2], (*places[:-1], places[-1] * fold))
        return (image, group * filters + at[1], *(index * one.apart + own for one, index, own in zip(ways, place, phase, strict=True)))

    return take_product(
        left, right, result, locate, call.name, call.node.name, window=True, groups=groups, interleaved=count(phases) > 1, folded=fold,
        apart=ways[-1].apart,
        flops=2.0 * count(source.shape) * count(weight.shape[1:]),
    )  # fmt: skip


class _Shared:
    """One axis of a transposed convolution whose stride and dilation have a common factor.

    Place `o` of the result gets something only where `o + padding` is a multiple of the factor. By the factor, these are the places of a
    transposed convolution without padding, whose stride and dilation are smaller by it.
    """

    def __init__(self, inputs: int, window: int, stride: int, padding: int, dilation: int) -> None:
        self.common, self.padding = math.gcd(stride, dilation), padding
        self.stride, self.dilation = stride // self.common, dilation // self.common
        self.outputs = (inputs - 1) * self.stride + (window - 1) * self.dilation + 1

    def find(self, index: Index) -> Index:
        """The place among those that get something."""
        return (index + self.padding) // self.common

    def guards(self, index: Index) -> tuple[Guard, Guard]:
        """Whether it gets something."""
        return Guard((index + self.padding) % self.common, 0, 1), Guard(self.find(index), 0, self.outputs)


class _Axis:
    """One axis of a transposed convolution: place `o` of the result takes tap `k` of input place `(o + padding - k * dilation) / stride`.

    Places o = place * stride + phase of one phase have the same taps: k = first + tap * stride. The first follows from the phase. Stride
    and dilation have no common factor (`_Shared`).
    """

    folded = 1
    """Phases whose sums are rows of one product."""

    def __init__(self, outputs: int, window: int, stride: int, padding: int, dilation: int) -> None:
        self.phases, self.padding = stride, padding
        self.dilation, self.inverse = dilation, pow(dilation, -1, stride)
        self.taps = -(-window // stride)
        self.places = -(-outputs // stride)

    @property
    def apart(self) -> int:
        """Phases that are products of their own."""
        return self.phases // self.folded

    def _first(self, phase: Index) -> Index:
        """The first tap of a phase."""
        return (phase + self.padding) % self.phases * self.inverse % self.phases

    def weight(self, phase: Index, tap: Index) -> Index:
        """The place in the window."""
        return self._first(phase) + tap * self.phases

    def source(self, place: Index, phase: Index, tap: Index) -> Index:
        """The place of the input."""
        if self.dilation == 1:
            return place + (phase + self.padding) // self.phases - tap
        ahead = (phase + self.padding - self._first(phase) * self.dilation + self.dilation * self.phases) // self.phases
        return place + ahead - self.dilation - tap * self.dilation


class _FoldedAxis(_Axis):
    """An axis without dilation whose phases share what they read: each phase has a row of weights for all places that some phase reads.

    With the inputs counted from the last one that any phase reads, tap `u` of a phase is that of its own `u - late`, where `late` is 1 if
    other phases begin one place later.
    """

    def __init__(self, outputs: int, window: int, stride: int, padding: int, dilation: int) -> None:
        super().__init__(outputs, window, stride, padding, dilation)
        self.folded, self.latest = stride, (stride - 1 + padding) // stride
        ends = [(self.latest - (phase + padding) // stride, (phase + padding) % stride) for phase in range(stride)]
        self.taps = max(late + -(-(window - first) // stride) for late, first in ends)

    def weight(self, phase: Index, tap: Index) -> Index:
        """The place in the window; outside of it where this phase takes nothing."""
        return phase + self.padding + (tap - self.latest) * self.phases

    def source(self, place: Index, phase: Index, tap: Index) -> Index:
        """The place of the input, which is the same for all phases."""
        return place + self.latest - tap


_CONVOLUTIONS: dict[str, Any] = {"conv{}d": _convolve, "nn.Conv{}d": _convolve,
                                 "conv_transpose{}d": _spread_out, "nn.ConvTranspose{}d": _spread_out}  # fmt: skip
TABLE: dict[str, Lower] = {name.format(axes): lower for name, lower in _CONVOLUTIONS.items() for axes in (1, 2, 3)}
