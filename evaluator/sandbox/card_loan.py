"""A loan of card memory that the self-test opens and reads: does CUDA still work inside the sandbox? It calls the driver by ctypes."""

from __future__ import annotations

import contextlib
import ctypes
from types import TracebackType

_LOAN_BYTES = 4096
"""Size of the loan."""
_HANDLE_BYTES = 64
"""Size of CUipcMemHandle."""
_LAZY_PEER_ACCESS = 1
"""Flag that cuIpcOpenMemHandle asks for."""


class _Handle(ctypes.Structure):
    _fields_ = [("reserved", ctypes.c_char * _HANDLE_BYTES)]


def _call(cuda: ctypes.CDLL, name: str, *arguments: object) -> None:
    code = getattr(cuda, name)(*arguments)
    if code:
        raise OSError(f"{name} failed with CUDA driver error {code}")


def _open_card() -> ctypes.CDLL:
    """The driver, with the first card's primary context current. Raises OSError."""
    cuda = ctypes.CDLL("libcuda.so.1")
    _call(cuda, "cuInit", 0)
    device, context = ctypes.c_int(), ctypes.c_void_p()
    _call(cuda, "cuDeviceGet", ctypes.byref(device), 0)
    _call(cuda, "cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    _call(cuda, "cuCtxSetCurrent", context)
    return cuda


class CardLoan:
    """Memory on the card, filled with one byte, that another process can open with `handle`. Raises OSError."""

    def __init__(self, fill: int) -> None:
        self._cuda = _open_card()
        self._address = ctypes.c_uint64()
        _call(self._cuda, "cuMemAlloc_v2", ctypes.byref(self._address), ctypes.c_size_t(_LOAN_BYTES))
        _call(self._cuda, "cuMemsetD8_v2", self._address, ctypes.c_ubyte(fill), ctypes.c_size_t(_LOAN_BYTES))
        _call(self._cuda, "cuCtxSynchronize")
        handle = _Handle()
        _call(self._cuda, "cuIpcGetMemHandle", ctypes.byref(handle), self._address)
        self.handle = ctypes.string_at(ctypes.byref(handle), _HANDLE_BYTES).hex()

    def __enter__(self) -> CardLoan:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with contextlib.suppress(OSError):
            _call(self._cuda, "cuMemFree_v2", self._address)


def read_loan(handle: str) -> int:
    """Open a loan and read its first byte, in another process than the lender's. Raises OSError."""
    cuda = _open_card()
    address, raw = ctypes.c_uint64(), _Handle.from_buffer_copy(bytes.fromhex(handle))
    _call(cuda, "cuIpcOpenMemHandle_v2", ctypes.byref(address), raw, ctypes.c_uint(_LAZY_PEER_ACCESS))
    read = (ctypes.c_ubyte * _LOAN_BYTES)()
    _call(cuda, "cuMemcpyDtoH_v2", read, address, ctypes.c_size_t(_LOAN_BYTES))
    _call(cuda, "cuIpcCloseMemHandle", address)
    return read[0] if len(set(read)) == 1 else -1
