"""Equal linear layers on slices of a tensor are one product, unless a write stands between them."""

import pytest

from recipe_cases.lowered import compare_with_torch
from recipe_cases.reading import describe_case
from recipe_cases.regions import RegionCase
from tritonsmith.author.compiler.reading.hoisting import hoist_products
from tritonsmith.evaluator.schema import OpNode

INIT = "self.l=nn.Linear(8, 16); self.m=nn.Linear(16, 16); self.w=nn.Parameter(torch.randn(16, 8))"
START = "h = torch.zeros(x.shape[0], 16)"
ONCE = {
    "a place of an axis": "x[:, @]", "a place between others": "x[:, @, :]", "places from the end": "x[:, -1 - @]",
    "select": "x.select(1, @)", "unbind": "x.unbind(1)[@]", "unbind of a step's tensor": "x.unbind(dim=-2)[@]",
}  # fmt: skip


def case_of(step: str, inputs: str = "torch.randn(3, 6, 8)", start: str = START, count: int = 6) -> RegionCase:
    steps = "; ".join(step.replace("@", str(number)) for number in range(count))
    return RegionCase("", f"{start}; {steps}; return h", inputs, init=INIT)


def list_layers(case: RegionCase) -> list[OpNode]:
    """The linear layers that a planned forward has."""
    _, facts = describe_case(case)
    return [node for node in hoist_products(facts).ops if node.target == "l" or node.target.endswith(".linear")]


@pytest.mark.parametrize("name", ONCE)
def test_slices_that_are_all_there_have_one_product(name: str) -> None:
    (layer,) = list_layers(case_of(f"h = torch.tanh(self.l({ONCE[name]}) + self.m(h))"))
    assert layer.outputs[0].shape == (3, 6, 16)


@pytest.mark.parametrize(
    ("step", "start", "count"),
    [
        ("h = h + self.l(x[:, @])", START, 2),  # few of them
        ("h = h + self.l(x[:, :, @])", "x = torch.cat([x, x[:, :2]], 1); " + START, 6),  # the axis that is summed along
        ("h = h + self.l(z[:, @]); z[:, 0] = z[:, @] * 2", "z = x * 2; " + START, 6),
        ("h = h + F.linear(x[:, @], v); v.mul_(0.5)", "v = self.w * 2; " + START, 6),
        ("h = h + self.l(x[:, @]); self.l.weight.mul_(0.5)", START, 6),
    ],
)
def test_others_stay_where_they_are(step: str, start: str, count: int) -> None:
    assert len(list_layers(case_of(step, start=start, count=count))) == count


def test_values_are_those_of_the_loop() -> None:
    compare_with_torch(
        "h = torch.zeros(3, 16); z = x * 2; " + "; ".join(f"h = torch.tanh(self.l(x[:, {t}]) + h * 0.5)" for t in range(6)) + "; "
        + "; ".join(f"h = h + self.l(z[:, {t}]); z[:, {t}] = z[:, {t}] * 2" for t in range(5)) + "; return h, z",
        "torch.randn(3, 6, 8)", init=INIT,
    )  # fmt: skip
