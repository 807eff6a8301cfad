"""Modules as records, from the lines that a test writes."""

from collections.abc import Sequence

from recipe_cases.parsed_texts import parse_function
from tritonsmith.author.compiler.ir.parser import parse_expression, parse_statements
from tritonsmith.author.compiler.module.record import ForwardCode, ModuleCode, ModuleFrame


def read_module(lines: Sequence[str], returned: str = "y", kernels: Sequence[str] = ()) -> ModuleCode:
    """The module with one forward and these kernels, each of a region of its own."""
    functions = tuple(map(parse_function, kernels))
    names = [(function.name,) for function in functions]
    frame = ModuleFrame(names=names, first=names[0][0] if names else "")
    return ModuleCode(functions, (ForwardCode(parse_statements("\n".join(lines)), parse_expression(returned)),), frame)
