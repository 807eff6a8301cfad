"""A kernel that keeps the whole card busy for a moment, so that what is launched behind it waits on the card and not on the host.

A short call is mostly host work: Python, Triton's launcher, the driver. On a shared machine that part takes 40 microseconds in one
process and 120 in the next, for whole sessions, while the card's part stays the same within 0.3 % (H200, 2026-11-21). Launches that are
queued behind a running kernel are executed back to back, as they are in a model whose host runs ahead of its card.

While it runs, every thread slot of the card is taken: a launch on another stream does not start early. Imports torch.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import torch

from tritonsmith.evaluator.errors import InfrastructureError

HOLD_MS = 0.5
"""Host work that a timed call may do without being noticed: some forty launches."""

_THREADS = 512
_THREADS_PER_PROCESSOR, _PROCESSORS = 39, 16  # CUdevice_attribute
_PTX = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry hold(.param .u64 nanoseconds)
{
  .reg .pred %early;
  .reg .u64 %start, %now, %wanted;
  ld.param.u64 %wanted, [nanoseconds];
  mov.u64 %start, %globaltimer;
again:
  mov.u64 %now, %globaltimer;
  sub.u64 %now, %now, %start;
  setp.lt.u64 %early, %now, %wanted;
  @%early bra again;
  ret;
}
"""


def holder(milliseconds: float = HOLD_MS) -> Callable[[], object]:
    """A call that fills the card for so long, on the default stream, and returns at once.

    It goes to the driver by addresses that are taken now, past every name that later code could patch.
    Raises InfrastructureError where the driver refuses the kernel.
    """
    torch.cuda.init()
    torch.cuda.current_stream().synchronize()  # makes torch's context current in this thread
    cuda = ctypes.PyDLL("libcuda.so.1")
    module, function, threads, processors = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_int(), ctypes.c_int()
    for code in (
        cuda.cuModuleLoadData(ctypes.byref(module), _PTX + b"\0"),
        cuda.cuModuleGetFunction(ctypes.byref(function), module, b"hold"),
        cuda.cuDeviceGetAttribute(ctypes.byref(threads), _THREADS_PER_PROCESSOR, 0),
        cuda.cuDeviceGetAttribute(ctypes.byref(processors), _PROCESSORS, 0),
    ):
        if code:
            raise InfrastructureError(f"the kernel that holds the card could not be had (CUDA driver error {code})")
    nanoseconds = ctypes.c_uint64(int(milliseconds * 1e6))
    arguments = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(nanoseconds), ctypes.c_void_p))
    launch, one, zero, block = cuda.cuLaunchKernel, ctypes.c_uint(1), ctypes.c_uint(0), ctypes.c_uint(_THREADS)
    grid = ctypes.c_uint(processors.value * (threads.value // _THREADS))
    stream, nothing = ctypes.c_void_p(0), ctypes.c_void_p(0)
    kept = (module, nanoseconds)  # what the launch reads lives as long as the call
    return lambda: (kept, launch(function, grid, one, one, block, one, one, zero, stream, arguments, nothing))
