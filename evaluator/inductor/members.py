"""The lines of `__init__`: parameters and buffers under the reference's names, and constants by their values. Imports torch."""

from __future__ import annotations

import ast
import inspect
import math
import re
from typing import Any

import torch
from torch import nn

from tritonsmith.evaluator.inductor.records import NoSeedError
from tritonsmith.evaluator.reference.module import Reference
from tritonsmith.evaluator.reference.probe import write_literal

_MOST_VALUES = 64
"""Values that a text writes one by one."""


def attribute(path: str) -> str:
    """Expression of a dotted path below self; parts such as the `0` of an nn.Sequential are no identifiers."""
    text = "self"
    for part in filter(None, path.split(".")):
        text = f"{text}.{part}" if part.isidentifier() else f'getattr({text}, "{part}")'
    return text


def write_members(model: nn.Module) -> list[str]:
    """Lines that make every tensor of the reference's state_dict."""
    lines: list[str] = []
    buffers = {name for name, _ in model.named_buffers(remove_duplicate=False)}
    for name, tensor in model.state_dict().items():
        if not isinstance(tensor, torch.Tensor):
            continue
        holder, _, last = name.rpartition(".")
        lines += _write_parents(holder)
        empty = f"torch.empty({tuple(tensor.shape)}, dtype={tensor.dtype})"
        if name in buffers:
            lines.append(f'{attribute(holder)}.register_buffer("{last}", {empty})')
            continue
        frozen = "" if tensor.dtype.is_floating_point else ", requires_grad=False"
        value = f"nn.Parameter({empty}{frozen})"
        registered = f'{attribute(holder)}.register_parameter("{last}", {value})'
        lines.append(f"{attribute(name)} = {value}" if last.isidentifier() else registered)
    return list(dict.fromkeys(lines))


def _write_parents(holder: str) -> list[str]:
    parts = holder.split(".") if holder else []
    return [
        f'{attribute(".".join(parts[:depth]))}.add_module("{part}", nn.Module())'
        if not part.isidentifier()
        else f"{attribute('.'.join(parts[: depth + 1]))} = nn.Module()"
        for depth, part in enumerate(parts)
    ]


def write_constant(name: str, value: torch.Tensor) -> str:
    """The line that makes a constant. Raises NoSeedError for one that no short text gives."""
    return f'self.register_buffer("{name}", {_write_value(name, value)}, persistent=False)'


def _write_value(name: str, value: torch.Tensor) -> str:
    shape, dtype = tuple(value.shape), value.dtype
    flat = value.detach().cpu().reshape(-1)
    if flat.numel() <= _MOST_VALUES:
        return f"torch.tensor({_write_numbers(value.tolist())}, dtype={dtype})"
    first = flat[0]
    if bool((flat == first).all()):
        return f"torch.full({shape}, {_write_numbers(first.item())}, dtype={dtype})"
    for method in ("tril", "triu"):
        for diagonal in (-1, 0, 1):
            made = getattr(torch.full(shape, True).expand(shape), method)(diagonal) if len(shape) >= 2 else None
            if made is None or not _is_two_valued(value, made):
                continue
            inside, outside = value[made][0].item(), value[~made][0].item()
            mask = f"torch.ones({shape}, dtype=torch.bool).{method}({diagonal or ''})"
            if (inside, outside) == (True, False) and dtype == torch.bool:
                return mask
            numbers = ", ".join(f"torch.tensor({_write_numbers(number)}, dtype={dtype})" for number in (inside, outside))
            return f"torch.where({mask}, {numbers})"
    if not dtype.is_floating_point and dtype != torch.bool:
        step = int(flat[1]) - int(flat[0])
        last = int(flat[0]) + step * flat.numel()
        if step and bool((flat == torch.arange(int(flat[0]), last, step, dtype=dtype)).all()):
            return f"torch.arange({int(flat[0])}, {last}, {step}, dtype={dtype}).reshape({shape})"
    raise NoSeedError(f"forward reads the constant tensor {name} of {flat.numel()} values, which no short text gives")


def _is_two_valued(value: torch.Tensor, mask: torch.Tensor) -> bool:
    if not bool(mask.any()) or bool(mask.all()):
        return False
    inside, outside = value[mask], value[~mask]
    return bool((inside == inside[0]).all()) and bool((outside == outside[0]).all())


def _write_numbers(value: Any) -> str:
    text = repr(value)
    return re.sub(r"(?<![\w.\"])(-?)(inf|nan)\b", r'float("\1\2")', text)


def write_signature(reference: Reference) -> tuple[str, list[str]]:
    """Parameters of the constructor, and the lines that refuse arguments which the text is not made for."""
    values = [write_literal(value) for value in reference.init_inputs()]
    parameters = list(inspect.signature(reference.module.Model.__init__).parameters.values())[1:]
    usual = [one for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD]
    if len(usual) != len(parameters) or len(values) > len(usual):
        return "*init_inputs", []
    signature: list[str] = []
    wanted: list[tuple[str, str]] = []
    for number, one in enumerate(usual):
        default = "" if one.default is one.empty else write_literal(one.default)
        if one.default is not one.empty and not default:
            return "*init_inputs", []
        signature.append(f"{one.name}={default}" if default else one.name)
        value = values[number] if number < len(values) else default
        if value and _is_comparable(value):
            wanted.append((one.name, value))
    if not wanted:
        return ", ".join(signature), []
    names, made = ", ".join(name for name, _ in wanted), ", ".join(value for _, value in wanted)
    end = "," if len(wanted) == 1 else ""
    words = ", ".join(f"{name}={value}" for name, value in wanted).replace("\\", "\\\\").replace('"', "'")
    return ", ".join(signature), [
        f"if ({names}{end}) != ({made}{end}):",
        f'    raise ValueError("these kernels are made for {words}")',
    ]


def _is_comparable(text: str) -> bool:
    value = ast.literal_eval(text)
    return not (isinstance(value, float) and math.isnan(value))
