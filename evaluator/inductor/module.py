"""The candidate's file: Inductor's kernels, and a ModelNew that launches them as its code does. Imports torch."""

from __future__ import annotations

import ast
import builtins
import re
from typing import Any

import torch
from torch.utils import _pytree

from tritonsmith.evaluator.inductor.forward import ForwardWriter
from tritonsmith.evaluator.inductor.generate import Generated, InputTensor, PlainValue
from tritonsmith.evaluator.inductor.helpers import write_helpers
from tritonsmith.evaluator.inductor.kernels import read_kernels
from tritonsmith.evaluator.inductor.members import attribute, write_constant, write_members, write_signature
from tritonsmith.evaluator.inductor.records import NoSeedError
from tritonsmith.evaluator.schema import Hardware

_FUNCTIONS = {
    "strided_view": '''def strided_view(tensor, shape, strides, offset=0):
    """The memory of a tensor from an element on, seen in another shape."""
    start = tensor.as_strided((offset + 1,), (1,))[offset:] if offset else tensor
    return start.as_strided(shape, strides)''',
    "in_strides": '''def in_strides(tensor, strides):
    """The tensor with these strides, by which the kernels find its values; copied where it has others."""
    if all(size < 2 or own == asked for size, own, asked in zip(tensor.shape, tensor.stride(), strides)):
        return tensor
    return torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=tensor.device).copy_(tensor)''',
    "spread_rows": '''def spread_rows(programs):
    """Programs over two axes of the grid, since one axis holds 65535."""
    parts = triton.cdiv(programs, 65535)
    return triton.cdiv(programs, parts), parts''',
}
"""Functions that forward may call, by name."""


def write_module(generated: Generated, hardware: Hardware) -> str:
    """The text of one self-contained file. Raises NoSeedError that says which piece cannot be taken over."""
    kernels = read_kernels(ast.parse(generated.text))
    constants_of_text = generated.constants
    constants = {_name_constant(one.name): one.value for one in generated.inputs if one.value is not None} | constants_of_text
    expressions = [_express(one) for one in generated.inputs]
    layouts = [(one.shape, one.strides) for one in generated.inputs]
    writer = ForwardWriter(generated.text, kernels, expressions, layouts, list(constants_of_text))
    writer.write()
    launched = [kernels[name] for name in writer.launched]
    if not launched:
        raise NoSeedError("Inductor writes no kernel for the module: it leaves all of the work to libraries")
    checks = _write_checks(generated)
    if any("in_strides(" in line for line in checks):
        writer.used.add("in_strides")
    returned = _write_result(generated, writer.outputs)
    signature, refusals = write_signature(generated.reference)
    members = [*refusals, *write_members(generated.model), *(write_constant(name, value) for name, value in constants.items())]
    helpers = write_helpers({name for kernel in launched for name in kernel.helpers})
    everything = "\n".join([*helpers, *(kernel.text for kernel in launched)])
    headline = f"What Inductor of torch {torch.__version__.partition('+')[0]} writes for this module on a card such as {hardware.name}."
    parts = [
        "\n".join([
            f'"""{headline}"""\n', "import torch", "import torch.nn as nn",
            *(["import torch.nn.functional as F"] if "F" in writer.used else []), "import triton", "import triton.language as tl",
            *(["from triton.language.extra import libdevice"] if "libdevice." in everything else []),
        ]),
        *(text for name, text in _FUNCTIONS.items() if name in writer.used),
        *helpers,
        *dict.fromkeys(kernel.text for kernel in launched),
        _write_class(generated, signature, members, [*checks, *writer.lines, f"return {returned}"]),
    ]  # fmt: skip
    text = "\n\n\n".join(parts) + "\n"
    _refuse_leftovers(text)
    return text


def _write_class(generated: Generated, signature: str, members: list[str], forward: list[str]) -> str:
    arguments = ", ".join(generated.arguments)
    return "\n".join([
        "class ModelNew(nn.Module):", '    """Parameters carry the reference\'s names."""', "",
        f"    def __init__(self{', ' if signature else ''}{signature}):", "        super().__init__()",
        *(f"        {line}" for line in members), "", "    @torch.no_grad()",
        f"    def forward(self{', ' if arguments else ''}{arguments}):", *(f"        {line}" for line in forward),
    ])  # fmt: skip


def _name_constant(name: str) -> str:
    return "constant_" + re.sub(r"\W", "_", name)


def _express(one: InputTensor) -> str:
    if one.value is not None:
        return f"self.{_name_constant(one.name)}"
    return one.name if one.origin == "input" else attribute(one.name)


def _write_checks(generated: Generated) -> list[str]:
    """Lines that refuse what the kernels are not made for, and give inputs the layout that they read."""
    lines: list[str] = []
    tensors = [one for one in generated.inputs if one.origin == "input"]
    for one in tensors:
        lines += [
            f"if ({one.name}.dtype, {one.name}.shape) != (torch.{one.dtype}, {tuple(one.shape)}):",
            f'    raise ValueError(f"these kernels are made for {one.name} of {one.dtype}{list(one.shape)}, not of '
            f'{{{one.name}.dtype}}{{list({one.name}.shape)}}")',
        ]
    for name, value in generated.plain.items():
        lines += [f"if {name} != {value!r}:", f'    raise ValueError(f"these kernels are made for {name} = {value!r}, not for {{{name}}}")']
    lines += [f"{one.name} = in_strides({one.name}, {tuple(one.strides)})" for one in tensors if one.shape]
    where = f"{tensors[0].name}.device" if tensors else "next(self.parameters()).device"
    return [*lines, f"device = {where}"]


def _write_result(generated: Generated, outputs: list[str]) -> str:
    """What forward returns, in the form that the module's own forward has."""
    leaves: list[Any] = []
    for part in generated.results:
        if not isinstance(part, PlainValue) and part >= len(outputs):
            raise NoSeedError("Inductor's code returns fewer tensors than the module")
        leaves.append(_Text(repr(part.value) if isinstance(part, PlainValue) else outputs[part]))
    return _show(_pytree.tree_unflatten(leaves, generated.tree))


class _Text:
    """A leaf of the result, as an expression."""

    def __init__(self, text: str) -> None:
        self.text = text


def _show(value: Any) -> str:
    if isinstance(value, _Text):
        return value.text
    if value is None:
        return "None"
    if type(value) is dict:
        return "{" + ", ".join(f"{key!r}: {_show(one)}" for key, one in value.items()) + "}"
    if type(value) in (list, tuple):
        inner = ", ".join(map(_show, value))
        return f"[{inner}]" if type(value) is list else f"({inner}{',' if len(value) == 1 else ''})"
    raise NoSeedError(f"forward returns a {type(value).__name__}, which a file of its own does not have")


def _refuse_leftovers(text: str) -> None:
    """Every name of the text must be its own, Python's or an import's."""
    tree = ast.parse(text)
    known = set(dir(builtins))
    bound = {one.id for one in ast.walk(tree) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
    bound |= {one.arg for one in ast.walk(tree) if isinstance(one, ast.arg)}
    bound |= {one.name for one in ast.walk(tree) if isinstance(one, ast.FunctionDef | ast.ClassDef)}
    bound |= {alias.asname or alias.name for one in ast.walk(tree) if isinstance(one, ast.Import | ast.ImportFrom) for alias in one.names}
    free = {one.id for one in ast.walk(tree) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)} - bound - known
    if free:
        raise NoSeedError(f"Inductor's code uses {sorted(free)[0]}, which only exists inside of Inductor")
