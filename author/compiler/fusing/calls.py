"""Which products and recurrent layers are kernels of their own, and which stay PyTorch calls: what each of both would take.

At `ieee` a library's fp32 runs without tensor cores, and three products of fp16 parts are faster. With TF32 or 16 bits a library is as fast
or faster, so there a kernel has to save a pass over memory. Where calls do nearly all of the work, a win would be the library's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from tritonsmith.author.cards.model import CardModel
from tritonsmith.author.compiler.fusing.described import count_window_sums, describe_windows, takes_descriptors
from tritonsmith.author.compiler.fusing.integers import choose_rows, choose_units, read_integers
from tritonsmith.author.compiler.fusing.operands import find_fresh, has_rim
from tritonsmith.author.compiler.fusing.regions import CallRegion, ProductRegion, RecurrentRegion, WorkRegion
from tritonsmith.author.compiler.ir.values import BYTES, MatrixProduct, Tensor, TensorView
from tritonsmith.author.cost import (
    Way,
    choose_way,
    time_bytes,
    time_inner_launches,
    time_launches,
    time_library,
    time_operators,
    time_product,
    time_steps,
)
from tritonsmith.author.types import AS_THEY_ARE
from tritonsmith.evaluator.records.operator_cost import OperatorCost
from tritonsmith.evaluator.schema import PrecisionClass

_LEAST, _SMALL, _MOST = 16, 64, 128
"""Sides of tiles: the least that tensor cores multiply, the least that keeps a processor busy, the most."""
WIDE = 256
"""Columns of a tile of 16-bit operands, at most."""
_STEP_HALF = 16
"""Channels of a 3-d image of 16-bit values that a library multiplies at its full rate, at least."""
_STEP = 32
"""Places of the depth to which a product is filled up."""
_CLEAR = 0.9
"""Share of the time of other ways that a pair of products may be predicted to take: predictions are no closer."""
_LAUNCHES_OF_STEP = 2
"""Kernels that a library starts for a step of a recurrent layer."""
_LEAST_SHARE = 0.06
"""Share of the device's time that kernels shall have; at 0.05 an evaluator says that a library does the work."""
_HARDLY_ANY = 0.02
"""Share below which a measurement will not find more either: the bytes of kernels are the least that they take."""
_MUCH_SLOWER = 1.5
"""So many times the time of a module with calls is too much for one of kernels alone."""


def prefers_call(region: ProductRegion, precision: PrecisionClass) -> bool:
    """Whether PyTorch's call, and a kernel for the elementwise work behind it, is predicted to be faster than the region's kernel."""
    return predict_call(region, precision) < predict_kernel(region, precision)


def prefers_library(region: RecurrentRegion) -> bool:
    """Whether PyTorch's call is predicted to be faster than the kernel of a recurrent layer."""
    return time_inner_launches(_LAUNCHES_OF_STEP) * region.recurrence.steps < predict_steps(region)


def predict_steps(region: RecurrentRegion) -> float:
    """Seconds of the kernel: every program reads the weights of the state from L2 at every step."""
    layer, card = region.recurrence, region.card
    return time_steps(card, layer.steps, layer.batch, len(layer.gates) * layer.hidden**2 * BYTES[layer.dtype])


def predict_kernel(region: ProductRegion, precision: PrecisionClass) -> float:
    """Seconds of the region's kernels. Tiles that are too few for the card leave processors idle."""
    product, card, fits = region.product, region.card, region.card.fits.products
    way = choose_way(product.dtype, precision)
    batch, rows, columns, taps, depth = product.sizes
    half = way is Way.HALF and not product.window
    if region.partner is not None:
        return _predict_pair(region)
    if half and read_integers(product, card) is not None:
        programs = -(-columns // choose_units(product, card))
        reading = 2.0 * programs * choose_rows(product) * depth / fits.half_l2_rate
        alone, by_row = fits.integers
        converting = float(columns * depth) * (alone + by_row * choose_rows(product))
        return max(time_launches(), time_bytes(card, region.bytes), reading, converting)
    high, wide = choose_sides(product, _MOST, WIDE if half else _MOST, card)
    tiles = batch * -(-rows // high) * -(-columns // wide)
    length = taps * _round(depth, min(_STEP, fill(depth)))
    sums = _round(tiles, card.processors) * high * wide
    moving = time_bytes(card, region.bytes)
    windows = describe_windows(region) if way is Way.HALF and product.window else None
    if windows is not None:
        multiplying = time_product(card, 2.0 * count_window_sums(region, windows) * length, way, fits.window_described)
        return max(time_launches(), multiplying, moving)
    if half:  # by tiles of one sum: those of two sums were measured slower than the library
        share = fits.matrix_described if takes_descriptors(region, high, wide) else fits.matrix_half
        reading = 2.0 * sums * (high + wide) / (high * wide) * length / fits.half_l2_rate
        return max(time_launches(), time_product(card, 2.0 * sums * length, way, share), reading, moving)
    if way is not Way.PARTS:
        share = fits.window_half if way is Way.HALF else fits.window_tf32 if product.window else fits.matrix_tf32
        multiplying = time_product(card, 2.0 * sums * length, way, share)
        return max(time_launches(), multiplying, moving)
    fresh = find_fresh(region)
    multiplying = time_product(card, 2.0 * sums * length, way, fits.ahead if fresh else fits.in_loop)
    reading = 4.0 * sums * (high + wide) / (high * wide) * length / fits.l2_rate
    if not fresh and product.window and taps * depth > _count_channels(product):
        several = high > _LEAST and not has_rim(region)
        reading = max(reading, tiles * wide * length / (fits.split_rate if several else fits.split_few_rate))
    storing = sums * fits.stored
    ahead = sum(time_launches() + time_bytes(card, 8.0 * operand.base.size) for operand in fresh.values())
    if product.apart > 1:
        storing += product.size * fits.scattered
    working = max(multiplying, reading) + storing if fresh else max(multiplying, reading, storing)
    return ahead + max(time_launches(), working, moving)


def _predict_pair(region: ProductRegion) -> float:
    """Seconds of the kernel of a pair of products."""
    card, fits = region.card, region.card.fits.products
    _, rows, columns, _, depth = region.product.sizes
    high, wide = choose_sides(region.product, _MOST, WIDE // 2, card)
    sums = _round(-(-rows // high) * -(-columns // wide), card.processors) * high * 2 * wide
    length = _round(depth, min(_STEP, fill(depth)))
    reading = 2.0 * sums * (high + 2 * wide) / (high * 2 * wide) * length / fits.half_l2_rate
    multiplying = time_product(card, 2.0 * sums * length, Way.HALF, fits.gated)
    joining = sums / 2.0 * fits.joined
    return max(time_launches(), max(multiplying, reading) + joining, time_bytes(card, region.bytes))


def prefers_apart(region: ProductRegion, precision: PrecisionClass) -> bool:
    """Whether a pair of products is not predicted to be clearly faster than two calls, or than a call and a kernel behind it."""
    if region.partner is None:
        return False
    card, product, fits = region.card, region.product, region.card.fits
    multiplying = [time_product(card, one.flops, Way.HALF, fits.calls.matrix) for one in region.products]
    calls = [seconds + fits.calls.stored * time_bytes(card, product.bytes) for seconds in multiplying]
    given = float(sum(value.bytes for value in region.reads.values()))
    stored = float(sum(value.bytes for value in region.stores))
    both = max(time_operators(), sum(calls), time_bytes(card, given + 2.0 * product.bytes))
    least = both + max(time_launches(), time_bytes(card, 2.0 * product.bytes + stored))
    if len(region.nodes) > 1:
        alone = predict_kernel(replace(region, partner=None), precision) + fits.products.joined_apart * product.size
        least = min(least, max(time_operators(), calls[1]) + alone)
    return _predict_pair(region) > _CLEAR * least


def predict_call(region: ProductRegion, precision: PrecisionClass) -> float:
    """Seconds of PyTorch's call, and of a pass over its result where the region does more than the call."""
    product, card = region.product, region.card
    way = choose_way(product.dtype, precision)
    multiplying = time_product(card, product.flops, Way.THREADS if way is Way.PARTS else way, _find_share(product, way, card))
    given = float(sum(value.bytes for value in region.reads.values()))
    ahead = 0.0
    if way is Way.HALF and read_integers(product, card) is not None:  # a kernel ahead of the call stores weights of 16 bits
        weights = product.right.bytes
        ahead, given = max(time_launches(), time_bytes(card, given + weights)), float(weights + product.source.bytes)
    call = ahead + max(time_operators(), multiplying, time_bytes(card, given + product.bytes))
    behind = [value for value in region.stores if value is not product.call and product not in value.operands]
    if not behind:
        return call
    return call + max(time_launches(), time_bytes(card, product.bytes + sum(value.bytes for value in behind)))


def _find_share(product: MatrixProduct, way: Way, card: CardModel) -> float:
    """Share of the card's rate that a library's call reaches."""
    fits = card.fits.calls
    if not product.window:
        return fits.matrix
    if product.groups > 1:
        return fits.groups
    channels, axes = _count_channels(product), len(product.shape) - 2
    if way is not Way.PARTS:
        return find_window_share(card, way, axes, channels)
    if product.interleaved or product.folded > 1:
        spread = fits.spread[axes - 1] if 1 <= axes <= len(fits.spread) else fits.fp32_least
        return spread * min(1.0, channels / _STEP)
    return min(fits.fp32_most, fits.fp32_least + fits.fp32_each * channels)


def find_window_share(card: CardModel, way: Way, axes: int, channels: int) -> float:
    """Share of the card's rate that a library's convolution reaches in TF32 or of 16-bit values.

    Args:
        card: the card.
        way: how values are multiplied.
        axes: of the image's places.
        channels: of the image that is read.
    """
    fits = card.fits.calls
    if way is not Way.HALF or not 1 <= axes <= len(fits.half_axes):
        return fits.window
    few = min(1.0, channels / _STEP_HALF) if axes == len(fits.half_axes) else 1.0
    return fits.window * fits.half_axes[axes - 1] * few


def _count_channels(product: MatrixProduct) -> int:
    """Channels of the image that a convolution reads, those of a group."""
    base: Tensor = product.right
    while isinstance(base, TensorView):
        base = base.source
    return base.shape[1] // product.groups if len(base.shape) > 2 else base.shape[-1]


def leaves_all_to_library(
    regions: Collection[WorkRegion], products: Mapping[str, MatrixProduct], layers: Mapping[str, int], card: CardModel,
    slower: float = 1.0,
) -> bool:  # fmt: skip
    """Whether products and recurrent layers that are PyTorch calls leave next to nothing to kernels, and kernels for them are not absurd.

    Args:
        regions: of the forward.
        products: those of the forward, by their nodes.
        layers: steps of its recurrent layers, by their nodes.
        card: that it is planned for.
        slower: how many times as long kernels are predicted to take for all that these calls do.
    """
    calls = [region for region in regions if isinstance(region, CallRegion) and region.library]
    kernels = (region for region in regions if not isinstance(region, CallRegion) or not region.library)
    own = sum(time_launches(replayed=True) + time_bytes(card, region.bytes) for region in kernels)
    library = time_library(card, [_find_cost(call, products, layers.get(call.call.name, 0)) for call in calls])
    return own < (_LEAST_SHARE if slower < _MUCH_SLOWER else _HARDLY_ANY) * (own + library)


def _find_cost(region: CallRegion, products: Mapping[str, MatrixProduct], steps: int) -> OperatorCost:
    product = products.get(region.call.name)
    name = "aten.convolution" if product is not None and product.window else "aten.mm" if product is not None else "aten.other"
    flops, launches = product.flops if product is not None else 0.0, max(1, _LAUNCHES_OF_STEP * steps)
    return OperatorCost(name, launches, flops, float(region.bytes), region.call.dtype in AS_THEY_ARE, launches)


def list_layers(regions: Iterable[WorkRegion]) -> dict[str, int]:
    """Steps of the recurrent layers that have kernels, by their nodes."""
    found: dict[str, int] = {}
    for region in regions:
        if isinstance(region, RecurrentRegion):
            found[region.recurrence.node] = found.get(region.recurrence.node, 0) + region.recurrence.steps
    return found


def list_products(regions: Iterable[WorkRegion]) -> dict[str, MatrixProduct]:
    """The products that have kernels of their own, by their nodes."""
    return {region.product.node: region.product for region in regions if isinstance(region, ProductRegion) and region.partner is None}


def choose_sides(product: MatrixProduct, most_rows: int, most_columns: int, card: CardModel) -> tuple[int, int]:
    """Rows and columns of a tile: powers of two as large as the product asks for, smaller where tiles would be too few for the card."""
    batch, rows, columns, _, _ = product.sizes
    high, wide = min(most_rows, fill(rows)), min(most_columns, fill(columns))
    while batch * -(-rows // high) * -(-columns // wide) < card.processors and max(high, wide) > _SMALL:
        high, wide = (high // 2, wide) if high > wide else (high, wide // 2)
    return high, wide


def fill(size: int) -> int:
    """The side of a tile along an axis."""
    return max(_LEAST, 1 << max(0, size - 1).bit_length())


def _round(size: int, step: int) -> int:
    return -(-size // step) * step
