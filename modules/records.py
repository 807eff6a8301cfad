"""Classes of records in the arguments and results of a call, which torch takes apart where they are registered. Imports torch."""

from __future__ import annotations

import dataclasses
import functools
import importlib
from collections import namedtuple
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree


def list_records(specs: Iterable[pytree.TreeSpec | None]) -> list[tuple[str, str]]:
    """Module and name of each class of records in the structures of a call and its result."""
    found: dict[tuple[str, str], None] = {}
    waiting = [spec for spec in specs if spec is not None]
    while waiting:
        spec = waiting.pop()
        waiting += spec.children()
        kind: Any = spec.context if spec.type is namedtuple else spec.type
        if isinstance(kind, type) and kind.__module__ not in ("builtins", "collections"):
            found[kind.__module__, kind.__qualname__] = None
    return list(found)


def register_records(records: Iterable[Sequence[str]]) -> None:
    """Let torch take these classes apart, each a module and a name in it. Raises ValueError where one is missing."""
    for module, name in records:
        try:
            kind = functools.reduce(getattr, name.split("."), importlib.import_module(module))
        except (ImportError, AttributeError) as error:
            raise ValueError(
                f"the call has records of the class {module}.{name}, which cannot be imported ({error})"
            ) from error
        register_class(kind)


def register_class(kind: Any) -> None:
    """Let torch take a dataclass or a named tuple apart, and write its structure down."""
    if kind in pytree.SUPPORTED_NODES:
        return
    name = f"{kind.__module__}.{kind.__qualname__}"
    if dataclasses.is_dataclass(kind):
        torch.export.register_dataclass(kind, serialized_type_name=name)  # type: ignore[arg-type]
    elif hasattr(kind, "_fields"):
        pytree._register_namedtuple(kind, serialized_type_name=name)
