"""Counts the torch operators of a forward that would run as library kernels, and spares the CPU the heavy ones.

Imports torch: for evaluator processes only.
"""

from __future__ import annotations

import contextlib
import math
import mmap
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from tritonsmith.evaluator.records.operator_cost import align_heads

_FREE = frozenset(
    "view _unsafe_view reshape _reshape_alias t transpose permute expand slice select narrow as_strided unsqueeze squeeze detach alias "
    "unbind split split_with_sizes chunk unfold diagonal view_as movedim swapaxes flatten unflatten lift_fresh resolve_conj resolve_neg "
    "view_as_real view_as_complex "
    "empty empty_like empty_strided empty_permuted new_empty new_empty_strided _local_scalar_dense is_same_size set_ resize_".split()
)
"""Views, allocations and reads of one number: no kernel."""
_HEAVY = frozenset("mm addmm bmm baddbmm convolution _convolution mkldnn_convolution linear".split())
"""Their values are not needed, since nothing runs: a result of the right shape will do."""
_DELICATE = ("linalg_", "_linalg_", "cholesky", "lu_")
"""Beginnings of names of operators that fail on values that nothing computed."""
_LARGE = 1 << 22
"""Elements of an operand from which on no operator's values are computed, for the same reason: a card's tensors hold billions."""
_MAP_NORESERVE = 0x4000
"""MAP_NORESERVE of Linux's asm-generic/mman.h, which Python 3.11 does not name: the system sets no memory aside."""
_UNTOUCHED = 32 << 20
"""Bytes from which on memory that is zero is mapped and not written."""
RECURRENT = {"gru": 3, "lstm": 4, "rnn_tanh": 1, "rnn_relu": 1}
"""Recurrent layers of torch with their number of gates."""
_LAUNCHES_PER_STEP = 2
"""A library's recurrent layer starts a product and a pointwise kernel per step: 6144 for 6 layers of 512 steps."""


UNWRITTEN = ("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted")
"""Operators that allocate and write nothing."""
_POISON = 0xFF
"""Byte in memory that nothing wrote: NaN in every float type."""


def poison(tensor: torch.Tensor) -> None:
    """Fill the memory of a tensor that nothing wrote, so that what is never written shows."""
    if tensor.dtype is not torch.bool:
        torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage()).fill_(_POISON)


def clear(tensor: torch.Tensor) -> None:
    """Zeros where no kernel will write whole numbers: an operator may take them for places. Ones for others: a window must not be zero."""
    if tensor.numel() < _LARGE:
        tensor.fill_(1 if tensor.dtype.is_floating_point or tensor.dtype.is_complex else 0)


class ClearUnwritten(TorchDispatchMode):
    """Context manager in which memory that nothing wrote holds what `clear` gives, as in buffers that weights would be copied into."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func._schema.name.split("::")[1] in UNWRITTEN:
            clear(result)
        return result


class TorchOpCounter:
    """Context manager around a forward.

    With `spare` (for a forward whose values do not matter) heavy operators, and those on large tensors, only get a result of the right
    shape. `ops` counts compute operators by name, `launches` the kernels they start, `flops` their floating-point operations and `bytes`
    their operands and results.
    """

    def __init__(self, *, spare: bool = True, inside_kernel: Callable[[], bool] = lambda: False) -> None:
        self.spare = spare
        self.is_inside_kernel = inside_kernel
        """True while operators are the interpreter's own arithmetic, not the candidate's library calls."""
        self.ops: Counter[str] = Counter()
        self.launches = 0
        self.flops = 0.0
        self.bytes = 0.0
        self._paused = False
        self._modes = (_DispatchCounter(self), _RecurrentCounter(self))

    def __enter__(self) -> TorchOpCounter:
        for mode in self._modes:
            mode.__enter__()
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        for mode in reversed(self._modes):
            mode.__exit__(kind, error, trace)

    @contextlib.contextmanager
    def pause(self) -> Iterator[None]:
        """Operators inside are parts of one that is counted already."""
        self._paused = True
        try:
            yield
        finally:
            self._paused = False

    def add(self, name: str, launches: int, flops: float, moved: float) -> None:
        """One call of an operator."""
        if self._paused or self.is_inside_kernel():
            return
        self.ops[name] += 1
        self.launches += launches
        self.flops += flops
        self.bytes += moved


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """Every tensor in nested tuples, lists and dicts, in order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for part in value:
            yield from tensors_in(part)
    elif isinstance(value, dict):
        yield from tensors_in(list(value.values()))


def _count_bytes(value: Any) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors_in(value))


def _is_large(args: Any, kwargs: Any) -> bool:
    """Whether an operator has a large operand, or makes a tensor of a large size."""
    sizes = args[0] if args and isinstance(args[0], list | tuple) and all(isinstance(size, int) for size in args[0]) else (0,)
    return max([math.prod(sizes), *(tensor.numel() for tensor in tensors_in((args, kwargs)))]) >= _LARGE


def make_zeros(count: int, dtype: torch.dtype) -> torch.Tensor:
    """So many zeros [count] on the CPU; large ones take no memory until they are written."""
    if count * dtype.itemsize < _UNTOUCHED:
        return torch.zeros(count, dtype=dtype)
    unreserved = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
    return torch.frombuffer(mmap.mmap(-1, count * dtype.itemsize, flags=unreserved), dtype=dtype)


def _make_like(meta: torch.Tensor) -> torch.Tensor:
    """Zeros with the shape, strides and dtype of a tensor without values."""
    extent = 1 + sum((size - 1) * stride for size, stride in zip(meta.shape, meta.stride(), strict=True)) if meta.numel() else 0
    return make_zeros(extent, meta.dtype).as_strided(meta.shape, meta.stride())


def _make_shape_only(func: Any, args: Any, kwargs: Any) -> Any:
    """The result of an operator with the right shape and no values."""
    args, kwargs = pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.to("meta"), (args, kwargs))
    if kwargs.get("device") is not None:
        kwargs["device"] = torch.device("meta")
    return pytree.tree_map_only(torch.Tensor, _make_like, func(*args, **kwargs))


def _spare(func: Any, args: Any, kwargs: Any) -> Any:
    """The result of an operator whose values are not needed; of one that shapes alone do not decide, with its values."""
    if func._schema.is_mutable:  # what it would write stays as it is
        written = kwargs.get("out", args[0] if args and func._schema.name.endswith("_") else None)
        return func(*args, **kwargs) if written is None else written
    try:
        return _make_shape_only(func, args, kwargs)
    except (NotImplementedError, RuntimeError):  # such as nonzero
        return func(*args, **kwargs)


class _DispatchCounter(TorchDispatchMode):
    def __init__(self, counter: TorchOpCounter) -> None:
        super().__init__()
        self._counter = counter

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name.split("::")[1]
        spared = self._counter.spare and name not in _FREE and (name in _HEAVY or name.startswith(_DELICATE) or _is_large(args, kwargs))
        result = _spare(func, args, kwargs) if spared else func(*args, **kwargs)
        if name in UNWRITTEN and self._counter.spare:
            clear(result)
        elif name in UNWRITTEN and not self._counter.is_inside_kernel():
            poison(result)
        elif name not in _FREE:
            formula = flop_registry.get(func._overloadpacket)
            outputs = sum(tensor.numel() for tensor in tensors_in(result))
            flops = float(formula(*align_heads(name, args), **kwargs, out_val=result)) if formula is not None else float(outputs)
            self._counter.add(name, 1, flops, _count_bytes(args) + _count_bytes(kwargs) + _count_bytes(result))
        return result


def is_recurrent(func: Any, args: Any, kwargs: Any) -> bool:
    """Whether this is a call of torch.gru, lstm or rnn on a padded batch; not where backward will use what it computes on the way."""
    known = not torch.is_grad_enabled() and getattr(func, "__name__", "") in RECURRENT and not kwargs and len(args) == 9
    return known and isinstance(args[0], torch.Tensor) and not isinstance(args[3], list | tuple)


class _RecurrentCounter(TorchFunctionMode):
    """Counts torch.gru, lstm and rnn as on a card: two launches per step.

    On the CPU they would be one operator or thousands.
    """

    def __init__(self, counter: TorchOpCounter) -> None:
        super().__init__()
        self._counter = counter

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not is_recurrent(func, args, kwargs):
            return func(*args, **(kwargs or {}))
        name = func.__name__
        x, state, weights, _, layers, _, _, bidirectional, batch_first = args
        directions = 2 if bidirectional else 1
        steps, batch = (x.shape[1], x.shape[0]) if batch_first else (x.shape[0], x.shape[1])
        hidden = (state[0] if isinstance(state, tuple | list) else state).shape[-1]
        products = sum(weight.numel() for weight in weights if weight.dim() == 2)
        output = x.new_empty((*x.shape[:-1], hidden * directions))
        launches = layers * directions * (_LAUNCHES_PER_STEP * steps + 1)
        self._counter.add(name, launches, 2.0 * products * steps * batch, _count_bytes(args) + _count_bytes(output))
        if not self._counter.spare:
            with self._counter.pause():
                return func(*args)
        states = state if isinstance(state, tuple | list) else (state,)
        return (output, *(torch.empty_like(part) for part in states))
