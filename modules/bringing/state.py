"""Parameters and buffers of a module as lines of `__init__` that make them under the same names. Imports torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import torch
from torch import nn

from tritonsmith.author.members import Line, Member, attribute, list_parents, settle_members

_MOST_LISTED = 64
"""Values of a tensor that are written one by one."""


@dataclass
class State:
    """The tensors that a task's Model holds, and the lines that make them."""

    values: dict[str, torch.Tensor] = field(default_factory=dict)
    """By the name in the task's state_dict; what `weights.pt` holds."""
    origins: dict[str, str | None] = field(default_factory=dict)
    """By the same names, the path in the original; None for a tensor that only the export has."""
    lines: tuple[str, ...] = ()


def collect_state(module: nn.Module, constants: Mapping[str, torch.Tensor], used: Iterable[str]) -> State:
    """Every tensor of the original's state_dict, and of its other tensors those that the forward reads.

    Args:
        module: the original.
        constants: tensors that an export found outside the state: buffers that are not persistent, attributes, numbers in the forward.
        used: the names of the constants that the forward reads.
    """
    state = State()
    for name, value in module.state_dict(keep_vars=True).items():
        if isinstance(value, torch.Tensor):
            state.values[name], state.origins[name] = value, name
    for name in used:
        if name not in state.values:
            state.values[name] = constants[name]
            state.origins[name] = name if _reach(module, name) is not None else None
    return state


def _reach(module: nn.Module, path: str) -> torch.Tensor | None:
    found: object = module
    for part in path.split("."):
        found = getattr(found, part, None)
    return found if isinstance(found, torch.Tensor) else None


def write_state(state: State, layers: Mapping[str, str]) -> tuple[str, ...]:
    """Lines of `__init__`: layers by their constructor calls, other tensors one by one, tensors that are shared by their first name.

    Args:
        state: what there is to make.
        layers: constructor calls by the path of the layer.
    """
    lines: list[Line] = []
    first: dict[int, str] = {}
    for name, value in state.values.items():
        layer = name.rpartition(".")[0]
        shared = first.setdefault(_identity(value), name)
        if layer in layers:
            lines += [*list_parents(layer, of_module=True), Member(layer, layers[layer])]
            if shared != name:
                lines.append(Member(name, attribute(shared)))
            continue
        lines += list_parents(name) if isinstance(value, nn.Parameter) else _parents_of_buffer(name)
        lines.append(_write_tensor(name, value) if shared == name else Member(name, attribute(shared)))
    return settle_members(lines)


def _identity(value: torch.Tensor) -> int:
    return id(value)


def _parents_of_buffer(name: str) -> list[Member]:
    """The bare modules above a buffer, which its last part is no member of."""
    holder = name.rpartition(".")[0]
    return [*list_parents(holder, of_module=True), Member(holder, "nn.Module()")] if holder else []


def _write_tensor(name: str, value: torch.Tensor) -> Line:
    text = write_values(value.detach(), drawn=isinstance(value, nn.Parameter))
    if isinstance(value, nn.Parameter):
        still = "" if value.requires_grad else ", requires_grad=False"
        return Member(name, f"nn.Parameter({text}{still})")
    holder, _, last = name.rpartition(".")
    return f'{attribute(holder)}.register_buffer("{last}", {text})'


def write_values(value: torch.Tensor, *, drawn: bool) -> str:
    """An expression for a tensor like this one: the same where it has a pattern or few values, else drawn with its spread."""
    shape, kind = tuple(value.shape), "" if value.dtype == torch.float32 else f", dtype={value.dtype}"
    if value.numel() == 0:
        return f"torch.empty({shape}{kind})"
    flat = value.detach().reshape(-1)
    if bool((flat == flat[0]).all()):
        return _write_constant(shape, flat[0], kind, value.dtype)
    if value.dtype.is_complex:
        return f"torch.randn({shape}{kind})"
    if (pattern := _find_pattern(value, kind)) is not None:
        return pattern
    listed = value.tolist() if value.numel() <= _MOST_LISTED and not drawn else None
    if listed is not None and bool(flat.isfinite().all()):
        return f"torch.tensor({listed}{kind})"
    if value.is_floating_point():
        finite = flat.float()[flat.float().isfinite()]
        spread, mean = (float(finite.std()), float(finite.mean())) if finite.numel() > 1 else (1.0, 0.0)
        shift = f" {'-' if mean < 0 else '+'} {abs(mean):.4g}" if abs(mean) > spread / 100 else ""
        said = f"torch.randn({shape}) * {spread:.4g}{shift}"
        return said if not kind else f"({said}).to({value.dtype})"
    if value.dtype == torch.bool:
        return f"torch.rand({shape}) < {float(flat.float().mean()):.4g}"
    return f"torch.randint({int(flat.min())}, {int(flat.max()) + 1}, {shape}{kind})"


def _write_constant(shape: tuple[int, ...], number: torch.Tensor, kind: str, dtype: torch.dtype) -> str:
    plain = number.item()
    if plain in (0, 1) and not isinstance(plain, bool):
        return f"torch.{'ones' if plain else 'zeros'}({shape}{kind})"
    word = (
        f'float("{plain}")'
        if isinstance(plain, float) and plain in (float("inf"), float("-inf"))
        else repr(plain)
    )
    return f"torch.full({shape}, {word}{kind if kind else ', dtype=torch.float32' if not dtype.is_floating_point else ''})"


def _find_pattern(value: torch.Tensor, kind: str) -> str | None:
    """A tensor that counts up, or a matrix that is one value on and below, or above, its diagonal."""
    if value.dtype in (torch.int64, torch.int32) and value.shape[-1] > 1:
        row = value.reshape(-1, value.shape[-1])[0]
        step = int(row[1] - row[0])
        if step and bool(
            (value == torch.arange(value.shape[-1], device=value.device) * step + int(row[0])).all()
        ):
            last = int(row[0]) + step * value.shape[-1]
            told = f"torch.arange({int(row[0])}, {last}{f', {step}' if step != 1 else ''}{kind if value.dtype != torch.int64 else ''})"
            return told if value.ndim == 1 else f"{told}.expand{tuple(value.shape)}.clone()"
    if value.ndim >= 2 and value.dtype in (torch.bool, torch.float32) and min(value.shape[-2:]) > 1:  # noqa: PLR2004 - matrices
        for name in ("tril", "triu"):
            ones = torch.ones_like(value, dtype=torch.float32)
            if torch.equal(value.float(), getattr(torch, name)(ones)):
                return f"torch.{name}(torch.ones({tuple(value.shape)})){'.bool()' if value.dtype == torch.bool else ''}"
    return None
