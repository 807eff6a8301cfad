"""The nested arguments of a call as Python text, with names in place of tensors. Imports torch."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.utils import _pytree as pytree

from tritonsmith.evaluator.errors import UsageError


class CallText:
    """Writes the arguments of one call, in their order.

    No record is built anew: a constructor may look at its tensors, and a text has none.

    Args:
        names: of tensors, by the number of their leaf.
    """

    def __init__(self, names: Mapping[int, str]) -> None:
        self._names = names
        self._number = itertools.count()
        self.records: list[type] = []
        """Classes of records that the text names."""

    def write(self, value: Any) -> str:
        """The text of the next argument. Raises UsageError for a structure that has none."""
        kind: Any = type(value)
        if kind not in pytree.SUPPORTED_NODES and not _is_named_tuple(value):
            return self._names.get(next(self._number)) or write_plain(value)
        if dataclasses.is_dataclass(value) or _is_named_tuple(value):
            return self._write_record(value)
        if isinstance(value, dict):
            items = ", ".join(f"{write_plain(key)}: {self.write(part)}" for key, part in value.items())
            if kind is dict:
                return f"{{{items}}}"
            if kind is OrderedDict:
                return f"collections.OrderedDict({{{items}}})"
            factory = value.default_factory if isinstance(value, defaultdict) else None
            if kind is defaultdict and (factory is None or factory in (list, dict, set, int, float)):
                return f"collections.defaultdict({'None' if factory is None else factory.__name__}, {{{items}}})"
        parts = ", ".join(map(self.write, value)) if isinstance(value, list | tuple | deque) else ""
        if kind in (list, tuple, deque, torch.Size):
            if kind is tuple:
                return f"({parts},)" if parts else "()"
            maker = {list: "", deque: "collections.deque", torch.Size: "torch.Size"}[kind]
            return f"{maker}([{parts}])" if maker else f"[{parts}]"
        raise UsageError(f"an argument is a {kind.__name__}, which a task file cannot say; give a list, a tuple or a dict")

    def _write_record(self, value: Any) -> str:
        kind = type(value)
        if kind not in self.records:
            self.records.append(kind)
        parts = [f"{name}={text}" for name, text in self._list_parts(value)]
        return f"{kind.__name__}({', '.join(parts)})"

    def _list_parts(self, value: Any) -> Iterator[tuple[str, str]]:
        """Fields that the constructor takes, with their text; parts that torch takes out count in any case."""
        if _is_named_tuple(value):
            yield from ((name, self.write(part)) for name, part in zip(value._fields, value, strict=True))
            return
        children = deque(pytree.SUPPORTED_NODES[type(value)].flatten_fn(value)[0])
        for item in dataclasses.fields(value):
            part = getattr(value, item.name)
            text = write_plain(part) if part is None else ""
            if children and children[0] is part:
                children.popleft()
                text = self.write(part)
            if item.init and text:
                yield item.name, text


def _is_named_tuple(value: Any) -> bool:
    return isinstance(value, tuple) and hasattr(type(value), "_fields")


def write_plain(value: Any) -> str:
    """A plain value as Python text, where torch is imported: `None`, `'gelu'`, `torch.float16`, `float('inf')`."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"float('{value}')"
    return f"torch.{value!r}" if isinstance(value, torch.device) else repr(value)
