"""What a task file declares, as a task carries it: read once with the file, and by nobody again."""

from __future__ import annotations

from typing import Literal, TypeAlias

from pydantic import Field

from tritonsmith.evaluator.records.plain import Record

SizeValue: TypeAlias = int | float | bool | str | tuple[int, ...]
"""What a module-level name of a task may be set to."""
Literals: TypeAlias = int | float | bool | str | None
"""A literal that the file sets a name to, and that JSON can hold."""


class Declarations(Record):
    """The module-level names of a task file, and what it says about how it is judged.

    DOMAINS is not here: a file may compute it of its other names, so it is read where the file runs.
    """

    source_sha: str
    """Content address of the text that this was read from."""
    values: dict[str, Literals] = Field(default_factory=dict)
    """Names that are set to a literal."""
    computed: tuple[str, ...] = ()
    """Names that are set to anything else."""
    small: dict[str, SizeValue] | None = None
    """SMALL; None where the file has none, or a malformed one."""
    small_fault: str = ""
    """What is wrong with a malformed SMALL, without the file's name: it is said where a small size is asked for."""
    shapes: tuple[dict[str, SizeValue], ...] = ()
    """SHAPES, entry by entry; a pair of whole numbers is a span."""
    mode: Literal["eval", "train"] | None = None
    """MODE; None where the file does not say it."""
    backward: bool = False
    """BACKWARD: whether gradients are judged and timed too."""

    @property
    def names(self) -> set[str]:
        """Every name that the file sets at module level."""
        return {*self.values, *self.computed}

    def get(self, name: str) -> object:
        """What the file sets a name to; Ellipsis where it computes it, or does not set it."""
        return self.values.get(name, ...)
