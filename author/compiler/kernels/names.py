"""Names of kernels and of variables of forward."""

from __future__ import annotations

import keyword
import re

from tritonsmith.author.compiler.fusing.regions import (
    AttentionRegion,
    ProductRegion,
    RecurrentRegion,
    RowRegion,
    ScatterRegion,
    WorkRegion,
)
from tritonsmith.author.compiler.ir.values import Formula, Joined, Lookup

_WORDS = 3
"""Operations that a kernel's name tells."""
_QUIET = {"centered", "spread", "exponential", "clone", "contiguous", "dropout", "squares", "key", "place"}
"""Names of values that say nothing about what a kernel does."""
_OPERATORS = {"truediv": "div", "iadd": "add", "imul": "mul", "isub": "sub", "getitem": "pick"}
_TAKEN = {"torch", "nn", "F", "tl", "triton", "libdevice", "self", "describe", "sigmoid", "tanh", "softplus", "mish", "multiply", "larger",
          "smaller", "add_logs", "floor_quotient", "floor_remainder", "real_quotient", "real_remainder", "as_key", "from_key", "given",
          "split_lines", "COMPILED", "load_acquire", "wait_until", "magnitude", "namedtuple", "built", "split_value",
          "split_alike", "leaves_range", "len", "str", "isinstance", "super", "range", "build_reference", "clone"}  # fmt: skip


def list_operations(region: WorkRegion) -> list[str]:
    """The operations that a region does, each once, in about the order in which it does them."""
    if isinstance(region, AttentionRegion | RecurrentRegion):
        return [region.name]
    found = [one.name for one in reversed(region.evaluated.values()) if isinstance(one, Formula | Joined | Lookup) and one.name]
    own = region.anchors if isinstance(region, RowRegion | ProductRegion) else []
    anchors, kinds = [one.name for one in own if one.name], list(dict.fromkeys(one.kind for one in own))
    told = [one for one in [*anchors, *(one for one in found if one not in anchors)] if one not in _QUIET]
    told += [region.name] if isinstance(region, ScatterRegion) else []
    names = told or kinds or [region.name or "copy"]
    return list(dict.fromkeys(_OPERATORS.get(name, name) for name in (re.sub(r"(_\d+)+$", "", one) for one in names)))


class Namer:
    """Gives names that are not taken."""

    def __init__(self, taken: set[str]) -> None:
        self._taken = {*taken, *_TAKEN}

    def choose(self, hint: str) -> str:
        """A name like the hint."""
        base = re.sub(r"\W+", "_", hint).strip("_") or "value"
        base = f"{base}_" if keyword.iskeyword(base) else f"of_{base}" if base[0].isdigit() else base
        name, number = base, 1
        while name in self._taken:
            number += 1
            name = f"{base}_{number}"
        self._taken.add(name)
        return name

    def release(self, name: str) -> None:
        """Let a name be chosen again."""
        self._taken.discard(name)

    def name_kernel(self, region: WorkRegion) -> str:
        """A name for the kernel of a region."""
        words = list_operations(region)
        return self.choose("_".join(words[:_WORDS]) + ("_and_more" if len(words) > _WORDS else "") + ("_kernel" if len(words) == 1 else ""))
