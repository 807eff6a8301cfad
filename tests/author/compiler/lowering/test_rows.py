"""Reductions, norms, losses and scans: which numbers they are made of, and that those are torch's."""

import pytest

from recipe_cases.lowered import compare_with_torch, read_case, result_of
from tritonsmith.author.compiler.ir.values import AnchorResult, Formula, Held, LibraryCall, Reduction, Scan, Tensor, TensorView
from tritonsmith.author.compiler.lowering.calls import NotCovered, find_axes
from tritonsmith.author.compiler.lowering.reductions import find_exponentials, find_moments, reduce
from tritonsmith.author.compiler.lowering.scans import scan

CUBE = "torch.randn(2, 3, 4)"
X = Held(shape=(2, 3, 4), dtype="float32", name="x", source="x")


def anchors_of(value: Tensor) -> set[int]:
    """All work along axes that a value is made of."""
    own = {id(value)} if isinstance(value, Reduction | Scan) else set()
    return own.union(*map(anchors_of, value.operands))


@pytest.mark.parametrize("forward", [
    "return x.sum((0, 2)), x.mean(1, keepdim=True), x.prod(-1), x.amax(), x.amin((1, 2)), x.std(0), x.var((0, 2), unbiased=False)",
    "return x.max(1), x.min(-1, keepdim=True), x.argmax(), x.argmin(1), torch.aminmax(x, dim=0), (x > 0).any(1), (x > 9).all()",
    "return x.norm(), x.norm(1, -1), x.norm(float('inf'), 0), F.normalize(x, dim=2), torch.logsumexp(x, (0, 1)), x.count_nonzero(2)",
    "return torch.softmax(x, 1), F.log_softmax(x, 0), F.softmin(x, 2), torch.var_mean(x, 2), F.cosine_similarity(x, x * 2 + 1, 1)",
])  # fmt: skip
def test_numbers_about_elements_along_axes(forward: str) -> None:
    compare_with_torch(forward, CUBE)


def test_a_reduction_along_axes_of_one_element_is_none() -> None:
    single = Held(shape=(3, 1), dtype="float32", source="x")
    assert reduce(single, (1,), "max", keep=True) is single and not anchors_of(reduce(single, (1,), "sum"))
    assert not anchors_of(reduce(single, (1,), "argmax", "int64", which=1)) and not anchors_of(find_moments(single, (1,))[1])
    compare_with_torch("return x.var(1, unbiased=False), torch.softmax(x, 1), x.max(1)", "torch.randn(3, 1)")


def test_what_no_element_gives() -> None:
    empty = Held(shape=(2, 0), dtype="float32", source="x")
    total = reduce(empty, (1,), "sum")
    assert isinstance(total, Formula) and total.number == 0.0 and total.shape == (2,)
    with pytest.raises(NotCovered, match="of no element"):
        reduce(empty, (1,), "max")


def test_axes_count_from_either_end_and_stand_in_order() -> None:
    assert find_axes((-1, 0), 3) == (0, 2) and find_axes(None, 2) == (0, 1) and find_axes(0, 0) == ()
    with pytest.raises(NotCovered):
        find_axes([True], 2)


def test_mean_and_squares_come_from_one_pass_and_so_do_maximum_and_sum() -> None:
    for numbers in (find_moments(X, (2,)), find_exponentials(X, (1, 2))):
        assert len(anchors_of(numbers[0]) | anchors_of(numbers[1]) | anchors_of(numbers[2])) == 1
    assert len(anchors_of(result_of(read_case("return (x - x.mean(-1, True)) / x.std(-1, keepdim=True)")))) == 2
    assert len(anchors_of(result_of(read_case("return F.layer_norm(x, (4,))")))) == 1


@pytest.mark.parametrize(("forward", "init"), [
    ("return self.n(x), F.layer_norm(x, (3, 4, 5), eps=0.1)", "self.n = nn.LayerNorm((4, 5)); nn.init.normal_(self.n.bias)"),
    ("return self.n(x), F.rms_norm(x, (4, 5))", "self.n = nn.RMSNorm(5, eps=0.01)"),
    ("return self.n(x), F.group_norm(x, 3)", "self.n = nn.GroupNorm(1, 3); nn.init.normal_(self.n.weight)"),
    ("return self.n(x), F.instance_norm(x)", "self.n = nn.InstanceNorm2d(3, affine=True)"),
    ("return self.n(x)", "self.n = nn.BatchNorm2d(3); nn.init.normal_(self.n.running_mean)"),
])  # fmt: skip
def test_norms(forward: str, init: str) -> None:
    compare_with_torch(forward, "torch.randn(2, 3, 4, 5)", init=init)


def test_a_batch_norm_in_training_leaves_its_running_statistics() -> None:
    found = compare_with_torch("return self.n(x)", "torch.randn(6, 3)", init="self.n = nn.BatchNorm1d(3, momentum=0.3)", mode="train")
    assert sorted(found.updates) == ["n.num_batches_tracked", "n.running_mean", "n.running_var"]


@pytest.mark.parametrize("forward", [
    "return F.mse_loss(x, y), F.l1_loss(x, y, reduction='sum'), F.smooth_l1_loss(x, y, beta=0.5), F.huber_loss(x, y, reduction='none')",
    "return F.kl_div(x, y.softmax(1), reduction='batchmean'), F.binary_cross_entropy(x.sigmoid(), y.sigmoid())",
    "return F.binary_cross_entropy_with_logits(x, y, pos_weight=y[0].abs()), F.poisson_nll_loss(x, y.abs() + 2, full=True)",
    "return F.triplet_margin_loss(x, y, x * y, swap=True), F.margin_ranking_loss(x, y, torch.sign(x)), F.gaussian_nll_loss(x, y, y * y)",
    "return F.cross_entropy(x, y.softmax(1), label_smoothing=0.2), F.soft_margin_loss(x, torch.sign(y))",
])  # fmt: skip
def test_losses(forward: str) -> None:
    compare_with_torch(forward, "torch.randn(3, 4), torch.randn(3, 4)", arguments="x, y")


def test_targets_that_are_ignored_do_not_count_in_a_mean() -> None:
    compare_with_torch(
        "return F.cross_entropy(x, y, self.w, ignore_index=1, label_smoothing=0.1), F.nll_loss(x, y, reduction='none')",
        "torch.randn(5, 4), torch.tensor([0, 1, 3, 1, 2])", arguments="x, y", init="self.w = nn.Parameter(torch.rand(4))",
    )  # fmt: skip


def test_scans_from_either_end_and_rows_in_order() -> None:
    found = compare_with_torch("return x.cumsum(1), x.cumprod(0), x.flip(1).cumsum(1).flip(1), x.cummax(1), torch.sort(x, 1).values")
    (backwards,) = [value for value in found.stored if isinstance(value, AnchorResult) and getattr(value.anchor, "reverse", False)]
    assert isinstance(backwards.anchor, Scan) and isinstance(backwards.anchor.source, Held), "both flips are gone"


def test_a_scan_of_one_element_is_a_copy() -> None:
    copy = scan(Held(shape=(3, 1), dtype="int32", source="x"), 1, "sum", "int64")
    assert isinstance(copy, Formula) and copy.dtype == "int64"


def test_a_long_row_is_left_to_pytorch_to_sort() -> None:
    short, long = (result_of(read_case("return torch.sort(x, 1).values", f"torch.randn(2, {size})")) for size in (1024, 1025))
    assert anchors_of(short) and not isinstance(short, TensorView | LibraryCall)
    assert not anchors_of(long)
