"""What explains a kernel that does the work of several."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import groupby

_LEFT_OUT = "..."
_TOLD = 2
"""Kernels that are named."""
Tell = Callable[[tuple[int, ...]], str | None]
"""What the code has for numbers that differ, one for each kernel; None where that says nothing."""


def split_words(text: str) -> list[str]:
    """The words of a text and what stands between them, in turn."""
    return ["".join(run) for _, run in groupby(text, lambda letter: letter.isalnum() or letter == "_")]


def join_docs(docs: Sequence[str], tell: Tell, names: Collection[str] = (), renamed: Mapping[str, str] | None = None) -> str:
    """The first text with nothing in it that holds for some kernels only.

    Args:
        docs: what explains each kernel.
        tell: gives words for numbers that differ.
        names: all names of the code.
        renamed: by kernel: the one that it is part of.
    """
    pieces = [split_words(doc) for doc in docs]
    if len({tuple(piece if not _is_word(piece) else "" for piece in ones) for ones in pieces}) > 1:
        return "".join(_LEFT_OUT if piece.isdigit() else piece for piece in pieces[0])
    return "".join(_join(ones, tell, names, renamed or {}) for ones in zip(*pieces, strict=True))


def _is_word(piece: str) -> bool:
    return piece.replace("_", "a").isalnum()


def _join(ones: Sequence[str], tell: Tell, names: Collection[str], renamed: Mapping[str, str]) -> str:
    """One word for several."""
    if len(set(ones)) > 1 and all(one.isdigit() for one in ones):
        return tell(tuple(map(int, ones))) or _LEFT_OUT
    kernels = list(dict.fromkeys(renamed.get(one, one) for one in ones))
    if len(kernels) == 1:
        return kernels[0]
    if any(name.startswith(f"{ones[0]}_ptr") for name in names):
        return ones[0]
    if all(one in renamed for one in ones):
        return f"{kernels[0]} and others" if len(kernels) > _TOLD else " or ".join(kernels)
    return _LEFT_OUT
