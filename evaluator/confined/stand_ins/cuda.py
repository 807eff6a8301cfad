"""Lets code written for device="cuda" run on CPU tensors. Imports torch: for evaluator processes only.

Inside the context every CPU tensor says it lies on cuda:0, factories and `.to` accept CUDA devices, and torch.cuda answers for the named
card. What needs a real card and would change results silently (CUDA graphs) raises instead.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace, TracebackType
from typing import Any

import torch
import torch.backends.cudnn
from torch import nn
from torch.autograd.function import BackwardCFunction
from torch.overrides import TorchFunctionMode

from tritonsmith.evaluator.schema import Hardware

_CUDA = torch.device("cuda", 0)
"""Where tensors say they are."""
_CPU = torch.device("cpu")
"""Where tensors are."""
_IS_CUDA = torch.Tensor.is_cuda.__get__  # type: ignore[attr-defined]
"""What torch calls for `tensor.is_cuda`."""
_DEVICE = torch.Tensor.device.__get__
"""What torch calls for `tensor.device`."""


def _use_cpu(device: Any) -> Any:
    """CPU for a CUDA device in any spelling, anything else as it is."""
    if isinstance(device, bool) or device is None:
        return device
    if isinstance(device, int) or str(device).startswith("cuda"):
        return _CPU
    return device


class FakeCuda(TorchFunctionMode):
    """Context manager: tensors say they are on cuda:0 and torch.cuda answers for `hardware`; the work is done on the CPU."""

    def __init__(self, hardware: Hardware) -> None:
        super().__init__()
        self.hardware = hardware
        self._saved: list[tuple[Any, str, Any]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Answer questions about devices, map CUDA devices in arguments to the CPU, pass everything else on."""
        kwargs = dict(kwargs or {})
        if func == _IS_CUDA:
            return True
        if func == _DEVICE:
            real = func(*args)
            return _CUDA if real.type == "cpu" else real
        if func is torch.Tensor.get_device:
            return 0
        if func in (torch.Tensor.cuda, torch.Tensor.pin_memory):
            return args[0]
        if func is torch.Tensor.to:
            args = (args[0], *(_use_cpu(a) if isinstance(a, str | torch.device | int) and not isinstance(a, bool) else a for a in args[1:]))
        if kwargs.get("device") is not None:
            kwargs["device"] = _use_cpu(kwargs["device"])
        kwargs.pop("pin_memory", None)
        return func(*args, **kwargs)

    def __enter__(self) -> FakeCuda:
        for owner, name, value in (*_list_replacements(self.hardware), (BackwardCFunction, "apply", self._bind_backward())):
            self._saved.append((owner, name, getattr(owner, name, None)))
            setattr(owner, name, value)
        super().__enter__()
        return self

    def _bind_backward(self) -> Callable[..., Any]:
        """How autograd calls a backward that is written in Python: with this mode, which autograd leaves out there."""
        run = BackwardCFunction.apply

        def apply(node: Any, *gradients: Any) -> Any:
            TorchFunctionMode.__enter__(self)
            try:
                return run(node, *gradients)
            finally:
                TorchFunctionMode.__exit__(self, None, None, None)

        return apply

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        super().__exit__(kind, error, trace)
        while self._saved:
            owner, name, value = self._saved.pop()
            setattr(owner, name, value)


class _Stream:
    """A stream on which everything has already happened."""

    cuda_stream = 0

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        self.device = _CUDA

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *_args: object) -> None:
        pass

    def synchronize(self) -> None:
        """Nothing is pending."""

    def wait_stream(self, _other: Any) -> None:
        """Nothing is pending."""

    def wait_event(self, _event: Any) -> None:
        """Nothing is pending."""

    def record_event(self, event: Any = None) -> Any:
        """An event that has happened."""
        return event or _Event()

    def query(self) -> bool:
        """All work is done."""
        return True


class _Event:
    """An event on the host's clock."""

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        self._at = 0.0

    def record(self, *_args: Any) -> None:
        """Now."""
        self._at = time.perf_counter()

    def synchronize(self) -> None:
        """Done: the event has happened."""

    def wait(self, *_args: Any) -> None:
        """Done: the event has happened."""

    def query(self) -> bool:
        """Done: the event has happened."""
        return True

    def elapsed_time(self, other: _Event) -> float:
        """Milliseconds until the other event."""
        return (other._at - self._at) * 1e3


class _Graph:
    """Refuses to be made; a class, since annotations such as `torch.cuda.CUDAGraph | None` must stay possible."""

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        raise RuntimeError("CUDA graphs cannot be judged without a card: launch the kernels directly")


class _Context:
    """A context that does nothing, in place of a class such as `torch.cuda.device`."""

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        pass

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_args: object) -> None:
        pass


def _make_nothing() -> Callable[..., None]:
    return lambda *_args, **_kwargs: None


def _answer(value: Any) -> Callable[..., Any]:
    return lambda *_args, **_kwargs: value


def _make_context() -> type[_Context]:
    return type("_Context", (_Context,), {})


def _list_properties(hardware: Hardware) -> SimpleNamespace:
    major, minor = divmod(hardware.capability, 10)
    return SimpleNamespace(
        name=hardware.name,
        major=major,
        minor=minor,
        multi_processor_count=hardware.processors,
        total_memory=hardware.memory_bytes,
        warp_size=32,
        max_threads_per_multi_processor=hardware.threads_per_processor,
        regs_per_multiprocessor=hardware.registers_per_processor,
        shared_memory_per_block=48 << 10,
        shared_memory_per_block_optin=hardware.shared_per_block,
        shared_memory_per_multiprocessor=hardware.shared_per_processor,
        L2_cache_size=hardware.l2_bytes,
        gcnArchName="",
    )


def _skip_compile(model: Any = None, **_options: Any) -> Any:
    """torch.compile changes speed, not results; without a card there is no speed to gain."""
    return model if model is not None else lambda wrapped: wrapped


def _list_replacements(hardware: Hardware) -> Iterator[tuple[Any, str, Any]]:
    """Owner, name and stand-in; every name gets an object of its own."""
    memory = hardware.memory_bytes
    cuda: dict[str, Any] = {
        "is_available": _answer(True), "is_initialized": _answer(True), "device_count": _answer(1), "current_device": _answer(0),
        "get_device_name": _answer(hardware.name), "get_device_capability": _answer(divmod(hardware.capability, 10)),
        "get_device_properties": _answer(_list_properties(hardware)), "is_bf16_supported": _answer(True),
        "mem_get_info": _answer((memory, memory)),
        "memory_allocated": _answer(0), "max_memory_allocated": _answer(0), "memory_reserved": _answer(0),
        "Stream": _Stream, "Event": _Event, "current_stream": lambda *_a: _Stream(), "default_stream": lambda *_a: _Stream(),
        "CUDAGraph": _Graph, "graph": type("_Graph", (_Graph,), {}), "is_current_stream_capturing": _answer(False),
    }  # fmt: skip
    silent = "synchronize set_device empty_cache init manual_seed manual_seed_all reset_peak_memory_stats _lazy_init"
    for name in silent.split():
        cuda[name] = _make_nothing()
    for name in ("stream", "device", "device_of"):
        cuda[name] = _make_context()
    for name, value in cuda.items():
        yield torch.cuda, name, value
    yield torch.backends.cudnn, "is_acceptable", _answer(False)
    yield torch, "compile", _skip_compile
    yield torch, "set_default_device", _make_nothing()
    yield nn.Module, "cuda", lambda self, *_args, **_kwargs: self
    original = nn.Module.to

    def to(self: nn.Module, *args: Any, **kwargs: Any) -> nn.Module:
        args = tuple(_use_cpu(a) if isinstance(a, str | torch.device | int) and not isinstance(a, bool) else a for a in args)
        if "device" in kwargs:
            kwargs["device"] = _use_cpu(kwargs["device"])
        return original(self, *args, **kwargs)

    yield nn.Module, "to", to
