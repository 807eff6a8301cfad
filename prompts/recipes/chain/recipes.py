"""The recipes of elementwise chains: their settings, where they fit, and what they teach."""

from __future__ import annotations

from tritonsmith.evaluator.schema import Hardware, PrecisionClass, Stage
from tritonsmith.prompts.recipes.chain.example import LINEAR_EXAMPLE, POINTWISE_EXAMPLE
from tritonsmith.prompts.recipes.chain.plan import DTYPES, ChainPlan, read_linear_chain, read_plain_chain
from tritonsmith.prompts.recipes.kinds import Family
from tritonsmith.prompts.recipes.plan import KernelPlan
from tritonsmith.prompts.recipes.recipe import Recipe, RecipeFamily, Settings

_MORE_EXACT = {"tf32": "fp16x3", "fp16x3": "tf32x3", "tf32x3": "ieee"}
"""The next more exact way to multiply."""
_MOST_ACCUMULATORS = 128
"""fp32 sums that one thread holds; it has 255 registers at most."""


def _tile_fits(plan: KernelPlan, settings: Settings, hardware: Hardware) -> bool:
    """Operand tiles of all stages within shared memory, accumulators within registers."""
    m, n, k = (int(settings[key]) for key in ("block_m", "block_n", "block_k"))
    shared = 8 * (m + n) * k * max(1, int(settings["num_stages"]) - 1)
    accumulators = m * n / (32 * int(settings["num_warps"]))
    return shared <= hardware.shared_per_block and accumulators <= _MOST_ACCUMULATORS


def _linear_defaults(plan: KernelPlan, hardware: Hardware, precision: PrecisionClass) -> Settings:
    scheme = "tf32" if precision.allows_tf32 else "fp16x3"
    if isinstance(plan, ChainPlan) and plan.half:
        scheme = "as they are"
    return {"group": 1, "block_m": 64, "block_n": 64, "block_k": 32, "num_warps": 4, "num_stages": 2, "scheme": scheme}


def _sharpen(settings: Settings) -> Settings | None:
    scheme = _MORE_EXACT.get(str(settings.get("scheme", "")))
    return settings | {"scheme": scheme} if scheme else None


LINEAR = RecipeFamily(
    name="linear",
    writes=f"one `nn.Linear` on an input of its weight's type ({', '.join(DTYPES)}), then elementwise operations on its result",
    read=read_linear_chain,
    recipes=(
        Recipe(
            name="linear",
            level=0,
            template="chain/linear.py.j2",
            describes="computes the product tile by tile and applies the tail to the accumulator, in one launch",
            defaults=_linear_defaults,
            tunables={
                Stage.TUNE_GRID: {"group": (1, 4, 8)},
                Stage.TUNE_BLOCK: {"block_m": (64, 128), "block_n": (64, 128), "block_k": (32, 64)},
                Stage.TUNE_MEMORY: {"num_warps": (4, 8), "num_stages": (2, 3, 4)},
            },
            fits=_tile_fits,
            shrink={"num_stages": 1, "block_k": 16, "block_n": 16, "block_m": 16},
            sharpen=_sharpen,
            lesson="Tiles through tl.dot, the tail on the accumulator before the one store, programs in grouped order.",
        ),
    ),
    example=LINEAR_EXAMPLE,
    kind=Family.GEMM,
    nearest_to=(Family.ATTENTION, Family.CONVOLUTION),
)
POINTWISE = RecipeFamily(
    name="pointwise",
    writes=f"elementwise operations on tensors ({', '.join(DTYPES)}) that broadcast to one result",
    read=read_plain_chain,
    recipes=(
        Recipe(
            name="pointwise",
            level=0,
            template="chain/pointwise.py.j2",
            describes="does the whole chain in one launch",
            defaults=lambda plan, hardware, precision: {"tiles": 1, "block": 256, "num_warps": 4},
            tunables={
                Stage.TUNE_GRID: {"tiles": (1, 2, 4)},
                Stage.TUNE_BLOCK: {"block": (256, 512, 1024, 2048)},
                Stage.TUNE_MEMORY: {"num_warps": (2, 4, 8)},
            },
            shrink={"block": 16},
            lesson="Every operand is read once, broadcast operands by index arithmetic; one store.",
        ),
    ),
    example=POINTWISE_EXAMPLE,
    kind=Family.POINTWISE,
    nearest_to=(Family.REDUCTION,),
)
