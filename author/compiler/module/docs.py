"""What explains a kernel that does the work of several."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from tritonsmith.author.compiler.ir.code import Expression, Name
from tritonsmith.author.compiler.module.fitting import Values

_LEFT_OUT = "..."
_TOLD = 2
"""Kernels that are named."""
_WORD = re.compile(r"(\w+)")


def join_docs(docs: Sequence[str], words: Mapping[Values, Expression], names: Collection[str], renamed: Mapping[str, str]) -> str:
    """The first text with nothing in it that holds for some kernels only.

    Args:
        docs: what explains each kernel.
        words: what stands in the code for numbers that differ.
        names: all names of the code.
        renamed: by kernel: the one that it is part of.
    """
    pieces = [_WORD.split(doc) for doc in docs]
    if len({tuple(ones[::2]) for ones in pieces}) > 1:
        return "".join(_LEFT_OUT if piece.isdigit() else piece for piece in pieces[0])
    return "".join(_join(ones, words, names, renamed) for ones in zip(*pieces, strict=True))


def _join(ones: Sequence[str], words: Mapping[Values, Expression], names: Collection[str], renamed: Mapping[str, str]) -> str:
    """One word for several."""
    if len(set(ones)) > 1 and all(one.isdigit() for one in ones):
        word = words.get(tuple(map(int, ones)))
        return word.name if isinstance(word, Name) else _LEFT_OUT
    kernels = list(dict.fromkeys(renamed.get(one, one) for one in ones))
    if len(kernels) == 1:
        return kernels[0]
    if any(name.startswith(f"{ones[0]}_ptr") for name in names):
        return ones[0]
    if all(one in renamed for one in ones):
        return f"{kernels[0]} and others" if len(kernels) > _TOLD else " or ".join(kernels)
    return _LEFT_OUT
