"""Drop-ins on a card: overhead, compilers, CUDA graphs, autocast, many sizes, memory, fine-tuning."""

import copy
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from project import ROOT
from tritonsmith.modules.dropin.drop_in import DropIn
from tritonsmith.modules.dropin.runtime.kernel import import_text
from tritonsmith.modules.dropin.runtime.module import engine_of

pytestmark = pytest.mark.gpu


def write_task(body: str, inputs: str, constructor: str, names: str, shapes: str, half: bool = False) -> str:
    """A task file of a module whose sizes are `names`, right at all sizes of `shapes`."""
    cast = ".bfloat16()" if half else ""
    return f"""
import torch
from torch import nn
from torch.nn import functional as F

{names}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {constructor}{"; self.bfloat16()" if half else ""}

    def forward(self, x):
        {body}


def get_inputs():
    return [{inputs}{cast}]


def get_init_inputs():
    return []


SHAPES = [{shapes}]
"""


ROWS = "{'ROWS': (1, 512)}"
SOURCES = {
    "layer norm": write_task("return self.n(x)", "torch.randn(ROWS, 768)", "self.n = nn.LayerNorm(768)", "ROWS = 256", ROWS),
    "rms norm": write_task("return self.n(x)", "torch.randn(ROWS, 768)", "self.n = nn.RMSNorm(768)", "ROWS = 256", ROWS),
    "bf16 MLP": write_task(
        "return self.b(F.silu(self.a(x)) * self.c(x))", "torch.randn(ROWS, 512)",
        "self.a = nn.Linear(512, 1024); self.c = nn.Linear(512, 1024); self.b = nn.Linear(1024, 512)", "ROWS = 256", ROWS, half=True,
    ),
    "UNet block": write_task(
        "h = self.c1(F.silu(self.n1(x))); return x + self.c2(F.silu(self.n2(h)))", "torch.randn(BATCH, 64, 32, 32)",
        "self.n1 = nn.GroupNorm(8, 64); self.c1 = nn.Conv2d(64, 64, 3, padding=1); self.n2 = nn.GroupNorm(8, 64); "
        "self.c2 = nn.Conv2d(64, 64, 3, padding=1)", "BATCH = 4", "{'BATCH': (1, 8)}",
    ),
}  # fmt: skip


def read_source(name: str) -> str:
    """A module's task, or one of the benchmarks."""
    return SOURCES[name] if name in SOURCES else (ROOT / "benchmarks" / "tasks" / name).read_text()


@pytest.fixture(scope="module", params=[*SOURCES, "39_gru.py", "76_linear_bias_relu.py"])
def used(request: pytest.FixtureRequest) -> tuple[DropIn, nn.Module, list[Any]]:
    """A drop-in, its original and inputs on the card."""
    from drop_in_use import make_use

    sys.modules.pop("a_task", None)
    torch.manual_seed(0)
    return make_use(read_source(request.param), device=torch.device("cuda"))


def require_right(drop_in: DropIn, inputs: list[Any], module: nn.Module | None = None) -> None:
    check = drop_in.check(tuple(inputs), module)
    assert check.right and not check.fallback, str(check)


def close(mine: Any, wanted: Any) -> bool:
    """Whether results agree as far as the task's type allows; `require_right` is the strict comparison."""
    pairs = zip(
        mine if isinstance(mine, tuple) else (mine,),
        wanted if isinstance(wanted, tuple) else (wanted,),
        strict=True,
    )
    return all(
        float((one.float() - other.float()).norm() / other.float().norm())
        < (2e-2 if one.dtype is torch.bfloat16 else 1e-3)
        for one, other in pairs
    )


def test_it_is_right_and_costs_little(
    used: tuple[DropIn, nn.Module, list[Any]], record_property: Callable[[str, object], None]
) -> None:
    drop_in, original, inputs = used
    require_right(drop_in, inputs)
    engine = engine_of(drop_in.module)
    with torch.no_grad():
        drop_in.module(*inputs)
        assert engine.instance is not None
        bare, plain = engine.instance.model, vars(import_text(drop_in.kernel.text, f"plain_{drop_in.kernel.digest}"))
        forward = plain.get("kernels_forward_in_use") or plain.get("kernels_forward") or plain["ModelNew"].forward
        calls: dict[str, Callable[..., Any]] = {
            "drop-in": drop_in.module, "ModelNew": lambda *given: drop_in.kernel.forward(bare, *given),
            "ModelNew launched by Triton": lambda *given: forward(bare, *given), "original": original,
        }  # fmt: skip
        times: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(30):
            for name, call in calls.items():
                torch.cuda.synchronize()
                start = time.perf_counter()
                for _ in range(20):
                    call(*inputs)
                times[name].append((time.perf_counter() - start) / 20 * 1e6)
        torch.cuda.synchronize()
    least = {name: min(rows) for name, rows in times.items()}
    record_property("added_microseconds", least["drop-in"] - least["ModelNew"])
    said = ", ".join(f"{name} {value:.2f}" for name, value in least.items())
    print(f"added {least['drop-in'] - least['ModelNew']:.2f} microseconds: {said}")  # noqa: T201 - a figure for the reader


def test_arguments_at_any_address_are_right(used: tuple[DropIn, nn.Module, list[Any]]) -> None:
    drop_in, original, inputs = used
    faster = drop_in.wrap(original)
    with torch.no_grad():
        for offset in (0, 1, 4, 0, 1):
            given = [
                torch.cat([value.new_zeros(offset), value.flatten()])[offset:].view(value.shape)
                if isinstance(value, torch.Tensor) and value.is_floating_point() else value
                for value in inputs
            ]  # fmt: skip
            assert close(faster(*given), original(*given)), offset


def test_one_graph_and_dynamic_sizes(used: tuple[DropIn, nn.Module, list[Any]]) -> None:
    drop_in, original, inputs = used
    graphs: list[str] = []

    def keep(graph: torch.fx.GraphModule, _: list[Any]) -> Callable[..., Any]:
        graphs.append(graph.print_readable(print_output=False))
        return graph.forward

    with torch.no_grad():
        torch._dynamo.reset()
        torch.compile(drop_in.module, fullgraph=True, backend=keep)(*inputs)
        assert f"{drop_in.kernel.name.lower()}_{drop_in.kernel.digest}" in "".join(graphs), graphs
        torch._dynamo.reset()
        compiled = (
            torch.compile(nn.Sequential(drop_in.module), fullgraph=True)
            if len(inputs) == 1
            else torch.compile(drop_in.module, fullgraph=True)
        )
        assert close(compiled(*inputs), original(*inputs))
        if drop_in.kernel.proof.cases[0].ranges:
            torch._dynamo.reset()
            dynamic = torch.compile(drop_in.module, fullgraph=True, dynamic=True)
            for count in (2, 3):
                given = [value[:count].clone() for value in inputs]
                assert close(dynamic(*given), original(*given))


def test_a_cuda_graph_replays_it(used: tuple[DropIn, nn.Module, list[Any]]) -> None:
    drop_in, original, inputs = used
    faster = drop_in.wrap(original)
    held = [value.clone() if isinstance(value, torch.Tensor) else value for value in inputs]
    for warm in (True, False):  # without a call ahead of it, the graph packs weights by itself
        if not warm:
            engine_of(faster).guard.versions = ()
        side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        side.wait_stream(torch.cuda.current_stream())
        with torch.no_grad(), torch.cuda.stream(side):
            for _ in range(3):
                faster(*held)
        torch.cuda.current_stream().wait_stream(side)
        with torch.no_grad(), torch.cuda.graph(graph):
            result = faster(*held)
        for value, other in zip(held, inputs, strict=True):
            if isinstance(value, torch.Tensor):
                value.copy_(other.flip(0))
        graph.replay()
        with torch.no_grad():
            assert close(result, original(*held))


def test_autocast_inference_mode_and_another_stream(used: tuple[DropIn, nn.Module, list[Any]]) -> None:
    drop_in, original, inputs = used
    faster = drop_in.wrap(original)
    with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
        assert close(faster(*inputs), original(*inputs))
    with torch.inference_mode():
        assert close(faster(*inputs), original(*inputs))
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.no_grad(), torch.cuda.stream(stream):
        result = faster(*inputs)
    torch.cuda.current_stream().wait_stream(stream)
    with torch.no_grad():
        assert close(result, original(*inputs))


def test_a_thousand_calls_of_changing_sizes_are_right_and_keep_no_memory(
    used: tuple[DropIn, nn.Module, list[Any]],
) -> None:
    drop_in, original, inputs = used
    ranges = drop_in.kernel.proof.cases[0].ranges
    top = max((high for _, high in ranges.values()), default=1)
    faster = drop_in.wrap(original)
    with torch.no_grad():
        kept = 0
        for number in range(1000):
            count = 1 + number * 7919 % top if ranges else inputs[0].shape[0]
            given = (
                [torch.randn((count, *value.shape[1:]), device="cuda", dtype=value.dtype) for value in inputs]
                if ranges
                else inputs
            )
            result = faster(*given)
            if number % 100 == 0:
                assert close(result, original(*given)), count
            del result, given
            if number == 500:
                torch.cuda.synchronize()
                kept = torch.cuda.memory_allocated()
        torch.cuda.synchronize()
        assert torch.cuda.memory_allocated() <= kept + (1 << 20)
    assert not engine_of(faster).told


def test_fine_tuning_beside_the_original_gives_the_same_losses(
    used: tuple[DropIn, nn.Module, list[Any]],
) -> None:
    drop_in, original, inputs = used
    losses: list[list[float]] = []
    for faster in (False, True):
        module = copy.deepcopy(original)
        if not list(module.parameters()):
            pytest.skip("it has no weights")
        module = drop_in.wrap(module) if faster else module
        module.train(not drop_in.kernel.proof.by_mode)  # cuDNN has gradients of a GRU in this mode alone
        optimizer = torch.optim.AdamW(module.parameters(), lr=1e-4)
        rows: list[float] = []
        for _ in range(50):
            result = module(*inputs)
            loss = (result[0] if isinstance(result, tuple) else result).float().square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            rows.append(float(loss.detach()))
        losses.append(rows)
        if faster:
            assert not engine_of(module).told
    assert all(
        abs(mine - wanted) <= 1e-2 * abs(wanted) for mine, wanted in zip(losses[1], losses[0], strict=True)
    )
