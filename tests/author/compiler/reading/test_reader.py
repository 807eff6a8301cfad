"""What is read of a forward: its arguments, members and results, what is made once, and what is refused in which words."""

from collections.abc import Callable

import pytest

from recipe_cases.lowered import compare_with_torch, read_case, result_of
from recipe_cases.reading import describe_case
from recipe_cases.regions import RegionCase
from tritonsmith.author.cards.model import FIRST
from tritonsmith.author.compiler.ir.values import AnchorResult, Formula, Held, LibraryCall, Tensor, TensorView
from tritonsmith.author.compiler.reading.kinds import find_lowering
from tritonsmith.author.compiler.reading.reader import Forward, list_values, read_forward
from tritonsmith.author.plan import NoPlan
from tritonsmith.evaluator.schema import OpNode, TaskFacts, TensorSpec


def held_in(value: Tensor) -> set[str]:
    """The names in forward of all arguments and members that a value is made of."""
    own = {value.source} if isinstance(value, Held) else set()
    return own.union(*map(held_in, value.operands))


def calls_in(value: Tensor) -> list[LibraryCall]:
    """All PyTorch calls that a value is made of."""
    own = [value] if isinstance(value, LibraryCall) else []
    return own + [call for operand in value.operands for call in calls_in(operand)]


def test_arguments_and_members_have_the_names_that_forward_has_for_them() -> None:
    init = "self.a = nn.Parameter(torch.ones(4)); self.n = nn.Sequential(nn.ReLU(), nn.LayerNorm(4))"
    init += "; self.register_buffer('b', torch.ones(3, 1))"
    found = compare_with_torch("return self.n(x * self.a) + self.b - y", "torch.randn(3, 4), torch.randn(4)", init=init, arguments="x, y")
    assert [(held.source, held.shape, held.given) for held in found.inputs] == [("x", (3, 4), True), ("y", (4,), True)]
    assert held_in(result_of(found)) == {"x", "y", "self.a", "self.b", 'self.n["1"].weight', 'self.n["1"].bias'}


def test_results_keep_the_form_that_forward_gives_them() -> None:
    found = compare_with_torch("return {'sum': x + 1, 'parts': (x * 2, [x - 1])}")
    total, (double, (less,)) = found.results["sum"], found.results["parts"]
    assert list_values(found.results) == [total, double, less]


def test_sizes_are_numbers_and_arithmetic_on_them_is_done() -> None:
    found = compare_with_torch("rows, columns = x.shape; return x.reshape(columns // 2, rows * 2) * (x.size(-1) ** 0.5) + x.numel() % 5")
    assert result_of(found).shape == (2, 6) and held_in(result_of(found)) == {"x"}


def test_numbers_that_forward_writes_out_are_kept_once() -> None:
    written = "torch.tensor([1.0, 2.0, 3.0, 4.0])"
    found = compare_with_torch(f"return x * {written} + {written}, x - torch.tensor([[1.0], [2.0], [5.0]])")
    assert sorted(held.shape for held in found.constants.values()) == [(3, 1), (4,)]
    assert len({held.name for held in found.constants.values()}) == 2


def test_equal_passes_over_memory_are_one_unless_a_write_stands_between() -> None:
    def sums(forward: str) -> set[int]:
        return {id(value.anchor) for value in read_case(forward).stored if isinstance(value, AnchorResult)}

    assert len(sums("return x.sum(1), x.sum(1), x.sum(0)")) == 2
    assert len(sums("x = x * 1; y = x.sum(1); x.add_(1); return y, x.sum(1)")) == 2


def test_what_no_kind_covers_is_a_call_of_the_values_ahead_of_it() -> None:
    found = read_case("return torch.linalg.inv(x * 2 + self.a) + 1", "torch.randn(3, 3)", init="self.a = nn.Parameter(torch.eye(3))")
    (call,) = calls_in(result_of(found))
    assert call.says == "torch.linalg.inv" and [type(value) for value in call.inputs] == [Formula]
    assert held_in(call) == {"x", "self.a"} and (call.shape, call.dtype) == ((3, 3), "float32")


def test_nodes_that_shall_be_calls_are_calls_and_others_stay_kernels() -> None:
    forward, init = "return self.b(torch.relu(self.a(x)))", "self.a = nn.Linear(4, 5); self.b = nn.Linear(5, 6)"
    found = [read_case(forward, init=init, called=called) for called in ((), ("a",), ("a", "b"))]
    assert [len(calls_in(result_of(forward))) for forward in found] == [0, 1, 2]


def test_dropout_is_nothing_in_evaluation_mode() -> None:
    found = compare_with_torch("return self.d(F.alpha_dropout(x, 0.5, False)) * 2", init="self.d = nn.Dropout(0.3)")
    assert isinstance(result_of(found), Formula) and [value for value in result_of(found).operands] == found.inputs


def test_a_result_that_is_an_argument_is_that_argument() -> None:
    found = read_case("return x, x.t()")
    first, turned = list_values(found.results)
    assert first is found.inputs[0] and isinstance(turned, TensorView) and turned.source is first


@pytest.mark.parametrize(("forward", "given", "said"), [
    ("return torch.nonzero(x)", "torch.eye(3)", "torch.nonzero, whose values decide a shape"),
    ("return torch.unique(x)", "torch.eye(3)", "torch.unique, whose values decide a shape"),
    ("return F.one_hot(x)", "torch.tensor([1, 2])", "F.one_hot, whose values decide a shape"),
    ("return x.to(torch.complex128).abs()", "torch.eye(3)", "Tensor.to that gives complex128"),
    ("return x.H", "torch.eye(3)", "the attribute H"),
    ("return x[x > 0].sort().values.sum()", "torch.eye(3) * 2", "Tensor.sort of elements that a mask picks"),
])  # fmt: skip
def test_what_cannot_be_read_is_named(forward: str, given: str, said: str) -> None:
    with pytest.raises(NoPlan) as refused:
        read_case(forward, given)
    assert str(refused.value) == said
    (missing,) = refused.value.missing
    assert missing[1] is not None, "with the node that asks for it"


def _change(**changes: object) -> Callable[[TaskFacts], TaskFacts]:
    return lambda facts: facts.model_copy(update=changes)


@pytest.mark.parametrize(("change", "said"), [
    (_change(inputs=()), "the argument x of forward, which the task gives no input for"),
    (_change(inputs=(TensorSpec(shape=(3, 4), dtype="complex128"),)), "the complex128 input x"),
    (_change(updates=("seen",)), "a forward that updates seen"),
    (lambda facts: facts.model_copy(update={"ops": facts.ops[:-1]}), "a forward that returns nothing"),
])  # fmt: skip
def test_facts_that_no_kernel_follows_from_are_refused(change: Callable[[TaskFacts], TaskFacts], said: str) -> None:
    facts = change(describe_case(RegionCase("relu", "return torch.relu(x)", "torch.randn(3, 4)"))[1])
    with pytest.raises(NoPlan) as refused:
        read_forward(facts, False, FIRST)
    assert str(refused.value) == said


def test_a_function_and_the_method_of_its_name_are_lowered_alike() -> None:
    softmax = OpNode(name="a", op="call_function", target="torch.softmax")
    assert find_lowering(softmax) is find_lowering(softmax.model_copy(update={"op": "call_method", "target": "softmax"})) is not None
    assert find_lowering(softmax.model_copy(update={"target": "torch.linalg.svd"})) is None


def _stored(found: Forward) -> list[tuple[int, ...]]:
    return [value.shape for value in found.stored]


def test_everything_that_forward_leaves_is_stored() -> None:
    init = "self.register_buffer('seen', torch.zeros(4))"
    found = compare_with_torch("self.seen += x.sum(0); y.mul_(2); return x + 1", "torch.randn(3, 4), torch.randn(2)", init=init,
                               arguments="x, y")  # fmt: skip
    assert _stored(found) == [(3, 4), (4,), (2,)] and list(found.updates) == ["seen"] and list(found.written) == ["y"]
