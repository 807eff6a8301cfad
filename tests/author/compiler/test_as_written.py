"""Forwards as their users write them: other names of arguments, indices, copies and constants."""

import pytest

from recipe_cases.reading import plan_of
from recipe_cases.regions import RegionCase
from tritonsmith.author.compiler.ir.operators import Operator
from tritonsmith.author.compiler.ir.values import Formula, TensorView
from tritonsmith.author.compiler.plan import RegionPlan
from tritonsmith.author.compiler.recipes import REGIONS
from tritonsmith.author.plan import NoPlan
from tritonsmith.author.writes import list_given_writes
from tritonsmith.evaluator.cards.cards import CARDS
from tritonsmith.evaluator.reference.probe import probe
from tritonsmith.evaluator.schema import Task


def write(plan: RegionPlan) -> str:
    recipe = REGIONS.recipes[0]
    settings = recipe.defaults(plan, CARDS["h200"], plan.precision)
    assert settings is not None
    return recipe.render(plan, settings)


ALIKE = {
    "return torch.stack([x, x * 2], axis=-1)": "return torch.stack([x, x * 2], dim=-1)",
    "return x.var(axis=1, keepdims=True)": "return x.var(dim=1, keepdim=True)",
    "y = x * 2; y[[0, 2]] = 1.0; return y": "y = x * 2; y[0] = 1.0; y[2] = 1.0; return y",
    "y = x * 2; y[..., [1]] = x[:, :1]; return y": "y = x * 2; y[..., 1] = x[:, 0]; return y",
    "y = x * 2; y[:, [0, 3]] = x[:, :2]; return y": "y = x * 2; y[:, 0] = x[:, 0]; y[:, 3] = x[:, 1]; return y",
}


@pytest.mark.parametrize(("written", "plain"), ALIKE.items(), ids=ALIKE)
def test_two_ways_to_write_the_same_lead_to_one_kernel(written: str, plain: str) -> None:
    first, second = (write(plan_of(forward)).partition("class ModelNew")[0] for forward in (written, plain))
    assert first == second


def test_an_index_in_a_list_is_no_place_of_each_axis() -> None:
    single, listed = (write(plan_of(f"y = x * 2; y[{index}] = 1.0; return y")) for index in ("0, 2", "[0, 2]"))
    assert single != listed


def test_places_of_several_axes_stay_a_call() -> None:
    assert plan_of("y = x * 2; y[[0, 1], [2, 3]] = 0.0; return y + 1").calls == ("torch.index_put",)


@pytest.mark.parametrize(
    ("operator", "done"),
    [("^=", Operator.XOR), ("&=", Operator.AND), ("|=", Operator.OR), ("<<=", Operator.SHIFT_LEFT), (">>=", Operator.SHIFT_RIGHT)],
)
def test_operators_on_bits_write_in_place(operator: str, done: Operator) -> None:
    plan = plan_of(f"y = x + 1; z = y; y {operator} 3; return z", "torch.randint(0, 9, (7,))")
    assert not plan.calls and isinstance(plan.forward.results, Formula) and plan.forward.results.operator is done


@pytest.mark.parametrize("copy", ["t().contiguous()", "t().reshape(24)", "t().flatten()", "double()"])
def test_a_copy_that_is_written_leaves_its_tensor_as_it_was(copy: str) -> None:
    kept, changed = plan_of(f"y = x * 2; z = y.{copy}; z += 1; return y, z").forward.results
    assert isinstance(kept, Formula) and kept.name == "mul" and changed.name == "add"
    assert not plan_of(f"z = x.{copy}; z += 1; return z").forward.written


@pytest.mark.parametrize("view", ["contiguous()", "reshape(24)", "flatten()[3:]", "float()"])
def test_a_view_that_is_written_changes_its_tensor(view: str) -> None:
    task = Task(name="a_task", path="a_task.py", source=RegionCase("one", f"z = x.{view}; z += 1; return z", "torch.randn(4, 6)").source())
    assert list_given_writes(probe(task)[0].ops) == ("x",)
    kept, _ = plan_of(f"y = x * 2; z = y.{view}; z += 1; return y, z").forward.results
    assert isinstance(kept, TensorView) or kept.name != "mul"


def test_numbers_of_a_tensor_are_known_however_it_is_made() -> None:
    """Also where torch.fx cannot follow a condition, and forward runs on tensors without values."""
    plan = plan_of("w = torch.Tensor([0.5, 1.5, 2.5]).repeat(2); y = x * w.type_as(x) if x.sum().shape == () else x; return y")
    assert "torch.tensor([0.5, 1.5, 2.5]" in write(plan)


def test_rims_of_other_elements_may_be_said_by_a_word() -> None:
    """Where there is an odd number of them, one more stands behind."""
    init = "self.c = nn.Conv1d(8, 3, 4, padding='same', dilation=3, padding_mode='replicate').double()"
    assert "[4, 5], mode='replicate'), weight=self.c.weight" in write(
        plan_of("return self.c(x.tanh())", "torch.randn(2, 8, 12).double()", init=init)
    )


def test_a_sum_over_rows_that_programs_share_has_a_kernel_of_its_own() -> None:
    """It needs what all of their programs find together."""
    text = write(plan_of("return (F.layer_norm(x, (70000,)) * x.softmax(-1)).sum(-1)", "torch.randn(2, 70000)"))
    assert text.count("def join_") == 2


def test_a_scan_is_run_again_where_its_elements_are_needed_again() -> None:
    """A loop has only those of its block, so the second one starts anew."""
    text = write(plan_of("return x.cumsum(-1).softmax(-1)", "torch.randn(2, 50001)"))
    assert text.count("tl.cumsum(") == text.count("_before = tl.full(") == 2 and "tl.exp(cumsum_1 - most)" in text
    assert write(plan_of("return x.cumsum(-1).softmax(-1)", "torch.randn(2, 500)")).count("tl.cumsum(") == 1


def test_threads_count_alone_where_a_loop_begins_with_the_block_that_is_not_full() -> None:
    """As a sum from the end does."""
    text = write(plan_of("return F.layer_norm(x.flip(-1).cumsum(-1).flip(-1), (50001,))", "torch.randn(2, 50001)"))
    assert "mean_turn" not in text and "(1.0 / tl.maximum(mean_count, 1.0))" in text


def test_a_product_without_a_sum_is_elementwise() -> None:
    """As positions times frequencies are, and a layer of one input."""
    plan = plan_of("return (x[:, :1] @ x[:1]).cos() * 2, self.a(x[:, :1]).relu()", init="self.a = nn.Linear(1, 6)")
    assert not plan.calls and "tl.dot" not in write(plan)


def test_a_part_without_elements_takes_no_value() -> None:
    assert not plan_of("y = x[:1] * 1; y[1:] -= x[:0]; y[:, 6:] = 2.0; return y").calls


def test_a_scan_of_one_place_gives_a_tensor_of_its_own() -> None:
    assert isinstance(plan_of("return x[:1].cumsum(0)").forward.results, Formula)


def test_parts_of_a_split_are_counted_from_either_end() -> None:
    ways = [write(plan_of(f"y = x * 2; a = y.unbind(1); a[{place}].fill_(3); return y")) for place in (5, -1)]
    assert ways[0] == ways[1]


def test_a_forward_that_computes_nothing_is_refused_as_such() -> None:
    with pytest.raises(NoPlan) as refused:
        plan_of("return x.t(), x[:2]")
    assert refused.value.missing == (("a forward that computes nothing", None),)


def test_a_long_calculation_of_a_bias_is_stored_ahead_of_attention() -> None:
    steps = "; ".join(["b = torch.tanh(b * 0.5 + 0.1)"] * 9)
    plan = plan_of(
        f"b = self.b; {steps}; return (x @ x.mT + b).softmax(-1) @ x",
        "torch.randn(2, 9, 8)",
        init="self.b = nn.Parameter(torch.rand(9, 9))",
    )
    assert len(plan.attentions) == 1 and not plan.calls
