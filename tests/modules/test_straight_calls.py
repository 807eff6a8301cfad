"""A drop-in whose kernel has run looks at each later call as carefully as at the first."""

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from tritonsmith.modules.dropin.runtime.engine import FallbackWarning
from tritonsmith.modules.dropin.runtime.form import Form
from tritonsmith.modules.dropin.runtime.guard import Guard
from tritonsmith.modules.dropin.runtime.kernel import Kernel, describe_config
from tritonsmith.modules.dropin.runtime.module import engine_of, replace_module
from tritonsmith.modules.dropin.runtime.proof import Case, Proof, TensorCase

TEXT = """
import torch
from torch import nn


class InterpretedFunction:
    pass


class ModelNew(nn.Module):
    calls = []

    def __init__(self):
        super().__init__()
        self.inner = nn.Module()
        self.inner.weight = nn.Parameter(torch.empty(8, 8))

    def forward(self, x, y):
        self.calls.append(x.shape)
        return x @ self.inner.weight.t() + y
"""


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 8, bias=False)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.inner(x) + y


class Use:
    """A drop-in that has taken a call, its original, and tensors for more."""

    def __init__(self, by_mode: tuple[str, ...] = ()) -> None:
        torch.manual_seed(0)
        self.original = Model().eval()
        shape = ("rows", 1, 0), 8
        case = Case((TensorCase("float32", shape), TensorCase("float32", shape)), {"rows": (1, 64)})
        form = Form(parameters=("x", "y"), given=("x", "y"), positional=2, specs=(None, None), arguments=(0, 1))
        kernel = Kernel(
            "Model", TEXT, (), form, Proof((case,), by_mode=by_mode), {"inner.weight": "inner.weight"},
            config=describe_config(self.original),
        )  # fmt: skip
        vars(kernel)["is_interpreted"] = True  # so that it is taken on a CPU
        self.faster = replace_module(self.original, kernel)
        self.calls: list[Any] = kernel.code.ModelNew.calls
        self.x, self.y = torch.randn(4, 8), torch.randn(4, 8)
        with torch.no_grad():
            self.faster(self.x, self.y)
            self.faster(self.x, self.y)
        self.faster(self.x, self.y)

    def ask(self, *given: Any, call: Callable[..., Any] | None = None) -> tuple[bool, list[str]]:
        """Whether the kernel ran, and what was told; the result must be the original's."""
        given = given or (self.x, self.y)
        self.calls.clear()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            result = (call or (lambda module, *tensors: module(*tensors)))(self.faster, *given)
        wanted = (call or (lambda module, *tensors: module(*tensors)))(self.original, *given)
        torch.testing.assert_close(result, wanted)
        return bool(self.calls), [str(item.message) for item in caught if item.category is FallbackWarning]


@pytest.fixture
def use() -> Use:
    return Use()


def give_memory(use: Use, value: torch.Tensor) -> None:
    use.original.inner.weight.data = value


def double(module: nn.Module, given: Any, result: torch.Tensor) -> torch.Tensor:
    return result * 2


CHANGES: dict[str, tuple[Callable[[Use], Any], str]] = {
    "a hook": (lambda use: use.original.inner.register_forward_hook(double), "inner has a hook"),
    "a hook ahead": (lambda use: use.original.inner.register_forward_pre_hook(lambda module, given: (given[0] * 2,)), "inner has a hook"),
    "another module": (lambda use: setattr(use.original, "inner", nn.Linear(8, 8, bias=False)), "another module stands at inner"),
    "another forward": (lambda use: setattr(use.original.inner, "forward", lambda x: x * 3), "inner has another forward"),
    "another type": (lambda use: (use.original.double(), vars(use).update(x=use.x.double(), y=use.y.double())), "is float64"),
    "weights turned": (lambda use: give_memory(use, use.original.inner.weight.data.t()), "lies in memory in another way"),
    "weights elsewhere": (lambda use: give_memory(use, torch.randn(8, 16)[:, ::2]), "lies in memory in another way"),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("gradients", [False, True])
def test_what_changes_after_a_call_is_seen(use: Use, name: str, gradients: bool) -> None:
    change, words = CHANGES[name]
    change(use)
    with torch.set_grad_enabled(gradients):
        ran, (sentence,) = use.ask()
        assert not ran and words in sentence
        assert use.ask() == (False, [])


def test_the_mode_is_seen_where_it_matters() -> None:
    use = Use(by_mode=("Dropout",))
    assert use.ask()[0]
    use.original.inner.train()
    ran, (sentence,) = use.ask()
    assert not ran and "training mode" in sentence
    use.original.inner.eval()
    assert use.ask() == (True, [])


def test_the_weights_are_those_of_the_moment(use: Use) -> None:
    weight = use.original.inner.weight
    with torch.no_grad():
        weight.mul_(2.0)
        assert use.ask() == (True, [])
        weight.data = torch.randn(8, 8)
        assert use.ask() == (True, [])
        use.original.inner.weight = nn.Parameter(torch.randn(8, 8))
        assert use.ask() == (True, [])
    mine, theirs = copy.deepcopy(use.faster), use.faster
    with torch.no_grad():
        for parameter in mine.parameters():
            parameter.zero_()
        assert torch.equal(mine(use.x, use.y), use.y) and use.ask() == (True, []) and theirs is use.faster


def test_other_tensors_are_looked_at(use: Use) -> None:
    assert use.ask(use.x[:2], use.y[:2]) == (True, [])
    assert use.ask(use.x[:2], use.y[:1])[0] is False  # rows differ
    assert use.ask(torch.randn(4, 16)[:, ::2], use.y)[0] is False
    assert use.ask(torch.randn(80, 8), torch.randn(80, 8))[0] is False
    assert use.ask(use.x[:2], use.y[:2]) == (True, [])


def test_surroundings_are_looked_at(use: Use) -> None:
    with torch.autocast("cpu", torch.bfloat16):
        assert use.ask()[0] is False
    assert use.ask(use.x[None], use.y[None], call=lambda module, x, y: torch.func.vmap(module)(x, y))[0] is False
    forward = torch.autograd.forward_ad

    def differentiate(module: nn.Module, x: torch.Tensor, y: torch.Tensor) -> Any:
        with forward.dual_level():
            return forward.unpack_dual(module(forward.make_dual(x, torch.ones_like(x)), y)).tangent

    assert use.ask(call=differentiate)[0] is False
    with torch.inference_mode():
        assert use.ask() == (True, [])
    assert use.ask() == (True, [])


def test_gradients_are_the_original_s(use: Use) -> None:
    x = use.x.clone().requires_grad_()

    def differentiate(module: nn.Module, x: torch.Tensor, y: torch.Tensor) -> Any:
        return torch.autograd.grad((module(x, y) ** 2).sum(), [x, use.original.inner.weight])

    for _ in range(2):
        assert use.ask(x, use.y, call=differentiate) == (True, [])


def test_an_error_of_the_kernel_runs_the_original(use: Use) -> None:
    instance = engine_of(use.faster).instance
    assert instance is not None
    instance.model.inner = None
    for told in (True, False):
        ran, sentences = use.ask()
        assert ran and ["the kernel refuses" in sentence for sentence in sentences] == [True] * told


def test_a_call_like_the_last_needs_no_guard(use: Use, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Guard, "find_reason", lambda *_: "it is asked")
    with torch.no_grad():
        assert use.ask() == (True, [])
    assert use.ask() == (True, []) and use.ask(use.x[:3], use.y[:3])[0] is False
