"""Microseconds that ways to register an operator, and the drop-in itself, add to a call.

`python -m tritonsmith.benchmarks.dropin.overhead` prints them. The kernel of the first table is a stand-in: it makes its result and
launches nothing. So all of a call is the host's work, on a card too. The second table is an account of a call by piece; on a card its
kernel is one in Triton. It takes half a minute.
"""

from __future__ import annotations

import argparse
import functools
import json
import platform
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from tritonsmith.benchmarks.dropin.account import account
from tritonsmith.benchmarks.dropin.timing import time_calls
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
    device = torch.device(options.device)
    found, pieces = measure(device), account(device)
    versions = _list_versions(device)
    if options.json:
        sys.stdout.write(json.dumps({"versions": versions, "ways": found, "account": pieces}, indent=1) + "\n")
        return
    sys.stdout.write(f"{', '.join(f'{name} {value}' for name, value in versions.items())}\n")
    for name, times in found.items():
        sys.stdout.write(
            f"{name:14} {times['without gradients']:8.2f} {times['with gradients']:8.2f} microseconds, without and with gradients\n"
        )
    sys.stdout.write("a call by piece, in microseconds, without gradients unless they are named\n")
    for name, time in pieces.items():
        sys.stdout.write(f"{name:74} {time:8.2f}\n")


def _list_versions(device: torch.device) -> dict[str, str]:
    versions = {"Python": platform.python_version(), "torch": torch.__version__}
    if device.type == "cuda":
        import triton  # noqa: PLC0415 - it is asked for where kernels run

        versions |= {"Triton": triton.__version__, "card": torch.cuda.get_device_name(device)}
    return versions


if __name__ == "__main__":
    main()
