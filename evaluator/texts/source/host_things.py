"""What names of host code stand for, and functions as they were entered. Records only."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

Routine: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
"""What can be entered."""


class ThingKind(StrEnum):
    """Kinds of things."""

    KERNEL = "kernel"
    LAUNCHER = "launcher"
    """`kernel[grid]`."""
    FUNCTION = "function"
    CLASS = "class"
    OBJECT = "object"
    """An object of a class of the file."""
    PARENT = "parent"
    """What `super()` gives."""
    OUTSIDE = "outside"
    """A name from another file or of Python."""
    MADE = "made"
    """What something outside gives when it is called."""
    TABLE = "table"
    METHOD = "method"
    """A method of something unknown, as a tensor is."""


@dataclass(frozen=True)
class Given:
    """An argument in the frame of the caller."""

    node: ast.expr
    frame: Frame


@dataclass(frozen=True, eq=False)
class Frame:
    """A function as it was entered; the module where there is none."""

    function: Routine | None = None
    owner: str = ""
    """The class of its `self`."""
    given: Mapping[str, Given] = field(default_factory=dict)
    """What its parameters were given."""
    outer: Frame | None = None
    """The frame that it was written in, where that is a function's."""
    maker: Thing | None = None
    """The object that is its `self`, where it is known how that was made."""


@dataclass(frozen=True)
class Thing:
    """What an expression may stand for."""

    kind: ThingKind
    name: str = ""
    """Of a kernel, class or method, or the full name of what lies outside."""
    node: ast.AST | None = None
    """A function's text, the call that made an object, or the `kernel[grid]` of a launcher."""
    frame: Frame | None = None
    """Where `node` stands."""
    parts: tuple[Thing, ...] = ()
    """Elements of a table, or what something outside was given that can be called."""
    before: tuple[Given, ...] = ()
    """Arguments that functools.partial has given already."""
    skip: int = 0
    """Parameters that are given without being written, such as self."""

    @property
    def may_be_called(self) -> bool:
        """Whether something that gets it can call it, or what lies in it."""
        return self.kind not in (ThingKind.METHOD, ThingKind.PARENT) or bool(self.parts)
