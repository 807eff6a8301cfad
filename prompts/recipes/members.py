"""Lines of a candidate's `__init__`: members that carry the reference's parameter names."""

from __future__ import annotations

from tritonsmith.evaluator.schema import TaskFacts


def attribute(path: str) -> str:
    """Expression of a dotted path below self; parts such as the `0` of an nn.Sequential are no identifiers."""
    text = "self"
    for part in filter(None, path.split(".")):
        text = f"{text}.{part}" if part.isidentifier() else f'getattr({text}, "{part}")'
    return text


def assign(path: str, value: str) -> str:
    """Statement that sets a dotted path below self."""
    holder, _, last = path.rpartition(".")
    return f"{attribute(path)} = {value}" if last.isidentifier() else f'setattr({attribute(holder)}, "{last}", {value})'


def parent_lines(path: str) -> list[str]:
    """Lines that make the bare modules above a dotted path, unless they exist."""
    parents = path.split(".")[:-1]
    lines = []
    for depth in range(1, len(parents) + 1):
        module = ".".join(parents[:depth])
        holder, _, last = module.rpartition(".")
        lines.append(assign(module, f'getattr({attribute(holder)}, "{last}", None) or nn.Module()'))
    return lines


def parameter_lines(name: str, facts: TaskFacts) -> list[str]:
    """Lines that make one parameter under its dotted name."""
    spec = facts.parameters[name]
    frozen = "" if spec.dtype.startswith(("float", "bfloat")) else ", requires_grad=False"
    return [*parent_lines(name), assign(name, f"nn.Parameter(torch.empty({tuple(spec.shape)!r}, dtype=torch.{spec.dtype}){frozen})")]


def complete_members(lines: list[str], names: list[str], facts: TaskFacts) -> tuple[str, ...]:
    """The lines, and lines for each named parameter that none of them makes.

    Weights are transferred by name, so every name must exist, also those that forward does not touch.
    """
    missing = (line for name in names if parameter_lines(name, facts)[-1] not in lines for line in parameter_lines(name, facts))
    return tuple(dict.fromkeys((*lines, *missing)))
