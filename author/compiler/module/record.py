"""The record of a module: its kernels and its forwards. Text that is handed over is read here, and printed again at the end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from tritonsmith.author.compiler.ir.bridge import parse_function, parse_module
from tritonsmith.author.compiler.ir.code import Expression, Function, Module, Statement
from tritonsmith.author.compiler.ir.parser import parse_expression, parse_statements
from tritonsmith.author.compiler.ir.printer import print_expression, print_function, print_statements
from tritonsmith.author.compiler.ir.walk import substitute


@dataclass
class SizedForward:
    """A forward for some sizes of the inputs."""

    lines: list[str]
    returned: str
    right: str
    """Whether inputs have such sizes."""
    wrong: str
    """Whether they have others."""
    made_for: str
    """The sizes in words."""


@dataclass
class ModuleText:
    """The parts of a module's text."""

    kernels: list[str] = field(default_factory=list)
    """The text of each kernel."""
    forward: list[str] = field(default_factory=list)
    returned: str = ""
    helpers: tuple[str, ...] = ()
    libdevice: bool = False
    functional: bool = False
    names: list[tuple[str, ...]] = field(default_factory=list)
    """For each region: the names of its kernels. Regions that differ in their tensors alone share kernels."""
    keeps: bool = False
    """Whether parts of parameters are kept."""
    keeps_numbers: bool = False
    """Whether kernels that make such parts take numbers besides."""
    records: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Named tuples that forward returns, with their fields."""
    first: str = ""
    """A kernel, to be asked whether it is compiled."""
    wrong: str = ""
    """Whether forward got something that the kernels are not made for."""
    made_for: str = ""
    """What they are made for, in words."""
    sized: list[SizedForward] = field(default_factory=list)
    """The forwards for other sizes each, where one does not do for all."""
    missed: list[int] = field(default_factory=list)
    """Long spans of sizes, by their number, that it is not for."""


@dataclass(frozen=True)
class ForwardCode:
    """What a forward does."""

    statements: tuple[Statement, ...]
    returned: Expression | None
    """None for a module whose forwards are for one size each."""


@dataclass(frozen=True)
class ModuleCode:
    """The code of a module, with what is no code: its names, its guards, what it needs besides."""

    kernels: tuple[Function, ...]
    forwards: tuple[ForwardCode, ...]
    """The one for all sizes, and those for some sizes each."""
    frame: ModuleText
    """The rest; its code is that which was handed over."""

    @classmethod
    def from_text(cls, text: ModuleText) -> ModuleCode:
        """The record of a module whose kernels and forwards are text."""
        forwards = [(text.forward, text.returned), *((one.lines, one.returned) for one in text.sized)]
        return cls(tuple(map(read_kernel, text.kernels)), tuple(read_forward(*parts) for parts in forwards), text)

    def as_text(self) -> ModuleText:
        """The text of the module: what its template is filled with."""
        first, *others = [(_list_lines(one.statements), _print(one.returned)) for one in self.forwards]
        sized = [replace(one, lines=lines, returned=shown) for one, (lines, shown) in zip(self.frame.sized, others, strict=True)]
        kernels = [print_function(kernel) for kernel in self.kernels]
        return replace(self.frame, kernels=kernels, forward=first[0], returned=first[1], sized=sized)

    def list_statements(self) -> Iterable[Statement]:
        """The statements of all forwards."""
        return (statement for forward in self.forwards for statement in forward.statements)


# Text that is handed over. It goes when modules of several sizes are joined as records.


@lru_cache(maxsize=4096)
def read_kernel(text: str) -> Function:
    """The record of a kernel's text, or of the text of a function that kernels call."""
    return parse_function(text)


@lru_cache(maxsize=4096)
def read_expression(text: str) -> Expression:
    """The record of an expression's text."""
    return parse_expression(text)


def fill_expression(text: str, *values: Expression, **named: Expression) -> Expression:
    """The record of a text with `{0}` and `{name}` in place of values."""
    numbered = {f"value_{place}_": value for place, value in enumerate(values)}
    holes = {f"{name}_": value for name, value in named.items()}
    return substitute(read_expression(text.format(*numbered, **{name: f"{name}_" for name in named})), numbered | holes)


def read_forward(lines: Sequence[str], returned: str) -> ForwardCode:
    """The record of a forward's lines and of what it returns."""
    return ForwardCode(parse_statements("\n".join(lines)), parse_expression(returned) if returned else None)


@lru_cache(maxsize=256)
def read_body(lines: tuple[str, ...], returned: str) -> Module:
    """The record of a forward's lines, with the return behind them: several settings have one forward."""
    return parse_module("\n".join((*lines, f"return {returned}")))


def _list_lines(statements: Sequence[Statement]) -> list[str]:
    return print_statements(statements).split("\n") if statements else []


def _print(returned: Expression | None) -> str:
    return print_expression(returned) if returned is not None else ""
