"""Products of matrices, convolutions, pools, lookups and sums by place: operands as kernels read them, and what they give."""

import pytest

from recipe_cases.lowered import compare_with_torch, read_case, result_of
from tritonsmith.author.compiler.ir.indices import Coordinates, unravel
from tritonsmith.author.compiler.ir.values import AnchorResult, Held, LibraryCall, MatrixProduct, Tensor
from tritonsmith.author.compiler.lowering.calls import NotCovered
from tritonsmith.author.compiler.lowering.products import contract, multiply, take_product

MATRICES = "torch.randn(2, 3, 4), torch.randn(4, 5)"


def products_of(value: Tensor) -> list[MatrixProduct]:
    """The products that a value is made of."""
    own = [value] if isinstance(value, MatrixProduct) else []
    return own + [product for operand in value.operands for product in products_of(operand)]


def held(name: str, *shape: int) -> Held:
    return Held(shape=shape, dtype="float32", name=name, source=name)


@pytest.mark.parametrize(("forward", "given"), [
    ("return x @ y", MATRICES),
    ("return torch.matmul(x, y)", "torch.randn(2, 1, 3, 4), torch.randn(5, 4, 6)"),
    ("return torch.bmm(x, y), torch.baddbmm(x @ y, x, y, beta=0.5, alpha=2)", "torch.randn(2, 3, 4), torch.randn(2, 4, 5)"),
    ("return torch.einsum('bik,kj->bji', x, y), torch.einsum('bik,kj->bij', x, y)", MATRICES),
    ("return torch.addmm(y[0], x[0], y), F.linear(x, y.t(), y[0])", MATRICES),
])  # fmt: skip
def test_products(forward: str, given: str) -> None:
    found = compare_with_torch(forward, given, arguments="x, y")
    assert all(len(products_of(value)) in (1, 2) for value in found.stored)


def test_rows_of_a_batch_that_shares_its_right_operand_are_rows_of_one_product() -> None:
    value = multiply(held("x", 2, 3, 4), held("y", 4, 5), "matmul", "node")
    assert isinstance(value, AnchorResult) and isinstance(value.anchor, MatrixProduct)
    assert value.anchor.sizes == (1, 6, 5, 1, 4) and value.anchor.flops == 2 * 6 * 5 * 4 and value.shape == (2, 3, 5)


def test_a_product_of_one_column_or_of_one_depth_is_none() -> None:
    """A sum along each row, and a product elementwise: neither has matrices."""
    found = compare_with_torch("return x @ y, x[..., :1] @ y[None, :]", "torch.randn(2, 3, 4), torch.randn(4)", arguments="x, y")
    assert not any(products_of(value) for value in found.stored)
    single = compare_with_torch("return self.c(x)", "torch.randn(3, 4)", init="self.c = nn.Linear(4, 1)")
    assert not products_of(result_of(single))


def test_columns_are_neighbours_in_memory() -> None:
    """`ik,kj->ji`: the operands change places, so that the result's last letter is that of the columns."""
    value = contract(held("x", 3, 4), held("y", 4, 5), ("ik", "kj", "ji"), "einsum", "node")
    assert isinstance(value, AnchorResult) and isinstance(value.anchor, MatrixProduct) and value.anchor.sizes == (1, 5, 3, 1, 4)
    for letters in (("ik", "kj", "ikj"), ("ii", "ij", "ij"), ("ik", "k", "i")):
        with pytest.raises((NotCovered, ValueError)):
            contract(held("x", 3, 3), held("y", *(3,) * len(letters[1])), letters, "einsum", "node")


def test_flops_are_those_of_the_operands_unless_they_are_said() -> None:
    def locate(at: Coordinates) -> Coordinates:
        return (*unravel(at[1], (6,)), at[2])

    left, right = held("x", 1, 6, 1, 4), held("y", 1, 1, 4, 5)
    counted, said = (take_product(left, right, (6, 5), locate, "p", "node", **rest) for rest in ({}, {"flops": 7.0}))
    assert [value.anchor.flops for value in (counted, said)] == [240.0, 7.0]  # type: ignore[attr-defined]


IMAGE = "torch.randn(1, 2, 5, 6)"


@pytest.mark.parametrize(("forward", "init", "given"), [
    ("return self.c(x)", "self.c = nn.Conv2d(3, 4, 3, stride=2, padding=1)", "torch.randn(2, 3, 5, 6)"),
    ("return self.c(x)", "self.c = nn.Conv1d(4, 6, 2, dilation=2, groups=2, bias=False)", "torch.randn(2, 4, 7)"),
    ("return self.c(x)", "self.c = nn.Conv2d(3, 3, 3, groups=3, padding='same')", "torch.randn(1, 3, 4, 4)"),
    ("return self.c(x)", "self.c = nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1, output_padding=1)", "torch.randn(1, 3, 3, 3)"),
    ("return F.max_pool2d(x, 3, 2, 1, ceil_mode=True), F.avg_pool2d(x, 2, 1, 1, count_include_pad=False)", "pass", IMAGE),
    ("return F.adaptive_avg_pool2d(x, (2, 3)), F.lp_pool2d(x, 2, 2), F.max_pool1d(x[0], 2, dilation=2)", "pass", IMAGE),
    ("return F.interpolate(x, scale_factor=2), F.interpolate(x, (4, 7), mode='bilinear', align_corners=True)", "pass",
     "torch.randn(1, 2, 3, 4)"),
])  # fmt: skip
def test_convolutions_pools_and_images_of_another_size(forward: str, init: str, given: str) -> None:
    compare_with_torch(forward, given, init=init)


@pytest.mark.parametrize("forward", [
    "return x.gather(1, y), x[y[0]], torch.index_select(x, 1, y[0]), F.embedding(y, x), torch.take_along_dim(x, y, 0)",
    "return F.one_hot(y, 4), torch.eye(3)[y], torch.arange(1, 9, 3) * y[0], torch.linspace(0, 1, 5)",
])  # fmt: skip
def test_elements_at_places_that_other_tensors_say(forward: str) -> None:
    compare_with_torch(forward, "torch.randn(3, 3), torch.tensor([[0, 2, 1], [2, 2, 0]])", arguments="x, y")


def test_products_that_shall_be_calls_are_calls_of_the_same_operands() -> None:
    found = read_case("return torch.relu(x @ y)", MATRICES, arguments="x, y", called=("matmul",))
    (call,) = result_of(found).operands
    assert isinstance(call, LibraryCall) and [value.name for value in call.inputs] == ["x", "y"] and call.shape == (2, 3, 5)
