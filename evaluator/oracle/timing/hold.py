"""A kernel of the oracle that keeps the card from other processes for a moment: forward starts when the oracle knows. Imports torch.

A short call is mostly host work: Python, Triton's launcher, the driver. On a shared machine that part takes 40 microseconds in one
process and 120 in the next, for whole sessions. Work that a process queues while the card belongs to another one starts when the card
changes hands, however long queueing took. A process that asks for the card while that work runs has it when it ends.

Handing the card over and back takes 287 us on an H200, give or take 2 us (2026-11-22). The rest is the kernel's time. Above 20 us it
agrees with the card's events: 0.6 us more in the median, and -1.5 to 2.6 us in nine calls of ten.

The kernel runs in the oracle's process, so no candidate can shorten it, and nothing of a candidate runs on the card meanwhile. The card
gives each process a time slice (2 ms or so by default) and the kernel is usually shorter. It looks at the clock all the time, and says
so when it was interrupted. Inputs are placed while it runs, from another stream of the same process, so that no kernel of a candidate
can read them before its call is due.
"""

from __future__ import annotations

import ctypes
import functools
import math
import time
from collections.abc import Callable

import torch

from tritonsmith.evaluator.channel.cuda_memory import reset_persisting_cache
from tritonsmith.evaluator.errors import InfrastructureError

HOLD_MS = 0.5
"""Host work that a timed call may do without being noticed: some forty launches."""

_THREADS = 32
"""Threads of the kernel on each multiprocessor."""
_PROCESSORS = 16  # CUdevice_attribute
"""The driver's number for the count of multiprocessors."""
_MAPPED = 2  # CU_MEMHOSTALLOC_DEVICEMAP
"""The driver's flag for host memory that the card sees."""
_STARTED = 0
"""Which 4-byte word of the host's memory holds the number of the last kernel that has started."""
_ENDED = 16
"""The word with the number of the last kernel that has ended."""
_INTERRUPTED = 32
"""The word with the number of the last kernel that was interrupted."""
_START_SECONDS = 10.0
"""Time within which the card must be had."""
_SLEPT_SECONDS = 50e-6
"""Between two looks at the host's memory: the card changes hands in twice as much at the least."""
_LONGEST_NS = 500_000_000
"""What is done while the card is held must not take longer: then it is given back, and the call is void."""
_PTX = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry hold(.param .u64 nanoseconds, .param .u64 words, .param .u32 number, .param .u64 gate)
{
  .reg .pred %early, %other, %gap, %broken, %open;
  .reg .u64 %start, %last, %now, %passed, %wanted, %at, %gate_at;
  .reg .u32 %n, %thread, %seen;
  ld.param.u64 %wanted, [nanoseconds];
  ld.param.u64 %at, [words];
  ld.param.u32 %n, [number];
  ld.param.u64 %gate_at, [gate];
  mov.u32 %thread, %tid.x;
  setp.ne.u32 %other, %thread, 0;
  setp.ne.u32 %broken, %thread, %thread;
  mov.u64 %start, %globaltimer;
  mov.u64 %last, %start;
  @%other bra waiting;
  st.volatile.global.u32 [%at], %n;
waiting:
  mov.u64 %now, %globaltimer;
  sub.u64 %passed, %now, %last;
  setp.gt.u64 %gap, %passed, 20000;
  or.pred %broken, %broken, %gap;
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
  mov.u64 %last, %now;
  sub.u64 %passed, %now, %start;
  setp.lt.u64 %early, %passed, %wanted;
  @%early bra again;
  @%other bra done;
  @%broken st.volatile.global.u32 [%at+128], %n;
  membar.sys;
  st.volatile.global.u32 [%at+64], %n;
done:
  ret;
}
""".replace(b"LONGEST", str(_LONGEST_NS).encode())


def wait_until(has_come: Callable[[], bool]) -> tuple[float, float]:
    """Look until something has come: `time.perf_counter()` then, and a time before which it had not.

    The second one is minus infinity where it is unknown. The two lie microseconds apart if this thread ran in between. It may lose its
    processor at any moment, between a look and the clock as well. Raises InfrastructureError after `_START_SECONDS`.
    """
    before, last = -math.inf, time.perf_counter()
    began = last
    while not has_come():
        before, last = last, time.perf_counter()  # the look that has just failed was later than `before`
        if last > began + _START_SECONDS:
            raise InfrastructureError(f"the card could not be taken within {_START_SECONDS:.0f} s: something else keeps it busy")
    return time.perf_counter(), before


class CardHold:
    """The kernel, the memory in which it says where it is, and the stream on which things are done meanwhile.

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
        self._call("cuModuleLoadData", ctypes.byref(self._module), _PTX + b"\0")
        self._call("cuModuleGetFunction", ctypes.byref(function), self._module, b"hold")
        processors = ctypes.c_int()
        self._call("cuDeviceGetAttribute", ctypes.byref(processors), _PROCESSORS, torch.cuda.current_device())
        host, device = ctypes.c_void_p(), ctypes.c_uint64()
        self._call("cuMemHostAlloc", ctypes.byref(host), ctypes.c_size_t(4096), ctypes.c_uint(_MAPPED))
        self._call("cuMemHostGetDevicePointer_v2", ctypes.byref(device), host, ctypes.c_uint(0))
        assert host.value is not None
        self._words = (ctypes.c_uint32 * 64).from_address(host.value)
        self._number = ctypes.c_uint32(0)
        self._not_before = -math.inf
        """What was waited for last came after that."""
        self._nanoseconds, self._device = ctypes.c_uint64(0), device  # what a launch reads lives as long as this
        self._gate = torch.zeros(1, dtype=torch.int32, device="cuda")
        gate = ctypes.c_uint64(self._gate.data_ptr())
        arguments = (ctypes.c_void_p * 4)(*(ctypes.addressof(value) for value in (self._nanoseconds, device, self._number, gate)))
        grid = ctypes.c_uint(processors.value)  # a warp on each: more of them would wait for the clock, which they share
        one, zero, block = ctypes.c_uint(1), ctypes.c_uint(0), ctypes.c_uint(_THREADS)
        stream, nothing = ctypes.c_void_p(0), ctypes.c_void_p(0)
        self._launch: Callable[[], object] = lambda: self._call(
            "cuLaunchKernel", function, grid, one, one, block, one, one, zero, stream, arguments, nothing
        )
        self._arguments = (gate, arguments)
        self._cache = torch.empty(2 * cache_bytes, dtype=torch.uint8, device="cuda")
        self._meanwhile = torch.cuda.Stream()
        self._open()  # kernels are loaded when they are first used, for which the driver may wait for those that run

    def _call(self, name: str, *arguments: object) -> None:
        if code := getattr(self._cuda, name)(*arguments):
            raise InfrastructureError(f"the kernel that holds the card could not be had: {name} failed with CUDA driver error {code}")

    def begin(
        self, prepare: Callable[[], object] = lambda: None, milliseconds: float = HOLD_MS, *, at_once: bool = False
    ) -> float:
        """Take the card, queue what `prepare` does, overwrite the L2 cache; returns when that is done, with so many milliseconds left.

        `at_once`: ask for the card before anything else, while another process may still have it; `prepare` must then read nothing
        that waits on the current stream.

        What a process finds in the cache is worth 5 to 10 microseconds even to an empty call, so it finds nothing, ever.

        Returns:
            `time.perf_counter()` when the card was taken.

        Raises:
            InfrastructureError: somebody else keeps the card.
        """
        if not at_once:
            torch.cuda.current_stream().synchronize()  # `prepare` reads what was queued there
            reset_persisting_cache()  # lines that a candidate asked the driver to keep become ordinary ones
        self._nanoseconds.value = int(milliseconds * 1e6)
        self._number.value += 1
        self._launch()
        taken = self._wait(_STARTED)
        self._open(prepare)
        return taken

    def _open(self, prepare: Callable[[], object] = lambda: None) -> None:
        with torch.cuda.stream(self._meanwhile):
            prepare()
            self._cache.fill_(1)
            self._gate.fill_(self._number.value)
        self._meanwhile.synchronize()

    def wait_end(self) -> float:
        """Wait until the card is given back; `time.perf_counter()` then. Raises InfrastructureError."""
        return self._wait(_ENDED)

    def _wait(self, word: int) -> float:
        words, wanted = self._words, self._number.value
        seen, self._not_before = wait_until(lambda: words[word] == wanted)
        return seen

    @property
    def slept(self) -> bool:
        """Whether this thread did not run when what was waited for last came, as far as is known; to be asked at once.

        That is so if it may have come more than `_SLEPT_SECONDS` ago.
        """
        return time.perf_counter() - self._not_before > _SLEPT_SECONDS

    @property
    def interrupted(self) -> bool:
        """Whether somebody else had the card in between; to be asked some microseconds after the end."""
        return self._words[_INTERRUPTED] == self._number.value


@functools.cache
def card_hold(cache_bytes: int) -> CardHold:
    """The hold of this process, made once."""
    return CardHold(cache_bytes)
