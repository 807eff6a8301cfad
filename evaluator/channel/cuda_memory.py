"""Device memory that two processes share, through the driver's IPC calls. Imports torch."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import torch

from tritonsmith.evaluator.errors import CardMemoryError, InfrastructureError

_IPC_HANDLE_BYTES = 64
_LAZY_ENABLE_PEER_ACCESS = 1
_PERSISTING = 6
"""The driver's CU_LIMIT_PERSISTING_L2_CACHE_SIZE."""
_OUT_OF_MEMORY = 2
"""The driver's CUDA_ERROR_OUT_OF_MEMORY."""


class _IpcHandle(ctypes.Structure):
    _fields_ = [("reserved", ctypes.c_char * _IPC_HANDLE_BYTES)]


def _load_driver() -> ctypes.CDLL:
    torch.cuda.init()
    torch.cuda.current_stream().synchronize()  # makes torch's primary context current in this thread
    return ctypes.CDLL("libcuda.so.1")


def _check(code: int, call: str) -> None:
    if code:
        raise InfrastructureError(f"{call} failed with CUDA driver error {code}")


class _RawMemory:
    """Device memory by address, for torch to wrap without a copy."""

    def __init__(self, address: int, nbytes: int) -> None:
        self.__cuda_array_interface__: dict[str, Any] = {
            "shape": (nbytes,), "typestr": "|u1", "data": (address, False), "version": 3, "strides": None,
        }  # fmt: skip


def _wrap(address: int, nbytes: int) -> torch.Tensor:
    return torch.as_tensor(_RawMemory(address, nbytes), device="cuda")


class Allocation:
    """`nbytes` of plain device memory of its own (not from torch's pool, whose blocks hold other tensors). Raises CardMemoryError."""

    def __init__(self, nbytes: int) -> None:
        self._cuda = _load_driver()
        pointer = ctypes.c_uint64()
        code = self._cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(nbytes))
        if code == _OUT_OF_MEMORY:
            torch.cuda.empty_cache()  # torch keeps what it freed
            code = self._cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(nbytes))
        if code == _OUT_OF_MEMORY:
            free, _ = torch.cuda.mem_get_info()
            raise CardMemoryError(f"tensors of {nbytes / 1e9:.1f} GB that two processes share: the card has {free / 1e9:.1f} GB left")
        _check(code, "cuMemAlloc")
        self._pointer = pointer
        self.tensor = _wrap(pointer.value, nbytes)

    def handle(self) -> bytes:
        """The bytes with which another process opens this memory."""
        handle = _IpcHandle()
        _check(self._cuda.cuIpcGetMemHandle(ctypes.byref(handle), self._pointer), "cuIpcGetMemHandle")
        return ctypes.string_at(ctypes.byref(handle), _IPC_HANDLE_BYTES)

    def close(self) -> None:
        """Free the memory; tensors over it must be gone."""
        torch.cuda.synchronize()
        self.tensor = torch.empty(0)
        _check(self._cuda.cuMemFree_v2(self._pointer), "cuMemFree")


def open_handle(handle: bytes, nbytes: int) -> torch.Tensor:
    """Memory of another process as a flat uint8 tensor on the card."""
    cuda = _load_driver()
    pointer = ctypes.c_uint64()
    raw = _IpcHandle.from_buffer_copy(handle)
    _check(cuda.cuIpcOpenMemHandle_v2(ctypes.byref(pointer), raw, ctypes.c_uint(_LAZY_ENABLE_PEER_ACCESS)), "cuIpcOpenMemHandle")
    return _wrap(pointer.value, nbytes)


def reset_persisting_cache() -> None:
    """Lines of the L2 cache that a kernel asked the driver to keep become ordinary ones."""
    _load_driver().cuCtxResetPersistingL2Cache()


def bind_cache_reset() -> Callable[[], None]:
    """A call, made before candidate code is imported, that ends what this process has the L2 cache keep.

    A driver may keep lines for the context that asked, whatever another process resets. Where nothing is set aside it costs a look.
    """
    _load_driver()
    driver = ctypes.PyDLL("libcuda.so.1")  # no other thread runs meanwhile
    look, limit, reset = driver.cuCtxGetLimit, driver.cuCtxSetLimit, driver.cuCtxResetPersistingL2Cache
    kept, none = ctypes.c_size_t(), ctypes.c_size_t(0)
    place = ctypes.byref(kept)

    def reset_cache() -> None:
        if look(place, _PERSISTING) == 0 and kept.value:
            limit(_PERSISTING, none)
            reset()

    return reset_cache
