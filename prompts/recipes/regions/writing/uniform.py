"""Quotients that are the same for all elements of a program's block: they are computed once, and what they read is read once."""

from __future__ import annotations

import re


def share_quotients(lines: list[str], place: str, first: str, block: int) -> list[str]:
    """Lines with `first // n` for `place // n` where no block crosses a multiple of n.

    place: the variable of the elements' places, `block` of them from `first`, a multiple of `block`, on.
    """
    return [_share(line, place, first, block) for line in lines]


def _share(line: str, place: str, first: str, block: int) -> str:
    if "tl.store(" in line:
        return line
    shared = re.sub(rf"\b{place} // (\d+)\b", lambda found: f"{first} // {found[1]}" if int(found[1]) % block == 0 else found[0], line)
    pointers, _, condition = shared.partition(", mask=")
    varies = re.compile(rf"\b({place}|inside|valid)\b")
    if "tl.load(" in line and varies.search(condition) and not varies.search(pointers):
        return line  # a pointer to one element cannot have a mask for many
    return shared
