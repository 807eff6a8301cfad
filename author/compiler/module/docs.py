"""What explains a kernel that does the work of several."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from tritonsmith.author.compiler.module.fitting import Values

_LEFT_OUT = "..."
_TOLD = 2
"""Kernels that are named."""
_NUMBER = re.compile(r"\b\d+\b")


def join_docs(docs: Sequence[str], words: Mapping[Values, str], text: str, renamed: Mapping[str, str]) -> str:
    """The first text with nothing in it that holds for some kernels only.

    Args:
        docs: what explains each kernel.
        words: what stands in the code for numbers that differ.
        text: the code.
        renamed: by kernel: the one that it is part of.
    """
    pieces = [re.split(r"(\w+)", doc) for doc in docs]
    if len({tuple(one[::2]) for one in pieces}) > 1:
        return _NUMBER.sub(_LEFT_OUT, docs[0])
    return "".join(_join(ones, words, text, renamed) for ones in zip(*pieces, strict=True))


def _join(ones: Sequence[str], words: Mapping[Values, str], text: str, renamed: Mapping[str, str]) -> str:
    """One word for several."""
    if len(set(ones)) > 1 and all(one.isdigit() for one in ones):
        word = words.get(tuple(map(int, ones)), _LEFT_OUT)
        return word if word.isidentifier() else _LEFT_OUT
    kernels = list(dict.fromkeys(renamed.get(one, one) for one in ones))
    if len(kernels) == 1:
        return kernels[0]
    if re.search(rf"\b{ones[0]}_ptr", text):
        return ones[0]
    if all(one in renamed for one in ones):
        return f"{kernels[0]} and others" if len(kernels) > _TOLD else " or ".join(kernels)
    return _LEFT_OUT
