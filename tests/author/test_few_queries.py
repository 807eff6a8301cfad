"""Attention with few queries: heads with the same keys are rows of one tile, and idle programs share keys."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from recipe_cases.reading import plan_of
from tritonsmith.author.compiler.plan import RegionPlan
from tritonsmith.author.compiler.recipes import REGIONS
from tritonsmith.evaluator.cards.cards import CARDS
from tritonsmith.evaluator.schema import PrecisionClass

SCRIPT = Path(__file__).parents[1] / "helpers" / "recipe_cases" / "few_queries.py"
BY_NAME = "return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)"
REPEATED = "k, v = (x.{} for x in (k, v)); return ((q@k.mT)*0.25).softmax(-1)@v"


def plan_heads(
    forward: str, batch: int = 2, queries: int = 1, keys: int = 300, heads: tuple[int, int] = (8, 2)
) -> RegionPlan:
    """The plan for bf16 heads of 64."""
    shapes = [(batch, heads[0], queries, 64), *[(batch, heads[1], keys, 64)] * 2]
    return plan_of(
        forward,
        ", ".join(f"torch.empty({shape}, dtype=torch.bfloat16)" for shape in shapes),
        arguments="q, k, v",
    )


def write(plan: RegionPlan) -> str:
    settings = REGIONS.recipes[0].defaults(plan, CARDS["h200"], PrecisionClass.HALF)
    assert settings is not None
    return REGIONS.recipes[0].render(plan, settings)


@pytest.mark.parametrize(
    "forward",
    [
        BY_NAME,
        REPEATED.format("repeat_interleave(4, 1)"),
        REPEATED.format("unsqueeze(2).expand(2, 2, 4, 300, 64).reshape(2, 8, 300, 64)"),
        "return ((q.view(2, 2, 4, 1, 64)@k[:, :, None].mT)*0.25).softmax(-1)@v[:, :, None]",
    ],
    ids=("by name", "repeated", "expanded", "as views"),
)
def test_a_program_reads_keys_once_for_all_heads_that_share_them(forward: str) -> None:
    plan = plan_heads(forward)
    (attention,) = plan.attentions
    assert (attention.group, attention.rows, attention.tiles) == (4, 4, 4)
    text = write(plan)
    assert "[(batch * 2,)]" in text and text.count("tl.load(k_ptr") == 1


@pytest.mark.parametrize(
    ("forward", "changed"),
    [
        (BY_NAME, {"queries": 20}),
        (BY_NAME, {"keys": 100}),
        (BY_NAME.replace("enable", "is_causal=True, enable"), {}),
        (REPEATED.format("repeat(1, 4, 1, 1)"), {}),
    ],
    ids=("many queries", "few keys", "causal", "no neighbours"),
)
def test_other_heads_have_a_program_each(forward: str, changed: dict[str, int]) -> None:
    (attention,) = plan_heads(forward, **changed).attentions
    assert (attention.group, attention.tiles) == (1, 16)


def test_a_tile_of_a_group_has_at_most_32_rows() -> None:
    (attention,) = plan_heads(BY_NAME, queries=3, heads=(32, 2)).attentions
    assert (attention.group, attention.rows) == (8, 24)


@pytest.mark.parametrize(
    ("batch", "keys", "parts"), [(1, 32768, 16), (4, 32768, 4), (16, 4096, 1), (1, 1024, 1)],
    ids=("idle processors", "some idle", "busy", "a launch costs more"),
)  # fmt: skip
def test_programs_share_keys_where_processors_would_be_idle(batch: int, keys: int, parts: int) -> None:
    text = write(plan_heads(BY_NAME, batch=batch, keys=keys, heads=(32, 8)))
    assert ("join_parts_of_attention_kernel" in text) is (parts > 1)
    assert parts == 1 or f"attention_kernel[({batch * 8}, {parts})]" in text


def test_few_queries_are_right() -> None:
    """Grouped heads, one and three queries, ragged numbers of keys, masks, with shared keys and without."""
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(SCRIPT)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    errors: dict[str, float] = json.loads(done.stdout)
    assert errors and not [
        name for name, error in errors.items() if not error < (1e-5 if "fp32" in name else 2e-3)
    ]
