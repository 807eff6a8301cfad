"""What one forward launches on the card: Triton kernels with grid and resources, and device time by kernel.

Imports torch and triton; runs in the witness's runner (`oracle/judge/witness.py`), or in the runner after correctness and timing are done.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile
from triton.compiler.compiler import CompiledKernel
from triton.runtime.jit import JITFunction

from tritonsmith.evaluator.cards.cards import resident_programs
from tritonsmith.evaluator.channel.compiled_text import count_instructions
from tritonsmith.evaluator.schema import Hardware

_BYTES_PER_SPILL_UNIT = 4
"""Triton reports local memory in four-byte words."""
_MOST_KERNELS = 40
"""Pairs of Triton kernel and grid in a report, which is one line of bounded length."""
_MOST_NAMES = 60
"""Kernels of the profiler in a report, for the same reason."""
_LONGEST_NAME = 160
"""Characters of a kernel's name in a report, for the same reason."""


@contextlib.contextmanager
def record_launches() -> Iterator[list[dict[str, Any]]]:
    """Every launch by Triton while the context is open, through its JIT or of a compiled kernel: that kernel and its grid."""
    launches: list[dict[str, Any]] = []
    original, launcher, within = JITFunction.run, vars(CompiledKernel).get("run"), [False]

    def run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        within[0] = True
        try:
            kernel = original(self, *args, grid=grid, warmup=warmup, **kwargs)
        finally:
            within[0] = False
        if not warmup:
            names = [parameter.name for parameter in self.params]
            bound = {p.name: p.default for p in self.params if p.has_default} | dict(zip(names, args, strict=False)) | kwargs
            extent = tuple(int(part) for part in (grid(bound) if callable(grid) else grid))
            launches.append({"kernel": kernel, "grid": (extent + (1, 1, 1))[:3]})
        return kernel

    def launch_compiled(kernel: Any) -> Callable[..., Any]:
        assert isinstance(launcher, property) and launcher.fget is not None
        stock = launcher.fget(kernel)

        def launch(x: Any, y: Any, z: Any, *args: Any, **kwargs: Any) -> Any:
            if not within[0]:
                launches.append({"kernel": kernel, "grid": (int(x), int(y), int(z))})
            return stock(x, y, z, *args, **kwargs)

        return launch

    JITFunction.run = run
    if isinstance(launcher, property):
        CompiledKernel.run = property(launch_compiled)
    try:
        yield launches
    finally:
        JITFunction.run = original
        if isinstance(launcher, property):
            CompiledKernel.run = launcher


def _read_constants(kernel: Any) -> dict[str, Any]:
    constants = {}
    for key, value in kernel.src.constants.items():
        name = kernel.src.fn.arg_names[key[0]] if isinstance(key, tuple) else str(key)
        constants[name] = value if isinstance(value, int | float | bool | str | None) else str(value)
    return constants


def _describe_kernel(kernel: Any, grid: tuple[int, int, int], count: int, hardware: Hardware) -> dict[str, Any]:
    meta = kernel.metadata
    return {
        "name": meta.name,
        "launches": count,
        "grid": grid,
        "num_warps": meta.num_warps,
        "num_stages": meta.num_stages,
        "constexprs": _read_constants(kernel),
        "registers": kernel.n_regs,
        "spills": kernel.n_spills * _BYTES_PER_SPILL_UNIT,
        "shared_memory": meta.shared,
        "resident": resident_programs(hardware, registers=kernel.n_regs, shared=meta.shared, warps=meta.num_warps),
        "cooperative": bool(getattr(meta, "launch_cooperative_grid", False)),
        "tensor_cores": "mma" in kernel.asm["ptx"],
        "instructions": count_instructions(kernel.asm["ptx"]),
    }


def profile_forward(
    forward: Callable[[], Any], hardware: Hardware, set_back: Callable[[], None] = lambda: None
) -> tuple[dict[str, Any], Any]:
    """What one forward launches: `kernels` through Triton's JIT, and `device`, {kernel's name: (count, milliseconds)} by the profiler.

    `busy_ms` are the milliseconds in which at least one of them runs: kernels on several streams overlap.
    Comes with what the profiled forward returned; `set_back` undoes before each forward what the last one left in buffers.
    """
    set_back()
    with record_launches() as launches:
        forward()
        torch.cuda.synchronize()
    counts: Counter[tuple[str, tuple[int, int, int]]] = Counter()
    kernels: dict[tuple[str, tuple[int, int, int]], Any] = {}
    for launch in launches:
        key = (launch["kernel"].hash, launch["grid"])
        counts[key] += 1
        kernels[key] = launch["kernel"]
    facts = [_describe_kernel(kernels[key], key[1], count, hardware) for key, count in counts.most_common(_MOST_KERNELS)]
    set_back()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        result = forward()
        torch.cuda.synchronize()
    seen = [event for event in profiler.key_averages() if event.device_type.name == "CUDA"]
    seen.sort(key=lambda event: -event.self_device_time_total)
    device = {event.key[:_LONGEST_NAME]: (event.count, event.self_device_time_total / 1e3) for event in seen[:_MOST_NAMES]}
    spans = [(event.time_range.start, event.time_range.end) for event in profiler.events() if event.device_type.name == "CUDA"]
    return {"kernels": facts, "device": device, "busy_ms": join_spans(spans) / 1e3}, result


def join_spans(spans: Sequence[tuple[float, float]]) -> float:
    """Length of the union of some (begin, end), in their unit."""
    length, reached = 0.0, float("-inf")
    for begin, end in sorted(spans):
        length += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return length
