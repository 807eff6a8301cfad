"""The recipe of regions: its settings, what it predicts and what it teaches."""

from __future__ import annotations

from dataclasses import replace

from tritonsmith.author.cards.model import CardModel, model_card
from tritonsmith.author.compiler.costs import (
    account_regions,
    describe_gain,
    predict_copies,
    predict_launches,
    predict_plan,
    predict_regions,
    predict_work,
)
from tritonsmith.author.compiler.example import EXAMPLE
from tritonsmith.author.compiler.fusing.calls import WIDE
from tritonsmith.author.compiler.fusing.described import describe_operands
from tritonsmith.author.compiler.fusing.regions import PointwiseRegion, ProductRegion, RowRegion
from tritonsmith.author.compiler.ir.attention import Attention
from tritonsmith.author.compiler.kernels.attention.blocks import choose_blocks, count_shared_bytes, splits_ahead
from tritonsmith.author.compiler.kernels.held import is_held
from tritonsmith.author.compiler.kernels.product_tiles import (
    DESCRIPTORS,
    POINTERS,
    TUNED,
    ProductTile,
    choose_tile,
    number_products,
    pick_settings,
)  # fmt: skip
from tritonsmith.author.compiler.plan import PLAIN, RegionPlan, read_regions
from tritonsmith.author.compiler.reading.reader import list_values
from tritonsmith.author.measured import Measured
from tritonsmith.author.plan import KernelPlan
from tritonsmith.author.recipe import Recipe, RecipeFamily, Settings
from tritonsmith.author.types import IN_PARTS
from tritonsmith.evaluator.schema import Hardware, PrecisionClass, Stage
from tritonsmith.prompts.analysis import Analysis, Category, Complexity, Promise
from tritonsmith.prompts.author import Brief
from tritonsmith.prompts.kinds import Family
from tritonsmith.prompts.regions import RegionRow

_ATTENTION = ("query_rows", "key_rows", "attention_warps", "attention_stages", "attention_products")
"""Settings of attention only."""
_ROWS = ("tile", "whole_row", "per_thread", "parts")
"""Settings of rows only."""
_SMALLER = ((128, 64), (128, 32), (64, 64), (64, 32), (32, 32), (16, 16))
"""Blocks of queries and keys to try, until one fits the card."""
_STREAMED = ((64, 128),)
"""The first to try where few queries of 16 bits read many keys, and each processor has one program at most."""
_SMALLER_TILES: tuple[Settings, ...] = (
    {}, {"num_stages": 2}, {"num_stages": 2, "block_k": 32}, {"num_stages": 2, "block_k": 32, "block_m": 64, "block_n": 64},
)  # fmt: skip
"""Settings of products to try, until the tiles of all of them fit the card."""
_SHARPER = {"tf32": "fp16x3", "fp16": "fp16x3", "fp16x3": "tf32x3", "tf32x3": "ieee"}
"""By way to multiply: the next more exact one."""
_FEW_LAUNCHES = 0.5
"""Share of the kernels' time that launches from Python may take before a CUDA graph replays them."""
_MANY_LAUNCHES = 8
"""Regions from which on kernels that take any size replay graphs: each size is recorded when it first comes, which takes milliseconds."""
_MOST_TUNED = 3
"""Sizes of products that a search tunes one by one, the costliest first."""
_MOST_SPLIT_SUMS = 160
"""The same where columns are in two sums and both operands go from memory to the tensor cores as they are: compiled for sm_90, tiles of
128 x 320 take 190 registers."""
_MOST_SUMS = 128
"""fp32 sums of a product's thread, which has 255 registers at most; the rest hold operands that are split, and addresses."""
_TUNABLES: dict[Stage, dict[str, tuple[int | str, ...]]] = {
    Stage.TUNE_GRID: {"parts": (2, 4, 8), "group": (4, 8, 16), "replayed": (0, 1)},
    Stage.TUNE_BLOCK: {
        "block": (512, 1024, 2048, 4096), "tile": (2048, 4096, 8192), "query_rows": (64, 128), "key_rows": (32, 64, 128),
        "block_m": (64, 128, 256), "block_n": (64, 128, 256), "block_k": (32, 64, 128),
    },
    Stage.TUNE_MEMORY: {
        "whole_row": (4096, 8192, 16384, 32768), "per_thread": (8, 16, 32), "product_warps": (4, 8), "num_stages": (1, 2, 3, 4),
        "form": (DESCRIPTORS, POINTERS),
        "attention_warps": (4, 8), "attention_stages": (1, 2, 3), "attention_products": ("fp16x3", "tf32x3"),
    },
}  # fmt: skip


def _defaults(plan: KernelPlan, hardware: Hardware, precision: PrecisionClass) -> Settings | None:
    """Plain settings; products of fp32 operands in parts, or in TF32 where the task allows it for them."""
    assert isinstance(plan, RegionPlan)
    plain = _choose_products(precision, fine=_has_fine_results(plan)) | {"registers": model_card(hardware).fits.tiles.third_registers}
    if _multiplies_half(plan):
        plain |= {"block_n": WIDE}
    tries = _list_blocks([one for each in plan.all_sizes for one in each.attentions], plain, plan.card)
    found = next((settings for settings in tries if _fits_attentions(plan, settings, hardware)), None)
    if found is not None:
        smaller = (found | tiles for tiles in _SMALLER_TILES)
        found = next((settings for settings in smaller if _fits_shared(plan, settings, hardware)), found)
    if found is not None and plan.spans and plan.write(found).missed:
        return None
    if found is None or not can_replay(plan):
        return found
    many = not plan.takes_any or len(plan.regions) >= _MANY_LAUNCHES
    return found | {"replayed": many and predict_launches(plan) > _FEW_LAUNCHES * predict_work(plan, precision) + predict_copies(plan)}


def _list_blocks(attentions: list[Attention], plain: Settings, card: CardModel) -> list[Settings]:
    """Settings with blocks of queries and keys, those to try first ahead."""
    widest = max((max(one.features, one.columns) for one in attentions), default=0)
    fits, few_warps = card.fits.heads, plain | {"attention_warps": 4}
    sizes: tuple[tuple[int, int], ...] = _SMALLER
    settings = plain
    half = bool(attentions) and all(not {one.query.dtype, one.value.dtype} & {*IN_PARTS} for one in attentions)
    if half and all(one.few for one in attentions):
        # With 64 keys in place of 128: 277 and 238 us for 512 tiles of 4096 keys, 48 and 36 us for 128 of 64 features, 73 and 65 us for
        # 128 of 128 (bf16, H200, 2026-11-28; raw/decode_h200).
        sizes, settings = (*_STREAMED, *_SMALLER[2:]), plain | {"attention_stages": 3}
    elif widest > fits.wide:
        sizes = _SMALLER[1:]
    elif half:
        sizes, settings = _SMALLER[2:], plain | {"attention_stages": 3}
    elif widest <= fits.small and all(splits_ahead(one, choose_blocks(one, few_warps), few_warps) for one in attentions):
        settings = few_warps
    elif widest <= fits.small:
        sizes = _SMALLER[2:]
    return [settings | {"query_rows": queries, "key_rows": keys} for queries, keys in sizes]


def _has_fine_results(plan: RegionPlan) -> bool:
    """Whether a task that is one of 16 bits by its own types has results of fp32. They are judged as such: TF32 is too coarse for them."""
    results = {value.dtype for value in list_values(plan.forward.results)}
    given = {value.dtype for value in plan.forward.inputs}
    return bool(results & {"float32", "float64"}) and bool((results | given) & {"float16", "bfloat16"})


def _multiplies_half(plan: RegionPlan) -> bool:
    """Whether all products are of 16-bit matrices. Their tiles are wider than others, for they have no parts, which take registers."""
    products = [one.product for each in plan.all_sizes for one in each.regions if isinstance(one, ProductRegion)]
    return bool(products) and all(one.source.dtype not in IN_PARTS and not one.window for one in products)


def _choose_products(precision: PrecisionClass, *, fine: bool = False) -> Settings:
    """The plain settings with the ways to multiply that a class allows.

    Args:
        precision: the class.
        fine: whether results are judged as fp32 whatever the class.
    """
    attention = "tf32" if precision.allows_tf32 and not fine else "fp16x3"
    return PLAIN | {"attention_products": attention, "scheme": "tf32" if precision is PrecisionClass.TF32 else "fp16x3"}


def can_replay(plan: RegionPlan) -> bool:
    """Whether the launches may become CUDA graphs: a call depends on its tensors alone."""
    numbers = any(one.number for one in plan.forward.inputs)
    stateless = not plan.training and not plan.forward.updates and not plan.forward.written
    return stateless and bool(plan.given) and not numbers and len(plan.regions) > 1


def _held_defaults(plan: KernelPlan, hardware: Hardware, precision: PrecisionClass) -> Settings | None:
    """The plain settings with rows that several programs hold; None where there are no such rows.

    Rows beside which weights are read are left out: there the second pass is as fast (four group norms: 0.78 to 1.0 of the speed; H200).
    """
    assert isinstance(plan, RegionPlan)
    plain = _defaults(plan, hardware, precision)
    settings = plain | _HELD | {"processors": hardware.processors, "replayed": False} if plain is not None else None
    return settings if settings is not None and any(is_held(one, settings) and len(one.reads) == 1 for one in plan.regions) else None


def _fits_attentions(plan: RegionPlan, settings: Settings, hardware: Hardware) -> bool:
    """Whether the card has the shared memory for every attention."""
    attentions = [one for each in plan.all_sizes for one in each.attentions]
    return all(count_shared_bytes(one, settings) <= hardware.shared_per_block for one in attentions)


def _fits(plan: KernelPlan, settings: Settings, hardware: Hardware) -> bool:
    """Whether tiles of all stages fit shared memory, and sums of products fit registers; graphs only where they can be recorded."""
    assert isinstance(plan, RegionPlan)
    if plan.spans and plan.write(settings).missed:
        return False
    if settings["replayed"] and (not can_replay(plan) or any(is_held(one, settings) for one in plan.regions)):
        return False
    return _fits_attentions(plan, settings, hardware) and all(_fits_products(each, settings, hardware) for each in plan.all_sizes)


def _fits_products(plan: RegionPlan, settings: Settings, hardware: Hardware) -> bool:
    """Whether the card has the shared memory and the registers for every product."""
    tiles = _list_tiles(plan, settings)
    few = all(one.sums <= (_MOST_SPLIT_SUMS if one.second else _MOST_SUMS) for one in tiles)
    return few and all(one.shared_bytes <= hardware.shared_per_block for one in tiles)


def _fits_shared(plan: RegionPlan, settings: Settings, hardware: Hardware) -> bool:
    """Whether the card has the shared memory for every product of every size."""
    return all(tile.shared_bytes <= hardware.shared_per_block for each in plan.all_sizes for tile in _list_tiles(each, settings))


def _list_tiles(plan: RegionPlan, settings: Settings) -> list[ProductTile]:
    """The tiles of all products."""
    numbers = number_products(plan.regions)
    return [choose_tile(one, pick_settings(settings, numbers[id(one)])) for one in plan.regions if isinstance(one, ProductRegion)]


def _uses(plan: KernelPlan, name: str) -> bool:
    """Settings belong to a class of region; ways to multiply are those of fp32 operands."""
    assert isinstance(plan, RegionPlan)
    if name == "attention_products":
        return any({one.query.dtype, one.value.dtype} & {*IN_PARTS} for one in plan.attentions)
    if name in _ATTENTION:
        return bool(plan.attentions)
    if name == "scheme":
        return any(isinstance(one, ProductRegion) and one.product.source.dtype in IN_PARTS for one in plan.regions)
    if name == "form":
        products = [one.usual for one in plan.regions if isinstance(one, ProductRegion)]
        return plan.card.fits.products.matrix_described > 0.0 and any(map(describe_operands, products))
    if name == "replayed":
        return can_replay(plan)
    if name in _HELD:
        return True
    kind = ProductRegion if name in TUNED else RowRegion if name in _ROWS else PointwiseRegion
    return any(isinstance(one, kind) for one in plan.regions)


def _list_own(plan: KernelPlan) -> dict[Stage, dict[str, str]]:
    """Settings of the second size of products and of those behind it."""
    assert isinstance(plan, RegionPlan)
    numbers = range(2, min(_MOST_TUNED, max(number_products(plan.regions).values(), default=0)) + 1)
    return {
        stage: {f"{name}_{number}": name for number in numbers for name in names if name in TUNED} for stage, names in _TUNABLES.items()
    }


def _sharpen(settings: Settings) -> Settings | None:
    """The next more exact way, of attention and of products."""
    sharper = {name: _SHARPER[str(settings[name])] for name in ("attention_products", "scheme") if settings[name] in _SHARPER}
    return settings | sharper | {"block_k": min(32, int(settings["block_k"]))} if sharper else None


def _predict(plan: KernelPlan, found: Measured, brief: Brief) -> float:
    """Milliseconds of all regions at the card's bandwidth; a product that stays a call takes its arithmetic besides."""
    assert isinstance(plan, RegionPlan)
    return max(found.compute_ms, predict_regions(plan))


def _predict_held(plan: KernelPlan, found: Measured, brief: Brief) -> float:
    """The same with each row read once, where programs hold it."""
    assert isinstance(plan, RegionPlan)
    settings = _held_defaults(plan, brief.hardware, brief.task.precision)
    return max(found.compute_ms, predict_regions(plan, settings))


def _propose_held(plan: KernelPlan, found: Measured, brief: Brief) -> Analysis:
    """The proposal to have several programs hold each long row."""
    share = 100.0 * found.floor_ms / found.median_ms
    return Analysis(
        bottleneck=f"rows that no program can hold are read twice: {found.median_ms:.3g} ms, where reading and writing everything once "
        f"takes {found.memory_ms:.3g} ms",
        optimisation_method="several programs hold a row together, so that it is read once",
        modification_plan="Programs that are all on the card at once share a row. Each keeps its part in registers, leaves the numbers of "
        "its part, waits for the others of its row, puts all numbers together and writes its part.",
        category=Category.MEMORY,
        implementation_complexity=Complexity.PERSISTENT,
        promise=Promise(metric="percent_of_floor", before=share, bound=_BETTER * share, at_most=False),
    )


def _account(plan: KernelPlan, brief: Brief) -> tuple[RegionRow, ...]:
    """Each region with what it takes."""
    assert isinstance(plan, RegionPlan) and brief.current is not None
    return account_regions(plan, brief.current.verdict, brief.current.candidate.settings)


def _advise(plan: KernelPlan, brief: Brief) -> str:
    """The region with most to gain."""
    assert isinstance(plan, RegionPlan)
    return describe_gain(plan, brief.current.verdict if brief.current else None)


_BETTER = 1.15
"""A kernel that reads its rows once comes at least so many times nearer to its floor."""
_HELD: Settings = {"held": 4, "held_block": 8192}
"""Programs of a processor that hold rows together, and the places that each of them keeps."""
PLAIN_RECIPE = Recipe(
    name="regions",
    level=0,
    template="compiler/module.py.j2",
    describes="does each region in one launch, products with the work around them, and calls PyTorch for the rest",
    defaults=_defaults,
    tunables=_TUNABLES,
    own_tunables=_list_own,
    uses=_uses,
    fits=_fits,
    sharpen=_sharpen,
    predict=_predict,
    advise=_advise,
    account=_account,
    shrink={
        "attention_stages": 1, "key_rows": 16, "query_rows": 16, "num_stages": 1, "block_k": 16, "block_n": 16, "block_m": 16,
        "tile": 256, "whole_row": 1024, "block": 64,
    },
    shown_with=_choose_products,
    lesson="Work along rows is fused: a row is read once and stays on the chip while its norm, its softmax or its sum is taken. "
    "What follows a product is done on its sums before they are stored.",
)  # fmt: skip
_HOLDING = replace(
    PLAIN_RECIPE,
    name="regions_held",
    level=1,
    describes="does the same, and has several programs hold a row together that no program can hold, so that it is read only once",
    defaults=_held_defaults,
    tunables=_TUNABLES | {
        Stage.TUNE_GRID: _TUNABLES[Stage.TUNE_GRID] | {"held": (1, 2, 3, 4)},
        Stage.TUNE_BLOCK: _TUNABLES[Stage.TUNE_BLOCK] | {"held_block": (4096, 8192, 16384)},
    },
    predict=_predict_held,
    propose=_propose_held,
    shrink={**PLAIN_RECIPE.shrink, "held_block": 256, "held": 1},
    lesson="",  # the small module of the examples has no rows that are long enough
)  # fmt: skip

def _predict_seconds(plan: KernelPlan, hardware: Hardware, precision: PrecisionClass) -> float:
    assert isinstance(plan, RegionPlan)
    settings = _defaults(plan, hardware, precision)
    replayed = settings is not None and bool(settings["replayed"])
    return predict_work(plan, precision) if replayed else predict_plan(plan, precision)


REGIONS = RecipeFamily(
    name="regions",
    writes="any forward that can be traced, cut into regions: elementwise work, reductions, norms, softmax, losses, scans, pools, lookups, "
    "sums by place, sorts of short rows, attention, products of matrices and convolutions where a kernel is faster "
    "than the library; other calls stay PyTorch calls",
    read=read_regions,
    recipes=(PLAIN_RECIPE, _HOLDING),
    example=EXAMPLE,
    kind=Family.REDUCTION,
    updates=True,
    predict=_predict_seconds,
)
