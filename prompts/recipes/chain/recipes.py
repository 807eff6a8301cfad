"""The recipe of elementwise chains: its settings and what it teaches."""

from __future__ import annotations

from tritonsmith.evaluator.schema import Stage
from tritonsmith.prompts.recipes.chain.example import POINTWISE_EXAMPLE
from tritonsmith.prompts.recipes.chain.plan import DTYPES, read_plain_chain
from tritonsmith.prompts.recipes.kinds import Family
from tritonsmith.prompts.recipes.recipe import Recipe, RecipeFamily

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
                Stage.TUNE_GRID: {"tiles": (1, 2, 4, 8)},
                Stage.TUNE_BLOCK: {"block": (128, 256, 512, 1024, 2048, 4096)},
                Stage.TUNE_MEMORY: {"num_warps": (1, 2, 4, 8, 16)},
            },
            shrink={"block": 16},
            lesson="Every operand is read once, broadcast operands by index arithmetic; one store.",
        ),
    ),
    example=POINTWISE_EXAMPLE,
    kind=Family.POINTWISE,
    nearest_to=(Family.REDUCTION,),
)
