"""Where the microseconds of a drop-in's call go: the module's call, the guard, ModelNew's Python, the result's memory, the launch.

Each piece is timed by itself, so sums are near the whole and not equal to it. On a card the kernel is an RMS norm in Triton, and the
rows are few, so that the host is what takes time. Elsewhere the kernel launches nothing, and the pieces of a launch are missing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from tritonsmith.benchmarks.dropin.timing import time_calls
from tritonsmith.modules.dropin.runtime.form import Form
from tritonsmith.modules.dropin.runtime.kernel import Kernel, describe_config, import_text
from tritonsmith.modules.dropin.runtime.module import engine_of, replace_module
from tritonsmith.modules.dropin.runtime.proof import Case, Proof, TensorCase

COLUMNS, ROWS = 768, 8
TEXT = f"""
import torch
import torch.nn as nn
import triton
import triton.language as tl

MADE_FOR = "x float32[a, {COLUMNS}], a up to 2796032, on a CUDA device"


@triton.jit
def rmsnorm_kernel(x_ptr, weight_ptr, rmsnorm_ptr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    k = tl.arange(0, BLOCK)
    valid = k < {COLUMNS}
    x = tl.load(x_ptr + row * {COLUMNS} + k, mask=valid, other=0.0)
    t = x * x
    sum = tl.sum(tl.where(valid, t, 0.0), 0)
    t_1 = x * tl.rsqrt(sum / {COLUMNS}.0 + 1.1920928955078125e-07)
    weight = tl.load(weight_ptr + k, mask=valid, other=0.0)
    rmsnorm = t_1 * weight
    tl.store(rmsnorm_ptr + row * {COLUMNS} + k, rmsnorm, mask=valid)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.n = nn.Module()
        self.n.weight = nn.Parameter(torch.empty(({COLUMNS},), dtype=torch.float32))

    def forward(self, x):
        if x.dim() != 2 or x.shape[1:] != ({COLUMNS},) or x.shape[0] > 2796032 or x.dtype is not torch.float32 or not x.is_cuda:
            raise ValueError(f"this kernel is made for {{MADE_FOR}}, and was given {{x.dtype}}{{list(x.shape)}} on {{x.device}}")
        batch = x.shape[0]
        x = x.contiguous()
        rmsnorm = torch.empty((batch, {COLUMNS}), dtype=torch.float32, device=x.device)
        rmsnorm_kernel[(batch,)](x, self.n.weight, rmsnorm, BLOCK=1024, num_warps=2)
        return rmsnorm
"""
"""A kernel as the built-in author writes it."""
_LAUNCH = "        rmsnorm_kernel[(batch,)](x, self.n.weight, rmsnorm, BLOCK=1024, num_warps=2)\n"
TEXT_WITHOUT_LAUNCH = TEXT.replace(_LAUNCH, "").replace(" or not x.is_cuda", "")
"""The same without its launch, for any device."""


class Norm(nn.Module):
    """What the kernel stands for."""

    def __init__(self) -> None:
        super().__init__()
        self.n = nn.RMSNorm(COLUMNS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """A norm of each row."""
        normed: torch.Tensor = self.n(x)
        return normed


@dataclass(frozen=True)
class Piece:
    """Microseconds of one piece of a call."""

    name: str
    call: Callable[[], Any]
    gradients: bool = False
    """Whether they are asked for."""


def account(device: torch.device, text: str | None = None) -> dict[str, float]:
    """Microseconds by piece.

    Args:
        device: where tensors are.
        text: of the kernel; the norm in Triton on a card, and one that launches nothing elsewhere.

    Raises:
        RuntimeError: the drop-in ran its original, or its results are others; with the reason.
    """
    launches = text is not None or device.type == "cuda"
    text = text or (TEXT if launches else TEXT_WITHOUT_LAUNCH)
    original = Norm().to(device).eval()
    x = torch.randn(ROWS, COLUMNS, device=device)
    kernel = _make_kernel(text, original, interpreted=device.type == "cpu")
    faster = replace_module(original, kernel)
    with torch.no_grad():
        result = faster(x)
        if device.type == "cuda":
            torch.testing.assert_close(result, original(x))
    engine = engine_of(faster)
    if engine.told or engine.instance is None:
        raise RuntimeError(f"the drop-in ran as its original: {'; '.join(engine.told)}")
    model, empty = engine.instance.model, nn.Identity()
    pieces = [
        Piece("a module's call, empty", lambda: empty(x)),
        Piece("the guard in full, for a call of a new kind", lambda: engine.guard.find_reason((x,))),
        Piece("ModelNew's forward", lambda: kernel.forward(model, x)),
        Piece("  memory of the result", lambda: torch.empty((ROWS, COLUMNS), dtype=torch.float32, device=x.device)),
        *(_list_launches(text, kernel, model, x) if launches else ()),
        Piece("the drop-in", lambda: faster(x)),
        Piece("the original", lambda: original(x)),
        Piece("the drop-in, with gradients", lambda: faster(x), gradients=True),
        Piece("the original, with gradients", lambda: original(x), gradients=True),
    ]
    times: dict[str, float] = {}
    for piece in pieces:
        with torch.set_grad_enabled(piece.gradients):
            times[piece.name] = time_calls(piece.call, device)
    call, forward = times["a module's call, empty"], times["ModelNew's forward"]
    times["= guard of a call like the last: drop-in less module's call and forward"] = times["the drop-in"] - call - forward
    times["= autograd: with gradients less without"] = times["the drop-in, with gradients"] - times["the drop-in"]
    if launches:
        launch = times["  the launch, kept"]
        times["= ModelNew's Python: forward less memory and launch"] = forward - times["  memory of the result"] - launch
    times["= the drop-in less the original"] = times["the drop-in"] - times["the original"]
    return times


def _make_kernel(text: str, original: nn.Module, *, interpreted: bool) -> Kernel:
    form = Form(parameters=("x",), given=("x",), positional=1, specs=(None,), arguments=(0,))
    proof = Proof((Case((TensorCase("float32", (("rows", 1, 0), COLUMNS)),), {"rows": (1, 512)}),))
    kernel = Kernel("Norm", text, (), form, proof, {"n.weight": "n.weight"}, config=describe_config(original))
    vars(kernel)["is_interpreted"] = interpreted  # so that it is taken on a CPU
    return kernel


def _list_launches(text: str, kernel: Kernel, model: nn.Module, x: torch.Tensor) -> list[Piece]:
    """Launches as the drop-in makes them, as Triton makes them, and of what is compiled alone."""
    plain: Any = import_text(text, "tritonsmith_overhead_plain")
    held = kernel.code.rmsnorm_kernel
    weight, out = model.get_parameter("n.weight").detach(), torch.empty_like(x)
    compiled = plain.rmsnorm_kernel[(ROWS,)](x, weight, out, BLOCK=1024, num_warps=2)
    launch = compiled[(ROWS, 1, 1)]

    def launch_by(function: Any) -> Callable[[], Any]:
        return lambda: function[(ROWS,)](x, weight, out, BLOCK=1024, num_warps=2)

    return [
        Piece("  the launch, kept", launch_by(held)),
        Piece("  the launch by Triton", launch_by(plain.rmsnorm_kernel)),
        Piece("  the launch of a CompiledKernel", lambda: launch(x, weight, out, 1024)),
        Piece("ModelNew's forward, launched by Triton", lambda: plain.ModelNew.forward(model, x)),
    ]
