"""The recipes of matrix products: their settings, where they fit, what bounds their time, and what they teach."""

from __future__ import annotations

from functools import partial

from tritonsmith.author.cost import Way, time_bytes, time_launches, time_product
from tritonsmith.author.families.chain.example import PRODUCT_EXAMPLE
from tritonsmith.author.families.chain.plan import covers_chain
from tritonsmith.author.families.chain.product import ProductPlan, read_product
from tritonsmith.author.measured import Measured
from tritonsmith.author.plan import KernelPlan
from tritonsmith.author.recipe import Recipe, RecipeFamily, Settings
from tritonsmith.author.types import MATRICES
from tritonsmith.evaluator.schema import Hardware, PrecisionClass, Stage
from tritonsmith.prompts.analysis import Analysis, Category, Complexity, Promise
from tritonsmith.prompts.author import Brief
from tritonsmith.prompts.kinds import Family

_MORE_EXACT = {"fp16": "fp16x3", "tf32": "fp16x3", "fp16x3": "tf32x3", "tf32x3": "ieee"}
"""The next more exact way to multiply."""
_MOST_ACCUMULATORS = 128
"""fp32 sums that one thread holds with room for operands; it has 255 registers at most."""
_MOST_CARRIED = 192
"""The same where all operands come from shared memory, so that registers hold sums and addresses only."""
_SPLIT_SHARE = 4
"""Operands are split ahead where the product takes at least so many times as long as the splitting."""
_LEAST_DEPTH = 512
"""Places of the depth that are worth a program: below, writing and adding the slices costs more than they save."""
_WHOLE = 128 * 128
"""Sums of a tile that fill a processor."""


def _as_product(plan: KernelPlan) -> ProductPlan:
    assert isinstance(plan, ProductPlan), "the family reads no other plans"
    return plan


def _count_sums(settings: Settings) -> int:
    """Accumulators of BLOCK_M x BLOCK_N at once: the total, one for a block, one for the small products."""
    if settings["scheme"] not in ("fp16x3", "tf32x3", "bf16x3"):
        return 1
    return 3 if settings.get("carried") else 2


def _tile_fits(plan: KernelPlan, settings: Settings, hardware: Hardware) -> bool:
    """Operand tiles of all stages within shared memory, sums within registers."""
    m, n, k = (int(settings[key]) for key in ("block_m", "block_n", "block_k"))
    size = 2 if settings["scheme"] == "as they are" else 8 if settings["scheme"] == "tf32x3" else 4
    shared = size * (m + n) * k * max(1, int(settings["num_stages"]))
    if not _depth_fits(_as_product(plan), settings):
        return False
    return shared <= hardware.shared_per_block and _count_sums(settings) * m * n <= _MOST_ACCUMULATORS * 32 * int(settings["num_warps"])


def _depth_fits(plan: ProductPlan, settings: Settings) -> bool:
    """Whether the depth is one piece, or is cut into slices of whole blocks that are long enough to be worth it."""
    split, block = int(settings.get("split_k", 1)), int(settings["block_k"])
    return split == 1 or (plan.batch == 1 and plan.inner % (split * block) == 0 and plan.inner // split >= _LEAST_DEPTH)


def _choose_split(plan: ProductPlan, settings: Settings, hardware: Hardware) -> int:
    """Slices of the depth that give every processor a program where tiles alone would leave half of the card idle; two programs of small
    tiles, of which a processor holds several.
    """
    each = 1 if int(settings["block_m"]) * int(settings["block_n"]) >= _WHOLE else 2
    tiles = -(-plan.rows // int(settings["block_m"])) * -(-plan.columns // int(settings["block_n"]))
    if plan.batch > 1 or 2 * tiles > hardware.processors:
        return 1
    return max(split for split in range(1, each * hardware.processors // tiles + 1) if _depth_fits(plan, settings | {"split_k": split}))


def _parts_fit(plan: KernelPlan, settings: Settings, hardware: Hardware) -> bool:
    """Tiles of all parts and stages within shared memory, sums within registers."""
    m, n, k = (int(settings[key]) for key in ("block_m", "block_n", "block_k"))
    parts = 2 if settings["scheme"] == "fp16x3" else 1
    shared = 2 * parts * (m + n) * k * int(settings["num_stages"])
    return shared <= hardware.shared_per_block and _count_sums(settings) * m * n <= _MOST_CARRIED * 32 * int(settings["num_warps"])


def _tile_defaults(plan: KernelPlan, hardware: Hardware, precision: PrecisionClass) -> Settings:
    found = _as_product(plan)
    small: Settings = {"group": 1, "block_m": 64, "block_n": 64, "block_k": 32, "num_warps": 4, "num_stages": 2}
    large: Settings = {"group": 8, "block_m": 128, "block_n": 128, "block_k": 32, "num_warps": 8, "num_stages": 3}
    tile = large if found.product_flops >= found.card.fits.families.chain_large else small
    tile |= {"split_k": _choose_split(found, tile, hardware)}
    if found.half:
        return tile | {"block_k": 64 if tile["block_m"] == 128 and tile["split_k"] == 1 else 32, "scheme": "as they are"}
    return tile | {"scheme": "tf32" if precision.allows_tf32 else "fp16x3"}


def _estimate_parts(plan: ProductPlan, tf32: bool) -> tuple[float, float]:
    """Seconds of the products of parts, and of the splitting ahead of them with its launches.

    The products are bound by the tensor cores' fp16 rate, the splitting by memory: 4 bytes read and 2 written for each part.
    """
    way, parts = (Way.HALF, 1) if tf32 else (Way.PARTS, 2)
    split = time_bytes(plan.card, (4 + 2 * parts) * plan.activations)
    return time_product(plan.card, plan.product_flops, way, plan.card.fits.families.chain_ahead), split + time_launches(2)


def _parts_defaults(plan: KernelPlan, hardware: Hardware, precision: PrecisionClass) -> Settings | None:
    """None where splitting ahead costs too much of what it saves, and for 16-bit operands, which need no parts."""
    found = _as_product(plan)
    multiply, split = _estimate_parts(found, precision.allows_tf32)
    return None if found.half or multiply < _SPLIT_SHARE * split else _parts_settings(precision)


def _predict_parts(plan: KernelPlan, found: Measured, brief: Brief) -> float:
    """The products behind the splitting, milliseconds."""
    return max(found.memory_ms, sum(_estimate_parts(_as_product(plan), brief.task.precision.allows_tf32)) * 1e3)


def _parts_settings(precision: PrecisionClass) -> Settings:
    scheme = "fp16" if precision.allows_tf32 else "fp16x3"
    return {
        "group": 8, "block_m": 128, "block_n": 128, "block_k": 64, "num_warps": 8, "num_stages": 3,
        "scheme": scheme, "carried": scheme == "fp16x3",
    }  # fmt: skip


def _sharpen(settings: Settings) -> Settings | None:
    scheme = _MORE_EXACT.get(str(settings.get("scheme", "")))
    return settings | {"scheme": scheme} if scheme else None


def _sharpen_parts(settings: Settings) -> Settings | None:
    """From one part to two, then to a sum for every product of a block."""
    if settings["scheme"] == "fp16":
        return settings | {"scheme": "fp16x3", "carried": True, "block_n": min(128, int(settings["block_n"]))}
    return settings | {"carried": False} if settings["carried"] else None


def _propose_parts(plan: KernelPlan, found: Measured, brief: Brief) -> Analysis:
    """The proposal to split operands ahead of the product."""
    return Analysis(
        bottleneck=f"every program splits the operands of its own tiles in its loop: {found.median_ms:.3g} ms, where the products alone "
        f"take {found.compute_ms:.3g} ms on tensor cores",
        optimisation_method="split the operands into fp16 parts ahead of the product, parameters once",
        modification_plan="One small kernel writes high and low fp16 parts, each line along K by a power of two of its own. Parts of "
        "parameters are kept by address and version. The product's loop then only loads parts and multiplies them.",
        category=Category.ALGORITHM,
        implementation_complexity=Complexity.MEDIUM,
        promise=Promise(metric="launches_per_forward", before=found.launches, bound=3),
    )


def _predict(plan: KernelPlan, hardware: Hardware, precision: PrecisionClass) -> float | None:
    """Of products of 16 bits, and of fp32 products at fp32 accuracy; others are done as they are."""
    found = _as_product(plan)
    if found.half:
        return _predict_half(found, _tile_defaults(plan, hardware, precision))
    if precision.allows_tf32:
        return None
    card = found.card
    storing = card.fits.products.stored * found.batch * found.rows * found.columns
    if _parts_defaults(plan, hardware, precision) is not None:
        return storing + sum(_estimate_parts(found, tf32=False))
    return max(time_product(card, found.product_flops, Way.PARTS, card.fits.families.chain_in_loop), storing, time_launches())


_DEEP = 64
"""Elements of the depth of a tile from which on loads of 16 bits are as wide as they can be."""


def _predict_half(plan: ProductPlan, settings: Settings) -> float:
    """Seconds of a product of 16-bit matrices, which is bound by what its tiles read out of the caches."""
    high, wide, slices = (int(settings[name]) for name in ("block_m", "block_n", "split_k"))
    programs = plan.batch * -(-plan.rows // high) * -(-plan.columns // wide) * slices
    rounds = -(-programs // plan.card.processors) * plan.card.processors
    fits = plan.card.fits.families
    rate = fits.chain_half_shallow_rate if int(settings["block_k"]) < _DEEP else fits.chain_half_rate
    reading = 2.0 * rounds * (high + wide) * -(-plan.inner // slices) / rate
    return max(time_launches(), reading)


PRODUCT = RecipeFamily(
    name="product",
    writes=f"one matrix product of two tensors of one type ({', '.join(MATRICES)}), then elementwise operations on its result. It may be "
    "`nn.Linear`, `F.linear`, `@`, `torch.matmul`, `mm`, `bmm`, `addmm`, `baddbmm` or an `einsum` with one summed index. The operands' "
    "axes may be exchanged by `t`, `transpose`, `permute`, `T` or `mT`. Elementwise operations may stand ahead of one operand",
    read=read_product,
    covers=partial(covers_chain, read_product),
    recipes=(
        Recipe(
            name="product",
            level=0,
            template="families/chain/product.py.j2",
            describes="computes the product tile by tile and applies the tail to the accumulator, in one launch",
            defaults=_tile_defaults,
            tunables={
                Stage.TUNE_GRID: {"group": (1, 2, 4, 8, 16), "split_k": (1, 2, 4, 8, 16, 32)},
                Stage.TUNE_BLOCK: {"block_m": (32, 64, 128, 256), "block_n": (32, 64, 128, 256), "block_k": (16, 32, 64, 128)},
                Stage.TUNE_MEMORY: {"num_warps": (2, 4, 8, 16), "num_stages": (1, 2, 3, 4, 5)},
            },
            fits=_tile_fits,
            shrink={"num_stages": 1, "block_k": 16, "block_n": 16, "block_m": 16},
            sharpen=_sharpen,
            lesson="Tiles through tl.dot, the tail on the accumulator before the one store, programs in grouped order.",
        ),
        Recipe(
            name="product_in_parts",
            level=1,
            template="families/chain/product_in_parts.py.j2",
            describes="splits the operands into fp16 parts ahead of the product, parameters once, and sums three products of parts "
            "(one for TF32)",
            defaults=_parts_defaults,
            tunables={
                Stage.TUNE_GRID: {"group": (4, 8, 16)},
                Stage.TUNE_BLOCK: {"block_m": (32, 64, 128, 256), "block_n": (32, 64, 128, 256), "block_k": (16, 32, 64, 128)},
                Stage.TUNE_MEMORY: {"num_warps": (2, 4, 8, 16), "num_stages": (1, 2, 3, 4, 5)},
            },
            fits=_parts_fit,
            shrink={"num_stages": 2, "block_k": 32, "block_n": 64, "block_m": 64},
            sharpen=_sharpen_parts,
            predict=_predict_parts,
            propose=_propose_parts,
            shown_with=_parts_settings,
            lesson="Work that every tile would repeat is done once ahead of the loop; values keep fp32's digits and range as fp16 parts.",
        ),
    ),
    example=PRODUCT_EXAMPLE,
    kind=Family.GEMM,
    nearest_to=(Family.ATTENTION,),
    misses_writes=True,
    predict=_predict,
)
