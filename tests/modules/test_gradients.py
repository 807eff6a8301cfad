"""Gradients through a drop-in, transforms, wrappers and exports, with a stand-in for the kernel that needs no Triton."""

import copy
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.checkpoint import checkpoint

from tritonsmith.modules.dropin.checking import check_module
from tritonsmith.modules.dropin.finished import form_of_values
from tritonsmith.modules.dropin.runtime.engine import FallbackWarning
from tritonsmith.modules.dropin.runtime.kernel import Kernel, describe_config
from tritonsmith.modules.dropin.runtime.module import engine_of, replace_module
from tritonsmith.modules.dropin.runtime.proof import Case, Proof, TensorCase

_TEXT = """
import torch
from torch import nn

CALLS = []


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(4, 4, dtype=torch.float64))
        self.bias = nn.Parameter(torch.empty(4, dtype=torch.float64))

    def forward(self, x):
        CALLS.append(torch.is_grad_enabled())
        {body}
"""
_ONE = "return torch.tanh(x @ self.weight + self.bias)"
_THREE = "y = torch.tanh(x @ self.weight + self.bias); return {'sum': y.sum(-1), 'same': x, 'signs': (y > 0).long()}"


class One(nn.Module):
    """One result."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(4, 4)), nn.Parameter(torch.randn(4))

    def forward(self, x: torch.Tensor) -> Any:
        """Tanh of a product."""
        return torch.tanh(x @ self.weight + self.bias)


class Three(One):
    """Three results: one of them is the input, and one has no gradient."""

    def forward(self, x: torch.Tensor) -> Any:
        """By name."""
        y = torch.tanh(x @ self.weight + self.bias)
        return {"sum": y.sum(-1), "same": x, "signs": (y > 0).long()}


def make_drop_in(original: nn.Module, body: str, *, judged: bool = False) -> tuple[nn.Module, list[bool]]:
    """A drop-in for float64 at 1 to 8 rows, and a list that grows with each run of its kernel."""
    original.double()
    shape = (("rows", 1, 0), 4)
    kernel = Kernel(
        type(original).__name__, _TEXT.format(body=body), (), form_of_values(original, [torch.randn(3, 4).double()]),
        Proof((Case((TensorCase("float64", shape),), {"rows": (1, 8)}),), backward=judged), {"weight": "weight", "bias": "bias"},
        config=describe_config(original),
    )  # fmt: skip
    vars(kernel)["is_interpreted"] = True  # so that it is taken on a CPU
    return replace_module(original, kernel), kernel.code.CALLS


@pytest.fixture
def x() -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randn(3, 4, dtype=torch.float64, requires_grad=True)


def take_gradients(module: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    """Gradients of every result that has one."""
    results = module(x)
    parts = [results] if isinstance(results, torch.Tensor) else [results["sum"], results["same"]]
    total = sum((part * torch.arange(part.numel()).view(part.shape)).sum() for part in parts)
    return list(torch.autograd.grad(total, [x, *module.parameters()]))  # type: ignore[arg-type]


@pytest.mark.parametrize(("kind", "body"), [(One, _ONE), (Three, _THREE)])
def test_an_eager_call_with_gradients_runs_the_kernel(kind: type[nn.Module], body: str, x: torch.Tensor) -> None:
    original = kind()
    faster, calls = make_drop_in(original, body)
    calls.clear()
    torch.testing.assert_close(take_gradients(faster, x), take_gradients(original, x))
    assert calls == [False]  # the kernel ran once, and what it does itself is not recorded
    assert engine_of(faster).told == set()


def test_gradients_that_were_judged_are_the_kernel_s_own(x: torch.Tensor) -> None:
    original = One()
    faster, calls = make_drop_in(original, _ONE, judged=True)
    calls.clear()
    torch.testing.assert_close(take_gradients(faster, x), take_gradients(original, x))
    assert calls == [True]  # autograd follows what the kernel does itself
    with pytest.raises(RuntimeError, match="gradients of gradients are asked for"):
        torch.autograd.grad(faster(x).sum(), x, create_graph=True)
    assert engine_of(faster).told == set()


def test_gradients_pass_a_strict_check(x: torch.Tensor) -> None:
    original = One()
    faster, calls = make_drop_in(original, _ONE)

    def call(given: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> Any:
        return torch.func.functional_call(faster, {"weight": weight, "bias": bias}, (given,))

    given = (x, original.weight, original.bias)
    assert torch.autograd.gradcheck(call, given) and torch.autograd.gradgradcheck(call, given)
    assert calls and engine_of(faster).told == set()


def test_an_output_that_is_the_input_is_of_its_own(x: torch.Tensor) -> None:
    faster, _ = make_drop_in(Three(), _THREE)
    results = faster(x)
    assert torch.equal(results["same"], x) and results["same"].data_ptr() != x.data_ptr()
    assert not results["signs"].requires_grad and results["sum"].requires_grad


def test_check_compares_gradients_by_the_judge_s_rule(x: torch.Tensor) -> None:
    original = Three()
    faster, calls = make_drop_in(original, _THREE)
    calls.clear()
    check = check_module(faster, (x.detach(),), {}, gradients=True)
    assert check.right and check.gradients is not None and check.gradients < 1e-12 and not check.fallback and len(calls) == 2
    assert "gradients: error" in str(check) and original.weight.grad is None
    operator = engine_of(faster).operator
    kept = operator.differentiate
    vars(operator)["differentiate"] = lambda *told: [value if value is None else value * 1.01 for value in kept(*told)]
    wrong = check_module(faster, (x.detach(),), {}, gradients=True)
    del vars(operator)["differentiate"]
    assert not wrong.right and check_module(faster, (x.detach(),), {}).right


def test_checkpoints_and_frozen_weights(x: torch.Tensor) -> None:
    original = One()
    faster, calls = make_drop_in(original, _ONE)
    calls.clear()
    checkpoint(faster, x, use_reentrant=False).sum().backward()
    mine, x.grad = x.grad, None
    assert len(calls) == 2 and engine_of(faster).told == set()  # forward runs again
    original(x).sum().backward()
    torch.testing.assert_close(mine, x.grad)
    original.requires_grad_(False)
    assert not faster(x.detach()).requires_grad and faster(x).requires_grad


@pytest.mark.parametrize(
    ("transform", "words"),
    [
        (lambda faster, x: torch.func.vmap(faster)(x[None]), "inside a transform of torch.func"),
        (lambda faster, x: torch.func.grad(lambda given: faster(given).sum())(x), "inside a transform of torch.func"),
        (lambda faster, x: torch.func.jvp(faster, (x,), (x,))[1], "inside a transform of torch.func"),
    ],
    ids=["vmap", "grad", "jvp"],
)
def test_transforms_give_what_the_original_gives(transform: Any, words: str, x: torch.Tensor) -> None:
    original = One()
    faster, _ = make_drop_in(original, _ONE)
    x = x.detach()
    with pytest.warns(FallbackWarning, match=words):
        mine = transform(faster, x)
    torch.testing.assert_close(mine, transform(original, x))


def test_forward_mode_gives_what_the_original_gives(x: torch.Tensor) -> None:
    original = One()
    faster, _ = make_drop_in(original, _ONE)
    forward_ad = torch.autograd.forward_ad

    def push(module: nn.Module) -> torch.Tensor:
        with forward_ad.dual_level():
            return forward_ad.unpack_dual(module(forward_ad.make_dual(x.detach(), x.detach()))).tangent

    with pytest.warns(FallbackWarning, match="derivatives are computed forward"), torch.no_grad():
        mine = push(faster)
    torch.testing.assert_close(mine, push(original))


@pytest.mark.slow
def test_compiled_and_exported_with_free_sizes(x: torch.Tensor) -> None:
    original = One()
    faster, _ = make_drop_in(original, _ONE)
    compiled = torch.compile(faster, fullgraph=True, dynamic=True, backend="aot_eager")
    for rows in (3, 2):
        given = x.detach()[:rows].clone().requires_grad_()
        torch.testing.assert_close(take_gradients(compiled, given), take_gradients(original, given))
    program = torch.export.export(faster, (x.detach(),), dynamic_shapes=({0: torch.export.Dim("rows", min=2, max=8)},))
    given = torch.randn(5, 4, dtype=torch.float64)
    torch.testing.assert_close(program.module()(given), original(given))


def test_it_compiles_ahead_of_any_call(x: torch.Tensor) -> None:
    original, graphs = One(), []
    faster, _ = make_drop_in(original, _ONE)
    vars(engine_of(faster).kernel).pop("is_interpreted", None)  # a look at the text, which torch.compile cannot follow

    def keep(graph: torch.fx.GraphModule, _: list[torch.Tensor]) -> Callable[..., Any]:
        graphs.append(graph.print_readable(print_output=False))
        return graph.forward

    with torch.no_grad():
        torch.testing.assert_close(torch.compile(faster, fullgraph=True, backend=keep)(x), original(x))
    assert str(engine_of(faster).operator.overload) in "".join(graphs)


def test_a_server_registers_the_kernel_in_its_own_library(x: torch.Tensor) -> None:
    """As vLLM's `direct_register_custom_op` does, with torch.library alone."""
    original = One()
    operator = engine_of(make_drop_in(original, _ONE)[0]).operator

    def fast(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return operator.run(x, weight, bias)

    fast.__annotations__ = {name: torch.Tensor for name in ("x", "weight", "bias", "return")}
    library = torch.library.Library("a_server", "FRAGMENT")
    library.define("fast" + torch.library.infer_schema(fast, mutates_args=[]))
    library.impl("fast", fast, dispatch_key="CPU")
    library._register_fake("fast", operator.pretend)
    given = (x.detach(), original.weight.detach(), original.bias.detach())
    torch.testing.assert_close(torch.ops.a_server.fast(*given), original(x.detach()))
    torch.library.opcheck(torch.ops.a_server.fast.default, given, test_utils=("test_schema", "test_faketensor"))


@pytest.fixture
def group() -> Iterator[None]:
    """A process group of one process on the CPU."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_a_wrapped_drop_in_trains_as_the_original(group: None, x: torch.Tensor) -> None:
    from torch.distributed.fsdp import fully_shard
    from torch.nn.parallel import DistributedDataParallel

    original = One()
    faster, calls = make_drop_in(original, _ONE)
    wanted = take_gradients(original, x)
    parallel = DistributedDataParallel(copy.deepcopy(faster))
    calls.clear()
    torch.testing.assert_close(take_gradients(parallel, x), wanted)
    assert calls  # inside DistributedDataParallel the kernel runs
    mesh = dist.device_mesh.init_device_mesh("cpu", (1,))
    sharded = copy.deepcopy(faster)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fully_shard(sharded, mesh=mesh)
        sharded(x).sum().backward()
    told = [str(item.message) for item in caught if item.category is FallbackWarning]
    original(x).sum().backward()
    assert isinstance(sharded.weight.grad, torch.distributed.tensor.DTensor), told
    torch.testing.assert_close(sharded.weight.grad.full_tensor(), original.weight.grad)
