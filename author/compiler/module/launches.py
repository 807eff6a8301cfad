"""Statements of forward that launch a kernel, and those that ask for a parameter's parts, which a kernel makes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tritonsmith.author.compiler.ir.code import Assign, Attribute, Call, Evaluate, Expression, Keyword, Name, Statement, Subscript


@dataclass(frozen=True)
class Launch:
    """A statement that names a kernel, and what that kernel is given."""

    kernel: str
    statement: Assign | Evaluate
    call: Call
    keeps: bool
    """Whether it asks for parts: `a, b = self.keep(path, kernel, parameter, shape)`. Others are `kernel[grid](...)`."""

    def take(self, kernel: str, numbers: Mapping[str, Expression]) -> Statement:
        """The statement with another kernel, which takes numbers ahead of its constants."""
        if kernel == self.kernel and not numbers:
            return self.statement
        call = self.call
        if self.keeps:
            path, _, *rest = call.arguments
            call = replace(call, arguments=(path, Name(kernel), *rest))
        else:
            assert isinstance(call.function, Subscript)
            call = replace(call, function=replace(call.function, value=Name(kernel)))
        given = tuple(Keyword(name, value) for name, value in numbers.items())
        return replace(self.statement, value=replace(call, keywords=(*given, *call.keywords)), layout=None)


def make_launch(kernel: str, grid: Expression, arguments: tuple[Expression, ...], constants: Mapping[str, Expression]) -> Evaluate:
    """`kernel[grid](*arguments, **constants)`; options such as `num_warps` are constants too."""
    given = tuple(Keyword(name, value) for name, value in constants.items())
    return Evaluate(Call(Subscript(Name(kernel), grid), arguments, given))


def read_launch(statement: Statement) -> Launch | None:
    """What a statement launches; None for any other."""
    match statement:
        case Evaluate(value=Call(function=Subscript(value=Name(name=kernel))) as call):
            return Launch(kernel, statement, call, False)
        case Assign(value=Call(function=Attribute(value=Name("self"), name="keep"), arguments=(_, Name(name=kernel), *_)) as call):
            return Launch(kernel, statement, call, True)
    return None
