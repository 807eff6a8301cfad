"""What an earlier call returned, as far as the candidate still holds its memory: the next call must leave that as it was. Imports torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from tritonsmith.evaluator.reference.structure import find_shared


class _View(NamedTuple):
    """Where a returned tensor lies, without holding its memory."""

    storage: StorageWeakRef
    dtype: torch.dtype
    offset: Any
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class EarlierResult:
    """The tensors of one call.

    Args:
        tensors: what forward returned, taken apart; real ones only.
        inputs: the slots of the inputs. What lies there is the caller's, who writes to it ahead of the next call.
    """

    def __init__(self, tensors: Sequence[torch.Tensor] = (), inputs: Sequence[torch.Tensor] = ()) -> None:
        self.in_arguments = find_shared(tensors, inputs)
        self._views = {
            number: _View(
                StorageWeakRef(tensor.untyped_storage()), tensor.dtype, tensor.storage_offset(), tuple(tensor.shape), tuple(tensor.stride())
            )
            for number, tensor in enumerate(tensors)
            if type(tensor) is torch.Tensor and tensor.numel() and number not in self.in_arguments
        }  # fmt: skip

    def deliver(self, slots: Sequence[torch.Tensor], copy: Callable[[Any, Any], object]) -> None:
        """Copy those that are still held into the slots; the other slots stay as they are."""
        for number, view in self._views.items():
            storage = torch.UntypedStorage._new_with_weak_ptr(view.storage.cdata)
            if storage is None or number >= len(slots) or slots[number].shape != view.shape or slots[number].dtype != view.dtype:
                continue
            tensor = torch.empty(0, dtype=view.dtype, device=storage.device)
            copy(slots[number], tensor.set_(storage, view.offset, view.shape, view.strides))
