"""A Triton driver for a card that is not there: enough for JITFunction.run(warmup=True), the autotuner and the interpreter.

Imports torch and Triton: for evaluator processes only.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from triton.backends.compiler import GPUTarget

from tritonsmith.evaluator.schema import Hardware

Benchmark = Callable[..., list[float]]


class FakeDriver:
    """Answers what Triton's front end asks about a card; can launch nothing.

    Args:
        hardware: the card to stand in for.
        benchmark: what the autotuner calls per configuration, as Triton's do_bench; lower is better.
    """

    def __init__(self, hardware: Hardware, benchmark: Benchmark) -> None:
        self.target = GPUTarget("cuda", hardware.capability, 32)
        self.launcher_cls = None
        self._benchmark = benchmark
        properties = {
            "max_shared_mem": hardware.shared_per_block,
            "max_num_regs": hardware.registers_per_processor,
            "multiprocessor_count": hardware.processors,
            "warpSize": 32,
            "sm_clock_rate": int(hardware.clock_hz / 1e3),
            "mem_clock_rate": 0,
            "mem_bus_width": 0,
        }
        self.utils = SimpleNamespace(get_device_properties=lambda _device: properties, set_printf_fifo_size=lambda _size: None)

    def get_current_target(self) -> GPUTarget:
        """The compile target."""
        return self.target

    def get_current_device(self) -> int:
        """Index of the only card."""
        return 0

    def set_current_device(self, _device: int) -> None:
        """There is one card."""

    def get_current_stream(self, _device: int = 0) -> int:
        """The default stream."""
        return 0

    def get_device_capability(self, _device: int = 0) -> tuple[int, int]:
        """Compute capability as (major, minor)."""
        return divmod(int(self.target.arch), 10)

    def get_active_torch_device(self) -> torch.device:
        """Where tensors really lie."""
        return torch.device("cpu")

    def get_device_interface(self) -> Any:
        """torch.cuda, which FakeCuda answers for."""
        return torch.cuda

    def get_benchmarker(self) -> Benchmark:
        """The autotuner's clock."""
        return self._benchmark

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        """A buffer to clear; nothing is timed here."""
        return torch.empty(1)

    def clear_cache(self, _cache: torch.Tensor) -> None:
        """Nothing is timed here."""

    def map_python_to_cpp_type(self, name: str) -> str:
        """No launcher is built."""
        return name
