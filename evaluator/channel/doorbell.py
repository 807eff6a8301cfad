"""The doorbell page between the oracle and a runner, and the bounded JSON lines of their pipe.

Trust runs one way: from the runner the oracle takes eight-byte words on the page and JSON lines of at most 64 KiB, besides bytes in slots
of fixed shape (`slots.py`). A runner loads this before torch.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import mmap
import os
import secrets
import select
import struct
import time
from enum import IntEnum
from typing import Any

QUICK_BASELINES = ("eager", "cuda_graph", "compile", "compile_reduce_overhead")
"""How a reference may be run, where that is ready within seconds."""
AUTOTUNED_BASELINES = ("compile_max_autotune", "compile_max_autotune_no_cudagraphs")
"""Modes of torch.compile that time many kernels before they choose; the first call takes up to minutes."""
BASELINES = (*QUICK_BASELINES, *AUTOTUNED_BASELINES)
"""All of them; a runner's mode is an index into these and a setting of TF32."""
COMPILED = "compile"
"""What names of baselines by torch.compile begin with; its mode follows: `compile_max_autotune`."""
FORMS = ("as_called", "cuda_graph")
"""How a candidate may be run on a card: launch by launch, or one replay of what was captured. A runner's mode is an index into these."""
AS_CALLED, CUDA_GRAPH = FORMS
_PAGE = 4096
"""Bytes of the shared page."""
_ORDER_BITS = 32
"""Bits of a schedule's order in its word."""
_LINE_LIMIT = 64 << 10
"""Bytes of the longest line that is read from a runner."""
_SPIN_SECONDS = {"cuda": 0.0002, "cpu": 0.0001}
"""How long a runner polls before it sleeps. On a card candidate and baselines share a processor, one awake and one asleep; waking up
takes less than the oracle keeps the card."""
_SLEEP_SECONDS = 0.005
"""Without a call to wake up, a sleeping runner looks this often."""


class Command(IntEnum):
    """What the oracle asks of a runner through the doorbell."""

    CALL = 1
    """Run forward on the input slots and wait for the card; the argument is a baseline's mode, a candidate's form, or a schedule as
    `schedule_word` makes it."""
    DELIVER = 6
    """Copy every tensor that the last call returned into the output slots; after CLOCKED, note the card's time first."""
    CLOCKED = 7
    """As CALL, between two events of the card; DELIVER reports the time between them."""
    STRUCTURE = 9
    """Report on the control pipe how what the last call returned is nested, and which of its tensors lie in an argument;
    ahead of its delivery."""
    EARLIER = 10
    """Copy what the call behind the last STRUCTURE returned into the output slots again, as far as the candidate still holds it."""
    EMPTY = 8
    """What CLOCKED does without forward."""
    FACTS = 3
    """Run forward once in the form of the argument and report launches on the control pipe."""
    CAPTURE = 11
    """Capture forward in a CUDA graph and report on the control pipe why it cannot be had; a runner in which that fails is broken."""
    WEIGHTS = 4
    """Read the weights file again and copy it into the model in place."""
    EXIT = 5


def schedule_word(order: int, configuration: int = 0) -> int:
    """The argument of a call without a card: the order of the programs, and the configuration that every autotuner keeps."""
    return order | configuration << _ORDER_BITS


def read_schedule(word: int) -> tuple[int, int]:
    """Order and configuration in what `schedule_word` made."""
    return word & ((1 << _ORDER_BITS) - 1), word >> _ORDER_BITS


class Doorbell:
    """A page of eight-byte words: the oracle rings with a fresh nonce, the runner echoes it when the work is done."""

    def __init__(self, fd: int | None = None, wake: int | None = None, device: str = "cpu") -> None:
        self._patience = _SPIN_SECONDS[device]
        if fd is None or wake is None:
            fd = os.memfd_create("doorbell", os.MFD_ALLOW_SEALING)
            os.ftruncate(fd, _PAGE)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
            wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.fd, self.wake = fd, wake
        # bound before candidate code can put other functions in their places: a waiting runner calls these
        self._now, self._select, self._read = time.monotonic, select.select, os.eventfd_read
        self._words = memoryview(mmap.mmap(fd, _PAGE)).cast("Q")

    def ring(self, command: Command, argument: int = 0) -> int:
        """Oracle: ask for a command; returns the nonce to wait for."""
        nonce = secrets.randbits(63) | 1
        self._words[1], self._words[2] = int(command), argument
        self._words[0] = nonce
        if self._words[11]:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_write(self.wake, 1)
        return nonce

    def close(self) -> None:
        """Oracle: give the descriptors back."""
        os.close(self.fd)
        os.close(self.wake)

    def answered(self, nonce: int) -> bool:
        """Oracle: whether the runner has echoed the nonce."""
        return self._words[8] == nonce

    @property
    def failed(self) -> bool:
        """Oracle: whether the answer says that the command failed (a message follows on the control pipe)."""
        return self._words[9] != 0

    @property
    def device_ms(self) -> float:
        """Oracle: what the runner says that the card's clock showed for the last CLOCKED call."""
        return float(struct.unpack("d", struct.pack("Q", self._words[10]))[0])

    def note_device_ms(self, value: float) -> None:
        """Runner: milliseconds between the two events."""
        self._words[10] = struct.unpack("Q", struct.pack("d", value))[0]

    def next(self, last: int) -> tuple[int, Command, int]:
        """Runner: wait for a nonce other than `last`; returns nonce, command, argument."""
        now = self._now
        idle_since = now()
        while self._words[0] == last:
            if now() - idle_since > self._patience:
                self._sleep(last)
        return self._words[0], Command(self._words[1]), self._words[2]

    def _sleep(self, last: int) -> None:
        """Runner: wait to be woken. A ring just before the mark could be missed, hence the limit."""
        self._words[11] = 1
        if self._words[0] == last and self._select([self.wake], [], [], _SLEEP_SECONDS)[0]:
            self._read(self.wake)
        self._words[11] = 0

    def answer(self, nonce: int, *, failed: bool = False) -> None:
        """Runner: the command is done."""
        self._words[9] = int(failed)
        self._words[8] = nonce


class LineReader:
    """Reads bounded JSON lines from a pipe with a deadline."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._buffer = b""

    def read(self, timeout: float) -> dict[str, Any] | None:
        """The next message; None at time-out, end of file, an over-long line or anything that is not a JSON object."""
        deadline = time.monotonic() + timeout
        while b"\n" not in self._buffer:
            if len(self._buffer) > _LINE_LIMIT or not select.select([self._fd], [], [], max(0.0, deadline - time.monotonic()))[0]:
                return None
            chunk = os.read(self._fd, 1 << 16)
            if not chunk:
                return None
            self._buffer += chunk
        line, self._buffer = self._buffer.split(b"\n", 1)
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            return None
        return message if isinstance(message, dict) else None


def mode_number(name: str, tf32: bool) -> int:
    """The doorbell argument of a baseline at a TF32 setting."""
    return BASELINES.index(name) * 2 + int(tf32)


def find_compile_mode(name: str) -> str:
    """The mode of torch.compile that a baseline's name says; empty for a baseline without torch.compile.

    Example:
        >>> find_compile_mode("compile_reduce_overhead"), find_compile_mode("compile"), find_compile_mode("eager")
        ('reduce-overhead', 'default', '')
    """
    first, _, mode = name.partition("_")
    return (mode.replace("_", "-") or "default") if first == COMPILED else ""
