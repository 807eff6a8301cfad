"""Views: the element that each place shows, which views are none, and what is read as one tensor."""

import pytest

from recipe_cases.lowered import compare_with_torch, result_of
from tritonsmith.author.compiler.ir.indices import variable
from tritonsmith.author.compiler.ir.values import Held, Joined, LibraryCall, Tensor, TensorView, base_of
from tritonsmith.author.compiler.lowering.views import MOST_PARTS, cut, expand, flip, pad, permute, pick, reshape, stack
from values_in_torch import place_of

X = Held(shape=(2, 3, 4), dtype="float32", name="x", source="x")
CUBE = "torch.randn(2, 3, 4)"


@pytest.mark.parametrize("forward", [
    "return x.reshape(4, 6).t().reshape(3, 8), x.permute(2, 0, 1), x.mT, x.movedim(0, -1), x.unsqueeze(1).expand(2, 5, 3, 4)",
    "return x[:, 1], x[..., ::2], x[1:, :, -1], x[None, 0], x.select(1, -1), x.narrow(2, 1, 2), x[:, [0, 2]]",
    "return F.pad(x, (1, 2, -1, 0), value=3.0), x.flip(0, 2), x.roll(1, 1), x.repeat(1, 2, 1), x.repeat_interleave(2, 1)",
    "return x.chunk(2, 2), x.split([1, 2], 1), x.unbind(0), torch.diagonal(x, 0, 1, 2), x.unfold(2, 2, 1)",
    "return torch.cat([x, x[:, :1]], 1), torch.stack([x, x * 2], 1), F.glu(x, 2), torch.diff(x, dim=2)",
    "return torch.tril(x), torch.triu(x, 1), F.pixel_shuffle(x.reshape(1, 4, 2, 3), 2), torch.rot90(x, 1, (1, 2))",
])  # fmt: skip
def test_each_place_shows_what_torch_shows(forward: str) -> None:
    compare_with_torch(forward, CUBE)


def test_a_view_of_everything_is_the_tensor_itself() -> None:
    assert reshape(X, (2, 3, 4)) is X and permute(X, (0, 1, 2)) is X and expand(X, (2, 3, 4)) is X and cut(X, 1, 0, 3) is X


def test_axes_that_are_turned_twice_are_turned_once() -> None:
    turned = permute(permute(X, (2, 0, 1)), (1, 0, 2))
    assert isinstance(turned, TensorView) and turned.source is X and turned.shape == (2, 4, 3)
    assert permute(permute(X, (2, 0, 1)), (1, 2, 0)) is X


def test_an_index_of_a_view_of_a_view_is_one_that_a_person_would_write() -> None:
    """Rows of eight out of a tensor [2, 3, 4]: the place in memory is the row times eight and the column."""
    rows = reshape(reshape(X, (6, 4)), (3, 8))
    assert isinstance(rows, TensorView) and isinstance(rows.source, TensorView)
    at = rows.source.move(rows.move((variable("i", 3), variable("j", 8))))
    assert (at[0] * 12 + at[1] * 4 + at[2]).text == "i * 8 + j"


def test_rims_are_guarded_and_guards_that_always_hold_are_left_out() -> None:
    rim, bare = pad(X, (0, 0, 1), (0, 0, 0)), pad(X, (0, 0, 0), (0, 0, 0))
    assert isinstance(rim, TensorView) and isinstance(bare, TensorView)
    at = (variable("i", 2), variable("j", 3), variable("k", 5))
    (guard,) = rim.guards(at)
    assert (guard.index.text, guard.low, guard.high) == ("k", 1, 5) and rim.shape == (2, 3, 5)
    assert bare.guards((variable("i", 2), variable("j", 3), variable("k", 4))) == ()


def test_places_count_from_either_end() -> None:
    last, turned = pick(X, 1, -1), flip(X, (2,))
    assert isinstance(last, TensorView) and isinstance(turned, TensorView)
    zero, three = variable("i", 1), variable("j", 1) + 3
    assert place_of(last.move((zero, three))) == (0, 2, 3) and place_of(turned.move((zero, zero, zero))) == (0, 0, 3)
    assert turned.flipped == (2,) and base_of(last) is X and base_of(turned) is turned, "PyTorch shows no view backwards"


def test_a_kernel_reads_few_parts_as_one_and_leaves_many_to_pytorch() -> None:
    parts: list[Tensor] = [pick(X, 1, 0)] * MOST_PARTS
    assert isinstance(stack(parts, 0), Joined) and stack(parts, 0).shape == (MOST_PARTS, 2, 4)
    many = stack([*parts, parts[0]], 1)
    assert isinstance(many, LibraryCall) and many.shape == (2, MOST_PARTS + 1, 4) and len(many.inputs) == MOST_PARTS + 1


def test_the_result_of_a_view_has_the_types_of_its_source() -> None:
    assert result_of(compare_with_torch("return x.t()", "torch.arange(6, dtype=torch.int32).reshape(2, 3)")).dtype == "int32"
