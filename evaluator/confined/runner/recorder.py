"""Writes down what one interpreted forward does: operators, launches, and tensors that it did not make.

This runs inside the process that runs the candidate. What is missing here (work in NumPy, in another thread, through pointers) is missing
in the replay too. Its results then differ, or hold a tensor of unknown origin. Imports torch and Triton: for evaluator processes with
TRITON_INTERPRET=1 only.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Iterator
from types import CodeType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from triton.runtime.jit import ConstexprFunction
from triton.tools.tensor_descriptor import TensorDescriptor

from tritonsmith.evaluator.channel.trace import INPUTS, Unreplayable, digest, write_trace
from tritonsmith.evaluator.confined.stand_ins.operators import is_recurrent, tensors_in
from tritonsmith.evaluator.confined.stand_ins.untyped import interpreter, tl
from tritonsmith.evaluator.reference.module import flatten

_PLAIN_TYPES = (bool, int, float, str)
"""Values of a module that a kernel may refer to."""
_MOST_KEPT = 20_000
"""Objects of the model and its module that are looked through for tensors."""


def _read_bytes(storage: Any) -> bytes:
    return ctypes.string_at(storage.data_ptr(), storage.nbytes())


class ForwardRecorder:
    """Context manager around one forward.

    Args:
        inputs: a tensor in the block of input slots, or None.
        inside_kernel: true while operators are the interpreter's own arithmetic.
    """

    def __init__(self, inputs: torch.Tensor | None, inside_kernel: Callable[[], bool]) -> None:
        self.events: list[dict[str, Any]] = []
        self.problem = ""
        """Why it cannot be replayed; empty when it can."""
        self._blobs: list[bytes] = []
        self._found: list[bytes] = []
        self._size = 0
        self._numbers = {} if inputs is None else {inputs.untyped_storage().data_ptr(): INPUTS}
        self._next = INPUTS + 1
        self._kept: dict[int, Any] = {}
        """Every storage seen: held until the end so that no address stands for two of them."""
        self._inside_kernel = inside_kernel
        self._paused = False
        self._modes = (_OperatorRecorder(self), _RecurrentRecorder(self))

    def __enter__(self) -> ForwardRecorder:
        for mode in self._modes:
            mode.__enter__()
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        for mode in reversed(self._modes):
            mode.__exit__(kind, error, trace)

    def record_operator(self, name: str, call: Callable[[], Any], arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Run an operator and write it down: operands as they were before, tensors of its result after."""
        if self._paused or self._inside_kernel() or self.problem:
            return call()
        event: dict[str, Any] = {"kind": "operator", "name": name}
        with self._writing():
            event["arguments"] = [self._encode(argument) for argument in arguments]
            event["named"] = {key: self._encode(argument) for key, argument in named.items()}
        self._paused = True
        try:
            result = call()
        finally:
            self._paused = False
        with self._writing():
            event["results"] = [self._encode_tensor(tensor, made=True) for tensor in tensors_in(result)]
            self.events.append(event)
        return result

    def record_launch(self, function: Any, bound: dict[str, Any], grid: tuple[int, int, int]) -> None:
        """Write down a launch that is about to run."""
        if self.problem:
            return
        with self._writing():
            scalars: dict[str, Any] = {}
            functions: dict[str, Any] = {}
            self._note_names(function, scalars, functions)
            event = {"kind": "launch", "name": function.__name__, "line": function.__code__.co_firstlineno, "grid": grid}
            event |= {"arguments": {name: self._encode(part) for name, part in bound.items()}, "scalars": scalars, "functions": functions}
            self.events.append(event)

    def finish(self, result: Any) -> None:
        """Write down what forward returned."""
        with self._writing():
            self.events.append({"kind": "return", "results": [self._encode_tensor(tensor) for tensor in flatten(result)]})

    def write(self, block: memoryview, owners: Iterable[Any]) -> None:
        """Fill the block; `owners` (model, module) are looked through for tensors that later calls may use."""
        storages = dict(self._kept)
        for tensor in _find_tensors(owners):
            storage = tensor.untyped_storage()
            if tensor.layout is torch.strided and storage.data_ptr() not in self._numbers:
                storages[storage.data_ptr()] = storage
        with self._writing():
            digests = [digest(_read_bytes(storage)) for storage in storages.values() if storage.data_ptr()]
            write_trace(block, self.events, digests + self._found, self._blobs)
        self._kept.clear()

    def _writing(self) -> _Writing:
        return _Writing(self)

    def _note_names(self, function: Any, scalars: dict[str, Any], functions: dict[str, Any]) -> None:
        """Numbers and helpers outside it that a kernel refers to, and those that its helpers do."""
        for name, value in _list_outer_names(function):
            if isinstance(value, interpreter.InterpretedFunction) or _is_constant_function(value, function):
                if name not in functions:
                    functions[name] = [value.fn.__name__, value.fn.__code__.co_firstlineno]
                    self._note_names(value.fn, scalars, functions)
            elif isinstance(value, (*_PLAIN_TYPES, tl.constexpr, tl.dtype)):
                scalars[name] = self._encode(value)

    def _encode(self, value: Any) -> Any:
        if value is None or isinstance(value, bool | str):
            return value
        if isinstance(value, int | float):  # also NumPy's, which are subclasses or have no other way through JSON
            return int(value) if isinstance(value, int) else float(value)
        if isinstance(value, torch.Tensor):
            return {"tensor": self._encode_tensor(value)}
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return {"named": [self._encode(part) for part in value], "fields": [str(name) for name in value._fields]}
        if isinstance(value, tuple | list):
            return {"tuple" if isinstance(value, tuple) else "list": [self._encode(part) for part in value]}
        for kind, name in ((torch.dtype, "dtype"), (torch.layout, "layout"), (torch.memory_format, "format")):
            if isinstance(value, kind):
                return {name: str(value).removeprefix("torch.")}
        if isinstance(value, torch.device):
            return {"device": "cpu"}
        return self._encode_triton(value)

    def _encode_triton(self, value: Any) -> Any:
        if isinstance(value, tl.constexpr):
            return {"constexpr": self._encode(value.value)}
        if isinstance(value, tl.dtype):
            return {"scalar": value.name}
        if isinstance(value, interpreter.InterpretedFunction):
            scalars: dict[str, Any] = {}
            functions: dict[str, Any] = {value.fn.__name__: [value.fn.__name__, value.fn.__code__.co_firstlineno]}
            self._note_names(value.fn, scalars, functions)
            return {"function": value.fn.__name__, "scalars": scalars, "functions": functions}
        if isinstance(value, TensorDescriptor):
            parts = (value.shape, value.strides, value.block_shape)
            return {"descriptor": [{"tensor": self._encode_tensor(value.base)}, *(list(map(int, part)) for part in parts), value.padding]}
        if hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
            return self._encode(value.item())
        raise Unreplayable(f"a {type(value).__name__} is passed to an operator or a kernel")

    def _encode_tensor(self, tensor: Any, *, made: bool = False) -> list[Any]:
        if tensor.layout is not torch.strided or tensor.is_meta or tensor.is_quantized:
            raise Unreplayable("forward uses a tensor that is sparse, quantized or without memory")
        storage = tensor.untyped_storage()
        pointer = storage.data_ptr()
        number = self._numbers.get(pointer) if pointer else -1
        if number is None:
            number = self._numbers[pointer] = self._next
            self._next += 1
            self._kept[pointer] = storage
            if not made:
                self._note_found(number, storage)
        marks = (" conj" if tensor.is_conj() else "") + (" neg" if tensor.is_neg() else "")
        dtype = str(tensor.dtype).removeprefix("torch.") + marks
        return [number, dtype, list(tensor.shape), list(tensor.stride()), tensor.storage_offset()]

    def _note_found(self, number: int, storage: Any) -> None:
        content = _read_bytes(storage)
        self.events.append({"kind": "found", "number": number, "at": self._size, "size": len(content)})
        self._blobs.append(content)
        self._found.append(digest(content))
        self._size += len(content)


class _Writing:
    """What the recorder does with tensors is no part of the forward; what it cannot write down ends the recording."""

    def __init__(self, recorder: ForwardRecorder) -> None:
        self._recorder = recorder
        self._off = torch._C.DisableTorchFunction()

    def __enter__(self) -> None:
        self._recorder._paused = True
        self._off.__enter__()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        self._off.__exit__(kind, error, trace)
        self._recorder._paused = False
        if isinstance(error, Unreplayable):
            self._recorder.problem = str(error)
            return True
        return False


class _OperatorRecorder(TorchDispatchMode):
    def __init__(self, recorder: ForwardRecorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        return self._recorder.record_operator(str(func), lambda: func(*args, **kwargs), args, kwargs)


class _RecurrentRecorder(TorchFunctionMode):
    """torch.gru and its kin stay one operator, as they are counted."""

    def __init__(self, recorder: ForwardRecorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if is_recurrent(func, args, kwargs):
            return self._recorder.record_operator(f"torch.{func.__name__}", lambda: func(*args), args, {})
        return func(*args, **(kwargs or {}))


def _list_outer_names(function: Any) -> Iterator[tuple[str, Any]]:
    """What a function refers to at the top of its module and in the functions around it."""
    for name in _list_names(function.__code__):
        yield name, function.__globals__.get(name)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        yield name, cell.cell_contents


def _is_constant_function(value: Any, user: Any) -> bool:
    """Whether this is a function on constants that stands in the same file, and not one of Triton's."""
    return isinstance(value, ConstexprFunction) and value.fn.__code__.co_filename == user.__code__.co_filename


def _list_names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _list_names(constant)


def _find_tensors(owners: Iterable[Any]) -> Iterator[torch.Tensor]:
    """Tensors in attributes of modules and plain objects and in containers below them."""
    pending, seen = list(owners), set[int]()
    while pending and len(seen) < _MOST_KEPT:
        item = pending.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, torch.Tensor):
            yield item
        elif isinstance(item, dict):
            pending += item.values()
        elif isinstance(item, list | tuple | set | frozenset):
            pending += item
        elif type(item).__module__ not in ("builtins", "torch") and isinstance(getattr(item, "__dict__", None), dict):
            pending.append(item.__dict__)
