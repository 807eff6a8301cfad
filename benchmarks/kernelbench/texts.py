"""Candidates that are made from texts: a reference's own text, the wrong twin of a right kernel, and variants of constants."""

from __future__ import annotations

import re

from tritonsmith.evaluator.errors import UsageError
from tritonsmith.evaluator.texts.source.copies import copy_reference as copy_reference

STORE = "tl.store(out + place, value, mask=inside)"
"""How each kernel below `kernels/` stores its results; it stands there once."""
WRONG_EVERY = 1_000_003
"""One result in so many is wrong in a twin; a prime, so that no row length hides it behind one column."""
WRONG_PLACE = 17
"""The first wrong place, so that a small size has one too."""
WRONG_STORE = f"tl.store(out + place, tl.where(place % {WRONG_EVERY} == {WRONG_PLACE}, value * 1.01, value), mask=inside)"
"""What a twin stores: about one value in a million is 1 % too large, at the same places in every call."""

SUMS = "ACCUMULATED = tl.constexpr(tl.float32)"
"""How each kernel below `half_kernels/` sets the type of its sums; it stands there once."""


def make_wrong(text: str, path: str) -> str:
    """The wrong twin of a right kernel. Raises UsageError for a kernel that does not store as `STORE` says, once."""
    if text.count(STORE) != 1:
        raise UsageError(f"{path}: holds `{STORE}` {text.count(STORE)} times; a kernel with a wrong twin holds it once")
    return text.replace(STORE, WRONG_STORE)


def narrow_sums(text: str, path: str) -> str:
    """The twin of a kernel for a 16-bit task that adds up in the type of its file's name. Raises UsageError for a kernel without `SUMS`."""
    if text.count(SUMS) != 1:
        raise UsageError(f"{path}: holds `{SUMS}` {text.count(SUMS)} times; a kernel with a twin holds it once")
    return text.replace(SUMS, SUMS.replace("float32", "bfloat16" if path.startswith("bf16") else "float16"))


def set_constants(text: str, values: dict[str, int], path: str) -> str:
    """The text with other values of whole-number constants at module level. Raises UsageError for one that it does not have."""
    for name, value in values.items():
        text, count = re.subn(rf"^{name} = [\d_]+$", f"{name} = {value}", text, flags=re.MULTILINE)
        if count != 1:
            raise UsageError(f"{path}: sets {name} to a whole number {count} times; it must do so once")
    return text
