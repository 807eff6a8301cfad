"""Which products are kernels of their own: what their arithmetic and their memory take, against a PyTorch call with a pass behind it.

At `ieee` a library's fp32 runs without tensor cores, and three products of fp16 parts are faster. With TF32 or 16 bits a library is as fast
or faster, so there a kernel has to save a pass over memory. The card is the first of the table: only the order of the two counts.
"""

from __future__ import annotations

from tritonsmith.author.compiler.fusing.operands import find_fresh, has_rim
from tritonsmith.author.compiler.fusing.regions import ProductRegion
from tritonsmith.author.compiler.ir.values import MatrixProduct, Tensor, TensorView
from tritonsmith.author.types import IN_PARTS
from tritonsmith.evaluator.cards.cards import CARDS
from tritonsmith.evaluator.cards.launch_cost import LAUNCH_AS_CALLED, OPERATOR_AS_CALLED
from tritonsmith.evaluator.schema import Hardware, PrecisionClass

_PARTS = 3
"""fp16 products of one product of fp32 operands."""
_AHEAD, _IN_LOOP = 0.8, 0.38
"""Share of the tensor cores' rate that products of parts reach where parts are made ahead, and where the loop makes them."""
_KERNEL = {"tf32": 0.7, "half": 0.75}
"""Share of a library's rate that the kernel of a product of matrices reaches (assumed)."""
_KERNEL_WINDOWS = {"tf32": 0.4, "half": 0.2}
"""The same where addresses are computed one by one (assumed)."""
_SPLIT, _SPLIT_FEW = 2e11, 1e11
"""Elements of windows that a card splits in a second in the loop; with masks, or for few filters (45 to 560 of 1e9)."""
_L2 = 8e12
"""Bytes that tiles read in a second out of the caches."""
_STORED = 2.9e-12
"""Seconds of a card for each sum of a tile, which is brought into the order of memory and stored while nothing is multiplied.
These figures are fitted to 90 kernels of products and convolutions (H200, 2026-11-24), and so are those of calls."""
_CALL = 1.0
"""Share of the card's rate that a library's product reaches; the card's rates are those."""
_CALL_WINDOWS, _CALL_GROUPS = 0.7, 0.2
"""The same for a convolution with TF32 or in 16 bits, and for one in groups (assumed; not measured)."""
_CALL_FEW, _CALL_EACH, _CALL_MOST = 0.06, 0.0165, 0.48
"""The same in fp32, without channels, for each channel, and at most (fitted to 40 convolutions; H200, 2026-11-24)."""
_CALL_SPREAD = {1: 0.3, 2: 0.12, 3: 0.075}
"""By axes: the same for a transposed convolution with a stride, from 32 channels on (the same measurement)."""
_LEAST, _SMALL, _MOST = 16, 64, 128
"""Sides of tiles: the least that tensor cores multiply, the least that keeps a processor busy, the most."""
_STEP = 32
"""Places of the depth to which a product is filled up."""
_SCATTERED = 1.1e-11
"""Seconds of a card for each value that is stored apart from its neighbours (of two strides)."""
PROCESSORS = 132
"""Of a large card: tiles that it does at the same time."""


def prefers_call(region: ProductRegion, precision: PrecisionClass, hardware: Hardware = CARDS["h200"]) -> bool:
    """Whether PyTorch's call, and a kernel for the elementwise work behind it, is predicted to be faster than the region's kernel."""
    return predict_call(region, precision, hardware) < predict_kernel(region, precision, hardware)


def predict_kernel(region: ProductRegion, precision: PrecisionClass, hardware: Hardware) -> float:
    """Seconds of the region's kernels. Tiles that are too few for the card leave processors idle."""
    product = region.product
    kind = _find_kind(product.dtype, precision)
    batch, rows, columns, taps, depth = product.sizes
    high, wide = choose_sides(product, _MOST, _MOST)
    tiles = batch * -(-rows // high) * -(-columns // wide)
    length = taps * _round(depth, min(_STEP, fill(depth)))
    sums = _round(tiles, hardware.processors) * high * wide
    moving = region.bytes / hardware.bandwidth
    if kind != "split":
        shares = _KERNEL_WINDOWS if product.window else _KERNEL
        rate = {"tf32": hardware.tf32, "half": hardware.fp16}[kind] * shares[kind]
        return max(LAUNCH_AS_CALLED, 2.0 * sums * length / rate, moving)
    slower = CARDS["h200"].fp32 / hardware.fp32
    fresh = find_fresh(region)
    multiplying = 2.0 * _PARTS * sums * length / (hardware.fp16 * (_AHEAD if fresh else _IN_LOOP))
    reading = 4.0 * sums * (high + wide) / (high * wide) * length / _L2 * slower
    if not fresh and product.window and taps * depth > _count_channels(product):
        several = high > _LEAST and not has_rim(region)
        reading = max(reading, tiles * wide * length / (_SPLIT if several else _SPLIT_FEW) * slower)
    storing = sums * _STORED * slower
    ahead = sum(LAUNCH_AS_CALLED + 8.0 * one.base.size / hardware.bandwidth for one in fresh.values())
    if product.apart > 1:
        storing += product.size * _SCATTERED * slower
    working = max(multiplying, reading) + storing if fresh else max(multiplying, reading, storing)
    return ahead + max(LAUNCH_AS_CALLED, working, moving)


def predict_call(region: ProductRegion, precision: PrecisionClass, hardware: Hardware) -> float:
    """Seconds of PyTorch's call, and of a pass over its result where the region does more than the call."""
    product = region.product
    kind = _find_kind(product.dtype, precision)
    share = _find_share(product, kind)
    rate = {"split": hardware.fp32, "tf32": hardware.tf32, "half": hardware.fp16}[kind] * share
    given = sum(one.bytes for one in region.reads.values())
    call = max(OPERATOR_AS_CALLED, product.flops / rate, (given + product.bytes) / hardware.bandwidth)
    behind = [one for one in region.stores if one is not product.call and product not in one.operands]
    if not behind:
        return call
    return call + max(LAUNCH_AS_CALLED, (product.bytes + sum(one.bytes for one in behind)) / hardware.bandwidth)


def _find_share(product: MatrixProduct, kind: str) -> float:
    """Share of the card's rate that a library's call reaches."""
    if not product.window:
        return _CALL
    if product.groups > 1:
        return _CALL_GROUPS
    if kind != "split":
        return _CALL_WINDOWS
    channels, axes = _count_channels(product), len(product.shape) - 2
    if product.interleaved or product.folded > 1:
        return _CALL_SPREAD.get(axes, _CALL_FEW) * min(1.0, channels / _STEP)
    return min(_CALL_MOST, _CALL_FEW + _CALL_EACH * channels)


def _count_channels(product: MatrixProduct) -> int:
    """Channels of the image that a convolution reads, those of a group."""
    base: Tensor = product.right
    while isinstance(base, TensorView):
        base = base.source
    return base.shape[1] // product.groups if len(base.shape) > 2 else base.shape[-1]


def _find_kind(dtype: str, precision: PrecisionClass) -> str:
    if dtype not in IN_PARTS:
        return "half"
    return "tf32" if precision is PrecisionClass.TF32 else "split"


def choose_sides(product: MatrixProduct, most_rows: int, most_columns: int) -> tuple[int, int]:
    """Rows and columns of a tile: powers of two as large as the product asks for, smaller where tiles would be too few for a card."""
    batch, rows, columns, _, _ = product.sizes
    high, wide = min(most_rows, fill(rows)), min(most_columns, fill(columns))
    while batch * -(-rows // high) * -(-columns // wide) < PROCESSORS and max(high, wide) > _SMALL:
        high, wide = (high // 2, wide) if high > wide else (high, wide // 2)
    return high, wide


def fill(size: int) -> int:
    """The side of a tile along an axis."""
    return max(_LEAST, 1 << max(0, size - 1).bit_length())


def _round(size: int, step: int) -> int:
    return -(-size // step) * step
