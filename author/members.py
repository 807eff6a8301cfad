"""Lines of a candidate's `__init__`: members that carry the reference's parameter names."""

from __future__ import annotations

from collections.abc import Iterable

from tritonsmith.evaluator.schema import TaskFacts

_BARE = ("nn.Module()", "nn.ModuleDict()", "nn.ParameterDict()")
"""What a module is that only holds others; the later ones also hold what has no identifier for a name."""


def attribute(path: str) -> str:
    """Expression of a dotted path below self; parts such as the `0` of an nn.Sequential are keys."""
    text = "self"
    for part in filter(None, path.split(".")):
        keyed = f'getattr(self, "{part}")' if text == "self" else f'{text}["{part}"]'  # a module itself has no keys
        text = f"{text}.{part}" if part.isidentifier() else keyed
    return text


def assign(path: str, value: str) -> str:
    """Statement that sets a dotted path below self."""
    return f"{attribute(path)} = {value}" if "." in path or path.isidentifier() else f'setattr(self, "{path}", {value})'


def parent_lines(path: str, *, of_module: bool = False) -> list[str]:
    """Lines that make the bare modules above the dotted path of a tensor, or of a module; `settle_members` leaves out those that exist."""
    parts = path.split(".")
    lines = []
    for depth in range(1, len(parts)):
        child, tensor = parts[depth], depth == len(parts) - 1 and not of_module
        kind = _BARE[0] if child.isidentifier() else _BARE[2] if tensor else _BARE[1]
        lines.append(assign(".".join(parts[:depth]), kind))
    return lines


def parameter_lines(name: str, facts: TaskFacts) -> list[str]:
    """Lines that make one parameter under its dotted name."""
    spec = facts.parameters[name]
    frozen = "" if spec.dtype.startswith(("float", "bfloat", "complex")) else ", requires_grad=False"
    return [*parent_lines(name), assign(name, f"nn.Parameter(torch.empty({tuple(spec.shape)!r}, dtype=torch.{spec.dtype}){frozen})")]


def complete_members(lines: list[str], names: list[str], facts: TaskFacts) -> tuple[str, ...]:
    """The lines, and lines for each named parameter that none of them makes.

    Weights are transferred by name, so every name must exist, also those that forward does not touch.
    """
    missing = [line for name in names if parameter_lines(name, facts)[-1] not in lines for line in parameter_lines(name, facts)]
    return settle_members((*lines, *missing))


def settle_members(lines: Iterable[str]) -> tuple[str, ...]:
    """The lines, each once. A bare module is made where nothing before has made it, and so that it can hold all that it gets.

    Lines below an `if`, `elif` or `for` hold in its block alone: each block has all of its own.
    """
    given = list(lines)
    kinds: dict[str, str] = {}
    for target, _, made in (line.strip().partition(" = ") for line in given):
        if made in _BARE:
            kinds[target] = max(kinds.get(target, made), made, key=_BARE.index)
    found, block, outside, blocks = list[str](), set[str](), set[str](), set[str]()
    for line in given:
        target, _, made = line.strip().partition(" = ")
        inside, bare = line.startswith(" "), made in _BARE
        if not inside:
            block = set()
        known = outside | (block if inside else blocks if bare else set())
        if line.endswith(":") or (target if bare else line) not in known:
            found.append(f"{line[: len(line) - len(line.lstrip())]}{target} = {kinds[target]}" if bare else line)
        (block if inside else outside).update((target, line))
        blocks |= block
    return tuple(found)
