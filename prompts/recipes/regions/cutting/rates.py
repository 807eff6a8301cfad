"""Which products are kernels of their own: what their arithmetic and their memory take, against a PyTorch call with a pass behind it.

At `ieee` a library's fp32 runs without tensor cores, and three products of fp16 parts are faster. With TF32 or 16 bits a library is as fast
or faster, so there a kernel has to save a pass over memory. The card is the first of the table: only the order of the two counts.
"""

from __future__ import annotations

from tritonsmith.evaluator.cards import CARDS
from tritonsmith.evaluator.estimate import TORCH_CALL, TRITON_CALL
from tritonsmith.evaluator.schema import Hardware, PrecisionClass
from tritonsmith.prompts.recipes.measured import middle
from tritonsmith.prompts.recipes.regions.cutting.regions import ProductRegion
from tritonsmith.prompts.recipes.regions.values.tensors import MatrixProduct

_PARTS = 3
"""fp16 products of one product of fp32 operands."""
_KERNEL = {"split": 0.4, "tf32": 0.7, "half": 0.75}
"""Share of a library's rate that the kernel of a product of matrices reaches (assumed; not measured)."""
_KERNEL_WINDOWS = {"split": 0.35, "tf32": 0.4, "half": 0.2}
"""The same where addresses are computed one by one."""
_CALL = 1.0
"""Share of the card's rate that a library's product reaches; the card's rates are those."""
_CALL_WINDOWS, _CALL_GROUPS = 0.7, 0.2
"""The same for a convolution, and for one in groups (assumed; not measured)."""
_LEAST, _SMALL, _MOST = 16, 64, 128
"""Sides of tiles: the least that tensor cores multiply, the least that keeps a processor busy, the most."""
_STEP = 32
"""Places of the depth to which a product is filled up."""
_PROCESSORS = 132
"""Of a large card: tiles that it does at the same time."""


def prefers_call(region: ProductRegion, precision: PrecisionClass, hardware: Hardware = CARDS["h200"]) -> bool:
    """Whether PyTorch's call, and a kernel for the elementwise work behind it, is predicted to be faster than the region's kernel."""
    return predict_call(region, precision, hardware) < predict_kernel(region, precision, hardware)


def predict_kernel(region: ProductRegion, precision: PrecisionClass, hardware: Hardware) -> float:
    """Seconds of the region's kernel. Tiles that are too few for the card leave processors idle."""
    product = region.product
    kind = _find_kind(product.dtype, precision)
    batch, rows, columns, taps, depth = product.sizes
    high, wide = choose_sides(product, _MOST, _MOST)
    tiles = batch * -(-rows // high) * -(-columns // wide)
    filled = 2.0 * tiles * high * wide * taps * _round(depth, min(_STEP, fill(depth)))
    shares = _KERNEL_WINDOWS if product.window else _KERNEL
    rate = {"split": hardware.fp16 / _PARTS, "tf32": hardware.tf32, "half": hardware.fp16}[kind] * shares[kind]
    busy = min(1.0, tiles / hardware.processors)
    return max(middle(TRITON_CALL), filled / (rate * busy), region.bytes / hardware.bandwidth)


def predict_call(region: ProductRegion, precision: PrecisionClass, hardware: Hardware) -> float:
    """Seconds of PyTorch's call, and of a pass over its result where the region does more than the call."""
    product = region.product
    kind = _find_kind(product.dtype, precision)
    share = _CALL_GROUPS if product.groups > 1 else _CALL_WINDOWS if product.window else _CALL
    rate = {"split": hardware.fp32, "tf32": hardware.tf32, "half": hardware.fp16}[kind] * share
    given = sum(one.bytes for one in region.reads.values())
    call = max(middle(TORCH_CALL), product.flops / rate, (given + product.bytes) / hardware.bandwidth)
    behind = [one for one in region.stores if one is not product.call and product not in one.operands]
    if not behind:
        return call
    return call + max(middle(TRITON_CALL), (product.bytes + sum(one.bytes for one in behind)) / hardware.bandwidth)


def _find_kind(dtype: str, precision: PrecisionClass) -> str:
    if dtype != "float32":
        return "half"
    return "tf32" if precision is PrecisionClass.TF32 else "split"


def choose_sides(product: MatrixProduct, most_rows: int, most_columns: int) -> tuple[int, int]:
    """Rows and columns of a tile: powers of two as large as the product asks for, smaller where tiles would be too few for a card."""
    batch, rows, columns, _, _ = product.sizes
    high, wide = min(most_rows, fill(rows)), min(most_columns, fill(columns))
    while batch * -(-rows // high) * -(-columns // wide) < _PROCESSORS and max(high, wide) > _SMALL:
        high, wide = (high // 2, wide) if high > wide else (high, wide // 2)
    return high, wide


def fill(size: int) -> int:
    """The side of a tile along an axis."""
    return max(_LEAST, 1 << max(0, size - 1).bit_length())


def _round(size: int, step: int) -> int:
    return -(-size // step) * step
