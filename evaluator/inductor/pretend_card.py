"""A card that Inductor believes to be there. It writes its text for that card, and no CUDA is touched. Imports torch and Triton.

The process runs without a visible device, so a build of torch with CUDA takes the same way as one without.
"""

from __future__ import annotations

import contextlib
import ctypes
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import triton
from torch._dynamo import device_interface
from torch._inductor.codegen.common import BackendFeature
from torch._inductor.codegen.triton import TritonScheduling
from torch._inductor.fx_passes import joint_graph, post_grad
from torch.fx.experimental import proxy_tensor
from triton.backends.compiler import GPUTarget

from tritonsmith.evaluator.schema import Hardware

_WARP = 32
"""Threads of a warp."""
_MOST_THREADS = 1024
"""Threads of a program, at most."""
_SHARED_WITHOUT_ASKING = 48 << 10
"""Bytes of shared memory that a program gets without asking for more."""
_HOST, _CUDA, _META = 0, 1, 14
"""Numbers of devices in torch."""


def _make_properties(hardware: Hardware) -> types.SimpleNamespace:
    """What `torch.cuda.get_device_properties` says of such a card."""
    return types.SimpleNamespace(
        name=hardware.name, major=hardware.capability // 10, minor=hardware.capability % 10, warp_size=_WARP, gcnArchName="",
        multi_processor_count=hardware.processors, regs_per_multiprocessor=hardware.registers_per_processor,
        max_threads_per_multi_processor=hardware.threads_per_processor, max_threads_per_block=_MOST_THREADS,
        total_memory=hardware.memory_bytes, L2_cache_size=hardware.l2_bytes, shared_memory_per_block=_SHARED_WITHOUT_ASKING,
        shared_memory_per_block_optin=hardware.shared_per_block, shared_memory_per_multiprocessor=hardware.shared_per_processor,
    )  # fmt: skip


def _make_interface(hardware: Hardware) -> type[Any]:
    """The device interface that Inductor asks, with answers for this card."""
    properties = _make_properties(hardware)
    base: Any = device_interface.CudaInterface
    answers: dict[str, Callable[..., Any]] = {
        "get_device_properties": lambda device=None: properties,
        "get_compute_capability": lambda device=None: hardware.capability,
        "current_device": lambda: 0,
        "device_count": lambda: 1,
        "set_device": lambda device: None,
        "synchronize": lambda device=None: None,
        "is_available": lambda: True,
        "is_triton_capable": lambda device=None: True,
        "raise_if_triton_unavailable": lambda device=None: None,
        "is_bf16_supported": lambda including_emulation=False: hardware.capability >= 80,
    }
    static = {name: staticmethod(answer) for name, answer in answers.items()}
    worker = type("Worker", (base.Worker,), {name: static[name] for name in ("get_device_properties", "current_device", "set_device")})
    return type("PretendedInterface", (base,), {**static, "Worker": worker})


class _PretendedDriver:
    """What Triton's driver says of the card; enough to name the target, and nothing that could launch."""

    def __init__(self, hardware: Hardware) -> None:
        self._target = GPUTarget("cuda", hardware.capability, _WARP)

    def get_current_target(self) -> GPUTarget:
        return self._target

    def get_current_device(self) -> int:
        return 0

    def is_active(self) -> bool:
        return True


def _on_the_host(passes: types.ModuleType) -> Any:
    """Its patterns are traced on tensors of the host: they hold for every device, and there is no other here."""
    make: Callable[..., Any] = passes.lazy_init
    return mock.patch.object(passes, "lazy_init", lambda input_device=None: make(torch.device("cpu")))


@contextlib.contextmanager
def _lift_on_the_host() -> Iterator[None]:
    """Constants that forward makes are made on the host and moved, as FakeTensorMode has it; it does so only while it is active itself."""
    before = torch._C._only_lift_cpu_tensors()
    torch._C._set_only_lift_cpu_tensors(True)
    try:
        yield
    finally:
        torch._C._set_only_lift_cpu_tensors(before)


def _guard_devices() -> None:
    """Let operators that switch to their tensor's device take fake tensors, in a build of torch without CUDA.

    For a build with CUDA and no visible device FakeTensorMode does the same: it puts a guard in place that does nothing. A build without
    CUDA has no place that it would look at, so the guard of the meta device, which does nothing either, is entered by its address.
    """
    if torch.cuda._is_compiled():
        return
    with contextlib.suppress(OSError, ValueError):  # a build of another form: some modules cannot be traced then, and the answer says so
        library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
        guards = (ctypes.c_void_p * (_META + 1)).in_dll(library, "_ZN3c104impl26device_guard_impl_registryE")
        if guards[_HOST] and guards[_META] and not guards[_CUDA]:
            guards[_CUDA] = guards[_META]


def _choose_layout(inputs: torch.Tensor, weights: torch.Tensor, backend: Any) -> torch.memory_format:
    """cuDNN's rule for the layout of a convolution's result: channels last where an operand has it."""
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(inputs.dim())
    if last is not None and inputs.dtype != torch.float64:
        if any(_has_layout(tensor, last) for tensor in (inputs, weights)):
            return last
    return torch.contiguous_format


def _has_layout(tensor: torch.Tensor, layout: torch.memory_format) -> bool:
    return tensor.is_contiguous(memory_format=layout) and not tensor.is_contiguous()


@contextlib.contextmanager
def pretend_card(hardware: Hardware) -> Iterator[None]:
    """While open, this process seems to have one card of this kind. Fake tensors may lie on it; nothing can run there."""
    list(device_interface.get_registered_device_interfaces())  # fills the table, which would overwrite the entries below
    interface = _make_interface(hardware)
    capability = divmod(hardware.capability, 10)
    _guard_devices()
    with contextlib.ExitStack() as stack:
        for name, answer in {
            "get_device_properties": interface.get_device_properties, "get_device_capability": lambda device=None: capability,
            "current_device": lambda: 0, "device_count": lambda: 1, "get_device_name": lambda device=None: hardware.name,
            "is_bf16_supported": interface.is_bf16_supported, "_lazy_init": lambda: None,
        }.items():  # fmt: skip
            stack.enter_context(mock.patch.object(torch.cuda, name, answer))
        stack.enter_context(mock.patch.object(torch.cuda.amp.common, "amp_definitely_not_available", lambda: False))
        stack.enter_context(mock.patch.dict(device_interface.device_interfaces, {"cuda": interface, "cuda:0": interface}))
        for passes in (joint_graph, post_grad):
            stack.enter_context(_on_the_host(passes))
        stack.enter_context(mock.patch.object(torch._C, "_conv_determine_backend_memory_format", _choose_layout))
        features = TritonScheduling.backend_features - {BackendFeature.FOREACH}  # no kernel that does the work of several
        stack.enter_context(mock.patch.object(TritonScheduling, "backend_features", features))
        stack.enter_context(_lift_on_the_host())
        stack.enter_context(mock.patch.object(proxy_tensor, "CONSTANT_NUMEL_LIMIT", 0))  # constants are traced, and computed nowhere
        triton.runtime.driver.set_active(_PretendedDriver(hardware))
        yield
