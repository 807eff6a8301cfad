"""Microseconds that ways to register an operator, and the drop-in itself, add to a call.

`python -m tritonsmith.benchmarks.dropin.overhead` prints them. The kernel is a stand-in: it makes its result and launches nothing.
So all of a call is the host's work, on a card too.
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from tritonsmith.modules.dropin.runtime.form import Form
from tritonsmith.modules.dropin.runtime.kernel import Kernel, describe_config
from tritonsmith.modules.dropin.runtime.module import replace_module
from tritonsmith.modules.dropin.runtime.proof import Case, Proof, TensorCase

_TEXT = """
import torch
from torch import nn


class InterpretedFunction:
    pass


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(64))
        self.bias = nn.Parameter(torch.empty(64))

    def forward(self, x):
        return torch.empty_like(x)
"""
_CALLS, _ROUNDS = 2000, 15


class Model(nn.Module):
    """What the stand-in stands for."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(64))
        self.bias = nn.Parameter(torch.zeros(64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """A sum and a product."""
        return x * self.weight + self.bias


def make_kernel(original: nn.Module) -> Kernel:
    """The stand-in as a kernel that runs on any device."""
    form = Form(parameters=("x",), given=("x",), positional=1, specs=(None,), arguments=(0,))
    proof = Proof((Case((TensorCase("float32", (("rows", 1, 0), 64)),), {"rows": (1, 64)}),))
    kernel = Kernel(
        "Model",
        _TEXT,
        (),
        form,
        proof,
        {"weight": "weight", "bias": "bias"},
        config=describe_config(original),
    )
    vars(kernel)["is_interpreted"] = True  # so that it is taken on a CPU
    return kernel


def register_ways() -> dict[str, Callable[..., torch.Tensor]]:
    """The same stand-in as an operator in three ways, and as a function."""

    def run(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        x, weight, _ = ctx.saved_tensors
        return gradient * weight, (gradient * x).sum(0), gradient.sum(0)

    library = torch.library.Library("overhead", "FRAGMENT")
    library.define("defined(Tensor x, Tensor weight, Tensor bias) -> Tensor")
    library.impl("defined", run, "CompositeExplicitAutograd")
    torch.library.register_fake("overhead::defined", run, lib=library)
    torch.library.register_autograd("overhead::defined", backward, setup_context=setup, lib=library)
    custom: Any = torch.library.custom_op("overhead::custom", run, mutates_args=())
    triton: Any = torch.library.triton_op("overhead::triton", run, mutates_args=())
    for operator in (custom, triton):
        operator.register_autograd(backward, setup_context=setup)
    custom.register_fake(run)
    _KEPT.append(library)
    return {
        "function": run,
        "define + impl": torch.ops.overhead.defined.default,
        "custom_op": custom,
        "triton_op": triton,
    }


_KEPT: list[Any] = []
"""Library objects: their operators go with them."""


def time_calls(call: Callable[[], Any], device: torch.device) -> float:
    """Microseconds of a call: the median of several rounds, each the mean of many calls."""
    for _ in range(200):
        call()
    rounds = []
    for _ in range(_ROUNDS):
        if device.type == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(_CALLS):
            call()
        rounds.append((time.perf_counter() - start) / _CALLS * 1e6)
    return statistics.median(rounds)


def measure(device: torch.device) -> dict[str, dict[str, float]]:
    """Microseconds by way, without and with gradients."""
    original = Model().to(device)
    x = torch.randn(8, 64, device=device)
    ways: dict[str, Callable[[], Any]] = {
        name: functools.partial(call, x, original.weight, original.bias) for name, call in register_ways().items()
    }
    kernel = make_kernel(original)
    bare = kernel.build().to(device)
    faster = replace_module(original, kernel)
    ways["ModelNew"] = lambda: bare(x)
    ways["drop-in"] = lambda: faster(x)
    ways["original"] = lambda: original(x)
    found: dict[str, dict[str, float]] = {}
    for name, call in ways.items():
        with torch.no_grad():
            found[name] = {"without gradients": time_calls(call, device)}
        found[name]["with gradients"] = time_calls(call, device)
    return found


def main() -> None:
    """Print the table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = measure(torch.device(options.device))
    if options.json:
        sys.stdout.write(json.dumps(found, indent=1) + "\n")
        return
    for name, times in found.items():
        sys.stdout.write(
            f"{name:14} {times['without gradients']:8.2f} {times['with gradients']:8.2f} microseconds, without and with gradients\n"
        )


if __name__ == "__main__":
    main()
