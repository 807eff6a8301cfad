"""The recipe of elementwise chains: its settings and what it teaches."""

from __future__ import annotations

from functools import partial
from typing import Any

from tritonsmith.author.families.chain.example import POINTWISE_EXAMPLE
from tritonsmith.author.families.chain.plan import covers_chain, read_plain_chain
from tritonsmith.author.recipe import Recipe, RecipeFamily
from tritonsmith.author.types import WORKED
from tritonsmith.evaluator.schema import Hardware, Stage
from tritonsmith.prompts.kinds import Family

_LARGE_BLOCK, _SMALL_BLOCK = 1024, 256
"""Elements of a block: eight for each thread of four warps share the cost of a program's start, two spread a small tensor over the card."""
_FULL = 16
"""Large blocks for each processor that fill it: programs of four warps that fit on it together."""


def _choose_block(plan: Any, hardware: Hardware) -> int:
    """Large blocks where these still fill the card."""
    return _LARGE_BLOCK if plan.elements >= _FULL * _LARGE_BLOCK * hardware.processors else _SMALL_BLOCK


POINTWISE = RecipeFamily(
    name="pointwise",
    writes=f"elementwise operations on tensors ({', '.join(WORKED)}) that broadcast to one result",
    read=read_plain_chain,
    covers=partial(covers_chain, read_plain_chain),
    recipes=(
        Recipe(
            name="pointwise",
            level=0,
            template="families/chain/pointwise.py.j2",
            describes="does the whole chain in one launch",
            defaults=lambda plan, hardware, precision: {"tiles": 1, "block": _choose_block(plan, hardware), "num_warps": 4},
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
    misses_writes=True,
)
