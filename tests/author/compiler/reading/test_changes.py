"""Writes in place, picked elements and complex numbers: the values behind them are those that torch leaves."""

import pytest

from recipe_cases.lowered import compare_with_torch, read_case, result_of
from tritonsmith.author.compiler.ir.values import Held, LibraryCall
from tritonsmith.author.plan import NoPlan

OWN = "x = x * 1; "
"""A tensor of forward's own: what is written to it, no argument shows."""


@pytest.mark.parametrize("view", [
    "x.chunk(2, 1)[1]", "x.split([1, 3], 1)[0]", "x[:, ::2]", "x.diagonal()", "x.t()", "x.mT", "x.view(-1)", "x.flatten()", "x[None]",
    "x.select(1, 0)", "x.narrow(0, 0, 2)", "x.movedim(0, 1)", "x.unbind(0)[1]", "x.tensor_split(2)[0]", "x.detach()", "x.contiguous()",
    "x.reshape(2, 8)", "x.unflatten(1, (2, 2))", "x[1, 1:]", "x.permute(1, 0)[2]", "x.float()", "x.view(2, 8)[:, 1:].t()",
])  # fmt: skip
def test_what_is_written_to_a_view_is_seen_in_its_tensor_and_back(view: str) -> None:
    compare_with_torch(f"{OWN}z = {view}; z.add_(1); x.mul_(3); return x * 2, z - 1", "torch.randn(4, 4)")


@pytest.mark.parametrize("view", ["x.unfold(1, 2, 2)", "torch.broadcast_to(x, (4, 4))"])
def test_other_views_see_what_is_written_to_their_tensor(view: str) -> None:
    compare_with_torch(f"{OWN}z = {view}; x.mul_(3); return z - 1", "torch.randn(4, 4)")


@pytest.mark.parametrize("view", ["x.unfold(1, 2, 2)", "x.adjoint()", "torch.atleast_3d(x)", "torch.as_strided(x, (2, 2), (4, 1))"])
def test_what_is_written_to_other_views_is_refused(view: str) -> None:
    with pytest.raises(NoPlan, match="Tensor.add_ in place on a view"):
        read_case(f"{OWN}z = {view}; z.add_(1); return x * 2", "torch.randn(4, 4)")


@pytest.mark.parametrize("forward", [
    "a, b = torch.meshgrid(x[0], y[0], indexing='ij'); {x}; return a + b", "a, b = torch.broadcast_tensors(y[0], x); {x}; return b * 2",
    "z = torch.einsum('ij->ji', x); {x}; return z * 2", "z = torch.einsum('ij->ji', x); z.mul_(3); return x * 2",
])  # fmt: skip
def test_writes_beside_views_of_several_tensors_are_refused(forward: str) -> None:
    with pytest.raises(NoPlan, match="in place on a view of several tensors"):
        read_case(f"{OWN}y = x + 1; {forward.format(x='x.mul_(3)')}", "torch.randn(4, 4)")


def test_writes_to_a_view_of_another_type_are_refused() -> None:
    with pytest.raises(NoPlan, match="in place on a view of another type"):
        read_case(f"{OWN}z = x.view(torch.int32); z.add_(1); return x * 2", "torch.randn(4, 4)")


def test_parts_that_pytorch_splits_off_are_written_back() -> None:
    """`hsplit` stays a call; what is written to one of its parts is known of the tensor all the same."""
    changed = result_of(read_case(f"{OWN}z = x.hsplit(2)[0]; z.add_(1); return x * 2", "torch.randn(4, 4)"))
    (value,) = changed.operands
    assert not isinstance(value, Held | LibraryCall) and value.shape == (4, 4)
    assert isinstance(read_case(f"{OWN}return x.hsplit(2)", "torch.randn(4, 4)").stored[0].operands[0], LibraryCall)


@pytest.mark.parametrize("forward", [
    "x[1] = 5; return x + 0", "x[:, 0] = x[:, 1] * 2; return x + 0", "x[..., 1:3] += 1; return x + 0", "x[0, :2] = x.sum(); return x + 0",
    "x.fill_(2); return x + 1", "x.copy_(x.t() * 2); return x + 0", "x.clamp_(-0.5, 0.5).neg_(); return x * 2",
    "x[x > 0] = 0; return x + 0", "x.masked_fill_(x < 0, 7); return x + 0", "F.relu(x, inplace=True); return x * 2",
])  # fmt: skip
def test_writes_change_the_tensor(forward: str) -> None:
    compare_with_torch(OWN + forward, "torch.randn(4, 4)")


def test_an_argument_that_is_written_to_gets_its_value_and_a_copy_of_it_does_not() -> None:
    assert list(compare_with_torch("x[:, 1].mul_(2); return x.sum()", "torch.randn(4, 4)").written) == ["x"]
    assert not compare_with_torch("y = x.clone(); y.mul_(2); return y", "torch.randn(4, 4)").written


@pytest.mark.parametrize("forward", [
    "return x[x > 0].sum(), x[x > 0].mean(), (x[x > 0] * 2 + 1).sum()",
    "x = x * 1; x[x > 0] = x[x > 0].exp(); return x + 0",
    "return x[x[:, 0] > -9].mean(0)",
])  # fmt: skip
def test_elements_that_a_mask_picks(forward: str) -> None:
    compare_with_torch(forward, "torch.randn(4, 4)")


@pytest.mark.parametrize("forward", [
    "z = torch.complex(x, y); return (z * z + 1).real, (z / (z + 3)).imag, z.abs(), z.conj() * z",
    "z = torch.view_as_complex(torch.stack([x, y], -1)); return torch.view_as_real(z * 2), z.angle(), (-z)[1:]",
    "z = torch.polar(x.abs(), y); return z.sum(1), z.reshape(8, 2).t() + 1, torch.exp(z).real",
])  # fmt: skip
def test_complex_numbers_are_pairs(forward: str) -> None:
    compare_with_torch(forward, "torch.randn(4, 4), torch.randn(4, 4)", arguments="x, y")
