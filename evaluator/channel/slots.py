"""Slots between the oracle and a runner: sealed shared memory for tensors.

Trust runs one way. The oracle sends pickles and files to the runner; from the runner it takes only bytes in slots of fixed shape,
and what comes by the doorbell (`doorbell.py`). Imports torch.
"""

from __future__ import annotations

import fcntl
import math
import mmap
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tritonsmith.evaluator.channel import cuda_memory
from tritonsmith.evaluator.channel.strides import distinct
from tritonsmith.evaluator.schema import TensorSpec

_ALIGN = 512
"""Bytes; each tensor starts at a multiple of it."""


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


def list_results(outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], written: Sequence[int]) -> list[torch.Tensor]:
    """What a call leaves in slots: its outputs, and the inputs with these numbers; complex ones as pairs of real numbers."""
    found = [inputs[number] for number in written]
    return [*outputs, *(torch.view_as_real(tensor) if tensor.is_complex() else tensor for tensor in found)]


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
