"""The wire between the oracle and a runner: sealed shared memory for tensors and a doorbell, strict bounded JSON for words.

Trust runs one way. The oracle sends pickles and files to the runner; from the runner it takes only bytes in slots of fixed shape,
eight-byte words on the doorbell page, and JSON lines of at most 64 KiB. Imports torch: only evaluator processes use it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import mmap
import os
import secrets
import select
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import torch

from tritonsmith.evaluator import cuda_memory, wire_text
from tritonsmith.evaluator.distributions import distinct
from tritonsmith.evaluator.schema import TensorSpec

_ALIGN = 512
_PAGE = 4096
_LINE_LIMIT = 64 << 10
_SPIN_SECONDS = {"cuda": 0.0002, "cpu": 0.0001}
"""How long a runner polls before it sleeps. On a card candidate and baselines share a processor, one awake and one asleep; waking up
takes less than the oracle keeps the card."""
_SLEEP_SECONDS = 0.005
"""Without a call to wake up, a sleeping runner looks this often."""


send_line = wire_text.send_line


class Command(IntEnum):
    """What the oracle asks of a runner through the doorbell."""

    CALL = 1
    """Run forward on the input slots and wait for the card; the argument is a mode or a schedule seed."""
    DELIVER = 6
    """Copy every tensor that the last call returned into the output slots; after CLOCKED, note the card's time first."""
    CLOCKED = 7
    """As CALL, between two events of the card; the time between them is told with DELIVER."""
    EMPTY = 8
    """What CLOCKED does beside forward, and nothing else."""
    FACTS = 3
    """Run forward once and report launches on the control pipe."""
    WEIGHTS = 4
    """Read the weights file again and copy it into the model in place."""
    EXIT = 5


@dataclass(frozen=True)
class Layout:
    """Where each tensor lies in one shared block: inputs first, outputs after them."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]

    def _offsets(self, specs: Sequence[TensorSpec], start: int) -> tuple[list[int], int]:
        offsets = []
        for spec in specs:
            offsets.append(start)
            start += -(-max(1, spec_bytes(spec)) // _ALIGN) * _ALIGN
        return offsets, start

    @property
    def input_bytes(self) -> int:
        """Size of the input block in bytes."""
        return self._offsets(self.inputs, 0)[1] or _ALIGN

    @property
    def input_places(self) -> list[tuple[int, int]]:
        """First byte and size in bytes of each input."""
        return list(zip(self._offsets(self.inputs, 0)[0], map(spec_bytes, self.inputs), strict=True))

    @property
    def output_bytes(self) -> int:
        """Size of the output block in bytes."""
        return self._offsets(self.outputs, 0)[1] or _ALIGN

    def views(self, block: torch.Tensor, specs: Sequence[TensorSpec]) -> list[torch.Tensor]:
        """Tensors of the given specs inside a flat uint8 block."""
        offsets, _ = self._offsets(specs, 0)
        return [tensor_at(block[offset : offset + spec_bytes(spec)], spec) for offset, spec in zip(offsets, specs, strict=True)]


def tensor_at(piece: torch.Tensor, spec: TensorSpec) -> torch.Tensor:
    """The tensor of that spec in `spec_bytes` flat bytes."""
    values = piece[spec.offset :].view(dtype_of(spec.dtype))
    return values.view(spec.shape) if spec.strides is None else values.as_strided(spec.shape, spec.strides)


def fill_slots(slots: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor]) -> None:
    """Copy tensors into slots; what an expanded slot holds once is written once."""
    for slot, tensor in zip(slots, tensors, strict=True):
        distinct(slot).copy_(distinct(tensor, slot))


def dtype_of(name: str) -> torch.dtype:
    """Torch's dtype for its name without prefix."""
    dtype = getattr(torch, name)
    assert isinstance(dtype, torch.dtype)
    return dtype


def spec_of(tensor: torch.Tensor) -> TensorSpec:
    """Shape and dtype name of a tensor."""
    return TensorSpec(shape=tuple(tensor.shape), dtype=str(tensor.dtype).removeprefix("torch."))


def input_spec(tensor: torch.Tensor) -> TensorSpec:
    """As `spec_of`, with strides and the offset from an aligned address; a tensor whose windows overlap is taken as contiguous."""
    offset = tensor.storage_offset() * tensor.element_size() % _ALIGN
    strides = None if tensor.is_contiguous() or _windows_overlap(distinct(tensor)) else tuple(tensor.stride())
    return spec_of(tensor).model_copy(update={"strides": strides, "offset": offset})


def _windows_overlap(tensor: torch.Tensor) -> bool:
    """Whether two elements may lie at one address (as after `unfold`)."""
    span = 1
    for stride, extent in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if extent > 1 and stride < span:
            return True
        span += (extent - 1) * stride
    return False


def spec_bytes(spec: TensorSpec) -> int:
    """Bytes from an aligned address to the end of a tensor of that spec."""
    if 0 in spec.shape:
        return spec.offset
    if spec.strides is not None:
        count = 1 + sum((extent - 1) * stride for extent, stride in zip(spec.shape, spec.strides, strict=True))
    else:
        count = math.prod(spec.shape)
    return spec.offset + count * dtype_of(spec.dtype).itemsize


class SharedBlock:
    """A flat block of bytes that two processes see: a sealed memfd on the CPU, an IPC allocation on the card."""

    def __init__(self, nbytes: int, device: str) -> None:
        self.nbytes = nbytes
        self.device = device
        self.fd = -1
        if device == "cpu":
            self.fd = os.memfd_create("tritonsmith", os.MFD_ALLOW_SEALING)
            os.ftruncate(self.fd, nbytes)
            # Without the seals a candidate could shrink the file and the oracle would die of SIGBUS.
            fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
            self._map = mmap.mmap(self.fd, nbytes)
            self.tensor = torch.frombuffer(self._map, dtype=torch.uint8)
        else:
            self._allocation = cuda_memory.Allocation(nbytes)
            self.tensor = self._allocation.tensor

    def handle(self) -> dict[str, Any]:
        """What the other process needs to open the block; the memfd travels as an inherited descriptor."""
        if self.device == "cpu":
            return {"fd": self.fd, "nbytes": self.nbytes}
        return {"ipc": self._allocation.handle().hex(), "nbytes": self.nbytes}

    def close(self) -> None:
        """Give the memory back."""
        if self.device == "cpu":
            del self.tensor
            os.close(self.fd)
        else:
            del self.tensor
            self._allocation.close()


def open_block(handle: dict[str, Any]) -> torch.Tensor:
    """The block behind a handle, as a flat uint8 tensor, in the process that did not make it."""
    if "fd" in handle:
        return torch.frombuffer(mmap.mmap(handle["fd"], handle["nbytes"]), dtype=torch.uint8)
    return cuda_memory.open_handle(bytes.fromhex(handle["ipc"]), handle["nbytes"])


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
        except ValueError:
            return None
        return message if isinstance(message, dict) else None
