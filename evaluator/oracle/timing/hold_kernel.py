"""The kernel that keeps the card: its text, its launch, and the memory in which it says where it is. Imports torch.

One warp on each multiprocessor looks at the card's clock until it is told to stop. So it knows when it did not run.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import torch

from tritonsmith.evaluator.channel.cuda_memory import reset_persisting_cache
from tritonsmith.evaluator.errors import InfrastructureError

STARTED = 0
"""Which 4-byte word of the host's memory holds the number of the last kernel that has started."""
ENDED = 16
"""The word with the number of the last kernel that has ended."""
INTERRUPTED = 32
"""The word with the number of the last kernel that was interrupted."""
GAP = 33
"""The word with the longest time in nanoseconds for which that kernel did not run."""
LATE = 48
"""The word with the number of the last kernel that started later after the one before it than it was allowed to."""
ANY_TIME = 2**64 - 1
"""For a kernel that may start at any time after the one before it."""

_THREADS = 32
"""Threads of the kernel on each multiprocessor."""
_PROCESSORS = 16  # CUdevice_attribute
"""The driver's number for the count of multiprocessors."""
_MAPPED = 2  # CU_MEMHOSTALLOC_DEVICEMAP
"""The driver's flag for host memory that the card sees."""
_LONGEST_NS = 500_000_000
"""What is done while the card is held must not take longer: then it is given back, and the call is void."""
PTX = b"""
.version 7.0
.target sm_70
.address_size 64
// nanoseconds: how long to run after the gate has opened
// words: memory of the host, see the words' names
// gate: 4 bytes that hold the number of the kernel that may go on, 4 of nothing, 8 with the clock at the last look of the last kernel
// between: the longest time in nanoseconds from that look to this kernel's first one
.visible .entry hold(.param .u64 nanoseconds, .param .u64 words, .param .u32 number, .param .u64 gate, .param .u64 between)
{
  .reg .pred %early, %other, %gap, %broken, %open, %late;
  .reg .u64 %start, %last, %now, %passed, %wanted, %at, %gate_at, %between, %longest;
  .reg .u32 %n, %thread, %seen;
  ld.param.u64 %wanted, [nanoseconds];
  ld.param.u64 %at, [words];
  ld.param.u32 %n, [number];
  ld.param.u64 %gate_at, [gate];
  ld.param.u64 %between, [between];
  mov.u32 %thread, %tid.x;
  setp.ne.u32 %other, %thread, 0;
  setp.ne.u32 %broken, %thread, %thread;
  mov.u64 %longest, 0;
  mov.u64 %start, %globaltimer;
  mov.u64 %last, %start;
  @%other bra waiting;
  ld.volatile.global.u64 %now, [%gate_at+8];
  sub.u64 %passed, %start, %now;
  setp.gt.u64 %late, %passed, %between;
  @%late st.volatile.global.u32 [%at+192], %n;
  st.volatile.global.u32 [%at], %n;
waiting:
  mov.u64 %now, %globaltimer;
  sub.u64 %passed, %now, %last;
  setp.gt.u64 %gap, %passed, 20000;
  or.pred %broken, %broken, %gap;
  max.u64 %longest, %longest, %passed;
  mov.u64 %last, %now;
  ld.volatile.global.u32 %seen, [%gate_at];
  setp.eq.u32 %open, %seen, %n;
  @%open bra opened;
  sub.u64 %passed, %now, %start;
  setp.lt.u64 %early, %passed, LONGEST;
  @%early bra waiting;
  setp.eq.u32 %broken, %thread, %thread;
opened:
  mov.u64 %start, %now;
again:
  mov.u64 %now, %globaltimer;
  sub.u64 %passed, %now, %last;
  setp.gt.u64 %gap, %passed, 20000;
  or.pred %broken, %broken, %gap;
  max.u64 %longest, %longest, %passed;
  mov.u64 %last, %now;
  sub.u64 %passed, %now, %start;
  setp.lt.u64 %early, %passed, %wanted;
  @%early bra again;
  @%other bra done;
  st.volatile.global.u64 [%gate_at+8], %last;
  cvt.u32.u64 %seen, %longest;
  @%broken st.volatile.global.u32 [%at+132], %seen;
  @%broken st.volatile.global.u32 [%at+128], %n;
  membar.sys;
  st.volatile.global.u32 [%at+64], %n;
done:
  ret;
}
""".replace(b"LONGEST", str(_LONGEST_NS).encode())


class HoldKernel:
    """The kernel as the driver has it, the words that it writes, and the stream on which things are done meanwhile.

    Args:
        cache_bytes: size of the card's L2 cache.
    Raises:
        InfrastructureError: the driver refuses the kernel.
    """

    def __init__(self, cache_bytes: int) -> None:
        torch.cuda.init()
        torch.cuda.current_stream().synchronize()  # makes torch's context current in this thread
        self._cuda = ctypes.PyDLL("libcuda.so.1")
        self._module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(self._module), PTX + b"\0")
        self._call("cuModuleGetFunction", ctypes.byref(function), self._module, b"hold")
        processors = ctypes.c_int()
        self._call("cuDeviceGetAttribute", ctypes.byref(processors), _PROCESSORS, torch.cuda.current_device())
        host, words = ctypes.c_void_p(), ctypes.c_uint64()
        self._call("cuMemHostAlloc", ctypes.byref(host), ctypes.c_size_t(4096), ctypes.c_uint(_MAPPED))
        self._call("cuMemHostGetDevicePointer_v2", ctypes.byref(words), host, ctypes.c_uint(0))
        assert host.value is not None
        self.words = (ctypes.c_uint32 * 64).from_address(host.value)
        """What the kernels say, see `STARTED` and the words after it."""
        self._gate = torch.zeros(4, dtype=torch.int32, device="cuda")
        gate = ctypes.c_uint64(self._gate.data_ptr())
        self._nanoseconds, self._between, self._number = ctypes.c_uint64(0), ctypes.c_uint64(0), ctypes.c_uint32(0)
        values = (self._nanoseconds, words, self._number, gate, self._between)
        arguments = (ctypes.c_void_p * len(values))(*map(ctypes.addressof, values))
        grid = ctypes.c_uint(processors.value)  # a warp on each: more of them would wait for the clock, which they share
        one, zero, block = ctypes.c_uint(1), ctypes.c_uint(0), ctypes.c_uint(_THREADS)
        stream, nothing = ctypes.c_void_p(0), ctypes.c_void_p(0)
        self._launch: Callable[[], object] = lambda: self._call(
            "cuLaunchKernel", function, grid, one, one, block, one, one, zero, stream, arguments, nothing
        )
        self._arguments = (values, arguments)  # what a launch reads lives as long as this
        self._cache = torch.empty(2 * cache_bytes, dtype=torch.uint8, device="cuda")
        self._meanwhile = torch.cuda.Stream()
        self.open(0)  # kernels are loaded when they are first used, for which the driver may wait for those that run

    def _call(self, name: str, *arguments: object) -> None:
        if code := getattr(self._cuda, name)(*arguments):
            raise InfrastructureError(f"the kernel that holds the card could not be had: {name} failed with CUDA driver error {code}")

    def settle(self) -> None:
        """Wait for what was queued on the current stream; lines that a candidate asked the driver to keep become ordinary ones."""
        torch.cuda.current_stream().synchronize()
        reset_persisting_cache()

    def launch(self, number: int, nanoseconds: int, between: int = ANY_TIME) -> None:
        """Queue the kernel of that number: it runs until its gate opens, and so many nanoseconds more.

        It says `LATE` if it starts more than `between` nanoseconds after the one before it.
        """
        self._number.value, self._nanoseconds.value, self._between.value = number, nanoseconds, between
        self._launch()

    def open(self, number: int, prepare: Callable[[], object] = lambda: None) -> None:
        """Do what `prepare` queues, overwrite the L2 cache and open the gate of that kernel; returns when that is done."""
        with torch.cuda.stream(self._meanwhile):
            prepare()
            self._cache.fill_(1)
            self._gate[:1].fill_(number)
        self._meanwhile.synchronize()
