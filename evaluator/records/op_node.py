"""The nodes of a traced forward, and the tensors that they give."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import Field

from tritonsmith.evaluator.records.plain import Plain, Record


class TensorSpec(Record):
    """Shape and dtype of one tensor; dtype is torch's name without the prefix (`float32`)."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    strides: tuple[int, ...] | None = None
    """Elements between neighbours along each axis; None for a contiguous tensor."""
    offset: int = 0
    """Bytes between an aligned address and the first element."""


class OpNode(Record):
    """One node of the reference's traced forward, in the words of torch.fx whichever way it was traced."""

    name: str
    line: int = 0  # of the task file; 0 where none asks for it
    op: str
    """`placeholder`, `get_attr`, `call_function`, `call_method`, `call_module` or `output`."""
    target: str
    """Qualified name: `torch.add`, `relu`, or the submodule's path for `call_module`."""
    module: str = ""  # path of the submodule whose forward makes this call; empty for the task's Model itself
    module_type: str = ""  # class name for `call_module`, such as `GRU`, `Linear`
    attributes: dict[str, Plain] = Field(default_factory=dict)
    """Plain-valued constructor attributes of the module (`hidden_size`, `bias`, ...); the `value` of a tensor that is
    made of a number, or of a list of them."""
    constructor: dict[str, Plain] | None = None
    """Arguments that make such a module of torch.nn again, but for its weights; None where that cannot be told."""
    args: tuple[Plain, ...] = ()
    """Positional arguments; a reference to another node is `{"ref": name}`."""
    kwargs: dict[str, Plain] = Field(default_factory=dict)
    outputs: tuple[TensorSpec, ...] = ()
    flops: float = 0.0
    bytes: float = 0.0
    launches: int = 0  # device kernels; these three sum up to the facts of the whole forward

    @property
    def references(self) -> tuple[str, ...]:
        """The nodes that its arguments refer to, in their order."""
        return tuple(_list_references((*self.args, *self.kwargs.values())))


def _list_references(arguments: Iterable[Any]) -> Iterator[str]:
    for one in arguments:
        if isinstance(one, Mapping):
            yield from [str(one["ref"])] if "ref" in one else _list_references(one.values())
        elif isinstance(one, list | tuple):
            yield from _list_references(one)
