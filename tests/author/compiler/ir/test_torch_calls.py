"""Calls of PyTorch and views as records, and the code that they are written as."""

from typing import Any

import pytest

from tritonsmith.author.compiler.ir.code import Name
from tritonsmith.author.compiler.ir.operators import Operand
from tritonsmith.author.compiler.ir.printer import print_expression
from tritonsmith.author.compiler.ir.sizes import symbol
from tritonsmith.author.compiler.ir.torch_calls import (
    Clone,
    Cut,
    Expand,
    Global,
    Permute,
    Reshape,
    Select,
    Surrounding,
    TorchCall,
    Unfold,
    ViewStep,
    Way,
    call_function,
    write_argument,
    write_call,
    write_items,
    write_view,
)

X, Y, CARD = Name("x"), Name("y"), Name("device")
FIRST, SECOND = Operand(0), Operand(1)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (call_function("torch.nn.functional.pad", FIRST, [1, -1], mode="reflect"), "F.pad(x, [1, -1], mode='reflect')"),
        (call_function("torch.view_as_real", call_function("torch.fft.fft", FIRST)), "torch.view_as_real(torch.fft.fft(x))"),
        (TorchCall(Way.METHOD, "new_zeros", (FIRST, (2,)), {"name": None}), "x.new_zeros((2,), name=None)"),
        (TorchCall(Way.OPERATOR, "matmul", (FIRST, SECOND)), "(x @ y)"),
        (TorchCall(Way.OPERATOR, "lt", (FIRST, 2.5)), "(x < 2.5)"),
        (TorchCall(Way.OPERATOR, "pow", (-2, FIRST)), "((-2)**x)"),
        (TorchCall(Way.OPERATOR, "invert", (FIRST,)), "(~x)"),
        (TorchCall(Way.MEMBER, "blocks.0.cell", (FIRST, SECOND)), 'self.blocks["0"].cell(x, y)'),
        (call_function("torch.arange", 3, device=Surrounding.DEVICE), "torch.arange(3, device=device)"),
    ],
)
def test_a_call_is_written_by_the_way_it_names_what_it_calls(call: TorchCall, text: str) -> None:
    assert print_expression(write_call(call, [X, Y], CARD)) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Global("torch.float32"), "torch.float32"), (float("-inf"), 'float("-inf")'), (True, "True"), (1e-5, "1e-05"),
        ({"mode": [None, "it's"]}, """{'mode': [None, "it's"]}"""), (1 + 2j, "complex(1.0, 2.0)"), ((), "()"),
        (symbol("batch", 4) * 2, "batch * 2"),
    ],
)  # fmt: skip
def test_an_argument_is_written_as_python_has_it(value: Any, text: str) -> None:
    assert print_expression(write_argument(value, [], CARD)) == text


def test_an_object_is_no_argument() -> None:
    with pytest.raises(TypeError, match="object is no argument"):
        write_argument(object(), [], CARD)


@pytest.mark.parametrize(
    ("step", "text"),
    [
        (Reshape((2, 3)), "x.reshape((2, 3))"), (Reshape((6,)), "x.reshape((6,))"), (Permute((1, 0)), "x.permute(1, 0)"),
        (Expand((4, 3)), "x.expand((4, 3))"), (Cut(0, 0, 5), "x[0:5]"), (Cut(2, 1, 8, 3), "x[:, :, 1:8:3]"),
        (Select(1, 2), "x.select(1, 2)"), (Unfold(0, 3, 2), "x.unfold(0, 3, 2)"), (Clone(), "x.clone()"),
        (Clone(contiguous=True), "x.clone(memory_format=torch.contiguous_format)"),
    ],
)  # fmt: skip
def test_a_view_is_written_as_pytorch_makes_it(step: ViewStep, text: str) -> None:
    assert print_expression(write_view(step, X)) == text


def test_results_within_results_are_taken_one_by_one() -> None:
    assert print_expression(write_items((1, 0), X)) == "x[1][0]"


@pytest.mark.parametrize(("way", "name"), [(Way.FUNCTION, "torch.bmm"), (Way.METHOD, "matmul"), (Way.OPERATOR, "matmul")])
def test_products_are_known_however_they_are_called(way: Way, name: str) -> None:
    assert TorchCall(way, name, (FIRST, SECOND)).is_product
    assert not TorchCall(way, name, (SECOND, FIRST)).is_product
    assert not TorchCall(way, name, (FIRST, SECOND), {"out": None}).is_product


def test_only_functions_of_networks_have_a_short_name() -> None:
    assert call_function("torch.nn.functional.linear", FIRST).function == "linear"
    assert not call_function("torch.relu", FIRST).function and not TorchCall(Way.METHOD, "linear", (FIRST,)).function


def test_an_equation_is_that_of_einsum() -> None:
    assert call_function("torch.einsum", "ab,bc->ac", FIRST, SECOND).equation == "ab,bc->ac"
    assert call_function("torch.einsum", FIRST, [0, 1]).equation is None and call_function("torch.add", "a").equation is None
