"""Convolutions of each channel by itself whose channels are neighbours in memory: what a program has, and what it takes.

A program keeps the values that its windows share in registers, one vector along channels for each place, and reads each value once.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from tritonsmith.author.cards.model import CardModel
from tritonsmith.author.compiler.fusing.regions import RowRegion
from tritonsmith.author.compiler.fusing.space import Walk, list_addresses
from tritonsmith.author.compiler.ir.indices import count, evaluate, variable
from tritonsmith.author.compiler.ir.operators import Applied, Operand, Operator, Tree
from tritonsmith.author.compiler.ir.values import BYTES, ChannelWindows, Formula, Reduction, Tensor, TensorView
from tritonsmith.author.compiler.reading.layouts import MOST_TAPS
from tritonsmith.author.cost import time_bytes, time_launches

_LANES = 32
"""Threads of a warp."""
_RUNS, _LINES = (4, 8, 16, 32), (1, 2, 4)
"""Places across and down that a program may have."""
_MOST_STEPS = 512
"""Multiplications of a program for each of its channels. Each is written out, and compiling so many takes about two seconds."""
_MOST_REGISTERS, _OTHER_REGISTERS = 200, 40
"""Of a thread, at most, and for addresses and what is done with a sum."""
_READ, _STORED = 3.0, 8.0
"""Instructions for a value that is read and widened, and for a sum that is finished and stored."""
_PROGRAMS = 4
"""Programs for each processor that keep it busy."""
_HARD = {
    Operator.EXP, Operator.FAST_EXP, Operator.EXP2, Operator.LOG, Operator.LOG2, Operator.SQRT, Operator.RSQRT, Operator.DIV,
    Operator.SIGMOID, Operator.TANH, Operator.MISH, Operator.ERF, Operator.POW, Operator.SIN, Operator.COS, Operator.EXPM1, Operator.LOG1P,
}  # fmt: skip
_FREE = {Operator.GROUP, Operator.CAST}
_HARD_STEPS = 16.0
"""Operators that take so many instructions: a function unit gives a quarter of a warp, and divisions are several."""


@dataclass(frozen=True)
class ChannelTile:
    """What a program has of the result.

    Args:
        channels: neighbours.
        lines: places down; 1 for images of one axis.
        run: places across.
        warps: of the program.
    """

    channels: int
    lines: int
    run: int
    warps: int


def find_windows(region: RowRegion) -> ChannelWindows | None:
    """The windows of a convolution of each channel by itself that is all that a region sums up; None for any other region."""
    if len(region.anchors) != 1 or not isinstance(region.anchors[0], Reduction):
        return None
    return region.anchors[0].windows


def holds_windows(region: RowRegion) -> ChannelWindows | None:
    """The same where a program keeps the values of several windows in registers."""
    windows = find_windows(region)
    return windows if windows is not None and windows.last and windows.taps <= MOST_TAPS else None


def list_spans(windows: ChannelWindows, tile: ChannelTile) -> tuple[int, int]:
    """Places down and across that a program reads."""
    sizes = (tile.lines, tile.run)[-len(windows.window) :]
    spans = [
        (size - 1) * step + (taps - 1) * apart + 1
        for size, step, taps, apart in zip(sizes, windows.stride, windows.window, windows.dilation, strict=True)
    ]
    return (1, spans[0]) if len(spans) == 1 else (spans[0], spans[1])


def count_tiles(windows: ChannelWindows, outputs: tuple[int, ...], tile: ChannelTile) -> tuple[int, int, int]:
    """Blocks of channels, places down and places across; `outputs`: places of the result."""
    down, across = (1, outputs[0]) if len(outputs) == 1 else outputs
    return -(-windows.image.shape[-1] // tile.channels), -(-down // tile.lines), -(-across // tile.run)


def choose_channels(region: RowRegion, windows: ChannelWindows) -> ChannelTile:
    """The tile that takes the fewest instructions, of those that fit registers; smaller ones where programs would be few."""
    return min(_list_tiles(windows), key=lambda tile: (_count_steps(region, windows, tile), tile.run * tile.lines))


def predict_windows(region: RowRegion, windows: ChannelWindows) -> float:
    """Seconds of a region's kernel: of its instructions or of its bytes."""
    fits, card = region.card.fits.windows, region.card
    moving = time_bytes(card, region.bytes)
    if holds_windows(region) is None:
        rate = fits.taps if any(windows.padding) else fits.inner_taps
        return max(moving, windows.taps * region.space.rows * (1.0 + _count_ahead(region, windows) / _TAP) / rate)
    steps = _count_steps(region, windows, choose_channels(region, windows))
    return max(moving, steps / (_find_rate(card) * fits.held))


_TAP = 8.0
"""Instructions for each tap that is read by itself, with its address, its mask and its product."""


def _count_ahead(region: RowRegion, windows: ChannelWindows) -> float:
    """Instructions for what a tap computes ahead of its product."""
    return sum(_weigh(one) for one in _list_ahead(windows.image, region.reads))


def count_repeats(region: RowRegion, windows: ChannelWindows) -> float:
    """How often each element of the image is read, by a kernel that is written for it or by one that reads each tap."""
    each = float(windows.taps)
    if holds_windows(region) is not None:
        tile = choose_channels(region, windows)
        each = math.prod(list_spans(windows, tile)) / (tile.lines * tile.run)
    return each * region.space.rows / windows.image.size


def lies_last(image: Tensor, below: Sequence[Tensor]) -> bool:
    """Whether neighbouring channels of an image are neighbours in memory in all tensors of its size; `below`: values in memory."""
    known = {id(one) for one in below}
    walk = Walk(lambda one: id(one) in known)
    walk.visit(image, tuple(variable(f"axis{axis}", size) for axis, size in enumerate(image.shape)))
    channel = f"axis{len(image.shape) - 1}"
    steps = [evaluate(index, {channel: 1}) - evaluate(index, {}) for size, index in list_addresses(walk) if 2 * size > image.size]
    return all(abs(step) <= 1 for step in steps)


def is_hard(value: Tensor, known: dict[int, Tensor]) -> bool:
    """Whether an elementwise value has an operator that takes many instructions for each element; `known`: values in memory."""
    return any(_weigh(one) >= _HARD_STEPS for one in _list_ahead(value, known))


def list_windows(source: Tensor, in_memory: Callable[[Tensor], bool]) -> list[TensorView]:
    """The views among the elementwise work of a reduction that show computed values several times, as windows over each other do."""
    found: list[TensorView] = []
    seen: set[int] = set()
    todo = [source]
    while todo:
        one = todo.pop()
        if id(one) in seen or in_memory(one) or not isinstance(one, Formula | TensorView):
            continue
        seen.add(id(one))
        computed = isinstance(one, TensorView) and isinstance(one.source, Formula) and bool(one.source.inputs)
        if isinstance(one, TensorView) and computed and one.shown is None and one.size > one.source.size:
            found.append(one)
        else:
            todo += one.operands
    return found


def is_worth_storing(value: Tensor, known: dict[int, Tensor], repeats: float, card: CardModel) -> bool:
    """Whether storing what windows are opened on is predicted to be faster than computing it anew for each tap.

    Args:
        value: what is stored.
        known: values in memory, by identity.
        repeats: times that each of its elements is read.
        card: the card.
    """
    ahead = _list_ahead(value, known)
    leaves = {id(one): one for step in ahead for one in step.inputs if 2 * one.size > value.size and not _is_formula(one, known)}
    each = sum(_weigh(one) for one in ahead) + _READ * max(0, len(leaves) - 1)
    again = (repeats - 1.0) * value.size * each / (_find_rate(card) * card.fits.windows.held)
    moved = 2.0 * value.bytes
    return again > time_launches(replayed=True) + time_bytes(card, moved)


def _is_formula(value: Tensor, known: dict[int, Tensor]) -> bool:
    while isinstance(value, TensorView) and id(value) not in known:
        value = value.source
    return isinstance(value, Formula) and id(value) not in known and bool(value.inputs)


def _list_ahead(value: Tensor, known: dict[int, Tensor]) -> list[Formula]:
    """The elementwise values of full size that one is made of, itself included."""
    found: dict[int, Formula] = {}
    seen: set[int] = set()
    todo, size = [value], value.size
    while todo:
        one = todo.pop()
        if id(one) in seen or id(one) in known:
            continue
        seen.add(id(one))
        if isinstance(one, Formula) and 2 * one.size > size:
            found[id(one)] = one
        todo += one.operands if isinstance(one, Formula | TensorView) else ()
    return list(found.values())


def _weigh(value: Formula) -> float:
    """Instructions of an elementwise function for each element; what is made of few numbers is not done anew."""
    own = {place for place, one in enumerate(value.inputs) if 2 * one.size > value.size}

    def weigh(tree: Tree) -> tuple[float, bool]:
        if not isinstance(tree, Applied):
            return 0.0, isinstance(tree, Operand) and tree.place in own
        parts = [weigh(one) for one in tree.arguments]
        changes = any(each for _, each in parts)
        steps = _HARD_STEPS if tree.operator in _HARD else 0.0 if tree.operator in _FREE else 1.0
        return sum(cost for cost, _ in parts) + steps * changes, changes

    return weigh(value.expression)[0]


def _find_rate(card: CardModel) -> float:
    """Instructions that all threads do in a second."""
    return card.hardware.fp32 / 2.0


def _list_tiles(windows: ChannelWindows) -> Iterator[ChannelTile]:
    """Tiles that fit registers; the smallest one besides, whatever it needs."""
    channels = windows.image.shape[-1]
    most = 1 << (channels - 1).bit_length()
    narrow = BYTES[windows.image.dtype] < BYTES["float32"]  # two of which a thread reads at once
    blocks = {min(_LANES * each, most) for each in ((1, 2) if narrow else (1,))}
    lines = _LINES if len(windows.window) > 1 else _LINES[:1]
    yield ChannelTile(min(blocks), 1, _RUNS[0], 1)
    for block, high, run in itertools.product(sorted(blocks), lines, _RUNS):
        tile = ChannelTile(block, high, run, 1)
        _, across = list_spans(windows, tile)
        sums = high * run if len(windows.window) > 1 else 1
        registers = -(-block // _LANES) * (across + sums + windows.taps) + _OTHER_REGISTERS
        if registers <= _MOST_REGISTERS and high * run * windows.taps <= _MOST_STEPS:
            yield tile


def _count_steps(region: RowRegion, windows: ChannelWindows, tile: ChannelTile) -> float:
    """Instructions of all programs, those of idle processors included."""
    down, across = list_spans(windows, tile)
    _, *outputs, channels = region.anchors[0].source.shape[: len(windows.window) + 2]
    images = max(1, region.rows // (count(tuple(outputs)) * channels))
    programs = images * count(count_tiles(windows, tuple(outputs), tile))
    reading = _READ + _count_ahead(region, windows)
    sums = tile.lines * tile.run
    addresses = _LANES * (down * across + windows.taps + sums)  # a thread has one for all its channels
    each = tile.channels * (sums * (windows.taps + _STORED) + down * across * reading + windows.taps * _READ) + addresses
    rounds = max(programs, _PROGRAMS * region.card.processors)
    return rounds * each
