"""What a row needs behind several reductions is read ahead of the first one, where registers hold it."""

import pytest

from recipe_cases.reading import plan_of
from tritonsmith.author.compiler.recipes import REGIONS
from tritonsmith.evaluator.cards.cards import CARDS

QUANTISED = "h = F.rms_norm(x, (LENGTH,), self.w); s = h.abs().amax(-1, keepdim=True) / 127.0; return torch.round(h / s).to(torch.int8), s"


def write_body(length: int, forward: str) -> str:
    plan = plan_of(
        forward.replace("LENGTH", str(length)), f"torch.randn(64, {length})", init=f"self.w = nn.Parameter(torch.ones({length}))"
    )
    recipe = REGIONS.recipes[0]
    settings = recipe.defaults(plan, CARDS["h200"], plan.precision)
    assert settings is not None and plan.kernels == 1
    return recipe.render(plan, settings).partition("_ptr, ")[2].partition("COMPILED")[0]


@pytest.mark.parametrize(("length", "ahead"), [(4096, True), (16384, False)])
def test_weights_of_chained_reductions(length: int, ahead: bool) -> None:
    body = write_body(length, QUANTISED)
    assert (body.index("tl.load(w_ptr") < body.index("tl.sum(")) is ahead


def test_one_reduction_reads_nothing_ahead() -> None:
    body = write_body(4096, "return F.rms_norm(x, (LENGTH,), self.w)")
    assert body.index("tl.load(w_ptr") > body.index("tl.sum(")


def test_what_is_read_under_a_condition_is_not() -> None:
    body = write_body(512, "h = F.pad(x[:, 2:], (1, 1)); h = h / h.pow(2).mean(-1, keepdim=True); return (h * self.w).softmax(-1)")
    assert body.index("tl.load(w_ptr") > body.index("tl.sum(")
