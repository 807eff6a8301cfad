"""Attention with few queries beside float64. Under TRITON_INTERPRET=1 it prints {case: largest error}.

An error is relative to the largest element of a result. The card is so slow that a second launch always pays.
"""

import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from recipe_cases.reading import change_card, describe_case
from recipe_cases.regions import RegionCase
from tritonsmith.author.compiler.plan import read_regions
from tritonsmith.author.compiler.recipes import REGIONS
from tritonsmith.evaluator.confined.runner.candidate import import_candidate
from tritonsmith.evaluator.reference.module import load_reference

SLOW = change_card(hardware={"clock_hz": 1e5})
"""A card on which the keys of one program take longer than a launch."""
BY_NAME = "return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)"
REPEATED = "k, v = (x.repeat_interleave(4, 1) for x in (k, v)); return ((q@k.mT)*0.25).softmax(-1)@v"
MASKED = "return F.scaled_dot_product_attention(q, k, v, attn_mask={}, enable_gqa=True){}"


def draw(batch: int, queries: int, keys: int, kind: str = "half", more: str = "") -> str:
    """Inputs of 8 heads on 2, with 16 features."""
    return (
        ", ".join(
            f"torch.randn({batch}, {heads}, {rows}, 16).{kind}()"
            for heads, rows in ((8, queries), (2, keys), (2, keys))
        )
        + more
    )


def describe(name: str, forward: str, inputs: str) -> RegionCase:
    """A case with a mask as the last argument, where there is one."""
    return RegionCase(
        name, forward, inputs, arguments="q, k, v, m" if inputs.count("torch.") > 3 else "q, k, v"
    )


CASES = [
    describe("three queries on a ragged number of keys", BY_NAME, draw(2, 3, 300)),
    describe("keys repeated by hand", REPEATED, draw(2, 1, 256)),
    describe("shared keys, three queries on a ragged number", BY_NAME, draw(1, 3, 700)),
    describe("shared keys in fp32", BY_NAME, draw(1, 1, 270, "float")),
    describe(
        "shared keys, lengths, heads beside each other",
        MASKED.format("(torch.arange(512) < m[:, None])[:, None, None]", ".transpose(1, 2).reshape(2, 128)"),
        draw(2, 1, 512, more=", torch.tensor([400, 40])"),
    ),
    describe(
        "shared keys, a query that sees none",
        MASKED.format("m", ""),
        draw(1, 2, 512, more=", torch.arange(512)[None] < torch.tensor([[300], [0]])"),
    ),
    describe(
        "shared keys in fp32, hidden by a number",
        "w=torch.where(m, (q@k.repeat_interleave(4, 1).mT)*0.25, -1e9); "
        "return w.softmax(-1)@v.repeat_interleave(4, 1)",
        draw(1, 1, 256, "float", ", torch.arange(256)[None, None, None] < 100"),
    ),
]


def measure(case: RegionCase, folder: Path) -> float:
    """The largest error of a case's kernel; infinite where its name is wrong about shared keys."""
    task, facts = describe_case(case)
    plan = read_regions(task, facts, SLOW)
    settings = REGIONS.recipes[0].defaults(plan, SLOW.hardware, task.precision)
    assert settings is not None
    path = folder / f"case_{CASES.index(case)}.py"
    path.write_text(REGIONS.recipes[0].render(plan, settings))
    if ("join_parts" in path.read_text()) is not case.name.startswith("shared"):
        return float("inf")
    module = load_reference(task).module
    given = module.get_inputs()
    wanted = module.Model()(*(one.double() if one.is_floating_point() else one for one in given))
    got = import_candidate(path).ModelNew()(*given).double()
    return float((got - wanted).abs().max() / wanted.abs().max())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        json.dump({case.name: measure(case, Path(made)) for case in CASES}, sys.stdout)
