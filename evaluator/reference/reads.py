"""How many bytes of its inputs and weights a forward reads. Imports torch.

A lookup reads the rows that it names, and a slice what it holds. So a module of large tables reads a small part of its weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch._subclasses.fake_tensor import is_fake
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tritonsmith.evaluator.reference.trace import tensor_bytes

_BAGS = ("aten::_embedding_bag", "aten::_embedding_bag_forward_only")
_ROWS = {"aten::index_select": (2, 1), **dict.fromkeys(("aten::embedding", *_BAGS), (1, None))}
"""Lookups of whole rows of the first argument: places of the row numbers and of the axis among the arguments (None: the first axis)."""
_PICKS = frozenset({"aten::index", "aten::_unsafe_index", "aten::gather", "aten::take"})
"""Lookups that read as much of their first argument as they return."""
_REPLACED = frozenset({
    "aten::copy_", "aten::fill_", "aten::zero_", "aten::index_put_", "aten::_index_put_impl_", "aten::index_copy_", "aten::index_fill_",
    "aten::scatter_", "aten::masked_fill_", "aten::masked_scatter_",
})  # fmt: skip
"""Operators that store to their first argument and read none of it."""
_ALLOCATES = frozenset({
    "aten::empty_like", "aten::full_like", "aten::new_empty", "aten::new_empty_strided", "aten::ones_like", "aten::zeros_like",
})  # fmt: skip
"""Operators that ask a tensor for its shape and type alone."""


class ReadWatch(TorchDispatchMode):
    """Context manager around one forward, on real or fake tensors.

    Args:
        tensors: inputs, parameters and buffers; one storage counts once.
    """

    def __init__(self, tensors: Iterable[torch.Tensor]) -> None:
        super().__init__()
        self._sizes: dict[int, float] = {}
        for tensor in tensors:
            key = _key(tensor)
            if key is not None:
                self._sizes[key] = max(self._sizes.get(key, 0.0), tensor_bytes(tensor))
        self._read: dict[int, float] = {}

    def count(self, *, unseen: bool) -> float:
        """Bytes that were read, of no storage more than it holds.

        Args:
            unseen: whether a tensor that no operator was seen to read counts as a whole, as where layers hide their operators.
        """
        return sum(min(size, self._read.get(key, size if unseen else 0.0)) for key, size in self._sizes.items())

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        kwargs = dict(kwargs or {})
        name = func._schema.name
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        result = func(*args, **kwargs)
        if func.is_view or name in _ALLOCATES or name.startswith("prim::"):  # these describe a tensor
            return result
        for number, tensor in enumerate(given):
            key = _key(tensor)
            if key in self._sizes and not (number == 0 and name in _REPLACED):
                self._read[key] = self._read.get(key, 0.0) + _count_read(name, args, number, tensor, result)
        return result


def _key(tensor: torch.Tensor) -> int | None:
    """What tells a tensor's memory from others'; None for a layout that has none of its own."""
    return tensor.untyped_storage()._cdata if tensor.layout is torch.strided else None


def _count_read(name: str, args: tuple[Any, ...], number: int, tensor: torch.Tensor, result: Any) -> float:
    """Bytes of one argument that an operator reads."""
    whole = tensor_bytes(tensor)
    if number == 0 and name in _ROWS:
        rows, axis = args[_ROWS[name][0]], _ROWS[name][1]
        length = tensor.shape[0 if axis is None else args[axis]] if tensor.ndim else 1
        count = rows.numel() if is_fake(rows) or rows.is_meta else rows.unique().numel()
        return min(whole, whole * float(count) / max(1, length))
    if number == 0 and name in _PICKS and isinstance(result, torch.Tensor):
        return min(whole, tensor_bytes(result))
    return whole
