"""The record of a module: its kernels and its forwards, and the text that its template is filled with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from tritonsmith.author.compiler.ir.code import Expression, Function, Module, Return, Statement
from tritonsmith.author.compiler.ir.parser import parse_expression
from tritonsmith.author.compiler.ir.printer import print_expression, print_function, print_statements


@dataclass
class ModuleFrame:
    """What is known of a module besides its code: its names, its guards, what it needs."""

    helpers: tuple[str, ...] = ()
    libdevice: bool = False
    functional: bool = False
    names: list[tuple[str, ...]] = field(default_factory=list)
    """For each region: the names of its kernels. Regions that differ in their tensors alone share kernels."""
    keeps: bool = False
    """Whether parts of parameters are kept."""
    keeps_numbers: bool = False
    """Whether kernels that make such parts take numbers besides."""
    packs: bool = False
    """Whether several parameters are kept in one buffer."""
    describes: bool = False
    """Whether kernels make tensor descriptors."""
    records: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Named tuples that forward returns, with their fields."""
    stacks: tuple[str, ...] = ()
    """The texts of other families' kernels that forward calls."""
    first: str = ""
    """A kernel, to be asked whether it is compiled."""
    wrong: str = ""
    """Whether forward got something that the kernels are not made for."""
    made_for: str = ""
    """What they are made for, in words."""
    missed: list[int] = field(default_factory=list)
    """Long spans of sizes, by their number, that it is not for."""


@dataclass(frozen=True)
class ForwardCode:
    """What a forward does, and of one for some sizes of the inputs which these are."""

    statements: tuple[Statement, ...]
    returned: Expression
    right: str = ""
    """Whether inputs have such sizes."""
    wrong: str = ""
    """Whether they have others."""
    made_for: str = ""
    """The sizes in words."""

    @property
    def body(self) -> Module:
        """The statements with what it returns at the end."""
        return Module((*self.statements, Return(self.returned)))


@dataclass(frozen=True)
class ModuleCode:
    """The code of a module, with what is no code."""

    kernels: tuple[Function, ...]
    forwards: tuple[ForwardCode, ...]
    """The one for all sizes, or several for some sizes each."""
    frame: ModuleFrame

    def as_text(self) -> ModuleText:
        """The text of the module."""
        forwards = [
            SizedForward(_list_lines(one.statements), print_expression(one.returned), one.right, one.made_for) for one in self.forwards
        ]
        single = forwards[0] if len(forwards) == 1 else SizedForward([], "", "", "")
        return ModuleText(
            **vars(self.frame), kernels=[print_function(kernel) for kernel in self.kernels], forward=single.lines,
            returned=single.returned, sized=forwards if len(forwards) > 1 else [],
        )  # fmt: skip

    def list_statements(self) -> Iterable[Statement]:
        """The statements of all forwards."""
        return (statement for forward in self.forwards for statement in forward.statements)


def _list_lines(statements: Sequence[Statement]) -> list[str]:
    return print_statements(statements).split("\n") if statements else []


@dataclass
class SizedForward:
    """The text of a forward for some sizes of the inputs."""

    lines: list[str]
    returned: str
    right: str
    """Whether inputs have such sizes."""
    made_for: str
    """The sizes in words."""


@dataclass
class ModuleText(ModuleFrame):
    """The parts of a module's text."""

    kernels: list[str] = field(default_factory=list)
    """The text of each kernel."""
    forward: list[str] = field(default_factory=list)
    returned: str = ""
    sized: list[SizedForward] = field(default_factory=list)
    """The forwards for other sizes each, where one does not do for all."""


@lru_cache(maxsize=4096)
def read_expression(text: str) -> Expression:
    """The record of an expression's text."""
    return parse_expression(text)
