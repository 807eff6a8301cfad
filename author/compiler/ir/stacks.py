"""Modules that kernels of another family compute: their sizes, their text, and the value that a forward has of them."""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Callable
from dataclasses import dataclass, field

from tritonsmith.author.cards.model import CardModel
from tritonsmith.author.compiler.ir.values import LibraryCall

_FORMATTED = re.compile(r"^[rR]?[fF]")
_HOLE = re.compile(r"\{[^{}]*\}")


@dataclass(frozen=True)
class StackSizes:
    """What a stack of recurrent layers is.

    Args:
        kind: GRU, LSTM or RNN.
        activation: what an RNN applies: tanh or relu.
        directions: one or two.
        layers, inputs, hidden: their number, and the sizes of input and state.
        steps, batch: of the input.
        dtype: of weights, input and results.
        exact: whether fp32 products are as exact as fp32.
    """

    kind: str
    activation: str
    directions: int
    layers: int
    inputs: int
    hidden: int
    steps: int
    batch: int
    dtype: str
    exact: bool


@dataclass(frozen=True)
class StackText:
    """The text of a class with the parameters of a stack, and of the kernels that its `forward` launches.

    Args:
        title: the class.
        text: the class, its kernels and what they need, without imports.
        names: everything that the text defines.
        kernel: the kernel that does the steps.
        seconds: what a call takes, as predicted.
        launches: kernels that it starts.
    """

    title: str
    text: str
    names: frozenset[str]
    kernel: str
    seconds: float
    launches: int

    def rename(self, prefix: str) -> StackText:
        """The same under names of its own: a module may define others that are called so."""
        names = {name: _prefix(name, prefix) for name in self.names}
        return StackText(
            names[self.title], _replace(self.text, names), frozenset(names.values()), names[self.kernel], self.seconds, self.launches
        )


def _prefix(name: str, prefix: str) -> str:
    """A name behind a prefix, in the same case; a number of the prefix goes behind the kind in names that have it."""
    kind = prefix.rstrip("0123456789")
    if name.lower().startswith(kind):
        return f"{name[: len(kind)]}{prefix[len(kind) :]}{name[len(kind) :]}"
    return f"{prefix.upper()}_{name}" if name.isupper() else f"{prefix.upper()}{name}" if name[0].isupper() else f"{prefix}_{name}"


def _replace(text: str, names: dict[str, str]) -> str:
    """The text with other names; attributes and names of arguments in calls stay."""
    lines = text.splitlines(keepends=True)
    tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    for place in range(len(tokens) - 1, -1, -1):
        token = tokens[place]
        new = token.string
        if token.type == tokenize.NAME and token.string in names:
            before, behind = tokens[place - 1].string if place else "", tokens[place + 1].string
            if before != "." and not (behind == "=" and before in ("(", ",") and not token.string.isupper()):
                new = names[token.string]
        elif token.type == tokenize.STRING and _FORMATTED.match(token.string):
            new = _HOLE.sub(lambda hole: re.sub(r"\b[A-Za-z_]\w*\b", lambda word: names.get(word[0], word[0]), hole[0]), token.string)
        if new != token.string and token.start[0] == token.end[0]:
            row = token.start[0] - 1
            lines[row] = lines[row][: token.start[1]] + new + lines[row][token.end[1] :]
    return "".join(lines)


@dataclass(eq=False, kw_only=True)
class StackCall(LibraryCall):
    """A call of such a class: its results are those of the module that it stands for."""

    stack: StackText


@dataclass
class StackWriters:
    """Who writes stacks: families are above the compiler and add themselves."""

    known: list[Callable[[StackSizes, CardModel], StackText | None]] = field(default_factory=list)

    def write(self, sizes: StackSizes, card: CardModel) -> StackText | None:
        """The text of a stack; None where no family has kernels for it on this card."""
        return next((text for writer in self.known if (text := writer(sizes, card)) is not None), None)


STACKS = StackWriters()
"""The families' kernels that regions may call."""
