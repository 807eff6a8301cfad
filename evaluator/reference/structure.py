"""How what a forward returns is nested: containers, keys, fields, numbers, and where tensors stand. Imports torch.

A runner sends it as plain values, since no object of a candidate may reach the oracle.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

TENSOR, NONE, TEXT, SEQUENCE, NAMED_TUPLE, DATACLASS, MAPPING = "tensor", "None", "text", "sequence", "named tuple", "dataclass", "dict"
"""Kinds of parts; a part of another class has the class's name for a kind."""
NUMBERS: dict[str, Any] = {"bool": bool, "int": int, "float": float, "complex": complex}
"""Kinds of parts that are numbers; the first that fits counts."""
_CUT = "more"
"""Kind of what a description leaves out."""
_MOST_PARTS = 250
"""Parts that are described: with the longest names and values a description still fits into one line of a runner."""
_LONGEST = 50
"""Characters of a name or value."""
_DEEPEST = 20
"""Containers within containers."""


@dataclass(frozen=True)
class Structure:
    """One part of a result, with the parts in it."""

    kind: str
    text: str = ""
    """A number or text as Python writes it."""
    names: tuple[str, ...] = ()
    """Keys (as Python writes them) or fields of the parts; none in a tuple or list."""
    parts: tuple[Structure, ...] = ()

    def as_plain(self) -> list[Any]:
        """Lists and text."""
        return [self.kind, self.text, list(self.names), [part.as_plain() for part in self.parts]]

    @classmethod
    def from_plain(cls, value: Any, depth: int = 0) -> Structure:
        """The inverse of `as_plain`. Raises ValueError or TypeError for anything else."""
        kind, text, names, parts = value
        if depth > _DEEPEST + 1 or not isinstance(names, list) or not isinstance(parts, list):
            raise ValueError("no structure")
        return cls(str(kind), str(text), tuple(map(str, names)), tuple(cls.from_plain(part, depth + 1) for part in parts))


@dataclass
class Differentiated:
    """What a call of forward and backward gives."""

    result: Any
    """What forward returned, as it is."""
    tensors: list[torch.Tensor]
    """The tensors in it, without what autograd keeps."""
    gradients: list[torch.Tensor]

    def __deepcopy__(self, memo: Any) -> Differentiated:
        return Differentiated(self.result, [tensor.clone() for tensor in self.tensors], [tensor.clone() for tensor in self.gradients])


def find_shared(tensors: Sequence[torch.Tensor], others: Iterable[torch.Tensor]) -> tuple[int, ...]:
    """Numbers of the tensors that lie in the memory of others; tensors without elements lie nowhere."""
    places = {_find_memory(tensor) for tensor in others} - {0}
    return () if not places else tuple(number for number, tensor in enumerate(tensors) if _find_memory(tensor) in places)


def _find_memory(tensor: torch.Tensor) -> int:
    is_plain = tensor.layout is torch.strided and not tensor.is_meta and tensor.numel() > 0
    return tensor.untyped_storage().data_ptr() if is_plain else 0


def describe(value: Any) -> Structure:
    """The structure of what a forward returned, without gradients; of very many parts the first ones."""
    return _describe(value.result if isinstance(value, Differentiated) else value, [_MOST_PARTS], 0)


def _describe(value: Any, left: list[int], depth: int) -> Structure:
    left[0] -= 1
    if isinstance(value, torch.Tensor):
        return Structure(TENSOR)
    if value is None:
        return Structure(NONE)
    if isinstance(value, str):
        return Structure(TEXT, ascii(value)[:_LONGEST])
    for kind, number in NUMBERS.items():
        if isinstance(value, number):
            return Structure(kind, number.__repr__(value)[:_LONGEST])
    inside = _list_parts(value)
    if inside is None:
        return Structure(type(value).__name__[:_LONGEST])
    kind, names, values = inside
    if depth == _DEEPEST:
        return Structure(kind, _CUT)
    parts: list[Structure] = []
    for part in values:
        if left[0] <= 0:
            return Structure(kind, _CUT, tuple(names[: len(parts)]), tuple(parts))
        parts.append(_describe(part, left, depth + 1))
    return Structure(kind, "", tuple(names), tuple(parts))


def _list_parts(value: Any) -> tuple[str, list[str], list[Any]] | None:
    """Kind, names and parts of a container, as `module.list_tensors` looks into them; None for any other value."""
    if isinstance(value, Mapping):
        keys = sorted(value, key=_write_key)  # in one order, so that of very many keys the same ones are left out
        return MAPPING, [_write_key(key) for key in keys], [value[key] for key in keys]
    if isinstance(value, tuple | list):
        names = list(getattr(type(value), "_fields", ())) if isinstance(value, tuple) else []
        return NAMED_TUPLE if names else SEQUENCE, [str(name)[:_LONGEST] for name in names], list(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [field.name for field in dataclasses.fields(value)]
        return DATACLASS, [name[:_LONGEST] for name in fields], [getattr(value, name) for name in fields]
    return None


def _write_key(key: Any) -> str:
    """A key of a dict; of one that is no text or number only the class, since its text may hold an address."""
    plain = key is None or isinstance(key, str | int | float)
    return ascii(key)[:_LONGEST] if plain else type(key).__name__[:_LONGEST]
