"""Lines of a candidate's `__init__`: members that carry the reference's parameter names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

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


@dataclass(frozen=True)
class Member:
    """What the constructor sets below self: a dotted path, and the expression of its value."""

    path: str
    value: str

    @property
    def bare(self) -> bool:
        """Whether it is a module that only holds others."""
        return self.value in _BARE

    def write(self) -> str:
        """The statement."""
        plain = "." in self.path or self.path.isidentifier()
        return f"{attribute(self.path)} = {self.value}" if plain else f'setattr(self, "{self.path}", {self.value})'


Line = Member | str
"""A line of the constructor; any that sets no member is text."""


@dataclass(frozen=True)
class Block:
    """Lines below an `if`, `elif` or `for`."""

    head: str
    lines: tuple[Line, ...]


def list_parents(path: str, *, of_module: bool = False) -> list[Member]:
    """The bare modules above the dotted path of a tensor, or of a module; `settle_members` leaves out those that exist."""
    parts = path.split(".")
    made = []
    for depth in range(1, len(parts)):
        child, tensor = parts[depth], depth == len(parts) - 1 and not of_module
        kind = _BARE[0] if child.isidentifier() else _BARE[2] if tensor else _BARE[1]
        made.append(Member(".".join(parts[:depth]), kind))
    return made


def make_parameter(name: str, facts: TaskFacts) -> Member:
    """One parameter under its dotted name."""
    spec = facts.parameters[name]
    frozen = "" if spec.dtype.startswith(("float", "bfloat", "complex")) else ", requires_grad=False"
    return Member(name, f"nn.Parameter(torch.empty({tuple(spec.shape)!r}, dtype=torch.{spec.dtype}){frozen})")


def list_parameter(name: str, facts: TaskFacts) -> list[Member]:
    """One parameter with the bare modules above it."""
    return [*list_parents(name), make_parameter(name, facts)]


def complete_members(lines: Sequence[Line], names: Iterable[str], facts: TaskFacts) -> list[Line]:
    """The lines, and members for each named parameter that none of them makes.

    Weights are transferred by name, so every name must exist, also those that forward does not touch.
    """
    missing = [member for name in names if make_parameter(name, facts) not in lines for member in list_parameter(name, facts)]
    return [*lines, *missing]


def settle_members(lines: Iterable[Line | Block]) -> tuple[str, ...]:
    """The text of the lines, each once. A bare module is made where nothing before has made it, and so that it can hold all that it gets.

    Lines of a block hold in the block alone: each block has all of its own.
    """
    given = list(lines)
    kinds: dict[str, str] = {}
    for part in given:
        for line in part.lines if isinstance(part, Block) else (part,):
            if isinstance(line, Member) and line.bare:
                kinds[line.path] = max(kinds.get(line.path, line.value), line.value, key=_BARE.index)
    found: list[str] = []

    def add(line: Line, known: set[Line], indent: str = "") -> tuple[Line, ...]:
        bare = isinstance(line, Member) and line.bare
        if (line.path if isinstance(line, Member) and bare else line) not in known:
            shown = replace(line, value=kinds[line.path]) if isinstance(line, Member) and bare else line
            found.append(indent + (shown.write() if isinstance(shown, Member) else shown))
        return (line.path, line) if isinstance(line, Member) else (line,)

    outside, blocks = set[Line](), set[Line]()
    for part in given:
        if isinstance(part, Block):
            found.append(part.head)
            inside = set[Line]()
            for line in part.lines:
                inside.update(add(line, outside | inside, "    "))
            blocks |= inside
        else:
            outside.update(add(part, outside | blocks if isinstance(part, Member) and part.bare else outside))
    return tuple(found)
